"""The script's Python state outside the loop's frame: module globals, class attributes, closures, attributes of its modules.

A loop in a function sees none of it, and the statements of a span may change all of it: a moving average in a global dict,
a counter on a module, a total in a closure. A replay leaves such a change out, so equality has to look here too.
"""

from __future__ import annotations

import hashlib
import itertools
import operator
import random
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch
from torch.nn import Module
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset, Sampler

from advisor.workload import state, trees

PREFIX: Final = "global "  # before names that are not the loop's own: one of each may be called `out`
_MAX_VISITS: Final = 5_000
_CLOSED: Final = frozenset({"torch", "numpy", "pandas", "nvtx", "advisor"})
# What hands out batches reads ahead, in threads and processes of its own: what it holds is no state of the step.
_SEALED: Final = (Module, Optimizer, DataLoader, Dataset, Sampler, types.ModuleType, types.FunctionType)
_TORCHS_OWN: Final = frozenset(vars(Module()))
_OPTIMIZERS_OWN: Final = frozenset(vars(torch.optim.SGD([torch.zeros(1)])))
_ARRAY_SAMPLE: Final = 1 << 20
_MAX_CONTENT: Final = 100_000
_CONTAINERS: Final = (list, tuple, dict, deque)
_ITERATORS: Final[tuple[type, ...]] = (type(iter([])), type(iter(())), type(iter(range(0))))
LookInto = Callable[[object], bool]
Leaf = tuple[str, Any]


def leaves(user_modules: frozenset[str], local: Mapping[str, Any], look_into: LookInto) -> Iterator[Leaf]:
    """(text, leaf) of all Python state of these modules that is not a name of the loop's frame. Leaves as in `trees`."""
    known = {id(module) for module in state.REGISTRY.live_modules()}
    for name in sorted(user_modules):
        space = vars(sys.modules[name]) if name in sys.modules else {}
        where = prefix(name)
        for key, value in list(space.items()):
            if not key.startswith(("_cga", "__")) and id(value) not in known:
                yield from _of_value(f"{where}{key}", value, user_modules, local, look_into, space is local)
    for key, value in list(local.items()):
        if isinstance(value, types.FunctionType) and not key.startswith("_cga"):
            yield from _of_function(f"{PREFIX}{key}", value, local, look_into)
    yield from _of_modules(user_modules, look_into)
    yield from _of_optimizers(user_modules, look_into)


def prefix(module: str) -> str:
    """What stands before the names of a module's globals."""
    return PREFIX if module == "__main__" else f"{PREFIX}{module}."


def _of_value(
    text: str,
    value: object,
    user_modules: frozenset[str],
    local: Mapping[str, Any],
    look_into: LookInto,
    is_frame: bool,
) -> Iterator[Leaf]:
    if isinstance(value, types.FunctionType):
        if value.__module__ in user_modules:
            yield from _of_function(text, value, local, look_into)
    elif isinstance(value, type):
        if value.__module__ in user_modules:
            yield from _of_class(text, value, local, look_into)
    elif not is_frame:  # else it is a name of the loop's frame, and compared as one
        yield from _flat(text, value, look_into)


def _of_function(
    text: str, function: types.FunctionType, local: Mapping[str, Any], look_into: LookInto
) -> Iterator[Leaf]:
    """What a function keeps from one call to the next: its closure, its attributes, the values of its defaults."""
    yield from _of_closure(text, function, local, look_into)
    defaults = {f"({index})": value for index, value in enumerate(function.__defaults__ or ())}
    kept = {f".{name}": value for name, value in vars(function).items() if not name.startswith("__")}
    for name, value in {**kept, **defaults, **(function.__kwdefaults__ or {})}.items():
        if not isinstance(value, (*trees.NUMBERS, Module)) or name in kept:
            yield from _flat(f"{text}{name}", value, look_into)


def _of_closure(
    text: str, function: types.FunctionType, local: Mapping[str, Any], look_into: LookInto
) -> Iterator[Leaf]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # not bound yet
            continue
        # A variable of the loop's own frame is compared as such, where it is known whether anyone reads it again.
        if not (name in local and local[name] is value) and not isinstance(value, Module):
            yield from _flat(f"{text}.{name}", value, look_into)


def _of_class(text: str, kind: type, local: Mapping[str, Any], look_into: LookInto) -> Iterator[Leaf]:
    for name, value in list(vars(kind).items()):
        function = getattr(value, "__func__", value)
        if isinstance(function, types.FunctionType):
            yield from _of_function(f"{text}.{name}", function, local, look_into)
        elif not name.startswith("__") and not callable(value) and not hasattr(type(value), "__get__"):
            yield from _flat(f"{text}.{name}", value, look_into)


def _of_modules(user_modules: frozenset[str], look_into: LookInto) -> Iterator[Leaf]:
    """Plain attributes of the script's own nn.Modules: counters, logs, caches. Direct tensors are `state`'s."""
    for root, module in state.REGISTRY.roots():
        for path, child in module.named_modules():
            if type(child).__module__ not in user_modules:
                continue
            owner = f"{root}.{path}" if path else root
            for name, value in list(vars(child).items()):
                if name not in _TORCHS_OWN and not isinstance(value, torch.Tensor):
                    yield from _flat(f"{owner}.{name}", value, look_into)


def _of_optimizers(user_modules: frozenset[str], look_into: LookInto) -> Iterator[Leaf]:
    """Attributes of the script's own optimizers, and state under names instead of parameters."""
    for number, optimizer in enumerate(state.REGISTRY.live_optimizers()):
        text = f"optimizer {number}"
        held = {f".state[{key!r}]": value for key, value in optimizer.state.items() if isinstance(key, str)}
        if type(optimizer).__module__ in user_modules:
            held |= {f".{name}": value for name, value in vars(optimizer).items() if name not in _OPTIMIZERS_OWN}
        for name, value in held.items():
            yield from _flat(f"{text}{name}", value, look_into)


def roots(user_modules: frozenset[str], local: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """(text, value) of the loop's names and of the modules' globals."""
    yield from ((key, value) for key, value in list(local.items()) if not key.startswith(("_cga", "__")))
    for name in sorted(user_modules):
        space = vars(sys.modules[name]) if name in sys.modules else {}
        if space is not local:
            for key, value in list(space.items()):
                if not key.startswith(("_cga", "__")):
                    yield f"{prefix(name)}{key}", value


def deep_state(
    roots: Iterable[tuple[str, object]], user_modules: frozenset[str], limit: int = _MAX_VISITS
) -> Iterator[tuple[str, torch.Tensor | str]]:
    """What lies below `roots` however deep, in objects of libraries too: an average of the weights, a cache, a generator.

    Tensors and large arrays; states of random generators and counters, contents of long containers and, outside the
    libraries' objects, Python values, all as text. Libraries' Python values are counters of calls, times, handles. At most
    `limit` objects are looked at, the nearest first.
    """
    todo = deque((text, value, True) for text, value in roots)
    seen: set[int] = set()
    for _ in range(limit):
        if not todo:
            return
        text, value, own = todo.popleft()
        if isinstance(value, trees.NUMBERS):
            if own:
                yield text, value.hex() if isinstance(value, float) else repr(value)
            continue
        found = value if isinstance(value, torch.Tensor) else _large_array(value)
        if found is not None:
            yield text, found
        elif id(value) not in seen and not isinstance(value, (*_SEALED, type)):
            seen.add(id(value))
            place = _position(value)
            if place:
                yield f"{text}{place[0]}", _digest(place[1])
            elif trees.is_short(value):
                own = own and (type(value).__module__ in user_modules or isinstance(value, _CONTAINERS))
                todo.extend((f"{text}{step}", child, own) for step, child in trees.children_of(value, _is_open))
                if isinstance(value, _CONTAINERS) and type(value).__module__ in user_modules:
                    more = (
                        getattr(value, "__dict__", None) or {}
                    )  # a list or dictionary of the script's, with attributes
                    todo.extend((f"{text}.{name}", one, own) for name, one in more.items() if more is not value)


def _position(value: object) -> tuple[str, object] | None:
    """(suffix, state) of what goes on by itself whenever it is asked: generators, counters, iterators; of long containers."""
    if isinstance(value, torch.Generator):
        return (".state", bytes(value.get_state().tolist())) if value.device.type == "cpu" else None
    if isinstance(value, random.Random):
        return ".state", value.getstate() if type(value).getstate is random.Random.getstate else None
    if isinstance(value, np.random.Generator):
        return ".state", value.bit_generator.state
    if isinstance(value, np.random.RandomState):
        return ".state", value.get_state()
    if isinstance(value, itertools.count):
        return ".next", repr(value)
    if isinstance(value, _ITERATORS):
        return ".left", operator.length_hint(value)
    if isinstance(value, list | tuple | deque | dict) and not trees.is_short(value):
        return "[:]", _content(value)
    return None


def _content(value: Any) -> list[object]:
    """The plain values of a container too long to be walked; of a very long one, evenly spread ones."""
    stride = len(value) // _MAX_CONTENT + 1
    flat = itertools.islice(value.values() if isinstance(value, dict) else value, 0, None, stride)
    return [one if isinstance(one, trees.NUMBERS) else type(one).__name__ for one in flat]


def _digest(value: object) -> str:
    return hashlib.sha1(repr(value).encode(errors="replace")).hexdigest()


def _large_array(value: object) -> torch.Tensor | None:
    """Evenly spread values of a numeric array that is too large to be told by its bytes."""
    if not isinstance(value, np.ndarray) or value.nbytes <= trees.MAX_BYTES or value.dtype.kind not in "biufc":
        return None
    sample = value.flat[:: value.size // _ARRAY_SAMPLE + 1]
    try:
        return torch.from_numpy(sample)
    except TypeError:  # a width that torch does not have
        return torch.from_numpy(np.frombuffer(sample.tobytes(), dtype=np.uint8).copy())


def _is_open(value: object) -> bool:
    root = type(value).__module__.partition(".")[0]
    return root not in _CLOSED and root not in sys.stdlib_module_names


def _flat(text: str, value: object, look_into: LookInto) -> Iterator[Leaf]:
    for path, leaf in trees.flatten(text, value, look_into).items():
        yield trees.describe(path), leaf
