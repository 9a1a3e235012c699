"""Hooks into torch: optimizer steps, nn.Module calls by path, and the user's own ranges. Installed once torch is there."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

from advisor.model import OptimizerFacts
from advisor.workload.mark import Emitter, Range, on_region

Begin = Callable[[], None]
_HOOKS: Final = "torch.nn.modules.module"


class Removable:
    """Hooks that can be taken out again."""

    def __init__(self) -> None:
        self._handles: list[Any] = []

    def add(self, handle: Any) -> None:
        self._handles.append(handle)

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def watch_optimizers(before: Callable[[Any], None] | None, after: Callable[[Any], None] | None) -> Removable:
    """Call `before(optimizer)` and `after(optimizer)` around every optimizer step in this process."""
    from torch.optim import optimizer as module

    hooks = Removable()
    if before is not None:
        hooks.add(module.register_optimizer_step_pre_hook(lambda optimizer, _args, _kwargs: before(optimizer)))
    if after is not None:
        hooks.add(module.register_optimizer_step_post_hook(lambda optimizer, _args, _kwargs: after(optimizer)))
    return hooks


def optimizer_facts(optimizer: Any) -> OptimizerFacts:
    """What an optimizer is, right after a step of it, when its gradients are there."""
    groups = optimizer.param_groups
    first = groups[0] if groups else {}
    own = [p for group in groups for p in group["params"] if p.grad is not None]
    if first.get("fused"):
        how = "fused"
    else:
        # torch takes foreach by itself where all parameters are on a GPU.
        foreach = first.get("foreach")
        how = "foreach" if foreach or (foreach is None and all(p.is_cuda for p in own)) else "single"
    return OptimizerFacts(
        kind=type(optimizer).__name__,
        implementation=how,
        capturable=bool(first.get("capturable")),
        parameter_count=len(own),
    )


def watch_optimizer_creation(created: Callable[[], None]) -> None:
    """Call `created()` whenever the script makes an optimizer."""
    from torch.optim import Optimizer

    original = Optimizer.__init__

    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        created()
        original(self, *args, **kwargs)

    Optimizer.__init__ = make  # type: ignore[method-assign]


class ModuleNames:
    """Paths of modules: the class of the outermost module called, then its attribute path: `GPT.blocks.0.attn`."""

    def __init__(self) -> None:
        self._names: dict[int, tuple[Any, str]] = {}  # the module is kept, so that its id stays its own

    def name(self, module: Any) -> str:
        found = self._names.get(id(module))
        if found is None:
            root = type(module).__name__
            for path, part in module.named_modules():
                self._names.setdefault(id(part), (part, f"{root}.{path}" if path else root))
            found = self._names.setdefault(id(module), (module, root))
        return found[1]


class ModuleRanges:
    """Emits one range per nn.Module call and per optimizer step while installed.

    torch.compile traces hooks along with the module they hang on; inside its trace these return at once.
    """

    def __init__(self, emitter: Emitter, wanted: Callable[[str], bool]) -> None:
        self._emitter = emitter
        self._wanted = wanted
        self._names = ModuleNames()
        self._ranges: dict[int, Range | None] = {}
        self._hooks = Removable()

    def install(self) -> None:
        """Hook in. Done some steps before ranges are wanted, since compiled modules compile again for it."""
        from torch.compiler import is_compiling
        from torch.nn.modules import module

        # torch warns a script that compiles a module of hooks that are the tool's, not the script's.
        warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there are global hooks")

        def before(one: Any, _args: Any) -> None:
            if not is_compiling():
                self._before(one)

        def after(one: Any, _args: Any, _output: Any) -> None:
            if not is_compiling():
                self._after(one)

        self._hooks.add(module.register_module_forward_pre_hook(before))
        self._hooks.add(module.register_module_forward_hook(after, always_call=True))
        self._hooks.add(watch_optimizers(self._before_step, self._after_step))

    def remove(self) -> None:
        self._hooks.remove()

    def _before(self, module: Any) -> None:
        made = self._range(module)
        if made is not None:
            self._emitter.push(made)

    def _after(self, module: Any) -> None:
        made = self._ranges.get(id(module))
        if made is not None:
            self._emitter.pop(made)

    def _range(self, module: Any) -> Range | None:
        key = id(module)
        if key not in self._ranges:
            label = self._names.name(module)
            self._ranges[key] = self._emitter.named("module", label) if self._wanted(label) else None
        return self._ranges[key]

    def _before_step(self, optimizer: Any) -> None:
        self._emitter.push(self._emitter.named("optim", step_label(optimizer)))

    def _after_step(self, optimizer: Any) -> None:
        self._emitter.pop(self._emitter.named("optim", step_label(optimizer)))


def step_label(optimizer: Any) -> str:
    """`Adam.step`."""
    return f"{type(optimizer).__name__}.step"


def is_named(module: Any, label: str, wanted: str) -> bool:
    """Whether `--step-at module:WANTED` means this module: by class, by path, or by the end of its path."""
    return wanted in (type(module).__name__, label) or label.endswith(f".{wanted}")


def watch_module(wanted: str, begin: Begin, end: Begin) -> None:
    """Call `begin()` and `end()` around every call of the first module that `wanted` names."""
    from torch.nn.modules import module as registry

    names, search = ModuleNames(), Removable()

    def look(module: Any, _args: Any) -> None:
        if is_named(module, names.name(module), wanted):
            search.remove()
            module.register_forward_pre_hook(lambda _module, _args: begin())
            module.register_forward_hook(lambda _module, _args, _output: end(), always_call=True)

    search.add(registry.register_module_forward_pre_hook(look))


def watch_ranges(wanted: str, begin: Begin, end: Begin) -> None:
    """Call `begin()` and `end()` around ranges of this name: record_function, torch.cuda.nvtx and the nvtx package."""
    import torch

    _wrap_context(torch.autograd.profiler.record_function, lambda one: one.name == wanted, begin, end)
    _wrap_pushes(torch.cuda.nvtx, ("range_push", "range_pop"), wanted, begin, end)
    if "nvtx" in sys.modules:
        import nvtx

        # Only the class carries its message: attributes live in C.
        _wrap_context(nvtx.annotate, lambda one: one.init_args[0] == wanted, begin, end)
        _wrap_pushes(nvtx, ("push_range", "pop_range"), wanted, begin, end)


def _wrap_context(kind: Any, fits: Callable[[Any], bool], begin: Begin, end: Begin) -> None:
    enter, leave = kind.__enter__, kind.__exit__

    def entered(self: Any) -> Any:
        if fits(self):
            begin()
        return enter(self)

    def left(self: Any, *exc: Any) -> Any:
        result = leave(self, *exc)
        if fits(self):
            end()
        return result

    kind.__enter__, kind.__exit__ = entered, left


def _wrap_pushes(module: Any, names: tuple[str, str], wanted: str, begin: Begin, end: Begin) -> None:
    push, pop = getattr(module, names[0]), getattr(module, names[1])
    stack: list[bool] = []

    def pushed(message: Any, *args: Any, **kwargs: Any) -> Any:
        stack.append(message == wanted)
        if stack[-1]:
            begin()
        return push(message, *args, **kwargs)

    def popped(*args: Any, **kwargs: Any) -> Any:
        result = pop(*args, **kwargs)
        if stack and stack.pop():
            end()
        return result

    setattr(module, names[0], pushed)
    setattr(module, names[1], popped)


def region_steps(wanted: str, begin: Begin, end: Begin, inner: Callable[[str], AbstractContextManager[None]]) -> None:
    """Let `advisor.region(wanted)` mark steps, on top of what `inner(name)` does for every region."""

    @contextlib.contextmanager
    def factory(name: str) -> Iterator[None]:
        if name != wanted:
            with inner(name):
                yield
            return
        begin()
        try:
            with inner(name):
                yield
        finally:
            end()

    on_region(factory)
