"""`torch.cuda.make_graphed_callables` on the script's largest model: forward and backward as two graphs, autograd kept.

It warms the module up by itself; buffers and random states are put back afterwards, as the user's own code would have to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from advisor.workload import state
from advisor.workload.session import Session
from advisor.workload.strategies import ReplayCounter, Strategy
from advisor.workload.verify_job import VerifySpec


class _Callables:
    """Notes the model's arguments while the script warms up, and graphs the model when the capture is due."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._module: torch.nn.Module | None = None
        self._arguments: tuple[torch.Tensor, ...] | None = None
        self._plain = session.tick

    def tick(self, local: Mapping[str, Any]) -> None:
        if self._module is None:
            self._watch()
        elif self._session.step + 1 == self._session.spec.schedule.warmup:
            self._graph()
        self._plain(local)

    def _watch(self) -> None:
        roots = [module for _, module in state.REGISTRY.roots()]
        if not roots:
            self._session.refuse("no-such-module", "the script has made no nn.Module")
        self._module = max(roots, key=lambda module: sum(p.numel() for p in module.parameters()))
        forward = self._module.forward

        def noting(*args: Any, **kwargs: Any) -> Any:
            if not kwargs and all(isinstance(arg, torch.Tensor) for arg in args):
                self._arguments = tuple(arg.detach().clone().requires_grad_(arg.requires_grad) for arg in args)
            return forward(*args, **kwargs)

        self._module.forward = noting

    def _graph(self) -> None:
        module = self._module
        assert module is not None
        del module.forward  # the instance's own; the class's comes back into sight
        if self._arguments is None:
            self._session.refuse("mgc-nontensor", "the model is called with arguments that are no tensors")
        buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
        random = torch.cuda.get_rng_state()
        try:
            torch.cuda.make_graphed_callables(module, self._arguments)
        except RuntimeError as error:
            self._session.capture_failed(error)
        torch.cuda.set_rng_state(random)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


def _start(session: Session, spec: VerifySpec) -> None:
    counter = ReplayCounter()
    counter.count_cuda_graphs()
    session.runtime = counter
    session.tick = _Callables(session).tick  # type: ignore[method-assign]


STRATEGY = Strategy("callables", "torch.cuda.make_graphed_callables", _start)
