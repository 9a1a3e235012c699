"""Values as trees: the tensors and numbers inside tuples, lists, dicts, dataclasses, model outputs and plain objects.

A leaf is addressed by its path, a tuple of steps: ("x",), ("batch", "['input_ids']"), ("out", ".logits"), ("pair", "[0]").
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import torch

Leaves = dict[tuple[str, ...], Any]
MAX_ENTRIES: Final = 256  # a longer container is judged by its identity and length alone
MAX_DEPTH: Final = 5
MAX_BYTES: Final = 1 << 20  # of an array that is told by its content
_MAX_KEY: Final = 1 << 40  # a larger integer is an id() or a hash
NUMBERS: Final = (bool, int, float, complex, str, bytes, type(None))
_OPAQUE: Final = (
    torch.nn.Module,
    torch.optim.Optimizer,
    torch.Generator,
    types.ModuleType,
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    type,
)


class Opaque:
    """A leaf the tool does not look into. Two are equal when they stand for the same object (and the same length)."""

    __slots__ = ("form", "identity", "kind", "length")

    def __init__(self, value: object) -> None:
        self.identity: object = id(value)
        self.kind = type(value).__name__
        self.form: object = self.kind  # alike in two objects of which one may stand for the other
        if isinstance(value, types.FunctionType):
            self.form = (id(value.__code__), *_kept_numbers(value))
        elif isinstance(value, types.MethodType):  # made anew whenever it is read
            self.form = id(value.__func__)
            self.identity = (id(value.__self__), self.form)
        elif isinstance(value, types.BuiltinFunctionType):
            self.form = value.__qualname__
        elif isinstance(value, _OPAQUE) or type(value).__module__ == "numpy":
            self.form = self.identity
        self.length = len(value) if isinstance(value, list | dict | set | deque) else -1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and (self.identity, self.length) == (other.identity, other.length)

    def __hash__(self) -> int:
        return hash((self.identity, self.length))

    def __repr__(self) -> str:
        return f"<{self.kind}>"


def _kept_numbers(function: types.FunctionType) -> Iterator[str]:
    """The Python values in a function's closure and defaults: two lambdas of one line may hold different ones."""
    for cell in function.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:  # not bound yet
            continue
        if isinstance(value, NUMBERS):
            yield repr(value)
    yield from (repr(value) for value in function.__defaults__ or () if isinstance(value, NUMBERS))


def flatten(name: str, value: object, look_into: Callable[[object], bool]) -> Leaves:
    """The leaves of `value` under the path (`name`,). `look_into(object)` decides for objects of unknown types."""
    leaves: Leaves = {}
    _walk((name,), value, look_into, leaves, 0)
    return leaves


def _walk(
    path: tuple[str, ...], value: object, look_into: Callable[[object], bool], leaves: Leaves, depth: int
) -> None:
    if isinstance(value, torch.Tensor) or isinstance(value, NUMBERS):
        leaves[path] = value
        return
    if depth >= MAX_DEPTH or isinstance(value, _OPAQUE):
        leaves[path] = Opaque(value)
        return
    children = list(children_of(value, look_into)) if is_short(value) else None
    if children is None or (not children and not isinstance(value, list | tuple | deque | Mapping)):
        leaves[path] = _plain(value)
        return
    if isinstance(value, list | tuple | deque | Mapping):
        leaves[(*path, "len")] = len(value)
    for step, child in children:
        _walk((*path, step), child, look_into, leaves, depth + 1)


def is_short(value: object) -> bool:
    return not isinstance(value, list | tuple | deque | Mapping | set | frozenset) or len(value) <= MAX_ENTRIES


def _plain(value: object) -> object:
    """numpy scalars and arrays, slices, ranges and sets by content, everything else by identity."""
    text = _content(value)
    if text:
        return text
    if type(value).__module__ == "numpy":
        data = getattr(value, "tobytes", None)
        if data is not None and getattr(value, "nbytes", 1 << 30) <= MAX_BYTES:
            return data()
    return Opaque(value)


def _content(value: object) -> str:
    """A slice, a range or a set of plain values as text; nothing for anything else."""
    if isinstance(value, slice | range):
        parts = [value.start, value.stop, value.step]
    elif isinstance(value, set | frozenset) and len(value) <= MAX_ENTRIES:
        parts = list(value)
    else:
        return ""
    if not all(isinstance(part, NUMBERS) for part in parts):
        return ""
    texts = [repr(part) for part in parts]
    return f"{type(value).__name__} {texts if isinstance(value, slice | range) else sorted(texts)}"


def children_of(value: object, look_into: Callable[[object], bool]) -> Iterator[tuple[str, object]]:
    """(step, child) of a container, a dataclass, or an object that `look_into` agrees to; nothing of anything else."""
    if isinstance(value, Mapping):
        for index, key in enumerate(value):
            yield _key_step(key, index), value[key]
    elif isinstance(value, list | tuple | deque):
        for index, child in enumerate(value):
            yield f"[{index}]", child
    elif isinstance(value, functools.partial):
        yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
    elif dataclasses.is_dataclass(value) or look_into(value):
        for name in _attribute_names(value):
            yield f".{name}", getattr(value, name)


def _key_step(key: object, index: int) -> str:
    """`['mask']`; the position for a key whose text is another one in the next process, as an id or an object's is."""
    stable = isinstance(key, NUMBERS) and not (isinstance(key, int) and abs(key) > _MAX_KEY)
    if isinstance(key, tuple):
        stable = all(
            isinstance(part, str | bool | None) or (isinstance(part, int) and abs(part) <= _MAX_KEY) for part in key
        )
    return f"[{key!r}]" if stable else f"[#{index}]"


def _attribute_names(value: object) -> list[str]:
    """Of an object of a Python class: its own attributes and its slots."""
    if type(value).__module__ == "builtins":
        return []
    slots = [name for kind in type(value).__mro__ if "__slots__" in vars(kind) for name in _slots_of(kind)]
    return list(dict.fromkeys([*getattr(value, "__dict__", ()), *(name for name in slots if hasattr(value, name))]))


def _slots_of(kind: type) -> Iterator[str]:
    """The slots a class adds, private ones by their full names."""
    return (name for name, one in vars(kind).items() if isinstance(one, types.MemberDescriptorType))


def replaced(value: object, path: tuple[str, ...], new: Mapping[tuple[str, ...], object]) -> object:
    """`value` with the leaves in `new` put in their places; containers on the way are copied, never changed."""
    if path in new:
        return new[path]
    depth = len(path)
    steps = {key[depth] for key in new if len(key) > depth and key[:depth] == path}
    if not steps:
        return value
    children = dict(children_of(value, lambda _: True))
    fresh = {step: replaced(children[step], (*path, step), new) for step in steps}
    return _withchildren_of(value, fresh)


def _withchildren_of(value: Any, fresh: dict[str, object]) -> object:
    if isinstance(value, tuple):
        return _new_tuple(value, [fresh.get(f"[{index}]", child) for index, child in enumerate(value)])
    clone = copy.copy(value)
    if isinstance(clone, list | deque):
        for index in range(len(clone)):
            clone[index] = fresh.get(f"[{index}]", clone[index])
    elif isinstance(clone, Mapping):
        for index, key in enumerate(list(clone)):
            step = _key_step(key, index)
            if step in fresh:
                clone[key] = fresh[step]  # type: ignore[index]
    else:
        for step, child in fresh.items():
            object.__setattr__(clone, step[1:], child)  # also of a frozen dataclass: the copy is ours
    return clone


def _new_tuple(value: tuple[Any, ...], items: list[Any]) -> object:
    """A tuple of the same class, without its constructor, which may take anything."""
    try:
        made = tuple.__new__(type(value), items)
    except TypeError:  # torch.return_types and the like
        return type(value)(items)
    if hasattr(value, "__dict__"):
        vars(made).update(vars(value))
    return made


def describe(path: tuple[str, ...]) -> str:
    """A path as a person would write it: `batch['x'].mask`, `len(losses)`."""
    return f"len({''.join(path[:-1])})" if path[-1] == "len" and len(path) > 1 else "".join(path)


def tensor_signature(tensor: torch.Tensor) -> tuple[object, ...]:
    """What must not change for a captured graph to be valid for another tensor in this place."""
    layout = tensor.layout
    strides = tensor.stride() if layout is torch.strided else ()
    # What the span computes from a leaf has lost its history after a replay: only of leaves it is the script's wish.
    asks = tensor.is_leaf and tensor.requires_grad
    return tuple(tensor.shape), tensor.dtype, str(tensor.device), strides, layout, asks
