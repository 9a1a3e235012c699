"""One device over one window as values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from advisor.calls import ALLOC, GRAPH
from advisor.compare import distribution
from advisor.intervals import intersection, union
from advisor.metrics.gaps import LONG_GAP_NS, DeviceIdle
from advisor.metrics.launches import launch_stats
from advisor.model import Cause, DeviceSummary, GraphCoverage, KernelRow
from advisor.timeline import Timeline


def device_summary(
    timeline: Timeline, table: pd.DataFrame, idle: DeviceIdle, window: tuple[int, int] | None = None
) -> DeviceSummary:
    """Busy, idle by cause, layers, launches and graph coverage of one device; busy + idle = window, exactly.

    The window is clipped to [first item start, last item end] of the device. `table` is `metrics.launch_table`.
    """
    start, end = (idle.start_ns, idle.end_ns) if window is None else window
    start, end = max(start, idle.start_ns), min(end, idle.end_ns)
    items = timeline.items
    on_device = (items["rank"] == idle.rank) & (items["device"] == idle.device)
    mine = items[on_device & (items["end_ns"] > start) & (items["start_ns"] < end)]
    found = timeline.gaps
    found = found[(found["rank"] == idle.rank) & (found["device"] == idle.device)]
    found = found[(found["end_ns"] > start) & (found["start_ns"] < end)]
    sizes = found["end_ns"].clip(upper=end) - found["start_ns"].clip(lower=start)
    kinds = mine["kind"].value_counts()
    return DeviceSummary(
        rank=idle.rank,
        device=idle.device,
        gpu_name=timeline.device_names.get((idle.rank, idle.device), ""),
        start_ns=start,
        end_ns=end,
        busy_ns=int(idle.busy.within(start, end)),
        idle=idle.idle(start, end),
        layers=idle.layer_times(start, end),
        item_count=len(mine),
        kernel_count=int(kinds.get("kernel", 0)),
        memcpy_count=int(kinds.get("memcpy", 0)),
        memset_count=int(kinds.get("memset", 0)),
        stream_count=int(mine["stream"].nunique()),
        gap_count=len(found),
        alloc_ns=_alloc_ns(timeline, idle, (start, end)),
        long_gap_ns=int(sizes[sizes > LONG_GAP_NS].sum()),
        launches=launch_stats(timeline, table, idle.rank, idle.device, (start, end)),
        graphs=graph_coverage(timeline, mine),
        gap_sizes=distribution(sizes),
    )


def _alloc_ns(timeline: Timeline, idle: DeviceIdle, window: tuple[int, int]) -> int:
    calls = timeline.calls
    alloc = calls[(calls["rank"] == idle.rank) & (calls["kind"] == ALLOC)]
    return int(intersection(union(alloc["start_ns"], alloc["end_ns"]), idle.causes[Cause.LAUNCH]).within(*window))


def graphed(timeline: Timeline, items: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Which items ran inside a graph replay: bool (m,).

    By graph id, as an opaque execution, by their launch, or, for replays launched before the recording, by a correlation
    that several items share: only the items of one graph launch do.
    """
    known = items["graph_id"].notna() | items["graph_node_id"].notna() | (items["kind"] == "graph")
    inside = np.array(known, dtype=bool)  # a copy: pandas hands out read-only views
    linked = items["launch_id"].notna().to_numpy()
    shared = items["correlation"].notna() & items.duplicated(["rank", "pid", "correlation"], keep=False)
    inside |= ~linked & shared.to_numpy(dtype=bool)
    if len(timeline.calls):
        replays = (timeline.calls["kind"] == GRAPH).to_numpy(dtype=bool)
        inside |= linked & replays[items["launch_id"].fillna(0).to_numpy(dtype="int64")]
    return inside


def graph_coverage(timeline: Timeline, items: pd.DataFrame) -> GraphCoverage:
    """Share of these items and of their busy time inside replays."""
    inside = graphed(timeline, items)
    busy = union(items["start_ns"], items["end_ns"]).total_ns
    replayed = items[inside]
    launches = replayed["launch_id"].nunique()
    opaque = items[items["kind"] == "graph"]
    return GraphCoverage(
        launch_count=int(launches),
        item_count=len(replayed),
        item_ratio=len(replayed) / len(items) if len(items) else 0.0,
        busy_ratio=union(replayed["start_ns"], replayed["end_ns"]).total_ns / busy if busy else 0.0,
        opaque_ns=union(opaque["start_ns"], opaque["end_ns"]).total_ns,
    )


def kernel_rows(
    timeline: Timeline, rank: int, device: int, window: tuple[int, int], limit: int = 40
) -> list[KernelRow]:
    """Items by name, the most time first."""
    items = timeline.items
    mine = items[(items["rank"] == rank) & (items["device"] == device) & items["start_ns"].between(*window)]
    frame = pd.DataFrame(
        {
            "name": mine["name"].astype(str),
            "kind": mine["kind"].astype(str),
            "ns": mine["end_ns"] - mine["start_ns"],
            "graphed": graphed(timeline, mine),
        }
    )
    by_name = frame.groupby(["name", "kind"]).agg(
        count=("ns", "size"), total=("ns", "sum"), median=("ns", "median"), graphed=("graphed", "mean")
    )
    rows = by_name.sort_values("total", ascending=False).head(limit).reset_index()
    columns = [rows[column].tolist() for column in ("name", "kind", "count", "total", "median", "graphed")]
    return [
        KernelRow(name=name, kind=kind, count=count, total_ns=total, median_ns=int(median), graphed_ratio=share)
        for name, kind, count, total, median, share in zip(*columns, strict=True)
    ]
