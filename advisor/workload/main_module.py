"""The `__main__` module a script or a module run with `-m` expects, with `sys.argv` and `sys.path[0]`. No torch here."""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path

from advisor.errors import UsageError
from advisor.workload.imports import BesideFinder, Files, SourceFile, Transform
from advisor.workload.job import Job


def prepare_main(job: Job, transform: Transform) -> tuple[types.ModuleType, SourceFile]:
    """Set up `sys.modules["__main__"]` and the import hook that applies `transform` to the modules beside it.

    The packages above a module run with `-m` are imported here, as `python -m` does: what they raise comes through.
    Raises UsageError when there is no such script or module.
    """
    return _module_main(job, transform) if job.is_module else _script_main(job, transform)


def _script_main(job: Job, transform: Transform) -> tuple[types.ModuleType, SourceFile]:
    path = os.path.abspath(job.target)
    if not os.path.isfile(path):
        raise UsageError(f"{job.target}: no such script; give the path of a Python file, or -m and a module's name")
    folder = os.path.dirname(os.path.realpath(path))
    sys.argv[:] = [job.target, *job.argv]
    sys.path.insert(0, folder)
    module = _fresh_main()
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    module.__dict__.update(__file__=path, __loader__=loader, __package__=None, __spec__=None, __cached__=None)
    BesideFinder(Files(Path(folder), job.instrument), transform).install()
    return module, SourceFile(path=path, label=os.path.basename(path), module="__main__", root=folder)


def _module_main(job: Job, transform: Transform) -> tuple[types.ModuleType, SourceFile]:
    sys.path.insert(0, os.getcwd())
    sys.argv[:] = ["-m", *job.argv]  # what a package's __init__ sees while the module is looked for
    module = _fresh_main()
    finder = BesideFinder(Files(_folder_of(job.target), job.instrument), transform)
    finder.install()
    spec = _find_spec(job.target, finder)
    path = os.path.abspath(str(spec.origin))
    sys.argv[0] = path
    module.__dict__.update(
        __file__=spec.origin,
        __loader__=spec.loader,
        __package__=spec.parent,
        __spec__=spec,
        __cached__=spec.cached,
    )
    root = Path(path).parents[spec.name.count(".")]
    label = Path(path).relative_to(root).as_posix()
    return module, SourceFile(path=str(spec.origin), label=label, module=spec.name, root=str(root))


def _fresh_main() -> types.ModuleType:
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = sys.modules["builtins"]
    if sys.version_info < (3, 14):  # Python gives it to every __main__
        module.__dict__.update(__annotations__={})
    sys.modules["__main__"] = module
    return module


def _folder_of(name: str) -> Path:
    """The folder that holds the top-level package or module, found without importing it. Raises UsageError."""
    with _looked_up(name):
        spec = importlib.util.find_spec(name.partition(".")[0])
    if spec is None:
        raise _no_module(name)
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).absolute().parent
    return Path(str(spec.origin)).absolute().parent


def _find_spec(name: str, finder: BesideFinder) -> importlib.machinery.ModuleSpec:
    spec = _find_one(name, finder)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = _find_one(f"{name}.__main__", finder)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise _no_module(name)
    return spec


def _find_one(name: str, finder: BesideFinder) -> importlib.machinery.ModuleSpec | None:
    parent = name.rpartition(".")[0]
    with _looked_up(name):
        if parent:
            __import__(parent)  # the statement's own way: importlib's frames stay out of the user's traceback
        with finder.leaving_out(name):
            return importlib.util.find_spec(name)


@contextlib.contextmanager
def _looked_up(name: str) -> Iterator[None]:
    """Refuse the module that is not there; an import that fails inside the user's own package is the user's error."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise UsageError(f"-m {name}: cannot be imported: {error}") from error
    except ValueError as error:
        raise UsageError(f"-m {name}: cannot be imported: {error}") from error


def _no_module(name: str) -> UsageError:
    return UsageError(f"-m {name}: no Python module of this name to run; start from the folder that holds it")
