"""The GPU is already busy: there is no idle time for a graph to remove (threshold: NVIDIA's guide, over 95 %)."""

from advisor.model import Finding, Severity
from advisor.rules import Facts, Rule
from advisor.units import format_ratio


def check(facts: Facts) -> Finding | None:
    if facts.busy_ratio < facts.config.busy_ratio_gpu_bound or facts.device.graphs.item_ratio > 0.5:
        return None
    return Finding(
        id="gpu-bound",
        severity=Severity.INFO,
        title=f"The GPU is busy {format_ratio(facts.busy_ratio)} of the time",
        detail="Kernels queue up behind each other; launching them faster changes nothing.",
        fix="Look at the kernels themselves: precision, fusion, larger tiles. CUDA graphs will not help here.",
    )


RULE = Rule("gpu-bound", check)
