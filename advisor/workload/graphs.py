"""The device a verification runs on: streams, events, memory figures and one capturable graph.

`CudaDevice` is the real one. Everything above talks to the protocols, so that the replay and equality logic can be
driven on a CPU by a recording double.
"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch


class Graph(Protocol):
    """One captured piece of work, replayable any number of times."""

    def begin(self) -> None:
        """Start recording what the current thread submits. Raises what the device raises."""

    def end(self) -> None:
        """Stop recording. Raises what the device raises when the recording is invalid."""

    def instantiate(self) -> None:
        """Make the recording executable."""

    def replay(self) -> None:
        """Run the recorded work once, asynchronously."""

    def node_count(self) -> int | None:
        """Recorded nodes, or None when the platform cannot tell."""

    def reset(self) -> None:
        """Free the graph and its memory."""


class Device(Protocol):
    """What a verification needs of a device. Times are ns."""

    kind: str

    def start(self) -> None:
        """Called once before the script: everything then runs where a capture is possible."""

    def new_graph(self, error_mode: str, generators: tuple[torch.Generator, ...] = ()) -> Graph:
        """An empty graph. `error_mode` as in torch.cuda.graph; `generators` beside the default one may be used in it."""

    def synchronize(self) -> None:
        """Wait until all submitted work is done."""

    def mark(self) -> Any:
        """A point in the device's time line."""

    def elapsed_ns(self, earlier: Any, later: Any) -> int:
        """Device time between two marks; both must have been reached."""

    def wait(self, point: Any) -> None:
        """Block the host until the device has passed a mark."""

    def reserved_bytes(self) -> int:
        """Bytes the allocator holds."""

    def rng_states(self) -> tuple[str, ...]:
        """Seed and offset of the device's random generators, as text."""


class CudaGraph:
    """A torch.cuda.CUDAGraph in a pool of its own."""

    def __init__(self, error_mode: str, generators: tuple[torch.Generator, ...] = ()) -> None:
        self._error_mode = error_mode
        self._kept = True
        try:
            self._graph = torch.cuda.CUDAGraph(keep_graph=True)
        except TypeError:  # before torch 2.8: no raw handle, hence no node count
            self._graph = torch.cuda.CUDAGraph()
            self._kept = False
        for generator in generators:
            self._graph.register_generator_state(generator)

    def begin(self) -> None:
        self._graph.capture_begin(capture_error_mode=self._error_mode)

    def end(self) -> None:
        self._graph.capture_end()

    def instantiate(self) -> None:
        if self._kept:
            self._graph.instantiate()

    def replay(self) -> None:
        self._graph.replay()

    def node_count(self) -> int | None:
        if not self._kept:
            return None
        runtime = _cuda_runtime()
        if runtime is None:
            return None
        count = ctypes.c_size_t(0)
        code = runtime.cudaGraphGetNodes(
            ctypes.c_void_p(self._graph.raw_cuda_graph()), ctypes.c_void_p(None), ctypes.byref(count)
        )
        return int(count.value) if code == 0 else None

    def reset(self) -> None:
        self._graph.reset()


def _cuda_runtime() -> Any | None:
    """The CUDA runtime this process already has loaded, or None. Loading another copy would not know our graphs."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "libcudart" in line}
        return ctypes.CDLL(sorted(paths)[0]) if paths else None
    except OSError:
        return None


class CudaDevice:
    """The current CUDA device. The whole script runs on one side stream, where captures are allowed."""

    kind = "cuda"

    def start(self) -> None:
        # AccumulateGrad nodes remember the stream they were made on: it must be the capture stream from the beginning.
        torch.cuda.set_stream(torch.cuda.Stream())  # type: ignore[no-untyped-call]

    def new_graph(self, error_mode: str, generators: tuple[torch.Generator, ...] = ()) -> Graph:
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        return CudaGraph(error_mode, generators)

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def mark(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def elapsed_ns(self, earlier: Any, later: Any) -> int:
        return int(earlier.elapsed_time(later) * 1e6)

    def wait(self, point: Any) -> None:
        point.synchronize()

    def reserved_bytes(self) -> int:
        return int(torch.cuda.memory_reserved())

    def rng_states(self) -> tuple[str, ...]:
        return tuple(bytes(generator.get_state().tolist()).hex() for generator in torch.cuda.default_generators)


def timed(action: Callable[[], None]) -> int:
    """Host time of `action` in ns."""
    before = time.perf_counter_ns()
    action()
    return time.perf_counter_ns() - before
