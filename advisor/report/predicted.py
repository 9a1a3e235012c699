"""The drawn step as it would run from one graph: the same items, with the gaps a graph removes closed.

Only launch-bound gaps close, each to the gap between two nodes of a graph; waits for input, synchronisations and the device
itself stay. Time is mapped by one monotone shift for all streams, so items that overlap still do.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from advisor.model import Calibration, Cause, Lane, TimelineCut

# The defaults of advisor.estimate.costs, repeated so that a report needs no dataframes; a test keeps them equal.
DEFAULT_NODE_GAP_NS: Final = 400
DEFAULT_GRAPH_LAUNCH_NS: Final = 10_000


def predicted_lanes(cut: TimelineCut, calibration: Calibration | None) -> tuple[Lane, ...]:
    """Lanes of kind "launch" and "stream" for the graphed step, on the axis of `cut`; empty without launch-bound gaps."""
    node_gap = round(calibration.node_gap_ns) if calibration else DEFAULT_NODE_GAP_NS
    gaps = _launch_gaps(cut)
    streams = [lane for lane in cut.lanes if lane.kind == "stream" and lane.start_ns]
    if not gaps or not streams:
        return ()
    first = min(lane.start_ns[0] for lane in streams)
    starts, removed = _removed(gaps, node_gap, first)
    shifted = [_shift(lane, starts, removed) for lane in streams]
    count = sum(len(lane.start_ns) for lane in streams)
    launch_ns = (
        round(calibration.graph_launch_cpu_ns + calibration.graph_launch_cpu_per_node_ns * count)
        if calibration
        else DEFAULT_GRAPH_LAUNCH_NS
    )
    begin = min(lane.start_ns[0] for lane in shifted)
    launch = Lane(
        id="graph-launch",
        label="one graph launch (predicted)",
        kind="launch",
        start_ns=(max(begin - launch_ns, 0),),
        duration_ns=(min(launch_ns, begin),),
        name_ids=(-1,),
    )
    return (launch, *shifted)


def _launch_gaps(cut: TimelineCut) -> list[tuple[int, int]]:
    """(start, duration) of the launch-bound gaps, in order."""
    found = []
    for lane in cut.lanes:
        if lane.kind == "gap":
            rows = zip(lane.start_ns, lane.duration_ns, lane.name_ids, strict=True)
            found += [(start, ns) for start, ns, name in rows if cut.names[name] == Cause.LAUNCH.value]
    return sorted(found)


def _removed(gaps: list[tuple[int, int]], node_gap_ns: int, first_ns: int) -> tuple[list[int], list[int]]:
    """Ends of the gaps and the time removed up to each of them. The gap before the first item is no gap of the step."""
    ends, removed, total = [], [], 0
    for start, duration in gaps:
        if start < first_ns:
            continue
        total += max(duration - node_gap_ns, 0)
        ends.append(start + duration)
        removed.append(total)
    return ends, removed


def _shift(lane: Lane, ends: list[int], removed: list[int]) -> Lane:
    moved = []
    for start in lane.start_ns:
        index = bisect_right(ends, start)
        moved.append(start - (removed[index - 1] if index else 0))
    return Lane(
        id=f"{lane.id}-graphed",
        label=f"{lane.label}, graphed (predicted)",
        kind="stream",
        start_ns=tuple(moved),
        duration_ns=lane.duration_ns,
        name_ids=lane.name_ids,
        links=(0,) * len(moved),
    )


def length_ns(lanes: tuple[Lane, ...]) -> int:
    """From the first predicted item to the end of the last; 0 without lanes."""
    streams = [lane for lane in lanes if lane.kind == "stream" and lane.start_ns]
    if not streams:
        return 0
    ends = [start + ns for lane in streams for start, ns in zip(lane.start_ns, lane.duration_ns, strict=True)]
    return max(ends) - min(lane.start_ns[0] for lane in streams)
