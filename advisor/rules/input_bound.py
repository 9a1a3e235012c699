"""The GPU waits for data: the next batch or a host-to-device copy, which a graph cannot hurry."""

from advisor.model import Finding, Severity
from advisor.rules import Facts, Rule
from advisor.units import format_ns, format_ratio


def check(facts: Facts) -> Finding | None:
    region = facts.step_region
    idle = region.idle if region else facts.device.idle
    total = region.extent_ns if region else facts.device.end_ns - facts.device.start_ns
    if not total or idle.input_ns < 0.1 * total:
        return None
    return Finding(
        id="input-bound",
        severity=Severity.WARNING,
        title=f"The GPU waits for input {format_ratio(idle.input_ns / total)} of the time",
        detail=f"{format_ns(idle.input_ns)} of idle time per step is spent in the data loader or in host-to-device copies.",
        fix="More loader workers, pin_memory=True with non_blocking copies, prefetching, or moving transforms to the GPU.",
    )


RULE = Rule("input-bound", check)
