"""What one replay costs the host when the verifier makes it: live-ins compared, gradients and modes looked at, an output cloned.

A graph written by hand for one script pays for the launch alone. What `cgadvisor verify` measures holds the rest too, so an
estimate that is to come true must know it. Measured on a small module, with the very code that replays.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import median
from typing import Any, Final, NoReturn

import torch

from advisor.workload import state
from advisor.workload.capture import SpanRuntime, SpanSpec
from advisor.workload.graphs import Device
from advisor.workload.liveness import SpanNames
from advisor.workload.replay import Recording

LAYERS: Final = 32  # two parameters each: as many as a small model has
_WIDTH: Final = 16
_WARMUP: Final = 4
_BURST: Final = 16  # replays between two synchronisations: the queue never fills
_BURSTS: Final = 12
_NAMES: Final = SpanNames(live_in=("model", "x"), live_out=("y",))


class _Conductor:
    """Warm-up, one capture, then replays only."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.state = "eager"

    def entered(self, local: Mapping[str, Any]) -> None:
        """Nothing to prepare."""

    def mode(self) -> str:
        return self.state

    def captured(self, recording: Recording) -> None:
        self.recording = recording
        self.state = "replay"

    def capture_failed(self, error: BaseException) -> NoReturn:
        raise error

    def refuse(self, hazard: str, message: str) -> NoReturn:
        raise RuntimeError(f"{hazard}: {message}")

    def hazard(self, identity: str, message: str) -> None:
        """Cannot be: the loop below does nothing odd."""

    def region_mark(self) -> None:
        return None

    def region(self, replayed: bool, start: Any) -> None:
        """Never timed by the device."""


def measure(device: Device, place: str = "cuda") -> float:
    """Host ns of one replay of a small inference module, without input copies.

    Call it on a stream that may be captured. Raises what the device raises for a capture that fails, RuntimeError when no
    replay came about.
    """
    state.install()
    with torch.no_grad():
        layers = [torch.nn.Linear(_WIDTH, _WIDTH) for _ in range(LAYERS)]
        model = torch.nn.Sequential(*layers).to(place).eval()
        conductor = _Conductor(device)
        runtime = SpanRuntime(SpanSpec("replay cost", _NAMES, frozenset()), conductor)
        local: dict[str, Any] = {"model": model, "x": torch.zeros(_WIDTH, _WIDTH, device=place)}
        for _ in range(_WARMUP):
            _once(runtime, local)
        conductor.state = "capture"
        _once(runtime, local)
        took = [ns for _ in range(_BURSTS) for ns in _burst(runtime, local)]
        if runtime.replay_count < len(took):
            raise RuntimeError(f"the replay did not repeat: {', '.join(runtime.signatures) or 'it never began'}")
        device.synchronize()
        conductor.recording.graph.reset()
    return float(median(took))


def _once(runtime: SpanRuntime, local: dict[str, Any]) -> None:
    """The wrapped form of `y = model(x)`, see `advisor.workload.spans`."""
    if runtime.enter(local, {}):
        local["y"] = local["model"](local["x"])
        runtime.leave(local, {})
    if runtime.gives:
        local.update(runtime.outs)


def _burst(runtime: SpanRuntime, local: dict[str, Any]) -> list[int]:
    runtime.conductor.device.synchronize()
    took = []
    for _ in range(_BURST):
        begin = time.perf_counter_ns()
        _once(runtime, local)
        took.append(time.perf_counter_ns() - begin)
    return took
