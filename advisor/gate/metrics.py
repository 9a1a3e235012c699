"""The named metrics of the gate: what each counts, which direction is worse, and what is tolerated by default.

Counts come from the recorded trace and do not depend on how fast the machine was; they are judged exactly. Times under a
profiler are shown and never judged by default: the profiler itself changes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from advisor.errors import UsageError
from advisor.units import format_bytes, format_count, format_ns, format_ratio, format_speedup


@dataclass(frozen=True)
class Metric:
    """`worse` is +1 when a larger value is worse, -1 when a smaller one is. `unit`: count, ratio, ns, bytes, factor.

    `tolerance_ratio` is the relative increase that warns instead of failing; None: not judged without a budget.
    """

    id: str
    title: str
    worse: int
    unit: str
    tolerance_ratio: float | None
    of_region: bool = False
    singular: bool = False  # a total over the recording, judged only when there is no step

    def text(self, value: float) -> str:
        """The value as a reader expects it."""
        return _FORMATS[self.unit](value)


_FORMATS: Final = {
    "count": format_count,
    "ratio": format_ratio,
    "ns": format_ns,
    "bytes": format_bytes,
    "factor": format_speedup,
}
# A launch more or less among hundreds is seldom what anyone means by a regression; a synchronisation always is.
_FEW: Final = 0.02

METRICS: Final = {
    metric.id: metric
    for metric in (
        Metric("launches_per_step", "launches per step", 1, "count", _FEW, of_region=True),
        Metric("kernels_per_step", "kernels per step", 1, "count", _FEW, of_region=True),
        Metric("syncs_per_step", "synchronising calls per step", 1, "count", 0.0, of_region=True),
        Metric("h2d_copies_per_step", "host-to-device copies per step", 1, "count", 0.0, of_region=True),
        Metric("d2h_copies_per_step", "device-to-host copies per step", 1, "count", 0.0, of_region=True),
        Metric("graph_launches_per_step", "graph launches per step", 1, "count", 0.0, of_region=True),
        Metric("graph_coverage", "share of GPU items inside graphs", -1, "ratio", 0.0, of_region=True),
        Metric("items_outside_graphs_per_step", "GPU items outside graphs per step", 1, "count", _FEW, of_region=True),
        Metric("shape_signatures", "distinct input shape signatures", 1, "count", 0.0, of_region=True),
        Metric("blockers", "lines that synchronise or block a capture", 1, "count", None),
        Metric("verified_speedup", "verified speed-up of the step", -1, "factor", None),
        Metric("launch_idle_ratio", "share of the step the GPU waits for launches (traced)", 1, "ratio", None, True),
        Metric("busy_ns_per_step", "GPU busy time per step (traced)", 1, "ns", None, True),
        Metric("step_ns", "time per step", 1, "ns", None),
        Metric("peak_memory_bytes", "peak GPU memory", 1, "bytes", None),
        Metric("launches", "launches in the recording", 1, "count", _FEW, singular=True),
        Metric("items", "GPU items in the recording", 1, "count", _FEW, singular=True),
        Metric("syncs", "synchronising calls in the recording", 1, "count", _FEW, singular=True),
        Metric("graph_launches", "graph launches in the recording", 1, "count", _FEW, singular=True),
        Metric("recording_graph_coverage", "share of all GPU items inside graphs", -1, "ratio", 0.02, singular=True),
    )
}


def metric(name: str, where: str = "metric", of_region: bool = False) -> Metric:
    """The metric called `name`. Raises UsageError with the nearest name, or when it has no value for a region."""
    found = METRICS.get(name)
    if found is None:
        near = get_close_matches(name, METRICS, 1, 0.4)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(METRICS)}"
        raise UsageError(f"{where}: no metric {name!r}; {hint}")
    if of_region and not found.of_region:
        of = ", ".join(one.id for one in METRICS.values() if one.of_region)
        raise UsageError(f"{where}: {name} is of the whole run, not of a region; per region: {of}")
    return found
