"""The program drains the queue on purpose: every synchronising call leaves the GPU without work until the next launch."""

from advisor.model import Finding, Severity
from advisor.rules import Facts, Rule
from advisor.units import format_count, format_ns, format_ratio


def check(facts: Facts) -> Finding | None:
    region = facts.step_region
    if region is None or not region.extent_ns or region.idle.sync_ns < 0.1 * region.extent_ns:
        return None
    worst = facts.blockers[0] if facts.blockers else None
    return Finding(
        id="sync-bound",
        severity=Severity.WARNING,
        title=f"{format_count(region.sync_count)} synchronising calls a step cost {format_ns(region.idle.sync_ns)} of idle time",
        detail=f"{format_ratio(region.idle.sync_ns / region.extent_ns)} of the step the GPU idles because the CPU waited for it "
        "and then had to refill the queue.",
        fix=worst.fix if worst else "Read values on the host less often, and after the step.",
        location=worst.location if worst else None,
        region_id="step",
    )


RULE = Rule("sync-bound", check)
