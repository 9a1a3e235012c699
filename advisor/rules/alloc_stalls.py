"""The CPU is late because it allocates or frees device memory: the caching allocator ran out and went to the driver."""

from advisor.model import Finding, Severity
from advisor.rules import Facts, Rule
from advisor.units import format_ns, format_ratio


def check(facts: Facts) -> Finding | None:
    idle = facts.device.idle.total_ns
    if not idle or facts.device.alloc_ns < 0.1 * idle:
        return None
    return Finding(
        id="alloc-stalls",
        severity=Severity.WARNING,
        title=f"{format_ratio(facts.device.alloc_ns / idle)} of the idle time the CPU allocates or frees device memory",
        detail=f"{format_ns(facts.device.alloc_ns)} inside cudaMalloc, cudaFree and their like: the caching allocator keeps "
        "returning memory to the driver and asking for it again.",
        fix="Lower the peak (batch, activation checkpointing), or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.",
    )


RULE = Rule("alloc-stalls", check)
