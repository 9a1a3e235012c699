"""Input shapes differ between steps: each distinct signature needs a graph of its own."""

from advisor.model import Finding, Severity
from advisor.rules import Facts, Rule


def check(facts: Facts) -> Finding | None:
    region = facts.step_region
    if region is None or not region.shape_signature_count or region.occurrence_count < 4:
        return None
    if region.shape_signature_count <= max(1, region.occurrence_count // 10):
        return None
    return Finding(
        id="varying-shapes",
        severity=Severity.WARNING,
        title=f"{region.shape_signature_count} distinct shape signatures in {region.occurrence_count} steps",
        detail="A graph is captured for one set of shapes; every other set needs another graph or runs eagerly.",
        fix="Pad to a few bucket sizes; count how many buckets cover most steps before capturing one graph each.",
        region_id="step",
    )


RULE = Rule("varying-shapes", check)
