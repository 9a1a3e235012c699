"""The machine pass: `python -m advisor.workload.calibrate OUT.json`. A few seconds on an otherwise idle GPU.

Each constant comes from at least two sizes and a straight-line fit, each point from several blocks of which the median counts.
The spread of the blocks and the misfit of the lines say how noisy the machine is; past a limit nothing is written.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import msgspec

from advisor.bundle import write_atomically
from advisor.errors import AdvisorError, GpuRequired, Inconclusive
from advisor.model import Calibration
from advisor.workload import environment

MAX_SPREAD: Final = 0.25  # half the interquartile range of the blocks over their median
_BLOCKS: Final = 15
_LAUNCHES: Final = 200  # a block; far below the 1024 the driver queues
_CHAINS: Final = (32, 128, 384)
_COPY_BYTES: Final = (4096, 8 << 20, 64 << 20)
_PROFILED: Final = 200
_ALONE: Final = 50
_ONE_BLOCK: Final = 256  # elements: one block of torch's elementwise kernels
_REPLAYS: Final = 16


@dataclass(frozen=True)
class Line:
    """y = fixed + slope * x through points; `residual_ratio`: the largest misfit over the largest y."""

    fixed: float
    slope: float
    residual_ratio: float


def fit_line(xs: Sequence[float], ys: Sequence[float]) -> Line:
    """Least squares through at least two points with different x. Raises ValueError otherwise."""
    if len(xs) != len(ys) or len(set(xs)) < 2:
        raise ValueError("a line needs two different sizes")
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    fixed = mean_y - slope * mean_x
    misfit = max(abs(y - fixed - slope * x) for x, y in zip(xs, ys, strict=True))
    return Line(fixed, slope, misfit / max(max(abs(y) for y in ys), 1e-9))


@dataclass(frozen=True)
class Sample:
    """One quantity over blocks, ns: the median and half the interquartile range over it."""

    ns: float
    spread_ratio: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Sample:
        """Raises ValueError for fewer than two values."""
        low, middle, high = quantiles(values, n=4)
        return cls(middle, (high - low) / (2 * middle) if middle > 0 else 0.0)


def refuse_noise(samples: dict[str, float]) -> float:
    """The largest spread. Raises Inconclusive, naming what was noisy, when it is past the limit."""
    name, worst = max(samples.items(), key=lambda one: one[1])
    if worst > MAX_SPREAD:
        raise Inconclusive(
            f"this machine is too noisy to calibrate: {name} varied by {worst:.0%} (limit {MAX_SPREAD:.0%}); stop other work on "
            "the GPU and the CPU and run `cgadvisor calibrate` again, or go on with the default constants"
        )
    return worst


def calibrate() -> Calibration:
    """Measure the current CUDA device. Raises GpuRequired without one, Inconclusive on a noisy machine."""
    environment.require_torch()
    import torch

    if not torch.cuda.is_available():
        raise GpuRequired("torch sees no CUDA device: calibrate on the machine whose runs are to be estimated")
    collecting = gc.isenabled()
    gc.disable()
    try:
        # Before the profiler is attached, which slows the host from then on.
        span_ns = _replay_span_ns(torch)
        with torch.no_grad():
            found = _measure(torch)
        return msgspec.structs.replace(found, replay_span_ns=span_ns)
    finally:
        if collecting:
            gc.enable()


def _replay_span_ns(torch: Any) -> float:
    """One replay through the verifier's own machinery, see `advisor.workload.replay_cost`."""
    from advisor.workload import graphs, replay_cost

    with torch.cuda.stream(torch.cuda.Stream()):
        return replay_cost.measure(graphs.CudaDevice())


def _measure(torch: Any) -> Calibration:
    x, small = torch.zeros(1 << 20, device="cuda"), torch.zeros(_ONE_BLOCK, device="cuda")
    _settle(torch, x)
    _captured(torch, x, _CHAINS[0])  # the first capture of a process pays for loading
    launch = _blocks(partial(_launch_block, torch))
    graphs = {length: _captured(torch, x, length) for length in _CHAINS}
    replay_cpu = {length: _blocks(partial(_replay_cpu_block, torch, graph)) for length, (graph, _) in graphs.items()}
    replay_gpu = {length: _blocks(partial(_replay_gpu_block, torch, graph)) for length, (graph, _) in graphs.items()}
    small_gpu = {
        length: _blocks(partial(_replay_gpu_block, torch, _captured(torch, small, length)[0])) for length in _CHAINS
    }
    copies = {size: _blocks(partial(_copy_block, torch, size)) for size in _COPY_BYTES}
    ranges = _blocks(partial(_range_block, torch))
    plain = _blocks(partial(_op_block, torch, x))
    # The profiler comes last: once attached, CUPTI slows what follows.
    profiled = _profiled(torch, x, small)
    cpu = fit_line(_CHAINS, [replay_cpu[length].ns for length in _CHAINS])
    chain = fit_line(_CHAINS, [replay_gpu[length].ns for length in _CHAINS])
    small_chain = fit_line(_CHAINS, [small_gpu[length].ns for length in _CHAINS])
    moved = fit_line(_COPY_BYTES, [copies[size].ns for size in _COPY_BYTES])
    instantiate = fit_line(_CHAINS, [float(ns) for _, ns in graphs.values()])
    per_event = max(profiled.op_ns - plain.ns, 0.0) / 2  # an op and its launch: two recorded events
    worst = refuse_noise(
        {
            "the cost of a launch": launch.spread_ratio,
            "the cost of a replay": max(one.spread_ratio for one in replay_cpu.values()),
            "the length of a replay": max(one.spread_ratio for one in replay_gpu.values()),
            "the fit of the in-graph gap": chain.residual_ratio,
        }
    )
    return Calibration(
        gpu_name=torch.cuda.get_device_name(),
        driver_version=environment.driver_version(),
        torch_version=str(torch.__version__),
        launch_cpu_ns=launch.ns,
        launch_to_start_ns=max(
            profiled.start_ns - per_event, 1_000.0
        ),  # recording slowed the call it was measured with
        node_gap_ns=max(chain.slope - profiled.kernel_ns, 0.0),
        node_gap_small_ns=max(small_chain.slope - profiled.small_ns, 0.0),
        graph_launch_cpu_ns=max(cpu.fixed, 0.0),
        graph_launch_cpu_per_node_ns=max(cpu.slope, 0.0),
        copy_fixed_ns=max(moved.fixed, copies[_COPY_BYTES[0]].ns * 0.5),
        copy_per_byte_ns=max(moved.slope, 0.0),
        instantiate_per_node_ns=max(instantiate.slope, 0.0),
        range_ns=ranges.ns,
        profiler_per_op_ns=per_event,
        residual_ratio=worst,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _settle(torch: Any, x: Any) -> None:
    """Load the kernels and let the clocks rise: about a third of a second of work."""
    until = time.perf_counter() + 0.3
    while time.perf_counter() < until:
        for _ in range(_LAUNCHES):
            x.add_(1.0)
        torch.cuda.synchronize()


def _blocks(block: Callable[[], float]) -> Sample:
    block()
    return Sample.of([block() for _ in range(_BLOCKS)])


def _per_call(torch: Any, call: Callable[[], object], count: int) -> float:
    """CPU ns of one call, the queue empty before and never full."""
    torch.cuda.synchronize()
    begin = time.perf_counter_ns()
    for _ in range(count):
        call()
    took = time.perf_counter_ns() - begin
    torch.cuda.synchronize()
    return took / count


def _launch_block(torch: Any) -> float:
    """A kernel that does nothing, launched through the thinnest binding torch has."""
    nothing = partial(torch._C._cuda_sleep, 1)
    return _per_call(torch, nothing, _LAUNCHES)


def _op_block(torch: Any, x: Any) -> float:
    return _per_call(torch, lambda: x.add_(1.0), _PROFILED)


def _range_block(torch: Any) -> float:
    """One range as the passes write it when no profiler listens: record_function and NVTX."""

    def both() -> None:
        with torch.profiler.record_function("cgadvisor"):
            torch.cuda.nvtx.range_push("cgadvisor")
            torch.cuda.nvtx.range_pop()

    return _per_call(torch, both, _LAUNCHES)


def _captured(torch: Any, x: Any, length: int) -> tuple[Any, int]:
    """A graph of `length` chained kernels, and how long ending the capture took (it instantiates), in ns.

    The kernels fill the GPU with many blocks, as a model's do: between kernels of one block each the gap is a tenth of that
    (measured on an H200: 0.03 µs against 0.24 to 0.35 µs).
    """
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        graph.capture_begin()
        for _ in range(length):
            x.add_(1.0)
        begin = time.perf_counter_ns()
        graph.capture_end()
        took = time.perf_counter_ns() - begin
    torch.cuda.synchronize()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    return graph, took


def _replay_cpu_block(torch: Any, graph: Any) -> float:
    """CPU time of a replay as a loop pays it: the GPU is still busy with the one before, the queue is not full."""
    took = []
    torch.cuda.synchronize()
    for _ in range(_REPLAYS):
        begin = time.perf_counter_ns()
        graph.replay()
        took.append(time.perf_counter_ns() - begin)
    torch.cuda.synchronize()
    return float(median(took))


def _timed(torch: Any, work: Callable[[], object], repeats: int) -> float:
    """GPU ns of one `work` out of `repeats` queued behind a delay, so that the CPU's pace does not show."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    torch.cuda._sleep(1_000_000)  # half a millisecond or so, enough to queue everything
    begin.record()
    for _ in range(repeats):
        work()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e6 / repeats


def _replay_gpu_block(torch: Any, graph: Any) -> float:
    return _timed(torch, graph.replay, 10)


def _copy_block(torch: Any, size: int) -> float:
    source = torch.zeros(size, dtype=torch.uint8, device="cuda")
    target = torch.zeros_like(source)
    return _timed(torch, lambda: target.copy_(source), 20)


@dataclass(frozen=True)
class Profiled:
    """Under torch.profiler, in ns: durations of the chained kernels, from a launch call to its kernel on an idle device, and the
    CPU time of one op."""

    kernel_ns: float
    small_ns: float
    start_ns: float
    op_ns: float


def _profiled(torch: Any, x: Any, small: Any) -> Profiled:
    """Ops on `x`, then on `small`, then on `x` alone on an idle device.

    The kernel's duration is taken from where the estimate's own durations come from, so that the in-graph gap it is
    subtracted for carries any bias of the recording itself.
    """
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with warnings.catch_warnings(), torch.profiler.profile(activities=activities) as profile:
        warnings.simplefilter("ignore")
        _op_block(torch, x)
        per_op = median([_op_block(torch, x) for _ in range(5)])
        _op_block(torch, small)
        for _ in range(_ALONE):
            x.add_(1.0)
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_bytes())["traceEvents"]
    kernels, launches = launches_and_kernels(events)
    if len(kernels) < 2 * _PROFILED:
        raise Inconclusive("the profiler recorded too few kernels to calibrate; run `cgadvisor calibrate` again")
    # Counted from the end: the first kernels of a session may be missing.
    order = sorted(kernels, key=lambda one: launches[one])
    alone, tiny = order[-_ALONE:], order[-_ALONE - _PROFILED : -_ALONE]
    return Profiled(
        kernel_ns=median(kernels[one][1] for one in (*order[: -_ALONE - _PROFILED], *alone)),
        small_ns=median(kernels[one][1] for one in tiny),
        start_ns=max(median(kernels[one][0] - launches[one] for one in alone), 0.0),
        op_ns=per_op,
    )


def launches_and_kernels(events: Sequence[dict[str, Any]]) -> tuple[dict[int, tuple[float, float]], dict[int, float]]:
    """Kernels as correlation -> (start, duration) and launches as correlation -> start, ns, those that have each other."""
    kernels: dict[int, tuple[float, float]] = {}
    launches: dict[int, float] = {}
    for event in events:
        correlation = event.get("args", {}).get("correlation")
        if correlation is None:
            continue
        if event.get("cat") == "kernel":
            kernels[correlation] = (float(event["ts"]) * 1e3, float(event["dur"]) * 1e3)
        elif event.get("cat") in ("cuda_runtime", "cuda_driver") and "Launch" in event.get("name", ""):
            launches[correlation] = float(event["ts"]) * 1e3
    both = kernels.keys() & launches.keys()
    return {one: kernels[one] for one in both}, {one: launches[one] for one in both}


def main(arguments: Sequence[str]) -> int:
    """Write the calibration to the file named by the only argument; an error's text to stderr and its code out."""
    try:
        write_atomically(Path(arguments[0]), msgspec.json.encode(calibrate()))
    except AdvisorError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
