"""Who contains whom on one thread: parents and depths of ranges, and the innermost range at a time."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]

NONE: Final = -1
_THREAD: Final = ["rank", "pid", "tid"]


def nest(ranges: pd.DataFrame, slack_ns: int = 0) -> tuple[Ints, Ints]:
    """Parent row (-1 for none) and depth of each range, int64 (n,) each. Rows are sorted by (start, -end) per thread.

    A range that outlasts the one it started in by more than `slack_ns` is not nested in it: its parent is the nearest that
    holds it whole. Profiler overhead stands apart: it is not program structure.
    """
    parent = np.full(len(ranges), NONE, dtype=np.int64)
    depth = np.zeros(len(ranges), dtype=np.int64)
    starts, ends = ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()
    for ids in _by_thread(ranges).values():
        found = _nest_well_formed(starts[ids], ends[ids])
        above, deep = found if found is not None else _nest_thread(starts[ids], ends[ids], slack_ns)
        parent[ids] = np.where(above >= 0, ids[np.maximum(above, 0)], NONE)
        depth[ids] = deep
    return parent, depth


def _nest_well_formed(starts: Ints, ends: Ints) -> tuple[Ints, Ints] | None:
    """What `_nest_thread` finds, without a loop over the ranges; None where any two overlap in part or one is empty.

    Of ranges that only nest, as many are open at a start as have begun before it and not ended yet: that is the depth. The
    parent is the last range before it that is one less deep. Both are then checked, so a wrong guess cannot pass.
    """
    if len(starts) == 0 or bool((ends <= starts).any()):
        return None
    depth = np.arange(len(starts)) - np.searchsorted(np.sort(ends), starts, side="right")
    by_depth = np.argsort(depth, kind="stable")
    bounds = np.searchsorted(depth[by_depth], np.arange(int(depth.max()) + 2))
    parent = np.full(len(starts), NONE, dtype=np.int64)
    for level in range(1, len(bounds) - 1):
        outer, inner = by_depth[bounds[level - 1] : bounds[level]], by_depth[bounds[level] : bounds[level + 1]]
        parent[inner] = outer[np.searchsorted(outer, inner) - 1]
    nested = parent >= 0
    whole = (ends[parent[nested]] >= ends[nested]).all() and (ends[parent[nested]] > starts[nested]).all()
    return (parent, depth.astype(np.int64)) if whole and bool((parent < np.arange(len(parent))).all()) else None


def _nest_thread(starts: Ints, ends: Ints, slack_ns: int) -> tuple[Ints, Ints]:
    """Position of the parent, and depth, of each range of one thread.

    A range that ends before a later started one does is taken off the stack for good: whatever it could still hold, the
    later one holds too, and is nearer. So each range is pushed and popped once, however they overlap.
    """
    # What holds a range ends no earlier than it (but for the slack), and after its start: one bound for both.
    least = np.maximum(ends - slack_ns, starts + 1).tolist()
    parents, depths = [], []
    stack, stack_ends = [NONE], [np.iinfo(np.int64).max]  # outermost first, under a bottom that holds everything
    for position, (end, bound) in enumerate(zip(ends.tolist(), least, strict=True)):
        while stack_ends[-1] < bound:
            stack_ends.pop()
            stack.pop()
        parents.append(stack[-1])
        depths.append(len(stack) - 1)
        stack.append(position)
        stack_ends.append(end)
    return np.asarray(parents, dtype=np.int64), np.asarray(depths, dtype=np.int64)


def innermost_at(ranges: pd.DataFrame, parent: Ints, calls: pd.DataFrame) -> Ints:
    """Row of the innermost range around the start of each call on its own thread, -1 for none: int64 (calls,).

    A range is around its start but no longer around its end. Of ranges that overlap in part the latest started counts.
    """
    found = np.full(len(calls), NONE, dtype=np.int64)
    threads = _by_thread(ranges)
    starts, ends, times = ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy(), calls["start_ns"].to_numpy()
    for thread, rows in calls.groupby(_THREAD, sort=False).indices.items():
        ids = threads.get(thread)
        if ids is None:
            continue
        at = np.searchsorted(starts[ids], times[rows], side="right") - 1
        row = np.where(at >= 0, ids[np.maximum(at, 0)], NONE)
        # The last range to start before the call may have ended already: then one of its parents is around the call.
        over = np.flatnonzero((row >= 0) & (ends[row] <= times[rows]))
        while len(over):
            row[over] = parent[row[over]]
            over = over[(row[over] >= 0) & (ends[row[over]] <= times[rows[over]])]
        found[rows] = row
    return found


def _by_thread(ranges: pd.DataFrame) -> dict[Hashable, Ints]:
    """Rows of the ranges of each thread, in order, overhead left out."""
    rows = np.flatnonzero((ranges["kind"] != "overhead").to_numpy())
    grouped = ranges.iloc[rows].groupby(_THREAD, sort=False).indices
    return {thread: rows[mine] for thread, mine in grouped.items()}
