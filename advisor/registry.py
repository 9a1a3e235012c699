"""Discovery of one-file features: a package folder in which every module carries one constant."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any, TypeVar

T = TypeVar("T")


def members(package: ModuleType, constant: str, kind: type[T]) -> tuple[T, ...]:
    """Every `constant` of type `kind` in the modules of `package`, sorted by its `id`.

    Modules whose name starts with `_` are helpers and are skipped. Raises TypeError when a module lacks the constant
    or an id repeats: a feature that silently fails to register is worse than a crash at start.
    """
    found: dict[str, Any] = {}
    for info in pkgutil.iter_modules(package.__path__):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        value = getattr(module, constant, None)
        if not isinstance(value, kind):
            raise TypeError(f"{module.__name__} must define {constant} as a {kind.__name__}")
        identity: str = value.id  # type: ignore[attr-defined]
        if identity in found:
            raise TypeError(f"{module.__name__}: {constant}.id {identity!r} is taken")
        found[identity] = value
    return tuple(found[key] for key in sorted(found))
