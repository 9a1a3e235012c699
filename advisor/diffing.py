"""Two runs side by side, as values: what got better, what got worse, and what cannot be compared.

Step times are judged on raw samples (`advisor.compare`), counts exactly, other times by a threshold that is stated:
5 % of the value and 1 % of the step. Both sides of a row are on the same clock, or the row says that there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from advisor.bundle import Bundle
from advisor.compare import Change, Rule, is_different, median
from advisor.model import (
    Analysis,
    Cause,
    Clock,
    DeviceSummary,
    Manifest,
    Measurement,
    NumberKind,
    Outcome,
    Region,
    Value,
    Verification,
)
from advisor.verdict import with_verification

MIN_CHANGE_RATIO: Final = 0.05
MIN_STEP_RATIO: Final = 0.01


class Trend(StrEnum):
    """B against A."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    CHANGED = "changed"  # different, and neither better nor worse
    UNCLEAR = "unclear"  # looks different, and the samples do not carry it
    ONLY_A = "only in A"
    ONLY_B = "only in B"


class Row(Value, frozen=True, kw_only=True):
    """One figure of both runs. `unit` is "ns", "count", "ratio" or "speedup"; None where a run lacks it."""

    label: str
    unit: str
    a: float | None
    b: float | None
    trend: Trend
    kind: NumberKind
    note: str = ""


class Group(Value, frozen=True, kw_only=True):
    """Rows under one heading."""

    title: str
    rows: tuple[Row, ...]


class RunDiff(Value, frozen=True, kw_only=True):
    """The comparison. `warnings` say why the runs may not be comparable at all."""

    a: str
    b: str
    verdict_a: str
    verdict_b: str
    groups: tuple[Group, ...]
    warnings: tuple[str, ...] = ()

    def count(self, trend: Trend) -> int:
        return sum(1 for group in self.groups for row in group.rows if row.trend == trend)


@dataclass(frozen=True)
class Side:
    """What a comparison needs of one run."""

    name: str
    analysis: Analysis
    clock: Clock | None = None
    verification: Verification | None = None
    manifest: Manifest | None = None

    @classmethod
    def load(cls, bundle: Bundle) -> Side:
        """A run folder's side. Raises BundleError."""
        return cls(
            str(bundle.folder),
            bundle.load(Analysis),
            bundle.load_if_present(Clock),
            bundle.load_if_present(Verification),
            bundle.load_if_present(Manifest),
        )

    @property
    def verdict(self) -> str:
        return with_verification(self.analysis.verdict, self.verification).sentence

    @property
    def device(self) -> DeviceSummary | None:
        return max(self.analysis.devices, key=lambda one: one.item_count, default=None)

    @property
    def step_region(self) -> Region | None:
        step = self.analysis.step
        return next((one for one in self.analysis.regions if step is not None and one.id == step.id), None)

    @property
    def clocked(self) -> Measurement | None:
        if self.clock is not None and self.clock.host_step.samples_ns:
            return self.clock.host_step
        return self.analysis.step.clocked if self.analysis.step else None


def compare_runs(a: Side, b: Side) -> RunDiff:
    """B against A, group by group."""
    groups = (_step(a, b), _idle(a, b), _launches(a, b), _regions(a, b), _verified(a, b))
    return RunDiff(
        a=a.name,
        b=b.name,
        verdict_a=a.verdict,
        verdict_b=b.verdict,
        groups=tuple(group for group in groups if group.rows),
        warnings=_warnings(a, b),
    )


def _warnings(a: Side, b: Side) -> tuple[str, ...]:
    found = []
    left, right = a.analysis.trace, b.analysis.trace
    for what, one, two in (
        ("GPU", ", ".join(dict.fromkeys(left.gpu_names)), ", ".join(dict.fromkeys(right.gpu_names))),
        ("torch", left.torch_version, right.torch_version),
        ("CUDA", left.cuda_version, right.cuda_version),
        ("source", left.source, right.source),
    ):
        if one != two and one and two:
            found.append(f"different {what}: {one} against {two}")
    for name, side in (("A", a), ("B", b)):
        forbidden = sorted({claim for note in side.analysis.quality for claim in note.forbids})
        if forbidden:
            found.append(f"the recording of {name} carries no claim on {', '.join(forbidden)}")
    return tuple(found)


# --- groups ----------------------------------------------------------------------------------------------------------


def _step(a: Side, b: Side) -> Group:
    one, two = a.clocked, b.clocked
    kind = NumberKind.MEASURED
    if one is None or two is None:
        kind = NumberKind.PROFILED
        one = a.analysis.step.traced if a.analysis.step else None
        two = b.analysis.step.traced if b.analysis.step else None
    if one is None or two is None or not one.samples_ns or not two.samples_ns:
        return Group(title="Step", rows=())
    result = is_different([one.samples_ns], [two.samples_ns], Rule())
    trends = {Change.FASTER: Trend.BETTER, Change.SLOWER: Trend.WORSE}
    trend = trends.get(result.change, Trend.UNCLEAR if result.change.is_inconclusive else Trend.SAME)
    interval = f"{result.ratio_low:.3g} to {result.ratio_high:.3g}"
    note = f"{result.base_count} and {result.head_count} samples, 95 % interval of B / A {interval}"
    if result.notes and trend == Trend.UNCLEAR:
        note += f"; {result.notes[0]}"
    rows = [
        Row(
            label="step time",
            unit="ns",
            a=median(one.samples_ns),
            b=median(two.samples_ns),
            trend=trend,
            kind=kind,
            note=note,
        )
    ]
    left, right = a.step_region, b.step_region
    if left is not None and right is not None:
        rows.append(_time("GPU busy", left.busy_ns, right.busy_ns, left.extent_ns))
        rows.append(_count("GPU items", left.item_count, right.item_count, trend_matters=False))
    return Group(title="Step", rows=tuple(rows))


def _idle(a: Side, b: Side) -> Group:
    left, right = a.step_region, b.step_region
    if left is None or right is None:
        return Group(title="Idle time of a step, by cause", rows=())
    one, two = left.idle.by_cause(), right.idle.by_cause()
    rows = [_time("idle", left.idle.total_ns, right.idle.total_ns, left.extent_ns)]
    rows += [
        _time(f"idle, {cause.value}", one[cause], two[cause], left.extent_ns)
        for cause in Cause
        if one[cause] or two[cause]
    ]
    before, after = left.layers.by_layer(), right.layers.by_layer()
    rows += [
        _time(f"launch, {layer.value}", before[layer], after[layer], left.extent_ns)
        for layer in before
        if before[layer] or after[layer]
    ]
    return Group(title="Idle time of a step, by cause", rows=tuple(rows))


def _launches(a: Side, b: Side) -> Group:
    left, right = a.step_region, b.step_region
    rows = []
    if left is not None and right is not None:
        rows = [
            _count("launches a step", left.launch_count, right.launch_count),
            _count("graph replays a step", left.graph_launch_count, right.graph_launch_count, trend_matters=False),
            _count("synchronisations a step", left.sync_count, right.sync_count),
            _count("copies to the host a step", left.d2h_count, right.d2h_count),
        ]
    one, two = a.device, b.device
    if one is not None and two is not None:
        if one.launches.issue_to_busy_ratio is not None and two.launches.issue_to_busy_ratio is not None:
            rows.append(
                _ratio("launch-to-execute ratio", one.launches.issue_to_busy_ratio, two.launches.issue_to_busy_ratio)
            )
        rows.append(_ratio("items inside graphs", one.graphs.item_ratio, two.graphs.item_ratio, higher_is_better=True))
    return Group(title="Launches", rows=tuple(row for row in rows if row.a or row.b))


def _regions(a: Side, b: Side) -> Group:
    left = [one for one in a.analysis.regions if a.step_region is None or one.id != a.step_region.id]
    right = [one for one in b.analysis.regions if b.step_region is None or one.id != b.step_region.id]
    pairs = match_regions(left, right)
    step_ns = a.step_region.extent_ns if a.step_region else 0
    rows = [_region(one, two, step_ns) for one, two in pairs]
    order = {Trend.WORSE: 0, Trend.BETTER: 1, Trend.ONLY_A: 2, Trend.ONLY_B: 2, Trend.SAME: 3}
    return Group(
        title="Regions, device time per occurrence", rows=tuple(sorted(rows, key=lambda row: order.get(row.trend, 2)))
    )


def match_regions(left: list[Region], right: list[Region]) -> list[tuple[Region | None, Region | None]]:
    """Pairs of the same region: by label and kind, then, for lines that moved, by kind and sequence of items."""
    open_right = list(right)
    pairs: list[tuple[Region | None, Region | None]] = []
    waiting = []
    for one in left:
        found = next((two for two in open_right if (two.label, two.kind) == (one.label, one.kind)), None)
        if found is None:
            waiting.append(one)
        else:
            open_right.remove(found)
            pairs.append((one, found))
    for one in waiting:
        found = next(
            (two for two in open_right if one.signature and (two.signature, two.kind) == (one.signature, one.kind)),
            None,
        )
        if found is not None:
            open_right.remove(found)
        pairs.append((one, found))
    return [*pairs, *((None, two) for two in open_right)]


def _region(one: Region | None, two: Region | None, step_ns: int) -> Row:
    if one is None or two is None:
        known = one or two
        assert known is not None
        return Row(
            label=known.label,
            unit="ns",
            a=one.extent_ns if one else None,
            b=two.extent_ns if two else None,
            trend=Trend.ONLY_A if two is None else Trend.ONLY_B,
            kind=NumberKind.PROFILED,
        )
    notes = [f"was {one.label}"] if one.label != two.label else []
    if one.launch_count != two.launch_count:
        notes.append(f"launches {one.launch_count:g} → {two.launch_count:g}")
    if one.sync_count != two.sync_count:
        notes.append(f"synchronisations {one.sync_count:g} → {two.sync_count:g}")
    row = _time(two.label, one.extent_ns, two.extent_ns, step_ns)
    return Row(label=row.label, unit="ns", a=row.a, b=row.b, trend=row.trend, kind=row.kind, note=", ".join(notes))


def _verified(a: Side, b: Side) -> Group:
    one, two = _speedups(a), _speedups(b)
    rows = []
    for label in dict.fromkeys((*one, *two)):
        before, after = one.get(label), two.get(label)
        if before is None or after is None:
            trend = Trend.ONLY_A if after is None else Trend.ONLY_B
        else:
            trend = _trend(before, after, MIN_CHANGE_RATIO * before, higher_is_better=True)
        rows.append(Row(label=label, unit="speedup", a=before, b=after, trend=trend, kind=NumberKind.MEASURED))
    return Group(title="Verified gain of a graph", rows=tuple(rows))


def _speedups(side: Side) -> dict[str, float]:
    """Label -> largest verified speed-up of a step; with a fix, the label says so."""
    found: dict[str, float] = {}
    for attempt in side.verification.attempts if side.verification else ():
        if attempt.outcome == Outcome.VERIFIED and attempt.timing is not None:
            fixes = f" with {' and '.join(fix.title for fix in attempt.fixes)}" if attempt.fixes else ""
            label = f"{attempt.region_label}{fixes}"
            found[label] = max(found.get(label, 0.0), attempt.timing.speedup_ratio)
    return found


# --- rows ------------------------------------------------------------------------------------------------------------


def _trend(a: float, b: float, floor: float, *, higher_is_better: bool = False) -> Trend:
    if abs(b - a) <= floor:
        return Trend.SAME
    return Trend.BETTER if (b > a) == higher_is_better else Trend.WORSE


def _time(label: str, a: int, b: int, step_ns: int) -> Row:
    floor = max(MIN_CHANGE_RATIO * max(a, b), MIN_STEP_RATIO * step_ns)
    return Row(label=label, unit="ns", a=a, b=b, trend=_trend(a, b, floor), kind=NumberKind.PROFILED)


def _count(label: str, a: float, b: float, *, trend_matters: bool = True) -> Row:
    trend = _trend(a, b, 0.0)
    if not trend_matters and trend != Trend.SAME:
        trend = Trend.CHANGED
    return Row(label=label, unit="count", a=a, b=b, trend=trend, kind=NumberKind.PROFILED)


def _ratio(label: str, a: float, b: float, *, higher_is_better: bool = False) -> Row:
    trend = _trend(a, b, MIN_CHANGE_RATIO * max(abs(a), abs(b)), higher_is_better=higher_is_better)
    return Row(label=label, unit="ratio", a=a, b=b, trend=trend, kind=NumberKind.PROFILED)
