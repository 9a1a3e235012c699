"""Runs the user's script as `__main__`, as `python script.py` or `python -m module` would, through a transformed tree.

The script and the modules beside it are compiled from a syntax tree that a `transform` may change; file names and line
numbers stay the user's, so tracebacks, `inspect.getsource`, pickling and spawned workers behave as without the tool.
Spawned processes run the plain script: `multiprocessing` finds it through `__main__.__file__` and `__spec__`.

No torch here.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

from advisor.errors import ScriptFailed, UsageError
from advisor.workload.imports import BesideFinder, Files, SourceFile, Transform, compile_source
from advisor.workload.job import Ending, Job

_TOOL_FOLDER: Final = str(Path(__file__).resolve().parent)
_SWALLOW_LIMIT: Final = 3
_real_exit: Final = os._exit


class StopRun(BaseException):
    """Raised at a step boundary once enough steps are recorded: ends the script as Ctrl-C would, finally blocks and all."""


@dataclass
class Outcome:
    """How the script ended. `error` is what it raised, without the tool's frames in its traceback."""

    ending: Ending
    exit_code: int = 0
    error: BaseException | None = None


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
    module, file = prepare_main(job)
    change = transform or _unchanged
    files = Files(Path(file.root), job.instrument)
    BesideFinder(files, change).install()
    try:
        return _run(module, file, change)
    finally:
        stopper.run_finish()


def _run(module: types.ModuleType, file: SourceFile, transform: Transform) -> Outcome:
    try:
        code = compile_source(file, transform)
        module.__dict__.update(file.inject)
        exec(code, module.__dict__)
    except StopRun:
        return Outcome("stopped")
    except SystemExit as wanted:
        # A fresh one: the original's traceback would keep the script's objects alive past their time.
        return (
            Outcome("stopped") if _from_stop(wanted) else Outcome("exited", exit_code(wanted), SystemExit(wanted.code))
        )
    except BaseException as error:  # the boundary to the user's code: everything it raises ends here
        if _from_stop(error):
            return Outcome("stopped")
        strip_frames(error)
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        sys.excepthook(type(error), error, error.__traceback__)
        return Outcome("failed", 1, error)
    return Outcome("finished")


def _unchanged(tree: ast.Module, _file: SourceFile) -> ast.Module:
    return tree


def exit_code(wanted: SystemExit) -> int:
    """The process exit code Python makes of it."""
    if wanted.code is None:
        return 0
    return wanted.code if isinstance(wanted.code, int) else 1


def _from_stop(error: BaseException) -> bool:
    """Whether the script turned the tool's StopRun into an exception of its own."""
    seen: BaseException | None = error
    for _ in range(100):
        if seen is None:
            return False
        if isinstance(seen, StopRun):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _watch_hard_exit() -> None:
    """Let `os._exit` in this very process write the artefacts first; forked workers leave as ever."""
    owner = os.getpid()

    def leave(status: int) -> NoReturn:
        if os.getpid() == owner:
            stopper.run_finish()
            for callback in reversed(_before_hard_exit):
                callback(status)
        _real_exit(status)

    os._exit = leave


# --- the __main__ module -----------------------------------------------------------------------------------------------


def prepare_main(job: Job) -> tuple[types.ModuleType, SourceFile]:
    """Make `sys.modules["__main__"]`, `sys.argv` and `sys.path[0]` what the script expects. Raises UsageError."""
    return _module_main(job) if job.is_module else _script_main(job)


def _script_main(job: Job) -> tuple[types.ModuleType, SourceFile]:
    path = os.path.abspath(job.target)
    if not os.path.isfile(path):
        raise UsageError(f"{job.target}: no such script; give the path of a Python file, or -m and a module's name")
    folder = os.path.dirname(os.path.realpath(path))
    sys.argv[:] = [job.target, *job.argv]
    sys.path.insert(0, folder)
    module = types.ModuleType("__main__")
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    module.__dict__.update(__file__=path, __loader__=loader, __package__=None, __spec__=None, __cached__=None)
    _finish_main(module)
    file = SourceFile(path=path, label=os.path.basename(path), module="__main__", root=folder)
    return module, file


def _module_main(job: Job) -> tuple[types.ModuleType, SourceFile]:
    sys.path.insert(0, os.getcwd())
    sys.argv[:] = ["-m", *job.argv]  # what a package's __init__ sees while the module is looked for
    spec = _find_spec(job.target)
    path = os.path.abspath(str(spec.origin))
    sys.argv[0] = path
    module = types.ModuleType("__main__")
    module.__dict__.update(
        __file__=spec.origin,
        __loader__=spec.loader,
        __package__=spec.parent,
        __spec__=spec,
        __cached__=spec.cached,
    )
    _finish_main(module)
    root = Path(path).parents[spec.name.count(".")]
    label = Path(path).relative_to(root).as_posix()
    return module, SourceFile(path=str(spec.origin), label=label, module=spec.name, root=str(root))


def _finish_main(module: types.ModuleType) -> None:
    module.__dict__["__builtins__"] = sys.modules["builtins"]
    if sys.version_info < (3, 14):  # Python gives it to every __main__
        module.__dict__.update(__annotations__={})
    sys.modules["__main__"] = module


def _find_spec(name: str) -> importlib.machinery.ModuleSpec:
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except (ImportError, ValueError) as error:
        raise UsageError(f"-m {name}: cannot be imported: {error}") from error
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise UsageError(f"-m {name}: no Python module of this name to run; start from the folder that holds it")
    return spec


# --- tracebacks --------------------------------------------------------------------------------------------------------


def strip_frames(error: BaseException) -> None:
    """Take the tool's frames out of the traceback of `error` and of all it was raised from."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        one = pending.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = _users_frames(one.__traceback__)
        pending += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            pending += list(one.exceptions)


def _users_frames(traceback: types.TracebackType | None) -> types.TracebackType | None:
    kept: list[types.TracebackType] = []
    at = traceback
    while at is not None:
        if not is_tool_file(at.tb_frame.f_code.co_filename):
            kept.append(at)
        at = at.tb_next
    for one, following in zip(kept, [*kept[1:], None], strict=False):
        one.tb_next = following
    return kept[0] if kept else None


def is_tool_file(filename: str) -> bool:
    """Whether code of this file is the tool's own, to be hidden from the user's tracebacks."""
    return filename.startswith(_TOOL_FOLDER)


def where_failed(error: BaseException, root: str) -> str:
    """`file:line` of the innermost frame in the user's files, "" when none is."""
    found, at = "", error.__traceback__
    while at is not None:
        name = at.tb_frame.f_code.co_filename
        if name.startswith(root + os.sep) and "site-packages" not in name:
            found = f"{os.path.relpath(name, root)}:{at.tb_lineno}"
        at = at.tb_next
    return found


def script_failed(mode: str, message: str, log: Path) -> ScriptFailed:
    """The error for a script that failed in one of the passes."""
    return ScriptFailed(f"the script failed in the {mode} pass: {message}; its output is in {log}")
