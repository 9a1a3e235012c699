"""Facts with chosen figures, for rules and verdicts."""

from __future__ import annotations

from typing import Any

from advisor.model import (
    DeviceSummary,
    Estimate,
    GraphCoverage,
    IdleByCause,
    LaunchStats,
    Layers,
    Measurement,
    Region,
    RegionKind,
    Step,
    Term,
)
from advisor.rules import Facts

US = 1_000


def region(**other: Any) -> Region:
    """A step of 1 ms: busy 100 µs, 900 µs launch-bound, 100 items, no syncs."""
    values: dict[str, Any] = {
        "id": "step", "label": "step", "kind": RegionKind.STEP, "rank": 0, "device": 0, "occurrence_count": 10,
        "occurrences_per_step": 1.0, "item_count": 100.0, "launch_count": 100.0, "busy_ns": 100 * US,
        "idle": IdleByCause(launch_ns=900 * US), "layers": Layers(language_ns=900 * US), "extent_ns": 1000 * US,
        "step_share_ratio": 1.0, "cpu_ns": 1000 * US, "signature_match_ratio": 1.0, "signature_count": 1,
    }  # fmt: skip
    values.update(other)
    if "extent_ns" not in other:
        values["extent_ns"] = values["busy_ns"] + values["idle"].total_ns
    return Region(**values)


def estimate(region_id: str = "step", saved_us: int = 800, before_us: int = 1000) -> Estimate:
    saved = saved_us * US
    return Estimate(
        region_id=region_id,
        before_ns=before_us * US,
        saved_low_ns=saved // 2,
        saved_ns=saved,
        saved_high_ns=saved + 10 * US,
        terms=(Term(id="launch", label="launch gaps", ns=saved),),
        assumptions=(),
    )


def facts(*regions: Region, **other: Any) -> Facts:
    """Facts about a device whose window is the sum of ten of the first region's extents."""
    kept = regions or (region(),)
    first = kept[0]
    idle = IdleByCause(**{f"{cause}_ns": 10 * ns for cause, ns in first.idle.by_cause().items()})
    device: dict[str, Any] = {
        "rank": 0, "device": 0, "gpu_name": "NVIDIA H200", "start_ns": 0, "end_ns": 10 * first.extent_ns,
        "busy_ns": 10 * first.busy_ns, "idle": idle, "layers": Layers(language_ns=idle.launch_ns), "item_count": 1000,
        "kernel_count": 1000, "memcpy_count": 0, "memset_count": 0, "stream_count": 1, "gap_count": 1000,
        "long_gap_ns": 0, "launches": LaunchStats(launch_count=1000, item_count=1000), "graphs": GraphCoverage(),
    }  # fmt: skip
    device.update(other.pop("device", {}))
    values: dict[str, Any] = {
        "device": DeviceSummary(**device),
        "step": Step(id="step", label="step", how="test", count=10, traced=Measurement(samples_ns=(1000 * US,) * 10)),
        "regions": kept,
        "estimates": {"step": estimate()},
        "blockers": (),
        "quality": (),
        "forbidden": frozenset(),
    }
    values.update(other)
    return Facts(**values)
