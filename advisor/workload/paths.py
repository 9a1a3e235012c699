"""Reading and setting attributes and items along a path, without ever running a property of the user's."""

from __future__ import annotations

import ast
import functools
import types
from collections.abc import Mapping
from typing import Any, Final

import torch

from advisor.workload.flow import Path

MISSING: Final = object()


def resolve(path: Path, local: Mapping[str, Any], glob: Mapping[str, Any]) -> Any:
    """The object at `path` as stored, or MISSING. Does not look inside tensors."""
    value = local.get(path.root, glob.get(path.root, MISSING))
    for step in path.steps:
        if value is MISSING or isinstance(value, torch.Tensor):
            return MISSING
        value = get_step(value, step)
    return value


def get_step(owner: Any, step: str) -> Any:
    """`owner.name` or `owner[key]` as stored, or MISSING."""
    if step.startswith("["):
        try:
            return owner[_key(step)] if isinstance(owner, dict | list | tuple) else MISSING
        except (KeyError, IndexError, TypeError):
            return MISSING
    name, own = step[1:], getattr(owner, "__dict__", {})
    if name in own:
        return own[name]
    if isinstance(owner, torch.nn.Module):
        for store in ("_parameters", "_buffers", "_modules"):
            held = own.get(store)
            if isinstance(held, Mapping) and name in held:
                return held[name]
    if isinstance(owner, dict) and name in owner and class_of(owner, "__getattr__") is not None:
        return dict.__getitem__(owner, name)  # a dictionary whose items are its attributes
    kind = class_of(owner, name)
    value = MISSING if kind is None else vars(kind)[name]
    if isinstance(value, types.MemberDescriptorType):  # a slot runs none of the user's code
        return getattr(owner, name, MISSING)
    return MISSING if hasattr(type(value), "__get__") else value


@functools.cache
def _key(step: str) -> Any:
    return ast.literal_eval(step[1:-1])


def class_of(owner: Any, name: str) -> type | None:
    """The class whose attribute `owner.name` is, where neither `owner` nor a class before it has one."""
    for kind in owner.__mro__ if isinstance(owner, type) else type(owner).__mro__:
        if name in kind.__dict__:
            return kind
    return None


def set_step(owner: Any, step: str, value: object) -> None:
    """The counterpart of `get_step`."""
    if step.startswith("["):
        owner[_key(step)] = value
    else:
        setattr(owner, step[1:], value)
