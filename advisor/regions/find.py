"""From a timeline to the step and the regions of one device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from advisor.model import Measurement, NumberKind, RegionKind, Step
from advisor.regions.figures import Columns, Identity, columns, measure
from advisor.regions.groups import Group, find_groups
from advisor.regions.rows import FoundRegion, Occurrences, StepWindows
from advisor.regions.steps import ChosenStep, choose_step
from advisor.timeline import Timeline

Ints = npt.NDArray[np.int64]

_MIN_SHARE: Final = 0.01  # of the step; smaller regions are noise in a report
_MAX_REGIONS: Final = 80


@dataclass(frozen=True)
class Found:
    """What `find` found on one device. `regions` begins with the step's own region when there is a step.

    `groups` are all named ranges, those not worth a region of their own as well; `shared` the columns figures are made from.
    """

    step: Step | None
    windows: StepWindows | None
    regions: tuple[FoundRegion, ...]
    groups: tuple[Group, ...]
    shared: Columns


def find(timeline: Timeline, rank: int, device: int, *, step_label: str | None = None) -> Found:
    """The step and the regions of one device. `step_label` overrides the choice of the step."""
    groups = find_groups(timeline, rank, device)
    chosen = choose_step(timeline, groups, rank, device, step_label)
    windows = chosen.windows if chosen else None
    shared = _within_steps(columns(timeline, rank, device), windows)
    found = [_step_region(chosen, shared)] if chosen else []
    step_key = chosen.group.key if chosen and chosen.group else ""
    parents = timeline.ranges["parent_id"].fillna(-1).to_numpy(dtype="int64")
    owners = {int(row): "step" if group.key == step_key else group.key for group in groups for row in group.range_ids}
    for group in groups:
        if group.key != step_key:
            parent = _parent(parents, group, owners)
            found.append(_group_region(timeline, group, shared, windows, parent))
    step = _step_value(chosen) if chosen else None
    return Found(step, windows, _worth_showing(found, windows), tuple(groups), shared)


def _within_steps(shared: Columns, windows: StepWindows | None) -> Columns:
    """The columns without the idle time before a step that does not follow on another: it is no part of any step."""
    if windows is None or not windows.count:
        return shared
    apart = np.concatenate(([True], windows.start_ns[1:] != windows.end_ns[:-1]))
    opens = np.isin(shared.start, windows.start_ns[apart])
    return replace(
        shared,
        cause={kind: np.where(opens, 0, ns) for kind, ns in shared.cause.items()},
        layer={part: np.where(opens, 0, ns) for part, ns in shared.layer.items()},
        long_gap=np.where(opens, 0, shared.long_gap),
    )


def _step_region(chosen: ChosenStep, shared: Columns) -> FoundRegion:
    occurrences = replace(chosen.occurrences, region_id="step")
    group = chosen.group
    kind = RegionKind.SEQUENCE if occurrences.region_id == "sequence" else RegionKind.STEP
    identity = Identity("step", chosen.label, kind, chosen.how, group.location if group else None)
    return FoundRegion(measure(identity, occurrences, shared, chosen.windows), occurrences)


def _step_value(chosen: ChosenStep) -> Step:
    windows = chosen.windows
    lengths = windows.end_ns - windows.start_ns
    # The last window ends with its own last item instead of the next step's first: shorter than a true period.
    if len(lengths) > 3:
        lengths = lengths[:-1]
    return Step(
        id="step",
        label=chosen.label,
        how=chosen.how,
        count=windows.count,
        traced=Measurement(samples_ns=tuple(int(value) for value in lengths), kind=NumberKind.PROFILED),
        location=chosen.group.location if chosen.group else None,
    )


def _group_region(
    timeline: Timeline, group: Group, shared: Columns, windows: StepWindows | None, parent: str | None
) -> FoundRegion:
    rows = timeline.ranges.loc[group.range_ids]
    start, end, tid = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy(), rows["tid"].to_numpy()
    full = np.unique(group.occurrence)
    occurrences = Occurrences(
        group.key,
        group.item_ids,
        np.searchsorted(full, group.occurrence),
        step_index(start[full], windows),
        start[full],
        end[full],
        tid[full],
    )
    identity = Identity(group.key, group.label, group.kind, _how(group), group.location, parent)
    return FoundRegion(measure(identity, occurrences, shared, windows), occurrences)


def _how(group: Group) -> str:
    if group.mark_kind:
        return f"cgadvisor {group.mark_kind} range"
    return {"module": "nn.Module calls", "nvtx": "NVTX range", "step": "ProfilerStep"}.get(
        group.source_kind, "record_function range"
    )


def step_index(start: Ints, windows: StepWindows | None) -> Ints:
    """The step whose CPU range holds each start, else -1."""
    if windows is None or not windows.count:
        return np.full(len(start), -1, dtype=np.int64)
    order = np.argsort(windows.cpu_start_ns, kind="stable")
    starts, ends = windows.cpu_start_ns[order], windows.cpu_end_ns[order]
    at = np.searchsorted(starts, start, side="right") - 1
    inside = (at >= 0) & (start < ends[np.maximum(at, 0)])
    return np.where(inside, order[np.maximum(at, 0)], -1).astype(np.int64)


def _parent(parents: Ints, group: Group, owners: dict[int, str]) -> str | None:
    """The group of the nearest enclosing named range of this group's second occurrence (the first may be cut off)."""
    at = int(parents[group.range_ids[min(len(group.range_ids) - 1, 1)]])
    while at >= 0:
        key = owners.get(at)
        if key is not None and key != group.key:
            return key
        at = int(parents[at])
    return None


def _worth_showing(found: list[FoundRegion], windows: StepWindows | None) -> tuple[FoundRegion, ...]:
    """The step first, then the others by the time they account for; without a step, by their whole extent."""
    head = [one for one in found if one.region.id == "step"]
    rest = [one for one in found if one.region.id != "step"]
    if windows is not None:
        rest = [one for one in rest if one.region.step_share_ratio >= _MIN_SHARE]
    rest.sort(key=lambda one: -one.region.extent_ns * one.region.occurrence_count)
    return tuple((head + rest)[:_MAX_REGIONS])
