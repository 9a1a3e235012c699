"""Launch statistics: one row a GPU item, and the queue's depth over time."""

from __future__ import annotations

import numpy as np
import pandas as pd

from advisor.calls import SYNC
from advisor.compare import distribution
from advisor.intervals import Ints, union
from advisor.metrics.gaps import synchronising
from advisor.model import LaunchStats
from advisor.tables import rows_by
from advisor.timeline import Timeline


def launch_table(timeline: Timeline) -> pd.DataFrame:
    """One row per item that has a launch, index = item id.

    api_ns      int64  duration of the launch call
    latency_ns  int64  item start - call start; signed, never clipped (a negative one is clock skew)
    queue_ns    Int64  item start - call end where >= 0, else <NA>
    issue_ns    int64  CPU time from the end of the previous launch of the same process to the end of this one, without
                       time blocked in synchronising calls; a graph launch's is shared evenly by its items
    item_ns     int64  duration of the item
    ratio       float64 issue_ns / item_ns (launch-to-execute); inf for a zero-length item

    Launches of one process are ordered across its threads: during backward the main thread blocks while autograd's thread
    launches, so the previous launch is often another thread's.
    """
    items, calls = timeline.items, timeline.calls
    linked = items[items["launch_id"].notna()]
    row = linked["launch_id"].to_numpy(dtype="int64")
    issue = _issue_ns(calls)
    start, end = calls["start_ns"].to_numpy()[row], calls["end_ns"].to_numpy()[row]
    item_start, item_ns = linked["start_ns"].to_numpy(), (linked["end_ns"] - linked["start_ns"]).to_numpy()
    share = issue[row] // np.maximum(calls["item_count"].to_numpy()[row], 1)
    queue = item_start - end
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(item_ns > 0, share / np.maximum(item_ns, 1), np.inf)
    return pd.DataFrame(
        {
            "api_ns": end - start,
            "latency_ns": item_start - start,
            "queue_ns": pd.arrays.IntegerArray(queue, queue < 0),
            "issue_ns": share,
            "item_ns": item_ns,
            "ratio": ratio,
        },
        index=linked.index,
    )


def _issue_ns(calls: pd.DataFrame) -> Ints:
    """Issue time of each call that submitted something (0 for the others and for the first of a process)."""
    issue = np.zeros(len(calls), dtype=np.int64)
    end, start = calls["end_ns"].to_numpy(), calls["start_ns"].to_numpy()
    submits, blocking = calls["item_count"].to_numpy() > 0, synchronising(calls)
    for rows in rows_by(calls, ["rank", "pid"]).values():
        blocked = union(start[rows[blocking[rows]]], end[rows[blocking[rows]]])
        launches = rows[submits[rows]]
        launches = launches[np.argsort(end[launches], kind="stable")]
        previous, this = end[launches[:-1]], end[launches[1:]]
        issue[launches[1:]] = this - previous - blocked.within(previous, this)
    return issue


def launch_stats(
    timeline: Timeline, table: pd.DataFrame, rank: int, device: int, window: tuple[int, int]
) -> LaunchStats:
    """Distributions over the items of one device that start inside the window. `table` is `launch_table(timeline)`."""
    items, calls = timeline.items, timeline.calls
    start, end = window
    mine = items[(items["rank"] == rank) & (items["device"] == device) & items["start_ns"].between(start, end)]
    rows = table.loc[table.index.intersection(mine.index)]
    launch_ids = mine["launch_id"].dropna().astype("int64").unique()
    used = calls.loc[launch_ids]
    in_window = calls[(calls["rank"] == rank) & (calls["start_ns"] < end) & (calls["end_ns"] > start)]
    busy_ns = union(mine["start_ns"], mine["end_ns"]).total_ns
    issue_ns = int(rows["issue_ns"].sum())
    api_ns = int((used["end_ns"] - used["start_ns"]).sum())
    positive = rows["issue_ns"] > 0
    finite = np.isfinite(rows["ratio"]) & positive
    return LaunchStats(
        launch_count=len(launch_ids),
        item_count=len(mine),
        api=distribution(rows["api_ns"]),
        latency=distribution(rows["latency_ns"]),
        queue=distribution(rows["queue_ns"].dropna()),
        issue=distribution(rows.loc[positive, "issue_ns"]),
        ratio=distribution(rows.loc[finite, "ratio"]),
        issue_to_busy_ratio=issue_ns / busy_ns if busy_ns else None,
        api_to_busy_ratio=api_ns / busy_ns if busy_ns else None,
        negative_latency_count=int((rows["latency_ns"] < 0).sum()),
        calls_by_api={str(name): int(n) for name, n in used["api"].value_counts().items() if n},
        sync_count=int((in_window["kind"] == SYNC).sum()),
    )


def queue_depth(timeline: Timeline, rank: int, device: int, window: tuple[int, int]) -> tuple[Ints, Ints]:
    """Items launched and not yet started over time: (times, depth), both int64 (k,), depth >= 0, within the window.

    Items without a launch in the file are left out. A launch counts from the earlier of its call and its item's start, so
    skewed clocks cannot make the depth negative.
    """
    items = timeline.items
    mine = items[(items["rank"] == rank) & (items["device"] == device) & items["launch_id"].notna()]
    if len(mine) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    started = mine["start_ns"].to_numpy()
    called = timeline.calls["start_ns"].to_numpy()[mine["launch_id"].to_numpy(dtype="int64")]
    times = np.concatenate((np.minimum(called, started), started))
    change = np.concatenate((np.ones(len(started), np.int64), -np.ones(len(started), np.int64)))
    order = np.lexsort((-change, times))
    times, depth = times[order], np.cumsum(change[order])
    inside = (times >= window[0]) & (times <= window[1])
    return times[inside], depth[inside]
