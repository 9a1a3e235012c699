"""Which files of the user's program are transformed, and the import hook that does it. No torch here."""

from __future__ import annotations

import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_TOOL_PACKAGE: Final = str(Path(__file__).resolve().parents[1]) + os.sep
_FOREIGN: Final = frozenset({"site-packages", "dist-packages", "node_modules"})


@dataclass
class SourceFile:
    """One file about to be compiled. `label` is its path relative to `root`, the script's folder.

    `text` and `data` are filled in before `transform` sees it. What a transform puts into `inject` becomes a global of
    the module before its first statement runs.
    """

    path: str
    label: str
    module: str
    root: str
    text: str = ""
    inject: dict[str, Any] = field(default_factory=dict)


Transform = Callable[[ast.Module, SourceFile], ast.Module]


class Files:
    """Decides which module files belong to the user's program: those under its folder, and the named packages."""

    def __init__(self, root: Path, packages: Sequence[str] = ()) -> None:
        self.root = os.path.realpath(root)
        self.packages = tuple(packages)
        self._foreign = tuple(
            os.path.realpath(path) + os.sep for path in {sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")}
        )
        self._environments: dict[str, bool] = {}

    def source_file(self, module: str, path: str) -> SourceFile | None:
        """The file when it is to be transformed, else None."""
        real = os.path.realpath(path)
        if real.startswith(_TOOL_PACKAGE):
            return None
        if any(module == name or module.startswith(f"{name}.") for name in self.packages):
            top = Path(real).parents[module.count(".") + (os.path.basename(real) == "__init__.py")]
            return SourceFile(path, Path(real).relative_to(top).as_posix(), module, str(top))
        if not self._is_beside(real):
            return None
        return SourceFile(path, os.path.relpath(real, self.root).replace(os.sep, "/"), module, self.root)

    def _is_beside(self, real: str) -> bool:
        if not real.startswith(self.root.rstrip(os.sep) + os.sep) or real.startswith(self._foreign):
            return False
        folders = Path(os.path.relpath(real, self.root)).parts[:-1]
        if any(name in _FOREIGN or name.startswith(".") for name in folders):
            return False
        at = self.root
        for name in folders:
            at = os.path.join(at, name)
            if at not in self._environments:
                self._environments[at] = os.path.exists(os.path.join(at, "pyvenv.cfg"))
            if self._environments[at]:
                return False
        return True


def compile_source(file: SourceFile, transform: Transform) -> types.CodeType:
    """The code of a file after `transform`. Raises SyntaxError as plain Python would, and OSError."""
    with open(file.path, "rb") as stream:
        data = stream.read()
    tree = ast.parse(data, file.path)  # first: it names file and line of what cannot be decoded
    file.text = importlib.util.decode_source(data) if data else ""
    changed = ast.fix_missing_locations(transform(tree, file))
    code: types.CodeType = compile(changed, file.path, "exec", dont_inherit=True)
    return code


class TransformLoader(importlib.machinery.SourceFileLoader):
    """Python's own source loader, handing out code that is already compiled.

    Nothing of importlib's own machinery is overridden but `get_code`: its frames are the ones Python takes out of the
    tracebacks of failing imports.
    """

    def __init__(self, fullname: str, path: str, code: types.CodeType, inject: dict[str, Any]) -> None:
        super().__init__(fullname, path)
        self._code: types.CodeType | None = code
        self._inject = inject

    def get_code(self, fullname: str) -> types.CodeType | None:
        """The transformed code for the import this loader was made for; the plain code for anyone else who asks."""
        module, code = sys.modules.get(fullname), self._code
        spec = getattr(module, "__spec__", None)
        if module is None or code is None or spec is None or spec.loader is not self:
            return super().get_code(fullname)
        self._code = None  # a reload, or runpy, runs the plain file
        module.__dict__.update(self._inject)
        return code


class BesideFinder(importlib.abc.MetaPathFinder):
    """Stands before Python's path finder, finds as it does, and swaps the loader of files that are the user's."""

    def __init__(self, files: Files, transform: Transform) -> None:
        self._files = files
        self._transform = transform
        self._left_out = ""

    @contextlib.contextmanager
    def leaving_out(self, fullname: str) -> Iterator[None]:
        """Find this module as Python would: it is looked up only, and runs as `__main__`."""
        self._left_out = fullname
        try:
            yield
        finally:
            self._left_out = ""

    def install(self) -> None:
        """Take the place right before the path finder: built-in and frozen modules keep their precedence."""
        path_finder: Any = importlib.machinery.PathFinder
        at = sys.meta_path.index(path_finder) if path_finder in sys.meta_path else len(sys.meta_path)
        sys.meta_path.insert(at, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec Python's path finder gives, with a transforming loader where the file is the user's."""
        if fullname == self._left_out:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None or type(spec.loader) is not importlib.machinery.SourceFileLoader:
            return spec
        file = self._files.source_file(fullname, spec.origin)
        if file is None:
            return spec
        try:
            code = compile_source(file, self._transform)
        except (SyntaxError, OSError, UnicodeDecodeError):
            return spec  # Python's own loader reports it as it always does
        spec.loader = TransformLoader(fullname, spec.origin, code, file.inject)
        return spec


class _AfterImport(importlib.abc.Loader):
    """A loader that calls back when its module is complete."""

    def __init__(self, inner: Any, callbacks: list[Callable[[], None]]) -> None:
        self._inner = inner
        self._callbacks = callbacks

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        made: types.ModuleType | None = self._inner.create_module(spec)
        return made

    def exec_module(self, module: types.ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._inner
        module.__loader__ = self._inner
        self._inner.exec_module(module)
        for callback in self._callbacks:
            callback()


class _ImportWatch(importlib.abc.MetaPathFinder):
    """Finds one module once, and steps aside."""

    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self._name = name
        self._callback = callback

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _AfterImport(spec.loader, [self._callback])
        return spec


def when_imported(name: str, callback: Callable[[], None]) -> None:
    """Call `callback()` as soon as the top-level module `name` is imported, at once when it already is.

    The user's script decides when torch is imported: it may set environment variables before.
    """
    if name in sys.modules:
        callback()
    else:
        sys.meta_path.insert(0, _ImportWatch(name, callback))
