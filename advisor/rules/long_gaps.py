"""Idle time made of a few long gaps is host work, data or waiting: a graph removes launch gaps of 2-50 µs."""

from advisor.model import Finding, Severity
from advisor.rules import Facts, Rule
from advisor.units import format_ratio


def check(facts: Facts) -> Finding | None:
    if facts.long_gap_ratio < 0.5 or facts.busy_ratio > facts.config.busy_ratio_gpu_bound:
        return None
    return Finding(
        id="long-gaps",
        severity=Severity.WARNING,
        title=f"{format_ratio(facts.long_gap_ratio)} of the idle time is gaps over 1 ms",
        detail="Single long gaps are other work of the program on the CPU, not the rate of launches.",
        fix="Find what the CPU does there (data, logging, checkpoints, Python between steps) before thinking of graphs.",
    )


RULE = Rule("long-gaps", check)
