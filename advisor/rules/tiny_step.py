"""A step of a handful of items: a replay saves a few launches at most and has its own cost."""

from advisor.model import Finding, Severity
from advisor.rules import Facts, Rule
from advisor.units import format_count


def check(facts: Facts) -> Finding | None:
    region = facts.step_region
    if region is None or region.item_count >= facts.config.min_items:
        return None
    return Finding(
        id="tiny-step",
        severity=Severity.INFO,
        title=f"A step has only {format_count(region.item_count)} GPU items",
        detail="One graph launch costs about as much as a few kernel launches.",
        region_id="step",
    )


RULE = Rule("tiny-step", check)
