"""Which repetition of the program is the step, and where each one lies on the CPU and on the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from advisor.calls import GRAPH
from advisor.model import RegionKind
from advisor.regions.groups import Group
from advisor.regions.rows import Occurrences, StepWindows
from advisor.regions.sequence import find_period
from advisor.tables import optional_ids
from advisor.timeline import Timeline

Ints = npt.NDArray[np.int64]

_MIN_STEPS: Final = 3
_MIN_SHARE: Final = 0.5  # of the device's items that the steps must have launched
_APART: Final = 0.5  # of a step's CPU time between two steps: more means other work lies between


@dataclass(frozen=True)
class ChosenStep:
    """The step: `how` says why this one. `group` is None for optimizer spans and kernel sequences."""

    label: str
    how: str
    group: Group | None
    occurrences: Occurrences
    windows: StepWindows


def choose_step(
    timeline: Timeline, groups: list[Group], rank: int, device: int, wanted: str | None = None
) -> ChosenStep | None:
    """The step by the first rule that finds one; `wanted` (a label) overrides. None when nothing repeats."""
    total = _item_total(timeline, rank, device)
    for group, how in _candidates(groups, total, wanted):
        return _from_group(timeline, group, how, rank, device)
    optimizer = _optimizer_spans(timeline, groups, rank, device, total)
    if optimizer is not None and wanted is None:
        return optimizer
    for group in _rank_groups(groups, total, lambda group: group.kind == RegionKind.MODULE):
        return _from_group(timeline, group, f"calls of module {group.label}", rank, device)
    return _from_sequence(timeline, rank, device)


def _candidates(groups: list[Group], total: int, wanted: str | None) -> list[tuple[Group, str]]:
    if wanted is not None:
        # A loop and its iterations share a label; the one that repeats is the step.
        named = sorted((group for group in groups if wanted in (group.label, group.key)), key=lambda group: -group.count)
        return [(group, f"asked for: {wanted}") for group in named][:1]
    found = [
        (group, f"hot loop {group.label}: the outermost loop whose iterations launch most of the work")
        for group in _rank_groups(groups, total, lambda group: group.mark_kind == "iter")
    ]
    profiler = [group for group in groups if group.kind == RegionKind.STEP]
    found += [(group, "ProfilerStep ranges") for group in profiler if _share(group, total) >= _MIN_SHARE / 2]
    plain = _rank_groups(groups, total, lambda group: group.kind == RegionKind.RANGE and not group.mark_kind)
    return found + [(group, f"user ranges named {group.label}") for group in plain]


def _rank_groups(groups: list[Group], total: int, fits: Callable[[Group], bool]) -> list[Group]:
    """Groups that repeat and hold most items: outermost first among those within a tenth of the best share."""
    good = [
        group for group in groups if fits(group) and group.count >= _MIN_STEPS and _share(group, total) >= _MIN_SHARE
    ]
    best = max((_share(group, total) for group in good), default=0.0)
    return sorted((group for group in good if _share(group, total) >= 0.9 * best), key=lambda group: group.depth)


def _share(group: Group, total: int) -> float:
    return len(np.unique(group.item_ids)) / total if total else 0.0


def _item_total(timeline: Timeline, rank: int, device: int) -> int:
    items = timeline.items
    mine = (items["rank"] == rank) & (items["device"] == device) & items["launch_id"].notna()
    return int(mine.sum())


def _from_group(timeline: Timeline, group: Group, how: str, rank: int, device: int) -> ChosenStep:
    rows = timeline.ranges.loc[group.range_ids]
    occurrences = Occurrences(
        group.key,
        group.item_ids,
        group.occurrence,
        np.arange(group.count, dtype=np.int64),
        rows["start_ns"].to_numpy(),
        rows["end_ns"].to_numpy(),
        rows["tid"].to_numpy(),
    )
    occurrences = _drop_empty(occurrences)
    return ChosenStep(group.label, how, group, occurrences, device_windows(timeline, occurrences, rank, device))


def _drop_empty(occurrences: Occurrences) -> Occurrences:
    """Occurrences without any item (a step that only waited, or was cut off) have no place on the device."""
    full = np.unique(occurrences.occurrence)
    if len(full) == occurrences.count:
        return occurrences
    return Occurrences(
        occurrences.region_id,
        occurrences.item_ids,
        np.searchsorted(full, occurrences.occurrence),
        np.arange(len(full), dtype=np.int64),
        occurrences.cpu_start_ns[full],
        occurrences.cpu_end_ns[full],
        occurrences.tid[full],
    )


def device_windows(timeline: Timeline, occurrences: Occurrences, rank: int, device: int) -> StepWindows:
    """Device windows of the steps: first item to first item of the next step."""
    first, last = _extremes(timeline, occurrences)
    end = last.copy()
    idle_cpu = occurrences.cpu_start_ns[1:] - occurrences.cpu_end_ns[:-1]
    length = occurrences.cpu_end_ns[:-1] - occurrences.cpu_start_ns[:-1]
    follows = (idle_cpu <= _APART * length) & (first[1:] > first[:-1])
    end[:-1] = np.where(follows, first[1:], np.minimum(end[:-1], np.maximum(first[1:], first[:-1] + 1)))
    return StepWindows(rank, device, first, end, occurrences.cpu_start_ns, occurrences.cpu_end_ns, occurrences.tid)


def _extremes(timeline: Timeline, occurrences: Occurrences) -> tuple[Ints, Ints]:
    start = timeline.items["start_ns"].to_numpy()[occurrences.item_ids]
    end = timeline.items["end_ns"].to_numpy()[occurrences.item_ids]
    bounds = np.searchsorted(occurrences.occurrence, np.arange(occurrences.count))
    return np.minimum.reduceat(start, bounds), np.maximum.reduceat(end, bounds)


def _optimizer_spans(timeline: Timeline, groups: list[Group], rank: int, device: int, total: int) -> ChosenStep | None:
    """Steps from the end of one optimizer step to the end of the next."""
    for group in groups:
        if group.kind != RegionKind.OPTIMIZER or group.count < _MIN_STEPS + 1:
            continue
        rows = timeline.ranges.loc[group.range_ids].sort_values("end_ns")
        ends, tid = rows["end_ns"].to_numpy(), rows["tid"].to_numpy()
        occurrences = _in_cpu_windows(timeline, f"span:{group.label}", (ends[:-1], ends[1:], tid[1:]), rank, device)
        if len(occurrences.item_ids) < _MIN_SHARE * total:
            continue
        how = f"the span between two calls of {group.label}"
        windows = device_windows(timeline, occurrences, rank, device)
        return ChosenStep(f"between {group.label} calls", how, None, occurrences, windows)
    return None


def _in_cpu_windows(
    timeline: Timeline, region_id: str, windows: tuple[Ints, Ints, Ints], rank: int, device: int
) -> Occurrences:
    """Items whose launch starts inside each of the given sorted, disjoint CPU windows."""
    starts, ends, tid = windows
    items = timeline.items
    mine = items[(items["rank"] == rank) & (items["device"] == device) & items["launch_id"].notna()]
    called = timeline.calls["start_ns"].to_numpy()[mine["launch_id"].to_numpy(dtype="int64")]
    owner = np.searchsorted(starts, called, side="right") - 1
    inside = (owner >= 0) & (called < ends[np.maximum(owner, 0)])
    item_ids, owner = mine.index.to_numpy(dtype=np.int64)[inside], owner[inside]
    order = np.lexsort((mine["start_ns"].to_numpy()[inside], owner))
    index = np.arange(len(starts), dtype=np.int64)
    return _drop_empty(Occurrences(region_id, item_ids[order], owner[order].astype(np.int64), index, starts, ends, tid))


def _from_sequence(timeline: Timeline, rank: int, device: int) -> ChosenStep | None:
    items = timeline.items
    mine = items[(items["rank"] == rank) & (items["device"] == device)]
    mine = mine.sort_values(["start_ns", "end_ns"], kind="stable")
    if len(mine) == 0:
        return None
    start, reached = mine["start_ns"].to_numpy(), np.maximum.accumulate(mine["end_ns"].to_numpy())
    gap = np.concatenate(([0], np.maximum(start[1:] - reached[:-1], 0))) + _graph_starts(timeline, mine)
    period = find_period(mine["name"].cat.codes.to_numpy().astype(np.int64), gap)
    if period is None or len(period.bounds) < _MIN_STEPS + 1 or _inside_replays(timeline, mine, period.bounds):
        return None
    occurrences = _sequence_occurrences(timeline, mine.index.to_numpy(dtype=np.int64), period.bounds)
    how = (
        f"repeated kernel sequence: every {period.length} items recur "
        f"({period.match_ratio:.0%} of the names match one period later)"
    )
    windows = device_windows(timeline, occurrences, rank, device)
    return ChosenStep(f"sequence of {period.length} items", how, None, occurrences, windows)


def _graph_starts(timeline: Timeline, items: pd.DataFrame) -> Ints:
    """A second of imagined idle time before the first item of each graph replay: where a replay begins, so does a repetition."""
    launch = optional_ids(items["launch_id"])
    replay = np.zeros(len(launch), dtype=bool)
    replay[launch >= 0] = (timeline.calls["kind"] == GRAPH).to_numpy(dtype=bool)[launch[launch >= 0]]
    begins = np.concatenate(([True], launch[1:] != launch[:-1]))
    return np.where(replay & begins, 1_000_000_000, 0)


def _inside_replays(timeline: Timeline, items: pd.DataFrame, bounds: Ints) -> bool:
    """Most cuts fall inside a graph replay: what repeats are the layers within it, and a step is never shorter than a replay."""
    launch = optional_ids(items["launch_id"])
    cuts = bounds[(bounds > 0) & (bounds < len(launch))]
    same = cuts[(launch[cuts] >= 0) & (launch[cuts] == launch[cuts - 1])]
    graph = (timeline.calls["kind"] == GRAPH).to_numpy(dtype=bool)
    return bool(graph[launch[same]].sum() > 0.5 * len(cuts)) if len(same) else False


def _sequence_occurrences(timeline: Timeline, item_ids: Ints, bounds: Ints) -> Occurrences:
    inside = item_ids[bounds[0] : bounds[-1]]
    occurrence = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds)).astype(np.int64)
    items = timeline.items
    launched = items["launch_id"].notna().to_numpy()[inside]
    row = items["launch_id"].fillna(0).to_numpy(dtype="int64")[inside]
    calls = timeline.calls
    # An item without a launch stands in with its own time, so that the occurrence still has a place.
    start = items["start_ns"].to_numpy()[inside]
    has = launched & (len(calls) > 0)
    cpu_start, cpu_end, tid = start.copy(), start.copy(), np.zeros(len(start), np.int64)
    if has.any():
        cpu_start[has] = calls["start_ns"].to_numpy()[row[has]]
        cpu_end[has] = calls["end_ns"].to_numpy()[row[has]]
        tid[has] = calls["tid"].to_numpy()[row[has]]
    at = np.searchsorted(occurrence, np.arange(len(bounds) - 1))
    return Occurrences(
        "sequence",
        inside,
        occurrence,
        np.arange(len(bounds) - 1, dtype=np.int64),
        np.minimum.reduceat(cpu_start, at),
        np.maximum.reduceat(cpu_end, at),
        tid[at],
    )
