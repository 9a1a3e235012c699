"""Other ways to graph the same region, one file each: a module with a constant `STRATEGY`, found by the registry."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from advisor import registry

if TYPE_CHECKING:
    from advisor.workload.session import Session
    from advisor.workload.verify_job import VerifySpec


@dataclass(frozen=True)
class Strategy:
    """`start(session, spec)` is called before the script; it sets `session.runtime` and arranges for the rest."""

    id: str
    title: str
    start: Callable[[Session, VerifySpec], None]


@dataclass
class ReplayCounter:
    """Stands in for a span's runtime: counts replays made by whatever strategy is at work."""

    replay_count: int = 0
    execution_count: int = 0
    fallback_count: int = 0
    signatures: set[str] = field(default_factory=set)
    on_replay: Callable[[], None] = lambda: None

    def count_cuda_graphs(self) -> None:
        """Count every `torch.cuda.CUDAGraph.replay` of this process."""
        import torch

        plain = torch.cuda.CUDAGraph.replay

        def replay(graph: Any) -> None:
            self.replay_count += 1
            self.execution_count += 1
            self.on_replay()
            plain(graph)

        torch.cuda.CUDAGraph.replay = replay  # type: ignore[method-assign,assignment]


def start(name: str, session: Session, spec: VerifySpec) -> None:
    """Start the strategy `name`. Raises KeyError when there is none."""
    known = {strategy.id: strategy for strategy in registry.members(sys.modules[__name__], "STRATEGY", Strategy)}
    known[name].start(session, spec)
