"""The call of one nn.Module as a span: its arguments are the live-ins, what it returns is the live-out."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch

from advisor.workload import state
from advisor.workload.capture import SpanRuntime, SpanSpec
from advisor.workload.liveness import SpanNames
from advisor.workload.session import Session

NAMES = SpanNames(live_in=("args", "kwargs"), live_out=("result",))


def install(session: Session, path: str) -> None:
    """Wrap the module at `path` (`encoder.layers.0`, `Net.encoder`, or a class name) once the loop first ticks."""
    plain = session.tick
    runtime = session.runtime
    assert isinstance(runtime, SpanRuntime)
    wrapped = SpanRuntime(SpanSpec(runtime.spec.label, NAMES, frozenset(("args", "kwargs"))), session, runtime.switches)
    session.runtime = wrapped
    found = False

    def tick(local: Mapping[str, Any]) -> None:
        nonlocal found
        if not found:
            found = True
            module = find_module(path)
            if module is not None:
                wrap(module, wrapped)
            elif session.spec.role == "graph":
                session.refuse("no-such-module", f"no module {path!r} among {', '.join(_names()[:8])}")
        plain(local)

    session.tick = tick  # type: ignore[method-assign]


def find_module(path: str) -> torch.nn.Module | None:
    """The module with this path below a root module, with or without the root's class name in front."""
    for root, module in state.REGISTRY.roots():
        for name, child in module.named_modules():
            kind = root.split("[")[0]
            if path in (
                name,
                f"{kind}.{name}",
                f"{root}.{name}",
                type(child).__name__,
                *((kind, root) if not name else ()),
            ):
                found: torch.nn.Module = child
                return found
    return None


def _names() -> list[str]:
    return [name for root, module in state.REGISTRY.roots() for name, _ in module.named_modules(prefix=root)]


def wrap(module: torch.nn.Module, runtime: SpanRuntime) -> None:
    """Replace `module.forward` by its skippable form. Gradients cannot cross the edge of a replayed forward.

    In the class where that is possible: an attribute of the module would go into its copies and pickles.
    """
    kind: Any = type(module)
    plain = module.forward

    @functools.wraps(plain)
    def forward(*args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled() and module.training:
            return plain(*args, **kwargs)
        local: dict[str, Any] = {"args": args, "kwargs": kwargs}
        if runtime.enter(local, {}):
            if runtime.swaps:
                args, kwargs = runtime.ins.get("args", args), runtime.ins.get("kwargs", kwargs)
                local.update(args=args, kwargs=kwargs)
            try:
                local["result"] = plain(*args, **kwargs)
            except BaseException:
                runtime.failed()
                raise
            runtime.leave(local, {})
        return runtime.outs["result"] if runtime.gives else local["result"]

    if "forward" in vars(module) or isinstance(module, torch.jit.ScriptModule):
        module.forward = forward
        return
    of_class = kind.forward

    @functools.wraps(of_class)
    def dispatch(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs) if self is module else of_class(self, *args, **kwargs)

    kind.forward = dispatch
