"""Checks on counts: of the whole run, and of each region. Exact; no statistics."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.gate.matching import RegionKey
from advisor.gate.metrics import METRICS, Metric
from advisor.gate.snapshot import RegionFigures, Snapshot
from advisor.gate.verdict import GateCheck, Group, Status

_ROUNDING = 1e-6
_GRAPH_LAUNCHES = ("graph_launches_per_step", "graph_launches")
_COVERAGES = ("graph_coverage", "recording_graph_coverage")
_GRAPHED_LOSS = 0.02  # of a region's items: less is one copy that moved
_JUDGED_REGION_METRICS = ("syncs_per_step", "d2h_copies_per_step", "launches_per_step", "graph_coverage")
JUDGED_SHARE = 0.05  # of the step: a smaller region may come and go with noise in its share


def run_checks(base: Snapshot, head: Snapshot) -> Iterator[GateCheck]:
    """One check per metric both sides have; totals over the recording only when a side has no step."""
    per_step = bool(base.step_count and head.step_count)
    for name, value in base.metrics.items():
        metric = METRICS.get(name)
        if metric is None or metric.tolerance_ratio is None or name not in head.metrics or metric.singular == per_step:
            continue
        if name in _GRAPH_LAUNCHES and _more_graphed(base, head):
            continue  # a step that gained graphs launches more of them, and that is the point
        high, low = base.metric_highs.get(name, value), base.metric_lows.get(name, value)
        yield count_check(metric, high if metric.worse > 0 else low, head.metrics[name])


def _more_graphed(base: Snapshot, head: Snapshot) -> bool:
    return any(head.metrics.get(name, 0.0) > base.metrics.get(name, 0.0) + _ROUNDING for name in _COVERAGES)


def region_checks(base: Snapshot, head: Snapshot, pairs: dict[RegionKey, RegionFigures]) -> list[GateCheck]:
    """Checks of regions that both sides have: one that passes, or one per metric that does not.

    They place what the whole-run counts only see: the region that lost its graph, or that gained launches. `pairs`: key
    in base -> region in head. The largest relative change comes first: enclosing regions change by the same amount, and
    so by a smaller share.
    """
    found: list[tuple[float, GateCheck]] = []
    for region in base.regions:
        other = pairs.get(region.key)
        if other is None or region.share_ratio < JUDGED_SHARE:
            continue
        names = [name for name in _JUDGED_REGION_METRICS if name in region.metrics and name in other.metrics]
        checks = [
            (name, count_check(METRICS[name], region.metrics[name], other.metrics[name], other)) for name in names
        ]
        loud = [(name, check) for name, check in checks if check.status != Status.PASS]
        found += [(_relative(region.metrics[name], other.metrics[name]), check) for name, check in loud]
        if not loud:
            found.append((0.0, _unchanged(other)))
    return [check for _, check in sorted(found, key=lambda pair: -pair[0])]


def _relative(base: float, head: float) -> float:
    return abs(head - base) / max(abs(base), _ROUNDING)


def _unchanged(region: RegionFigures) -> GateCheck:
    return GateCheck(
        id=f"region@{region.label}",
        group=Group.REGION,
        status=Status.PASS,
        title=f"region {region.label}",
        message=f"{region.label}: launches, synchronisations, copies to the host and graph coverage are no worse",
        region=region.label,
        location=region.location,
    )


def count_check(metric: Metric, base: float, head: float, region: RegionFigures | None = None) -> GateCheck:
    """Worse beyond the tolerance fails, worse within it warns."""
    worse = (head - base) * metric.worse
    status = Status.PASS
    if worse > _ROUNDING:
        allowed = (metric.tolerance_ratio or 0.0) * abs(base)
        if metric.unit == "ratio":
            allowed = max(allowed, _GRAPHED_LOSS)
        status = Status.FAIL if worse > allowed + _ROUNDING else Status.WARN
    of = f" of {region.label}" if region else ""
    verb = "rose" if head > base else "fell" if head < base else "stayed"
    change = f"from {metric.text(base)} to {metric.text(head)}" if head != base else f"at {metric.text(head)}"
    return GateCheck(
        id=f"{metric.id}@{region.label}" if region else metric.id,
        group=Group.REGION if region else Group.COUNT,
        status=status,
        title=metric.title + of,
        message=f"{metric.title}{of} {verb} {change}",
        metric=metric.id,
        region=region.label if region else "",
        location=region.location if region else None,
        base=metric.text(base),
        head=metric.text(head),
        limit=f"+{metric.tolerance_ratio:.0%}" if metric.tolerance_ratio else "no worse",
        rule="lost-graph" if metric.id == "graph_coverage" else metric.id,
    )
