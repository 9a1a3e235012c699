"""Launches verification children: one process each, a time limit, nothing left behind.

A child runs in a process group of its own, so that its loader workers end with it. Its report may be written long before
it has cleaned up; a child that reported and then hangs is ended after a grace period and its report counts.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from advisor import runner
from advisor.workload.job import Job, job_path, log_path, write_job
from advisor.workload.turn import Turn
from advisor.workload.verify_job import (
    GO_NAME,
    OPTION,
    READY_NAME,
    REPORT_NAME,
    STATE_NAME,
    ChildReport,
    VerifySpec,
    read_report,
)

GRACE_S: Final = 10.0
STARTUP_S: Final = 120.0  # importing torch on a cold disk and building a large model, whatever the time limit is
_POLL_S: Final = 0.05


@dataclass(frozen=True)
class Script:
    """What to run. `cwd` is where the user would start it."""

    target: str
    argv: tuple[str, ...] = ()
    is_module: bool = False
    cwd: str = "."
    seed: int | None = 0
    instrument: tuple[str, ...] = ()
    python: str = sys.executable


@dataclass(frozen=True)
class ChildRun:
    """How one child ended. `report` is None when it crashed or was ended at the time limit before it had reported."""

    name: str
    folder: Path
    report: ChildReport | None
    exit_code: int
    timed_out: bool
    wall_ns: int
    crowded: bool = False  # others would not give the GPU while it was measured

    @property
    def state_path(self) -> Path:
        return self.folder / STATE_NAME

    @property
    def log(self) -> Path:
        return log_path(self.folder, "verify")

    def crash_text(self) -> str:
        """Why there is no report, in a few words."""
        if self.exit_code < 0:
            try:
                return f"killed by {signal.Signals(-self.exit_code).name}"
            except ValueError:
                return f"killed by signal {-self.exit_code}"
        return f"exit code {self.exit_code}"

    def last_lines(self, count: int = 3) -> str:
        """The end of what the child printed."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").strip().split("\n")
        except OSError:
            return ""
        return " | ".join(line.strip() for line in lines[-count:])[:400]


@dataclass(frozen=True)
class Order:
    """One child to run."""

    name: str
    spec: VerifySpec
    folder: Path


def run_wave(
    script: Script,
    orders: Sequence[Order],
    timeout_s: float,
    tell: Callable[[str], None] = lambda text: None,
    turn: Turn | None = None,
) -> list[ChildRun]:
    """Start the children together, measure them one at a time, in order. Raises OSError when one cannot be started.

    Importing torch and building the model take most of a child's time and disturb nobody but another child's clock;
    so all of that happens at once, and each child then waits before its first step for its turn.
    """
    children: list[_Child] = []
    try:
        for order in orders:
            children.append(_Child(script, order, timeout_s))  # noqa: PERF401 - started ones must be ended below
        for child in children:
            child.await_ready()
        for child in children:
            tell(child.order.name)
            child.finish(turn or Turn())
    finally:
        for child in children:
            child.end()
    return [child.result() for child in children]


class _Child:
    """One process from its start to its result."""

    def __init__(self, script: Script, order: Order, timeout_s: float) -> None:
        self.order, self._timeout_s = order, timeout_s
        folder = order.folder
        folder.mkdir(parents=True, exist_ok=True)
        for old in (REPORT_NAME, STATE_NAME, READY_NAME, GO_NAME):
            (folder / old).unlink(missing_ok=True)
        spec = msgspec.structs.replace(order.spec, gate=True)
        job = Job(
            mode="verify",
            target=script.target,
            is_module=script.is_module,
            argv=script.argv,
            out_dir=str(folder.resolve()),
            seed=script.seed,
            instrument=script.instrument,
            timeout_s=timeout_s,
            options={OPTION: msgspec.json.encode(spec).decode()},
        )
        self._timed_out = self._crowded = False
        self._began = self._turn = self._ended = time.monotonic()
        with log_path(folder, "verify").open("wb") as log:
            self._process = subprocess.Popen(
                [script.python, "-P", "-m", "advisor.workload.worker", str(write_job(job).resolve())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=script.cwd,
                env=child_environment(),
                start_new_session=True,
            )

    def await_ready(self) -> None:
        """Wait until the child stands before its first step, has ended, or has used up its time."""
        while self._process.poll() is None and not (self.order.folder / READY_NAME).exists():
            if time.monotonic() > self._began + max(STARTUP_S, self._timeout_s):
                self._timed_out = True
                return
            time.sleep(_POLL_S)

    def finish(self, turn: Turn) -> None:
        """Let it run until it has reported or has ended, or the time limit is reached."""
        if self._timed_out:
            return
        turn.take()
        self._crowded = turn.is_crowded
        try:
            (self.order.folder / GO_NAME).touch()
            self._turn = time.monotonic()
            while self._process.poll() is None and not (self.order.folder / REPORT_NAME).exists():
                if time.monotonic() > self._turn + self._timeout_s:
                    self._timed_out = True
                    break
                time.sleep(_POLL_S)
            self._ended = time.monotonic()
        finally:
            turn.give()

    def end(self) -> None:
        """Give a child that has reported time to clean up, then end what is left of its process group.

        A child that crashed, hung or was never let go is ended at once, and so are workers that outlive their child.
        """
        if (self.order.folder / REPORT_NAME).exists() and not self._timed_out:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(max(0.0, self._ended + GRACE_S - time.monotonic()))
        runner.end_group(self._process)
        job_path(self.order.folder, "verify").unlink(missing_ok=True)  # it holds the script's arguments

    def result(self) -> ChildRun:
        order = self.order
        wall = round((self._ended - self._turn) * 1e9)
        report = read_report(order.folder)
        code = self._process.returncode
        return ChildRun(order.name, order.folder, report, code, self._timed_out, wall, self._crowded)


def child_environment() -> dict[str, str]:
    """A child's environment; hashing is the same in every child, so that sets of strings iterate alike."""
    variables = runner.child_environment()
    variables.setdefault("PYTHONHASHSEED", "0")
    variables["PYTHONUNBUFFERED"] = "1"
    return variables
