"""Runs the user's script as `__main__`, as `python script.py` or `python -m module` would, through a transformed tree.

The script and the modules beside it are compiled from a syntax tree that a `transform` may change; file names and line
numbers stay the user's, so tracebacks, `inspect.getsource`, pickling and spawned workers behave as without the tool.
Spawned processes run the plain script: `multiprocessing` finds it through `__main__.__file__` and `__spec__`.

No torch here.
"""

from __future__ import annotations

import ast
import operator
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NoReturn

from advisor.errors import UsageError
from advisor.workload.imports import SourceFile, Transform, compile_source
from advisor.workload.job import Ending, Job
from advisor.workload.main_module import prepare_main
from advisor.workload.tracebacks import related, strip_frames, where_failed

_SWALLOW_LIMIT: Final = 3
_real_exit: Final = os._exit


class StopRun(BaseException):
    """Raised at a step boundary once enough steps are recorded: ends the script as Ctrl-C would, finally blocks and all."""


@dataclass
class Outcome:
    """How the script ended. `error` is what it raised, without the tool's frames in its traceback, `where` the
    `file:line` of the user's that raised it."""

    ending: Ending
    exit_code: int = 0
    error: BaseException | None = None
    where: str = ""


@dataclass
class Stopper:
    """Ends the run from inside. `finish` (the mode's last work) runs once, whichever way the process ends."""

    finish: Callable[[], None] = field(default=lambda: None)
    requested: bool = False
    finished: bool = False
    raised_count: int = 0

    def stop(self) -> NoReturn:
        """End the script here: raise StopRun; when the script has swallowed it too often, leave without asking."""
        self.requested = True
        self.raised_count += 1
        if self.raised_count > _SWALLOW_LIMIT:
            self.leave(0)
        raise StopRun("enough steps are recorded")

    def run_finish(self) -> None:
        """Run `finish` unless it has run."""
        if not self.finished:
            self.finished = True
            self.finish()

    def leave(self, code: int) -> NoReturn:
        """End the process now, artefacts written and streams flushed."""
        self.run_finish()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for callback in reversed(_before_hard_exit):
            callback(code)
        _real_exit(code)


stopper = Stopper()
_before_hard_exit: list[Callable[[int], None]] = []


def before_hard_exit(callback: Callable[[int], None]) -> None:
    """Call `callback(exit_code)` when the script calls `os._exit` in this process, before it takes effect."""
    _before_hard_exit.append(callback)


def execute(job: Job, transform: Transform | None = None, finish: Callable[[], None] | None = None) -> Outcome:
    """Run the script to its end, to `stopper.stop()`, or to its exception, which is printed as Python would.

    `transform(tree, file)` is applied to the script and to every module beside it. `finish` runs once, when the script
    is done but before its atexit handlers. Raises UsageError when there is no such script or module.
    """
    if finish is not None:
        stopper.finish = finish
    _watch_hard_exit()
    _watch_threads()
    outcome = _run(job, transform or _unchanged)
    stopper.run_finish()
    return outcome


def _run(job: Job, transform: Transform) -> Outcome:
    """Prepare, compile and execute: each is a boundary to the user's code, and everything that raises ends here."""
    try:
        module, file = prepare_main(job, transform)
    except UsageError:
        raise
    except BaseException as error:
        return _ended(error, os.getcwd())
    folder = os.path.dirname(os.path.abspath(file.path))
    try:
        code = compile_source(file, transform)
    except BaseException as error:
        # Of what cannot be compiled Python shows the script's line and no frame.
        return _ended(error.with_traceback(None) if isinstance(error, SyntaxError) else error, folder)
    try:
        module.__dict__.update(file.inject)
        exec(code, module.__dict__)
    except BaseException as error:
        return _ended(error, folder)
    return Outcome("finished")


def _ended(error: BaseException, folder: str) -> Outcome:
    """What became of a script that raised; its own errors are shown as Python shows them."""
    if any(isinstance(one, StopRun) for one in related(error)):
        return Outcome("stopped")  # by the tool, also where the script made an exception of its own of it
    if isinstance(error, SystemExit):
        # A fresh one: the original's traceback would keep the script's objects alive past their time.
        return Outcome("exited", exit_code(error), SystemExit(error.code))
    strip_frames(error)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    return Outcome("failed", _show(error), error, where_failed(error, folder))


def _show(error: BaseException) -> int:
    """Print the error through the script's own hook, as Python does; the exit code, which a hook may choose."""
    told = (type(error), error, error.__traceback__)
    try:
        if not hasattr(sys, "excepthook"):
            print("sys.excepthook is missing", file=sys.stderr)
            sys.excepthook = sys.__excepthook__
        sys.excepthook(*told)
    except SystemExit as wanted:
        if not isinstance(wanted.code, int | None):
            print(wanted.code, file=sys.stderr)
        return exit_code(wanted)
    except BaseException as raised:  # the user's hook: whatever it raises
        strip_frames(raised)
        if raised.__context__ is error:  # only because it is shown while it is handled here
            raised.__context__ = None
        print("Error in sys.excepthook:", file=sys.stderr)
        sys.__excepthook__(type(raised), raised, raised.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(*told)
    return 1


def _unchanged(tree: ast.Module, _file: SourceFile) -> ast.Module:
    return tree


def exit_code(wanted: SystemExit) -> int:
    """The process exit code Python makes of it."""
    if wanted.code is None:
        return 0
    return int(wanted.code) if isinstance(wanted.code, int) else 1


def _watch_hard_exit() -> None:
    """Let `os._exit` in this very process write the artefacts first; forked workers leave as ever."""
    owner = os.getpid()

    def leave(status: int) -> NoReturn:
        code = operator.index(status)  # a bool or an enumeration is no number to everyone
        if os.getpid() == owner:
            stopper.run_finish()
            for callback in reversed(_before_hard_exit):
                callback(int(code))
        _real_exit(code)

    os._exit = leave


def _watch_threads() -> None:
    """A hot loop in a thread: once the stop has unwound the thread, there is nobody left to end the script."""
    usual = threading.excepthook

    def report(told: threading.ExceptHookArgs) -> None:
        if told.exc_value is not None and any(isinstance(one, StopRun) for one in related(told.exc_value)):
            stopper.leave(0)
        usual(told)

    threading.excepthook = report
