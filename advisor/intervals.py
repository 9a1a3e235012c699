"""Sets of disjoint time intervals: the arithmetic under busy time, idle time and layers.

All arrays are int64 ns. A `Coverage` answers "how much of [a, b) is covered" for many windows at once through prefix
sums, so a window cut in two gives two answers that add up to the whole, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Coverage:
    """Sorted, disjoint, non-empty intervals [start, end); `before` has the total length before each start."""

    starts: Ints
    ends: Ints
    before: Ints

    @property
    def total_ns(self) -> int:
        return int((self.ends - self.starts).sum())

    def up_to(self, times: npt.ArrayLike) -> Ints:
        """Covered ns before each time: shape of `times`."""
        at = np.asarray(times, dtype=np.int64)
        if len(self.starts) == 0:
            return np.zeros(at.shape, dtype=np.int64)
        index = np.searchsorted(self.starts, at, side="right") - 1
        inside = np.maximum(index, 0)
        reached = np.minimum(at, self.ends[inside]) - self.starts[inside]
        return np.where(index < 0, 0, self.before[inside] + reached)

    def within(self, starts: npt.ArrayLike, ends: npt.ArrayLike) -> Ints:
        """Covered ns inside each window [start, end); windows may overlap each other."""
        return self.up_to(ends) - self.up_to(starts)


def union(starts: npt.ArrayLike, ends: npt.ArrayLike) -> Coverage:
    """The union of any intervals; empty and reversed ones vanish."""
    start, end = np.asarray(starts, dtype=np.int64), np.asarray(ends, dtype=np.int64)
    keep = end > start
    start, end = start[keep], end[keep]
    if len(start) == 0:
        return _coverage(start, end)
    order = np.argsort(start, kind="stable")
    start, reached = start[order], np.maximum.accumulate(end[order])
    opens = np.concatenate(([True], start[1:] > reached[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return _coverage(start[opens], reached[closes])


def complement(coverage: Coverage, start_ns: int, end_ns: int) -> Coverage:
    """What of [start_ns, end_ns) is not covered."""
    starts = np.concatenate(([start_ns], coverage.ends))
    ends = np.concatenate((coverage.starts, [end_ns]))
    return union(np.maximum(starts, start_ns), np.minimum(ends, end_ns))


def intersection(one: Coverage, other: Coverage) -> Coverage:
    """What both cover."""
    first = np.searchsorted(other.ends, one.starts, side="right")
    count = np.maximum(np.searchsorted(other.starts, one.ends, side="left") - first, 0)
    mine = np.repeat(np.arange(len(count)), count)
    theirs = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    # Pieces come in order and apart: within each set the intervals already do.
    return _coverage(
        np.maximum(one.starts[mine], other.starts[theirs]), np.minimum(one.ends[mine], other.ends[theirs])
    )


def difference(whole: Coverage, part: Coverage) -> Coverage:
    """`whole` without `part`, which must lie inside it."""
    starts = np.sort(np.concatenate((whole.starts, part.ends)))
    ends = np.sort(np.concatenate((part.starts, whole.ends)))
    keep = ends > starts  # a part that reaches an edge leaves an empty piece there
    return _coverage(starts[keep], ends[keep])


def grouped_union_ns(group: Ints, starts: Ints, ends: Ints, group_count: int) -> Ints:
    """Length of the union of the intervals of each group 0..group_count-1: int64 (group_count,)."""
    if len(starts) == 0:
        return np.zeros(group_count, dtype=np.int64)
    # Shifting each group far apart makes one union of all of them a union per group.
    base, width = int(starts.min()), int(ends.max() - starts.min()) + 1
    if width * group_count < 2**62:
        shift = group * width - base
        merged = union(starts + shift, ends + shift)
        owner = merged.starts // width
        return np.bincount(owner, merged.ends - merged.starts, group_count).astype(np.int64)
    lengths = [union(starts[group == number], ends[group == number]).total_ns for number in range(group_count)]
    return np.asarray(lengths, dtype=np.int64)


def _coverage(starts: Ints, ends: Ints) -> Coverage:
    lengths = ends - starts
    return Coverage(starts, ends, np.cumsum(lengths) - lengths)
