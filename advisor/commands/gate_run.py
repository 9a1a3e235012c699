"""`cgadvisor gate --run SCRIPT`: profile now, clock base and head in turns, and confirm a slow-down before failing.

Counts come from one full profile a side. Times come from `rounds` further processes a side that are only clocked; when
the baseline is a script too they alternate, first one side first and then the other, so that heat and neighbours hit both.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from advisor.bundle import Bundle
from advisor.commands.gate_sides import Options, base_path, side
from advisor.config import Config
from advisor.errors import UsageError
from advisor.gate import GateVerdict, Snapshot, Status, judge, load_side
from advisor.gate.judge import with_checks
from advisor.gate.snapshot import STEP_TIME, Times
from advisor.gate.verdict import GateCheck, Group
from advisor.model import Clock, NumberKind

_STEPS: Final = 40
_WARMUP: Final = 10
_FOLDER: Final = "gate"


@dataclass(frozen=True)
class Profiler:
    """How one side is measured. `full` fills a folder as `cgadvisor profile` does; `clock` gives step samples of one
    process, in ns; both take the script, its arguments and a folder."""

    full: Callable[[Path, tuple[str, ...], Path, bool], None]
    clock: Callable[[Path, tuple[str, ...], Path], tuple[int, ...]]


def judge_script(options: Options, config: Config, profiler: Profiler | None = None) -> GateVerdict:
    """Profile the script (and a baseline that is a script) and judge. Raises AdvisorError."""
    script, base = options.script, base_path(options)
    assert script is not None
    for path in (script, base):
        if path is not None and path.suffix == ".py" and not path.is_file():
            raise UsageError(f"{path}: no such script")
    if base is None and not config.gate.budget:
        raise UsageError("nothing to judge by: give --baseline, or write a [[gate.budget]] into cgadvisor.toml")
    profiler = profiler or real_profiler()
    with contextlib.redirect_stdout(sys.stderr):  # stdout is for the verdict
        measured = _Measured(options, profiler, script, base if base is not None and base.suffix == ".py" else None)
        stored = side(base, config) if base is not None and measured.base_script is None else None
        head, before = measured.sides(stored)
        verdict = judge(head, before, config.gate, paired=stored is None and before is not None)
        if _only_slower(verdict):
            head, before = measured.again(head, before)
            second = judge(head, before, config.gate, paired=stored is None)
            verdict = confirmed(verdict, second, config.gate.inconclusive)
    return verdict


def confirmed(first: GateVerdict, second: GateVerdict, inconclusive: str) -> GateVerdict:
    """The verdict after a second measurement in fresh processes: a slow-down that does not repeat only warns.

    One that a second measurement was too noisy to confirm or to refute is inconclusive.
    """
    again = {check.id: check for check in second.checks}
    checks = []
    for check in first.checks:
        repeat = again.get(check.id)
        if check.group == Group.TIME and check.status == Status.FAIL and repeat is not None:
            checks.append(_repeated(check, repeat))
        else:
            checks.append(check)
    return with_checks(first, tuple(checks), inconclusive)


def _repeated(check: GateCheck, repeat: GateCheck) -> GateCheck:
    if repeat.status == Status.FAIL:
        return msgspec.structs.replace(
            check, detail=f"{check.detail}; confirmed by a second measurement: {repeat.message}"
        )
    # A second measurement too noisy to tell has not said that all is well.
    status = Status.INCONCLUSIVE if repeat.status == Status.INCONCLUSIVE else Status.WARN
    message = f"{check.message}; a second measurement did not confirm it: {repeat.message}"
    return msgspec.structs.replace(check, status=status, message=message)


def _only_slower(verdict: GateVerdict) -> bool:
    failed = verdict.of(Status.FAIL)
    return bool(failed) and all(check.group == Group.TIME for check in failed)


@dataclass
class _Measured:
    """The folders and processes of one `gate --run`."""

    options: Options
    profiler: Profiler
    script: Path
    base_script: Path | None
    _next: int = 1

    def sides(self, stored: Snapshot | None) -> tuple[Snapshot, Snapshot | None]:
        """Head, and base when it is a script or `stored`."""
        verify = stored is not None and bool(stored.verified)
        head = self._full(self.script, "head", verify)
        base = self._full(self.base_script, "base", False) if self.base_script is not None else stored
        return self.again(head, base)

    def again(self, head: Snapshot, base: Snapshot | None) -> tuple[Snapshot, Snapshot | None]:
        """The same sides with step times of `rounds` fresh processes."""
        heads: list[tuple[int, ...]] = []
        bases: list[tuple[int, ...]] = []
        for number in range(self.options.rounds):
            order = [(self.script, heads, "head")]
            if self.base_script is not None:
                order.insert(number % 2, (self.base_script, bases, "base"))
            for script, samples, name in order:
                print(
                    f"gate: clocking {name}, round {number + 1} of {self.options.rounds}", file=sys.stderr, flush=True
                )
                samples.append(self.profiler.clock(script, self.options.script_args, self._folder(name)))
        head = _with_times(head, heads)
        return head, _with_times(base, bases) if base is not None and self.base_script is not None else base

    def _full(self, script: Path, name: str, verify: bool) -> Snapshot:
        print(f"gate: profiling {name}: {script}", file=sys.stderr, flush=True)
        folder = self._folder(f"{name}-profile")
        self.profiler.full(script, self.options.script_args, folder, verify)
        return msgspec.structs.replace(load_side(folder), label=os.fsencode(script).decode(errors="replace"))

    def _folder(self, name: str) -> Path:
        from advisor.commands.profile import RUNS_FOLDER, free_folder

        return free_folder(Path(RUNS_FOLDER) / _FOLDER, name)


def _with_times(side: Snapshot, processes: list[tuple[int, ...]]) -> Snapshot:
    kept = tuple(samples for samples in processes if samples)
    if not kept:
        return side
    return msgspec.structs.replace(
        side, times=side.times | {STEP_TIME: Times(kind=NumberKind.MEASURED, processes_ns=kept)}
    )


def real_profiler(device: str = "cuda") -> Profiler:
    """The profiler of `cgadvisor profile`. Raises GpuRequired before anything runs when there is no such device."""
    from advisor.commands import profile
    from advisor.runner import run_job
    from advisor.workload.job import DEVICE_OPTION, Job

    def options(script: Path, argv: tuple[str, ...], folder: Path, verify: bool) -> profile.Options:
        return profile.Options(
            target=str(script), argv=argv, steps=_STEPS, warmup=_WARMUP, verify=verify, out=folder, device=device
        )

    def full(script: Path, argv: tuple[str, ...], folder: Path, verify: bool) -> None:
        wanted = options(script, argv, folder, verify)
        profile.check(wanted)
        profile.Session(wanted, Bundle.create(folder)).run()

    def clock(script: Path, argv: tuple[str, ...], folder: Path) -> tuple[int, ...]:
        bundle = Bundle.create(folder)
        job = Job(
            mode="clock",
            target=str(script),
            argv=argv,
            out_dir=str(folder.resolve()),
            steps=_STEPS,
            warmup=_WARMUP,
            options={DEVICE_OPTION: device},
        )
        run_job(job)
        return bundle.load(Clock).host_step.samples_ns

    return Profiler(full, clock)
