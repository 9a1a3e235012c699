"""The kernels of a step differ from step to step: a graph replays one fixed sequence."""

from advisor.model import Finding, Severity
from advisor.rules import Facts, Rule
from advisor.units import format_ratio


def check(facts: Facts) -> Finding | None:
    region = facts.step_region
    if region is None or region.occurrence_count < 4 or region.signature_match_ratio >= 0.75:
        return None
    return Finding(
        id="varying-sequence",
        severity=Severity.WARNING,
        title=f"{region.signature_count} different kernel sequences in {region.occurrence_count} steps",
        detail=f"The most frequent one covers {format_ratio(region.signature_match_ratio)} of the steps. Shapes, branches or "
        "periodic work (logging, evaluation) change what runs.",
        fix="Pad or bucket shapes, keep one graph per shape, or graph only the part that stays the same.",
        region_id="step",
    )


RULE = Rule("varying-sequence", check)
