"""One verification child's run: counts steps, times them, decides what each execution of the span does.

The session is the conductor of `SpanRuntime` and the target of the ticks that the transformed loop makes. It never waits
for the device within a timed block.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from advisor.workload import state
from advisor.workload.capture import SpanRuntime
from advisor.workload.equality import Fingerprints
from advisor.workload.graphs import Device
from advisor.workload.replay import Recording
from advisor.workload.strategies import ReplayCounter
from advisor.workload.verify_job import Sample, Suspect, VerifySpec

_MAX_REGION_MARKS = 2000
_LR_FACTOR = 0.5  # large enough to show in the next update, small enough to harm none


class _Timed(NamedTuple):
    step: int
    kind: str
    start: Any
    end: Any
    host_ns: int


@dataclass
class Session:
    """`stop` ends the script from inside; it must not return."""

    spec: VerifySpec
    device: Device
    fingerprints: Fingerprints
    stop: Callable[[], NoReturn]
    on_failure: Callable[[BaseException], None] = lambda error: None
    gate: Callable[[], None] = lambda: None
    progress: Callable[[str, int], None] = lambda phase, step: None
    runtime: SpanRuntime | ReplayCounter | None = None
    step: int = -1  # the step under way; -1 before the first tick
    suspects: dict[str, Suspect] = field(default_factory=dict)
    refusal: Suspect | None = None
    recording: Recording | None = None
    timed: list[_Timed] = field(default_factory=list)
    regions: list[tuple[bool, Any, Any]] = field(default_factory=list)
    done: bool = False
    changes_lr: bool = False  # the source writes learning rates
    lr_changed: bool = False

    def __post_init__(self) -> None:
        self._open = False
        self._mark: Any = None
        self._host = 0
        self._counts = (0, 0)
        self._collapsed = not self.spec.loop_line

    # --- steps ---------------------------------------------------------------------------------------------------------

    def tick(self, local: Mapping[str, Any]) -> None:
        """The top of an iteration: the step before is over."""
        if self.done:
            return
        if self.step < 0:
            self.gate()
        last = self._close(local)
        self.step += 1
        self._open = True
        phase = self.spec.schedule.phase(self.step)
        self.progress("record" if self.step >= self.spec.schedule.timing_start else "warmup", self.step)
        if phase == "done":
            self.done = True
            self.stop()
        if self.spec.schedule.starts_block(self.step):
            self.device.synchronize()  # a backlog of the block before must not hide this block's host time
            last = None
        if self.step == self.spec.schedule.lr_change and (self.changes_lr or state.REGISTRY.has_scheduler):
            self.lr_changed = state.scale_learning_rates(_LR_FACTOR)
        self._counts = self._now()
        # The end of a step is the beginning of the next, unless something was done in between.
        self._mark = last if last is not None else self.device.mark()
        self._host = time.perf_counter_ns()

    def end(self, local: Mapping[str, Any]) -> None:
        """Behind the loop: its last step is over; what follows belongs to none."""
        if not self.done:
            self._close(local)

    def _close(self, local: Mapping[str, Any]) -> Any | None:
        """End the step under way; the mark behind it, when nothing followed it."""
        if not self._open:
            return None
        self._open = False
        schedule = self.spec.schedule
        host = time.perf_counter_ns() - self._host
        mark = None
        if schedule.phase(self.step) in ("replay", "eager"):
            mark = self.device.mark()
            if schedule.times_step(self.step):
                self.timed.append(_Timed(self.step, self._kind(), self._mark, mark, host))
        if schedule.checked(self.step):
            self.fingerprints.take(self.step, local)
            return None
        return mark

    def _now(self) -> tuple[int, int]:
        if self.runtime is None:
            return 0, 0
        return self.runtime.replay_count, self.runtime.execution_count

    def _kind(self) -> str:
        replays, executions = (now - then for now, then in zip(self._now(), self._counts, strict=True))
        if replays == 0:
            return "eager"
        return "replay" if replays == executions else "mixed"

    # --- the span's conductor --------------------------------------------------------------------------------------------

    def entered(self, local: Mapping[str, Any]) -> None:
        """Without a loop to tick, every execution of the span is a step."""
        if self._collapsed:
            self.tick(local)

    def mode(self) -> str:
        if self.spec.role == "eager":
            return "eager"
        phase = self.spec.schedule.phase(max(self.step, 0))
        if self.recording is None:
            return "eager" if phase == "warmup" else "capture"
        return "eager" if phase == "eager" else "replay"

    def captured(self, recording: Recording) -> None:
        self.recording = recording
        for name in recording.rebound:
            self.hazard("stale-input", f"module attribute {name} is bound to another tensor inside the span")

    def capture_failed(self, error: BaseException) -> NoReturn:
        self.done = True
        self.on_failure(error)
        self.stop()

    def refuse(self, hazard: str, message: str) -> NoReturn:
        self.done = True
        self.refusal = Suspect(id=hazard, evidence=message)
        self.stop()

    def hazard(self, identity: str, message: str) -> None:
        self.suspects.setdefault(identity, Suspect(id=identity, evidence=message))

    def region_mark(self) -> Any | None:
        wanted = self.spec.schedule.times_region(self.step) and len(self.regions) < _MAX_REGION_MARKS
        return self.device.mark() if wanted else None

    def region(self, replayed: bool, start: Any) -> None:
        self.regions.append((replayed, start, self.device.mark()))

    # --- afterwards -------------------------------------------------------------------------------------------------------

    def samples(self) -> tuple[Sample, ...]:
        """Times of the timed steps. The device must have been synchronised."""
        return tuple(
            Sample(item.step, item.kind, self.device.elapsed_ns(item.start, item.end), item.host_ns)
            for item in self.timed
        )

    def region_ns(self, replayed: bool) -> tuple[int, ...]:
        """Device times of the span alone, in timed steps."""
        return tuple(self.device.elapsed_ns(start, end) for kind, start, end in self.regions if kind is replayed)
