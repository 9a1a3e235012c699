"""An optimizer step of hundreds of launches: foreach or fused implementations remove most of them without a graph."""

from advisor.model import Finding, RegionKind, Severity
from advisor.rules import Facts, Rule
from advisor.units import format_count, format_ratio


def check(facts: Facts) -> Finding | None:
    for region in facts.regions:
        if region.kind == RegionKind.OPTIMIZER and region.launch_count >= 100 and region.graphed_item_ratio < 0.5:
            return Finding(
                id="optimizer-launches",
                severity=Severity.WARNING,
                title=f"{region.label} makes {format_count(region.launch_count)} launches",
                detail=f"It accounts for {format_ratio(region.step_share_ratio)} of the step.",
                fix="Construct the optimizer with foreach=True or fused=True first; then look again whether a graph pays.",
                location=region.location,
                region_id=region.id,
            )
    return None


RULE = Rule("optimizer-launches", check)
