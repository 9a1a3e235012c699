"""The child process: `python -m advisor.workload.worker job.json`. Dispatches on the job's mode.

A mode is a module with `run(job) -> Outcome`: it executes the script and writes its own artefact. The worker turns the
outcome into `result-<mode>.json` and into the exit code the script itself would have ended with.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from advisor.bundle import write_atomically
from advisor.errors import AdvisorError
from advisor.workload import environment, loader
from advisor.workload.job import Job, Result, read_job, result_path
from advisor.workload.loader import Outcome
from advisor.workload.tracebacks import described

MODES: Final = {
    "plain": "advisor.workload.plain",
    "clock": "advisor.workload.clock",
    "trace": "advisor.workload.record",
    "verify": "advisor.workload.verify_child",
}


class Worker:
    """One job from its file to its result."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._began_ns = time.perf_counter_ns()

    def run(self) -> int:
        """Run the job; the exit code the process is to end with."""
        job = self._job
        result_path(job.folder, job.mode).unlink(missing_ok=True)
        loader.before_hard_exit(self._hard_exit)
        try:
            environment.require_torch(job.device)
            prepare_process()
            if job.seed is not None:
                seed_everything(job.seed)
            outcome: Outcome = importlib.import_module(mode_module(job.mode)).run(job)
        except AdvisorError as error:
            print(f"cgadvisor: {error}", file=sys.stderr)
            self._write(Result(mode=job.mode, ending="refused", exit_code=error.exit_code, error=str(error)))
            return error.exit_code
        self._write(self._result(outcome))
        if isinstance(outcome.error, SystemExit):
            raise outcome.error  # Python prints its message and picks the code
        return outcome.exit_code

    def _result(self, outcome: Outcome) -> Result:
        failure = outcome.error if outcome.ending == "failed" else None
        return Result(
            mode=self._job.mode,
            ending=outcome.ending,
            exit_code=outcome.exit_code,
            error=described(failure) if failure is not None else "",
            location=outcome.where,
        )

    def _hard_exit(self, code: int) -> None:
        ending = "stopped" if loader.stopper.requested else "exited"
        self._write(Result(mode=self._job.mode, ending=ending, exit_code=code))  # type: ignore[arg-type]

    def _write(self, result: Result) -> None:
        wall = time.perf_counter_ns() - self._began_ns
        facts = environment.facts() if result.ending != "refused" else {}
        full = msgspec.structs.replace(result, wall_ns=wall, facts=facts, steps=steps_done(), notes=tuple(_notes))
        write_atomically(result_path(self._job.folder, self._job.mode), msgspec.json.encode(full))


_steps: list[int] = [0]
_notes: list[str] = []


def set_steps(count: int) -> None:
    """A mode says how many steps it has recorded; it ends up in the result."""
    _steps[0] = count


def add_note(text: str) -> None:
    """A mode says what a reader of its figures should know, once; it ends up in the result and in the manifest."""
    if text not in _notes:
        _notes.append(text)


def steps_done() -> int:
    return _steps[0]


def mode_module(mode: str) -> str:
    """The module of a mode. Raises AdvisorError for an unknown one."""
    if mode not in MODES:
        raise AdvisorError(f"unknown mode {mode!r}; known: {', '.join(sorted(MODES))}")
    return MODES[mode]


def prepare_process() -> None:
    """Undo what running under the tool changed: the parent's helper variables must not reach the script."""
    extra = os.environ.pop(environment.EXTRA_PATH, None)
    if extra is not None:
        # The tool's own folder stays importable, behind everything of the user's.
        kept = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part and part != extra]
        if kept:
            os.environ["PYTHONPATH"] = os.pathsep.join(kept)
        else:
            os.environ.pop("PYTHONPATH", None)
        sys.path[:] = [part for part in sys.path if part != extra] + [extra]


def seed_everything(seed: int) -> None:
    """Seed python, numpy when it is there, and torch on every device; the script's own seeding comes later and wins."""
    import random

    random.seed(seed)
    try:
        import numpy
    except ImportError:
        pass
    else:
        numpy.random.seed(seed % 2**32)
    import torch

    torch.manual_seed(seed)


def main() -> None:
    """Entry point of the child."""
    try:
        job = read_job(Path(sys.argv[1]))
    except (IndexError, OSError, msgspec.DecodeError) as error:  # run by hand: nothing else gives it a broken job
        sys.exit(f"cgadvisor: the worker needs a job file of this version: {error}")
    sys.exit(Worker(job).run())


if __name__ == "__main__":
    # Run the module under its real name: `__main__` is about to become the user's script.
    from advisor.workload.worker import main as real_main

    real_main()
