"""Who contains whom on one thread: parents and depths of ranges, and the innermost range at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]


def nest(ranges: pd.DataFrame) -> tuple[Ints, Ints]:
    """Parent row (-1 for none) and depth of each range, int64 (n,) each. Rows are sorted by (start, -end) per thread.

    A range that outlasts the one it started in is not nested in it (overlap by clock rounding): its parent is the nearest
    that holds it whole. Profiler overhead stands apart: it is not program structure.
    """
    parent = np.full(len(ranges), -1, dtype=np.int64)
    depth = np.zeros(len(ranges), dtype=np.int64)
    real = ranges[(ranges["kind"] != "overhead").to_numpy()]
    starts, ends = ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()
    for rows in real.groupby(["rank", "pid", "tid"], sort=False).indices.values():
        ids = real.index.to_numpy()[rows]
        _nest_thread(ids.tolist(), starts[ids].tolist(), ends[ids].tolist(), (parent, depth))
    return parent, depth


def _nest_thread(ids: list[int], starts: list[int], ends: list[int], out: tuple[Ints, Ints]) -> None:
    parent, depth = out
    stack: list[tuple[int, int]] = []  # (row, end), outermost first
    for row, start, end in zip(ids, starts, ends, strict=True):
        while stack and (stack[-1][1] <= start or stack[-1][1] < end):
            stack.pop()
        if stack:
            parent[row] = stack[-1][0]
            depth[row] = len(stack)
        stack.append((row, end))


def innermost_at(ranges: pd.DataFrame, parent: Ints, calls: pd.DataFrame) -> Ints:
    """Row of the innermost range around the start of each call on its own thread, -1 for none: int64 (calls,)."""
    found = np.full(len(calls), -1, dtype=np.int64)
    by_thread = ranges[(ranges["kind"] != "overhead").to_numpy()].groupby(["rank", "pid", "tid"], sort=False).groups
    starts, ends, times = ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy(), calls["start_ns"].to_numpy()
    for thread, rows in calls.groupby(["rank", "pid", "tid"], sort=False).indices.items():
        if thread not in by_thread:
            continue
        ids = by_thread[thread].to_numpy(dtype=np.int64)
        at = np.searchsorted(starts[ids], times[rows], side="right") - 1
        row = np.where(at >= 0, ids[np.maximum(at, 0)], -1)
        # The last range to start before the call may have ended already: then one of its parents is around the call.
        while True:
            over = (row >= 0) & (ends[np.maximum(row, 0)] <= times[rows])
            if not over.any():
                break
            row = np.where(over, parent[np.maximum(row, 0)], row)
        found[rows] = row
    return found
