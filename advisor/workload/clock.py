"""The clock pass: the script without any profiler. Host and CUDA-event time of every step, then of its regions.

Three stretches of the same run, in this order: warm-up, `steps` clean steps (only the hot loop's own marks do anything,
one event is recorded per step, nothing is synchronised), and a few more in which every statement is timed. Events are
read when all is over. Writes clock.json and plan.json.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from advisor.bundle import Bundle, write_atomically
from advisor.errors import AdvisorError
from advisor.model import Clock, Measurement, OptimizerFacts
from advisor.workload import loader, modules, worker
from advisor.workload.drive import Driver
from advisor.workload.imports import when_imported
from advisor.workload.instrument import Construct, Instrumenter
from advisor.workload.job import QUEUED, Job, ProgressWriter
from advisor.workload.mark import MARKS, Handler, on_region
from advisor.workload.region_clock import RegionClock
from advisor.workload.steps import PLAN_NAME, Chooser, Plan, Source, Spec
from advisor.workload.turn import CROWDED, Turn

REGION_STEPS: Final = 20
SOURCES_NAME: Final = "sources.json"
_FAST_WAIT_NS: Final = 5_000  # waiting less for the next item is a loop's own business
_OFTEN: Final = 300  # a statement that runs more often in a step is not worth a range when it is short too
_SHORT_NS: Final = 20_000
_GAP_RATIO: Final = 0.5  # steps further apart than this share of their length are clocked alone


def run(job: Job) -> loader.Outcome:
    """Run the script under the clock until enough steps are timed."""
    clock = ClockPass(job)
    return loader.execute(job, clock.instrumenter, clock.finish)


class Stamp:
    """A moment on the host and, with a device, on its current stream."""

    __slots__ = ("event", "host_ns")

    def __init__(self, host_ns: int, event: Any) -> None:
        self.host_ns = host_ns
        self.event = event


class ClockPass:
    """Listener of the steps; owns what is recorded."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._constructs: dict[int, Construct] = {}
        self.instrumenter = Instrumenter(MARKS, self._constructs)
        self._progress = ProgressWriter(job)
        self._first = max(job.warmup, 1)
        self._stop = self._first + job.steps + min(REGION_STEPS, job.steps)
        self._begins: dict[int, Stamp] = {}
        self._ends: dict[int, Stamp] = {}
        self._source: Source | None = None
        self._optimizer_hooks: modules.Removable | None = None
        self._driver: Driver | None = None
        self._creation_watched = False
        self._deadline = time.monotonic() + job.timeout_s * 0.9
        self._began_ns = time.perf_counter_ns()
        self._turn = Turn()
        self._optimizers: dict[int, OptimizerFacts] = {}
        self._regions = RegionClock(self._make_event)
        spec = Spec.parse(job.step)
        self.chooser = Chooser(self._constructs, spec, self._stop, self._chosen, device=job.device)
        self._listen(spec)
        self._progress.write("start", 0, self._stop)

    def _listen(self, spec: Spec) -> None:
        chooser = self.chooser
        if spec.kind in ("module", "range"):
            named = Source(kind=spec.kind, name=spec.name, label=spec.name, how=f"asked for: {spec.kind}:{spec.name}")
            chooser.done = True
            self._chosen(named, 0, inside=False)
        else:
            self._watch_loops()
        when_imported("torch", self._on_torch)

    def _watch_loops(self) -> None:
        chooser = self.chooser
        MARKS.reset()
        reports: dict[str, Handler] = {
            name: _function(getattr(chooser, name)) for name in ("loop", "next", "end", "tick")
        }
        reports |= {"item": self._watched_item, "untick": reports["end"]}
        MARKS.install(reports)

    def _on_torch(self) -> None:
        if self.chooser.done or "torch" not in sys.modules:
            return
        if not self._creation_watched:
            self._creation_watched = True
            modules.watch_optimizer_creation(self._trains)
        self._optimizer_hooks = modules.watch_optimizers(None, self.chooser.optimizer_step)

    def _trains(self) -> None:
        self.chooser.trains = True

    def _watched_item(self, identity: int) -> None:
        self.chooser.item(identity)
        if time.monotonic() > self._deadline:
            loader.stopper.stop()

    def _chosen(self, source: Source, index: int, *, inside: bool = True) -> None:
        if self._optimizer_hooks is not None:
            self._optimizer_hooks.remove()
        if self._source is None or self._source.id != source.id:
            self._begins.clear()
            self._ends.clear()
            self._first = max(self._job.warmup, index + 2)  # the choice itself took time
            self._stop = self._first + self._job.steps + min(REGION_STEPS, self._job.steps)
        # In the warm-up: what waiting does to a step is dropped with it.
        self._deadline += self._turn.take(lambda: self._progress.write(QUEUED, 0, self._stop))
        if self._turn.is_crowded:
            worker.add_note(f"the clock pass was {CROWDED}")
        self._source = source
        self._driver = Driver(source, self, index=index)
        MARKS.reset()
        MARKS.install(self._driver.handlers())
        self._driver.attach(inside=inside)

    # Listener

    def step_begins(self, index: int) -> None:
        if index == self._first + self._job.steps:
            self._time_regions()
        event = self._make_event() if index >= self._first else None
        self._begins[index] = Stamp(time.perf_counter_ns(), event)

    def step_ends(self, index: int, *, goes_on: bool) -> None:
        if not goes_on:
            event = self._make_event() if index >= self._first else None
            self._ends[index] = Stamp(time.perf_counter_ns(), event)
        self._regions.step_over()
        worker.set_steps(max(index + 1 - self._first, 0))
        phase = "warmup" if index < self._first else "record"
        self._progress.write(phase, index + 1, self._stop)

    def step_dropped(self, index: int) -> None:
        """The loop is over: the step before ended when this one began."""
        self._regions.step_over()
        begun = self._begins.pop(index)
        self._ends.setdefault(index - 1, begun)
        if self._is_loop() and self._source is not None and index < self._first + self._job.steps:
            # It may have been a loop of the set-up, or one of many short rounds of an outer one that is the step.
            self._watch_loops()
            self.chooser.resume(self._source.id, index)
            self._on_torch()

    def wants_stop(self) -> bool:
        return self._driver is not None and (self._driver.index >= self._stop or time.monotonic() > self._deadline)

    def _time_regions(self) -> None:
        assert self._driver is not None
        inner = self._driver.handlers()
        MARKS.install(self._regions.handlers(inner))
        when_imported("torch", self._regions.watch_optimizers)
        when_imported("torch", self._watch_optimizers)
        on_region(self._regions.user_region)

    def _watch_optimizers(self) -> None:
        modules.watch_optimizers(None, self._note_optimizer)

    def _note_optimizer(self, optimizer: Any) -> None:
        if id(optimizer) not in self._optimizers:
            self._optimizers[id(optimizer)] = modules.optimizer_facts(optimizer)

    def _make_event(self) -> Any:
        torch: Any = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    # the end

    def finish(self) -> None:
        """Read the events, write clock.json and plan.json."""
        MARKS.reset()
        self._progress.write("finish", 0, self._stop)
        _synchronize()
        self._turn.give()
        source = self._source or self.chooser.choose_late()
        first, last = self._window(source)
        host = self._host_samples(source)
        recorded = [host[index] for index in range(first, last) if index in host]
        device = [self._device_ns(index) for index in range(first, last)]
        measured = [ns for ns in device if ns is not None]
        found = source or Source(kind="none", label="whole run", how="no step found: nothing repeats often enough")
        worker.set_steps(len(recorded))
        self._regions.measure_cost()
        clock = Clock(
            step_label=found.label,
            step_how=found.how,
            step_location=found.location,
            warmup_count=first,
            host_step=Measurement(samples_ns=tuple(recorded)),
            device_step=Measurement(samples_ns=tuple(measured)) if measured else None,
            regions=self._regions.host_regions(self._texts()),
            device_regions=self._regions.device_regions(self._texts()),
            range_cost_ns=self._regions.cost_ns,
            optimizers=tuple(self._optimizers.values()),
            peak_memory_bytes=_peak_memory(),
            wall_ns=time.perf_counter_ns() - self._began_ns,
        )
        bundle = Bundle(self._job.folder)
        bundle.save(clock)
        self._save_plan(found, first, recorded)
        sources = msgspec.json.encode(self.instrumenter.sources)
        write_atomically(bundle.path(SOURCES_NAME), sources)

    def _texts(self) -> Callable[[int], str | None]:
        return lambda identity: one.text() if (one := self._constructs.get(identity)) is not None else None

    def _host_samples(self, source: Source | None) -> dict[int, int]:
        """Step index -> host ns, of every step that is known, those before the choice included."""
        early: dict[int, int] = {}
        if source is not None and source.kind == "loop" and source.id in self.chooser.states:
            state = self.chooser.states[source.id]
            early = {index: end - start for index, (start, end) in state.spans.items()}
        elif source is not None and source.kind == "optimizer":
            ends = next((ends for ends in self.chooser.optimizer_ends.values() if len(ends) > 1), [])
            early = {i: after - before for i, (before, after) in enumerate(itertools.pairwise(ends))}
        return early | {index: ns for index in self._begins if (ns := self._host_ns(index)) is not None}

    def _host_ns(self, index: int) -> int | None:
        begun, following, ended = self._begins[index], self._begins.get(index + 1), self._ends.get(index)
        if ended is None:
            return following.host_ns - begun.host_ns if following is not None else None
        own = ended.host_ns - begun.host_ns
        if following is not None and following.host_ns - ended.host_ns <= _GAP_RATIO * own and not self._is_loop():
            return following.host_ns - begun.host_ns
        return own

    def _device_ns(self, index: int) -> int | None:
        begun, following, ended = self._begins.get(index), self._begins.get(index + 1), self._ends.get(index)
        last = following if ended is None or (following is not None and not self._is_loop()) else ended
        if begun is None or last is None or begun.event is None or last.event is None:
            return None
        return int(begun.event.elapsed_time(last.event) * 1e6)

    def _is_loop(self) -> bool:
        return self._source is not None and self._source.kind == "loop"

    def _window(self, source: Source | None) -> tuple[int, int]:
        """[first, last) of the recorded steps; a short run gives its later two thirds."""
        known = sorted(self._host_samples(source))
        inside = [index for index in known if self._first <= index < self._first + self._job.steps]
        if len(inside) >= 3 or not known:
            return self._first, self._first + self._job.steps
        usable = [index for index in known if index < self._first + self._job.steps]
        return usable[len(usable) // 3], usable[-1] + 1

    def _save_plan(self, source: Source, first: int, recorded: list[int]) -> None:
        middle = sorted(recorded)[len(recorded) // 2] if recorded else 0
        states = self.chooser.states
        fast = tuple(key for key, one in states.items() if one.count and one.wait_ns < _FAST_WAIT_NS * one.count)
        plan = Plan(
            source=source,
            first_step=first,
            step_count=len(recorded),
            step_ns=middle,
            fast_loops=fast,
            skip=self._regions.too_frequent(_OFTEN, _SHORT_NS),
        )
        write_atomically(self._job.folder / PLAN_NAME, msgspec.json.encode(plan))


def load_plan(job: Job) -> Plan | None:
    """The plan the clock pass left in the run folder, None when there is none."""
    path = job.folder / PLAN_NAME
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Plan)
    except msgspec.DecodeError as error:
        raise AdvisorError(f"{path}: not a plan this version wrote: {error}; run the clock pass again") from error


def _function(method: Handler) -> Handler:
    def call(identity: int) -> None:
        method(identity)

    return call


def _synchronize() -> None:
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _peak_memory() -> int:
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return int(max(torch.cuda.max_memory_allocated(device) for device in range(torch.cuda.device_count())))
