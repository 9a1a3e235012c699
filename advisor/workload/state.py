"""The script's modules and optimizers, in the order they were made, and what a replay must know about them.

`install` puts two thin hooks into torch so that every module and optimizer is known without searching memory; names are
then the same in every child that runs the same script.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch.optim import lr_scheduler
from torch.optim.optimizer import register_optimizer_step_pre_hook

_HYPER: Final = (bool, int, float)


@dataclass
class Registry:
    """Weak references to what the script has built. `made_at` gives (file, line) of an optimizer's construction."""

    modules: list[weakref.ref[torch.nn.Module]] = field(default_factory=list)
    optimizers: list[weakref.ref[torch.optim.Optimizer]] = field(default_factory=list)
    made_at: dict[int, tuple[str, int]] = field(default_factory=dict)
    files: frozenset[str] = frozenset()
    optimizer_fixes: frozenset[str] = frozenset()
    has_scheduler: bool = False  # a learning-rate scheduler was made, by the script or by a library for it

    def live_modules(self) -> list[torch.nn.Module]:
        return [module for module in (ref() for ref in self.modules) if module is not None]

    def live_optimizers(self) -> list[torch.optim.Optimizer]:
        return [optimizer for optimizer in (ref() for ref in self.optimizers) if optimizer is not None]

    def roots(self) -> list[tuple[str, torch.nn.Module]]:
        """Modules that are no other module's child, named `Class[n]` in the order of construction."""
        modules = self.live_modules()
        children = {id(child) for module in modules for child in module.children()}
        seen: dict[str, int] = {}
        found = []
        for module in modules:
            if id(module) in children:
                continue
            kind = type(module).__name__
            number = seen[kind] = seen.get(kind, -1) + 1
            found.append((f"{kind}[{number}]", module))
        return found


REGISTRY = Registry()
_installed = False


def install(files: Iterable[str] = (), optimizer_fixes: Iterable[str] = ()) -> Registry:
    """Hook module and optimizer construction. Called once per process, before the script starts."""
    global _installed
    REGISTRY.modules.clear()
    REGISTRY.optimizers.clear()
    REGISTRY.made_at.clear()
    REGISTRY.has_scheduler = False
    REGISTRY.files = frozenset(files)
    REGISTRY.optimizer_fixes = frozenset(optimizer_fixes)
    if not _installed:
        _installed = True
        _hook_modules()
        _hook_optimizers()
        _hook_schedulers()
    return REGISTRY


def _hook_modules() -> None:
    plain_init, plain_setstate = torch.nn.Module.__init__, torch.nn.Module.__setstate__

    def init(self: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        REGISTRY.modules.append(weakref.ref(self))
        plain_init(self, *args, **kwargs)

    def setstate(self: torch.nn.Module, state: Any) -> None:  # deepcopy and unpickling do not call __init__
        REGISTRY.modules.append(weakref.ref(self))
        plain_setstate(self, state)  # type: ignore[no-untyped-call]

    torch.nn.Module.__init__ = init  # type: ignore[method-assign]
    torch.nn.Module.__setstate__ = setstate  # type: ignore[method-assign]


def _hook_optimizers() -> None:
    plain = torch.optim.Optimizer.__init__

    def init(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        REGISTRY.optimizers.append(weakref.ref(self))
        place = _user_frame()
        if place is not None:
            REGISTRY.made_at[id(self)] = place
        _fix_optimizer(self, REGISTRY.optimizer_fixes)

    torch.optim.Optimizer.__init__ = init  # type: ignore[method-assign]


def _hook_schedulers() -> None:
    for kind in (lr_scheduler.LRScheduler, lr_scheduler.ReduceLROnPlateau):

        def init(self: Any, *args: Any, _plain: Any = kind.__init__, **kwargs: Any) -> None:
            REGISTRY.has_scheduler = True
            _plain(self, *args, **kwargs)

        kind.__init__ = init  # type: ignore[method-assign]


def scale_learning_rates(factor: float) -> bool:
    """Multiply every learning rate of every optimizer, as a scheduler does it; whether there was one."""
    found = False
    for optimizer in REGISTRY.live_optimizers():
        for group in optimizer.param_groups:
            if isinstance(group.get("lr"), torch.Tensor):
                with torch.no_grad():
                    group["lr"].mul_(factor)
            elif isinstance(group.get("lr"), int | float):
                group["lr"] *= factor
            found = found or "lr" in group
    return found


def _user_frame() -> tuple[str, int] | None:
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename in REGISTRY.files:
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return None


def _fix_optimizer(optimizer: torch.optim.Optimizer, fixes: frozenset[str]) -> None:
    """The optimizer as it would be had the script asked for it: capturable, with a tensor lr, or fused."""
    if "capturable" in fixes and "capturable" in optimizer.defaults:
        for group in (optimizer.defaults, *optimizer.param_groups):
            group["capturable"] = True
    if "fused" in fixes and "fused" in optimizer.defaults:
        for group in (optimizer.defaults, *optimizer.param_groups):
            group["fused"], group["foreach"] = True, False
    if "lr-tensor" in fixes:
        for group in optimizer.param_groups:
            device = group["params"][0].device if group["params"] else None
            if not isinstance(group["lr"], torch.Tensor):
                group["lr"] = torch.tensor(group["lr"], dtype=torch.float32, device=device)


def parameters() -> list[torch.Tensor]:
    """Every parameter of every module and optimizer, once."""
    found: dict[int, torch.Tensor] = {}
    for module in REGISTRY.live_modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                found[id(parameter)] = parameter
    for optimizer in REGISTRY.live_optimizers():
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                found[id(parameter)] = parameter
    return list(found.values())


class Modes:
    """Which modules train and which evaluate: a replay does what the capture did, whatever the flags say later."""

    def __init__(self) -> None:
        modules = REGISTRY.live_modules()
        self._modules = [
            weakref.ref(module) for module in modules
        ]  # a copy the script drops must go, as it does in eager
        self._flags = [module.training for module in modules]

    def changed(self) -> str:
        """The class of the first module whose flag is another one now, or nothing."""
        both = zip(self._modules, self._flags, strict=True)
        for module in [one for ref, flag in both if (one := ref()) is not None and one.training is not flag]:
            return type(module).__name__
        return ""


def tensor_attributes() -> dict[str, int]:
    """Plain tensor attributes of modules (neither parameter nor buffer) and the identity of what they hold."""
    return {name: id(value) for name, value in iter_tensor_attributes()}


def iter_tensor_attributes() -> Iterator[tuple[str, torch.Tensor]]:
    for root, module in REGISTRY.roots():
        for path, child in module.named_modules():
            for name, value in vars(child).items():
                if isinstance(value, torch.Tensor):
                    yield f"{root}.{path}.{name}" if path else f"{root}.{name}", value


class Grads:
    """`.grad` of every parameter around the span: the graph writes to fixed memory, the attribute is Python's.

    Asked before every replay, of hundreds of parameters: identities are compared as lists, which takes a third of the time.
    """

    def __init__(self, extra: Iterable[torch.Tensor]) -> None:
        every = {id(tensor): tensor for tensor in (*parameters(), *extra)}
        self.tensors = list(every.values())
        self.entry = [tensor.grad for tensor in self.tensors]
        self.exit: list[torch.Tensor | None] = []
        self._leave([])
        self.eager_last = False
        self.touched_count = 0

    def captured(self) -> None:
        self.exit = self._now()
        self._leave(self.exit)

    def before_replay(self) -> str:
        """The hazard that code outside the span has brought about since the span last ran, or nothing.

        After an eager execution the gradients lie elsewhere; then the captured ones are put back in place, holding the
        current values where the graph accumulates into them.
        """
        now = self._now()
        touched = [id(grad) for grad in now] != self._left_ids
        differs = self._left_differs
        if touched:
            self.touched_count += 1
            differs = self._differs(now)
        elif self.eager_last:
            with torch.no_grad():
                for tensor, entry, static in zip(self.tensors, self.entry, self.exit, strict=True):
                    if static is not None and entry is static and tensor.grad is not None:
                        static.copy_(tensor.grad)
            self.restore()
            differs = self._differs(self.exit)
        if differs:
            return "grad-accumulate-twice"
        return "grad-reset-outside" if touched else ""

    def _now(self) -> list[torch.Tensor | None]:
        return [tensor.grad for tensor in self.tensors]

    def _leave(self, grads: list[torch.Tensor | None]) -> None:
        """What the span left behind. Holding the gradients keeps their identities from being given to others."""
        self._left = grads
        self._left_ids = [id(grad) for grad in grads]
        self._left_differs = self._differs(grads)

    def _differs(self, grads: list[torch.Tensor | None]) -> bool:
        """Whether there is a gradient where the capture found none, or the other way round."""
        return any((grad is None) != (entry is None) for grad, entry in zip(grads, self.entry, strict=False))

    def restore(self) -> None:
        """Point every `.grad` at the memory the graph writes."""
        for tensor, static in zip(self.tensors, self.exit, strict=True):
            tensor.grad = static

    def after(self, *, eager: bool) -> None:
        if eager or self.eager_last or self.touched_count:
            self._leave(self._now())
        self.eager_last = eager


class StepWatch:
    """Which optimizers step inside the capture, and whether their Python hyper-parameters change afterwards."""

    def __init__(self) -> None:
        self._stepped: dict[int, torch.optim.Optimizer] = {}
        self._values: list[tuple[torch.optim.Optimizer, int, str, object]] = []
        self._handle = register_optimizer_step_pre_hook(self._note)

    def _note(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        self._stepped[id(optimizer)] = optimizer

    def close(self) -> None:
        self._handle.remove()
        for optimizer in self._stepped.values():
            for number, group in enumerate(optimizer.param_groups):
                for key, value in group.items():
                    if isinstance(value, _HYPER) and not isinstance(value, bool):
                        self._values.append((optimizer, number, key, value))

    def learning_rates(self) -> Iterator[tuple[str, float]]:
        """(`SGD lr`, 0.01) of each optimizer that steps in the graph with a rate that is a Python number."""
        for optimizer, _, key, value in self._values:
            if key == "lr" and isinstance(value, int | float):
                yield f"{type(optimizer).__name__} lr", value

    def changed(self) -> str:
        """`SGD lr 0.1 -> 0.01`, or nothing."""
        for optimizer, number, key, value in self._values:
            now = optimizer.param_groups[number].get(key)
            if now != value:
                return f"{type(optimizer).__name__} {key} {value!r} -> {now!r}"
        return ""
