"""Hand-made graphs of parts of a step: what the estimate has to predict, measured without the tool's own verifier.

    python benchmarks/ground_truth.py OUT_DIR        (needs a CUDA device)

Every workload runs a plain training step: eagerly, then with its optimizer, its forward and backward pass, or all of it replayed
as one graph. Host times are blocks of steps with one synchronisation at the end. The trace is recorded last, since CUPTI slows
what follows. Writes NAME.json.gz (a Kineto trace) for each workload and truth.json: median ns a step, by region.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

STEPS, BLOCKS, WARMUP, TRACED = 30, 7, 12, 8


@dataclass
class Workload:
    """A training step in two halves; `model` maps `x` to logits of `y`."""

    model: nn.Module
    x: torch.Tensor
    y: torch.Tensor
    optimizer: torch.optim.Optimizer

    def forward_backward(self) -> None:
        nn.functional.cross_entropy(self.model(self.x), self.y).backward()

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=False)

    def step(self) -> None:
        with torch.profiler.record_function("step"):
            with torch.profiler.record_function("forward_backward"):
                self.forward_backward()
            with torch.profiler.record_function("update"):
                self.update()


def mlp(batch: int, width: int) -> Workload:
    layers: list[nn.Module] = []
    for _ in range(8):
        layers += [nn.Linear(width, width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(width, 10)).cuda()
    return _workload(model, torch.randn(batch, width, device="cuda"), 10)


def encoder(batch: int, width: int) -> Workload:
    layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, dropout=0.1)
    body = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    model = nn.Sequential(body, nn.Flatten(), nn.Linear(32 * width, 10)).cuda()
    return _workload(model, torch.randn(batch, 32, width, device="cuda"), 10)


def convolutions(batch: int, width: int) -> Workload:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
    for _ in range(6):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)).cuda()
    return _workload(model, torch.randn(batch, 3, 32, 32, device="cuda"), 10)


def _workload(model: nn.Module, x: torch.Tensor, classes: int) -> Workload:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, capturable=True)
    return Workload(model, x, torch.randint(classes, (len(x),), device="cuda"), optimizer)


CASES: dict[str, Callable[[], Workload]] = {
    "mlp-8": lambda: mlp(8, 256),
    "mlp-16384": lambda: mlp(16384, 1024),
    "encoder-4": lambda: encoder(4, 256),
    "encoder-512": lambda: encoder(512, 256),
    "conv-8": lambda: convolutions(8, 64),
    "conv-128": lambda: convolutions(128, 64),
}


def timed(step: Callable[[], object]) -> list[int]:
    """ns a step of each block; the first block is dropped."""
    samples = []
    for _ in range(BLOCKS + 1):
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
        samples.append((time.perf_counter_ns() - begin) // STEPS)
    return samples[1:]


def captured(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    graph.capture_begin()
    work()
    graph.capture_end()
    return graph


def both(first: Callable[[], object], second: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        first()
        second()

    return run


def measure(case: Workload, trace: Path) -> dict[str, list[int]]:
    """Samples of the eager step and of the step with each part as a graph; writes the trace."""
    for _ in range(WARMUP):
        case.step()
    found = {"eager": timed(case.step)}
    update = captured(case.update)
    found["range:update"] = timed(both(case.forward_backward, update.replay))
    halves = captured(case.forward_backward)
    found["range:forward_backward"] = timed(both(halves.replay, case.update))
    whole = captured(both(case.forward_backward, case.update))
    found["step"] = timed(whole.replay)
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(TRACED):
            case.step()
        torch.cuda.synchronize()
    plain = trace.with_suffix("")
    profile.export_chrome_trace(str(plain))
    trace.write_bytes(gzip.compress(plain.read_bytes(), mtime=0))
    plain.unlink()
    return found


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    truth = {}
    with torch.cuda.stream(torch.cuda.Stream()):  # captures need a side stream; autograd's nodes then live on it
        for name, make in CASES.items():
            torch.manual_seed(0)
            truth[name] = measure(make(), folder / f"{name}.json.gz")
            print(name, {key: sorted(ns)[len(ns) // 2] for key, ns in truth[name].items()}, flush=True)
    (folder / "truth.json").write_text(json.dumps(truth, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
