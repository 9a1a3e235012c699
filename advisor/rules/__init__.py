"""Findings: one rule a file, each a pure function from facts to a finding or None.

A rule file defines `RULE = Rule(id, check)`; its docstring says what the rule means and where the threshold is from. The
registry finds it; `tests/test_rules.py` pins the list of ids so that a new rule shows in a diff.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from advisor.config import AnalyzeConfig
from advisor.model import Blocker, Clock, DeviceSummary, Estimate, Finding, QualityNote, Region, Step


@dataclass(frozen=True)
class Facts:
    """What the pipeline knows about the device it judges, as plain values."""

    device: DeviceSummary
    step: Step | None
    regions: tuple[Region, ...]
    estimates: dict[str, Estimate]
    blockers: tuple[Blocker, ...]
    quality: tuple[QualityNote, ...]
    forbidden: frozenset[str]
    config: AnalyzeConfig = field(default_factory=AnalyzeConfig)
    clock: Clock | None = None

    @property
    def step_region(self) -> Region | None:
        return next((region for region in self.regions if region.id == "step"), None)

    @property
    def long_gap_ratio(self) -> float:
        """Share of the idle time that lies in gaps over 1 ms, in the step when there is one, else in the window."""
        region = self.step_region
        long, idle = (self.device.long_gap_ns, self.device.idle.total_ns)
        if region is not None:
            long, idle = region.long_gap_ns, region.idle.total_ns
        return long / idle if idle else 0.0

    @property
    def busy_ratio(self) -> float:
        """Of the step when there is one, else of the window."""
        region = self.step_region
        if region is not None and region.extent_ns:
            return region.busy_ns / region.extent_ns
        span = self.device.end_ns - self.device.start_ns
        return self.device.busy_ns / span if span else 0.0


@dataclass(frozen=True)
class Rule:
    """`check` gives the rule's finding or None."""

    id: str
    check: Callable[[Facts], Finding | None]


def all_findings(facts: Facts) -> tuple[Finding, ...]:
    """The findings of every rule, errors first, then warnings."""
    from advisor import rules
    from advisor.registry import members

    order = {"error": 0, "warning": 1, "info": 2}
    found = [rule.check(facts) for rule in members(rules, "RULE", Rule)]
    return tuple(sorted((one for one in found if one is not None), key=lambda one: order[one.severity.value]))
