"""Idle time made of a few long gaps is host work, data or waiting, not launch rate: a graph removes launch gaps of 2-50 µs."""

from advisor.model import Finding, Severity
from advisor.rules import Facts, Rule
from advisor.units import format_ns, format_ratio


def check(facts: Facts) -> Finding | None:
    idle = facts.device.idle.total_ns
    if not idle or facts.device.long_gap_ns < 0.5 * idle or facts.busy_ratio > facts.config.busy_ratio_gpu_bound:
        return None
    share = facts.device.long_gap_ns / idle
    return Finding(
        id="long-gaps",
        severity=Severity.WARNING,
        title=f"{format_ratio(share)} of the idle time is gaps over 1 ms",
        detail=f"{format_ns(facts.device.long_gap_ns)} of {format_ns(idle)} idle time lies in single long gaps: other work of "
        "the program on the CPU, not the rate of launches.",
        fix="Find what the CPU does there (data, logging, checkpoints, Python between steps) before thinking of graphs.",
    )


RULE = Rule("long-gaps", check)
