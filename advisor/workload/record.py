"""The trace pass: the same steps as the clock pass, under torch.profiler or for Nsight Systems, with named ranges.

One profiler session per process, with a schedule: three steps before the first recorded one the profiler is prepared,
one active step is thrown away (the first kernels of a session may be lost), and ranges are emitted from the first
recorded step on, so that what is analysed begins where the recording is sound.
"""

from __future__ import annotations

import contextlib
import gzip
import shutil
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final, Protocol

from advisor.bundle import TRACE_NAME
from advisor.workload import loader, worker
from advisor.workload.clock import load_plan
from advisor.workload.drive import Driver
from advisor.workload.imports import when_imported
from advisor.workload.instrument import Construct, Instrumenter
from advisor.workload.job import PARTIAL, QUEUED, Job, ProgressWriter
from advisor.workload.mark import MARKS, METHODS, Emitter, Handler, on_region
from advisor.workload.modules import ModuleRanges, region_steps
from advisor.workload.steps import Plan, Source
from advisor.workload.turn import CROWDED, Turn

TRACER_OPTION: Final = "tracer"  # Job.options: "torch" (default) | "nsys"
_LEAD: Final = 3  # steps under the profiler before the first recorded one: two of warm-up, one thrown away
_WHOLE_RUN_S: Final = 20.0  # of a script without steps
_MAX_TRACE_NS: Final = 10_000_000_000  # of clocked time; more gives huge files and no more knowledge
_MIN_TRACE_STEPS: Final = 5
_GZIP_LEVEL: Final = 3
_GZIP_BLOCK: Final = 1 << 20


def run(job: Job) -> loader.Outcome:
    """Run the script under the tracer until the planned steps are recorded; export the trace."""
    trace = TracePass(job)
    return loader.execute(job, trace.instrumenter, trace.finish)


class Session(Protocol):
    """One recording."""

    def start(self) -> None: ...

    def step(self) -> None:
        """A step is over and the next begins."""

    def stop(self) -> None: ...

    def export(self) -> None: ...


class TorchSession:
    """torch.profiler with a schedule; exports trace.json.gz through a temporary name."""

    def __init__(self, job: Job, lead: int, active: int | None) -> None:
        import torch
        from torch.profiler import ProfilerActivity, profile, schedule

        activities = [ProfilerActivity.CPU]
        if job.device != "cpu":
            activities.append(ProfilerActivity.CUDA)
        plan = None
        if active is not None:
            warmup = max(lead - 1, 0)
            plan = schedule(wait=0, warmup=warmup, active=active + lead - warmup, repeat=1)
        self._folder = job.folder
        self._profile = profile(
            activities=activities,
            schedule=plan,
            record_shapes=True,
            with_stack=job.stacks,
            experimental_config=_experimental_config(torch),
        )
        self._recorded = False

    def start(self) -> None:
        self._profile.start()

    def step(self) -> None:
        self._profile.step()

    def stop(self) -> None:
        self._profile.stop()
        self._recorded = True

    def export(self) -> None:
        if not self._recorded:
            return
        final = self._folder / TRACE_NAME
        plain = final.with_name(f"{PARTIAL}.json")
        packed = final.with_name(f"{PARTIAL}.json.gz")  # the name is complete only once the file is
        self._profile.export_chrome_trace(str(plain))
        compress(plain, packed)
        plain.unlink()
        packed.replace(final)


def compress(source: Path, target: Path) -> None:
    """gzip a file. torch's own export does it line by line at level 9: five times as long for a file 6 % smaller."""
    with source.open("rb") as plain, gzip.open(target, "wb", compresslevel=_GZIP_LEVEL) as packed:
        shutil.copyfileobj(plain, packed, _GZIP_BLOCK)


def _experimental_config(torch: Any) -> Any:
    """Synchronising calls as events, where this torch can."""
    kind = torch._C._profiler._ExperimentalConfig
    try:
        return kind(enable_cuda_sync_events=True)
    except TypeError:
        return kind()


class NsysSession:
    """Opens and closes the capture range of an `nsys profile` that runs around this process."""

    def __init__(self) -> None:
        import torch

        self._runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]

    def start(self) -> None:
        self._runtime.cudaProfilerStart()

    def step(self) -> None:
        """Nsight has no notion of steps."""

    def stop(self) -> None:
        import torch

        torch.cuda.synchronize()
        self._runtime.cudaProfilerStop()

    def export(self) -> None:
        """`nsys` writes its own report."""


class _HotLoop:
    """Where a step of the hot loop ends and the next begins: behind one iteration's range, before the next one's.

    A step that begins may start the emission, which opens the loop and its iteration: they are not opened again.
    """

    def __init__(self, hot: int, steps: dict[str, Handler], emitter: Emitter, stopped: Callable[[], bool]) -> None:
        self._hot, self._steps, self._emitter, self._stopped = hot, steps, emitter, stopped

    def loop(self, identity: int) -> None:
        depth = self._emitter.depth
        self._steps["loop"](identity)
        if self._emitter.depth == depth:
            self._emitter.loop(identity)

    def next(self, identity: int) -> None:
        if identity != self._hot:
            self._emitter.next(identity)
            return
        self._steps["next"](identity)  # step_ends closes the iteration's range
        self._open()

    def tick(self, identity: int) -> None:
        self._steps["tick"](identity)
        if identity == self._hot:
            self._open()

    def _open(self) -> None:
        if not self._stopped() and not self._emitter.in_iteration(self._hot):
            self._emitter.open_iteration(self._hot)


class TracePass:
    """Listener of the steps: starts the session, switches the ranges on and off, stops."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._constructs: dict[int, Construct] = {}
        self.instrumenter = Instrumenter(MARKS, self._constructs)
        self._progress = ProgressWriter(job)
        plan = load_plan(job)
        self._plan = plan or Plan(source=Source(kind="none", label="", how=""), first_step=0, step_count=0)
        self._first = self._plan.first_step
        self._count = step_count(self._plan, job.steps)
        self._start_at = max(self._first - _LEAD, 0)
        self._session: Session | None = None
        self._emitter: Emitter | None = None
        self._modules: ModuleRanges | None = None
        self._stopped = False
        self._turn = Turn()
        self._whole_deadline = 0.0
        self._driver = Driver(self._plan.source, self)
        self._hot = self._plan.source.id if self._plan.source.kind == "loop" else -1
        if self._plan.source.kind == "none":
            when_imported("torch", self._record_everything)
        else:
            MARKS.install(self._driver.handlers())
            self._driver.attach()
        self._progress.write("start", 0, self._count)

    # Listener

    def step_begins(self, index: int) -> None:
        if self._stopped:
            return
        if self._session is None and index >= self._start_at:
            self._start(self._first - index if index < self._first else 0)
        if self._session is not None and index == max(self._first, self._start_at):
            self._emit()
        if index >= self._first + self._count:
            self._stop()

    def step_ends(self, index: int, *, goes_on: bool) -> None:
        if self._emitter is not None and self._hot >= 0:
            self._emitter.done(self._hot)
        recorded = index + 1 - self._first
        worker.set_steps(max(recorded, 0))
        self._progress.write("warmup" if recorded <= 0 else "record", max(recorded, 0), self._count)
        if self._session is None or self._stopped:
            return
        if recorded >= self._count:
            self._stop()
        else:
            self._session.step()

    def step_dropped(self, index: int) -> None:
        """The loop is over for now: its ranges are closed by its marks."""

    def wants_stop(self) -> bool:
        return self._stopped

    # the recording

    def _start(self, lead: int) -> None:
        self._turn.take(lambda: self._progress.write(QUEUED, 0, self._count))
        if self._turn.is_crowded:
            worker.add_note(f"the trace pass was {CROWDED}")
        if self._job.options.get(TRACER_OPTION) == "nsys":
            self._session = NsysSession()
        else:
            self._session = TorchSession(self._job, lead, self._count)
        self._listen()
        self._session.start()

    def _record_everything(self) -> None:
        self._whole_deadline = time.monotonic() + _WHOLE_RUN_S
        if self._job.options.get(TRACER_OPTION) == "nsys":
            self._session = NsysSession()
        else:
            self._session = TorchSession(self._job, 0, None)
        self._listen()
        self._session.start()
        self._emit()

    def _emit(self) -> None:
        """From here on every mark is a range."""
        if self._emitter is not None:
            self._emitter.muted = False
            if self._hot >= 0:
                self._emitter.loop(self._hot)

    def _listen(self) -> None:
        """Make every mark known, some steps before ranges are wanted: what torch.compile has compiled with the old marks
        it compiles again."""
        record = self._job.options.get(TRACER_OPTION) != "nsys"
        emitter = Emitter(self._constructs, self._wanted, record=record)
        emitter.muted = True
        self._emitter = emitter
        self._modules = ModuleRanges(emitter, lambda label: self._matches(label))
        self._modules.install()
        if self._plan.source.kind == "range":
            # The step's own range stays the driver's; every region is a mark as well.
            region_steps(self._plan.source.name, self._driver.enter, self._driver.leave, self._user_region)
        else:
            on_region(self._user_region)
        MARKS.install(self._composed(emitter))

    def _composed(self, emitter: Emitter) -> dict[str, Handler]:
        """Ranges and steps of every mark; of the hot loop's own marks in the order `_HotLoop` keeps."""
        steps, ranges = self._driver.handlers(), emitter.handlers()
        hot = _HotLoop(self._hot, steps, emitter, self.wants_stop)

        def both(name: str) -> Handler:
            first, second = ranges[name], steps[name]

            def handle(identity: int) -> None:
                first(identity)
                second(identity)

            return handle

        def item(identity: int) -> None:
            ranges["item"](identity)
            steps["item"](identity)
            if self._whole_deadline and time.monotonic() > self._whole_deadline:
                loader.stopper.stop()

        composed: dict[str, Handler] = {name: both(name) for name in METHODS if name in steps and name in ranges}
        composed |= {"begin": ranges["begin"], "close": ranges["close"], "item": item}
        return composed | {"loop": hot.loop, "next": hot.next, "tick": hot.tick}

    def _wanted(self, construct: Construct, kind: str) -> bool:
        if kind == "data":
            return construct.id not in self._plan.fast_loops
        if construct.id == self._hot or kind in ("loop", "iter"):
            return True
        return construct.id not in self._plan.skip and self._matches(construct.label)

    def _matches(self, label: str) -> bool:
        return not self._job.regions or any(fnmatch(label, pattern) for pattern in self._job.regions)

    @contextlib.contextmanager
    def _user_region(self, name: str) -> Iterator[None]:
        emitter = self._emitter
        if emitter is None or self._stopped:
            yield
            return
        made = emitter.named("region", name)
        emitter.push(made)
        try:
            yield
        finally:
            emitter.pop(made)

    def _stop(self) -> None:
        """End the recording; the script goes on to where it can be ended."""
        if self._stopped or self._session is None:
            return
        self._stopped = True
        if self._modules is not None:
            self._modules.remove()
        if self._emitter is not None:
            self._emitter.close_all()
        MARKS.reset()
        MARKS.install(self._driver.handlers())
        self._session.stop()
        self._turn.give()

    def finish(self) -> None:
        """Stop what still runs and write the trace."""
        self._stop()
        self._progress.write("finish", self._count, self._count)
        if self._session is not None:
            self._session.export()


def step_count(plan: Plan, wanted: int) -> int:
    """How many of the planned steps to trace: at most `_MAX_TRACE_NS` of clocked time, at least a handful."""
    count = min(plan.step_count, wanted)
    if plan.step_ns:
        count = min(count, max(_MAX_TRACE_NS // plan.step_ns, _MIN_TRACE_STEPS))
    return count
