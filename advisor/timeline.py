"""A trace as four joined tables. Sources hand over a `RawTrace`; `build` resolves every link once.

- item -> launch by (rank, pid, correlation): one launch to N items, for a graph launch;
- call -> innermost range, range -> parent range, by containment on the same thread;
- items belong to ranges by their *launch*, never by a time window: the GPU runs behind the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.types import union_categoricals

from advisor.calls import SUBMITTING
from advisor.errors import UsageError
from advisor.model import QualityNote, TraceInfo
from advisor.nesting import NONE, innermost_at, nest
from advisor.tables import CALLS, GAPS, ITEMS, RANGES
from advisor.threads import ThreadRoles, as_thread, thread_roles

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RawTrace:
    """What a source read, unlinked: frames made by `ITEMS`, `CALLS` and `RANGES` of `advisor.tables`.

    `notes` are what the reader had to mend or drop. `coarse_ns` is the clock's resolution where it is coarser than 1 ns
    (1000 for integer-µs traces, 250 for float64 epoch-µs), else 1.
    """

    items: pd.DataFrame
    calls: pd.DataFrame
    ranges: pd.DataFrame
    info: TraceInfo
    notes: tuple[QualityNote, ...] = ()
    coarse_ns: int = 1
    device_names: dict[tuple[int, int], str] = field(default_factory=dict)  # (rank, device) -> GPU name


@dataclass(frozen=True, eq=False)
class Timeline:
    """The joined tables. Rows are numbered 0..n-1; links hold those numbers. Columns and dtypes: `advisor.tables`.

    items: one row a GPU item (ITEMS); calls: one row a CUDA API call (CALLS); ranges: one row a CPU range (RANGES);
    gaps: idle stretches (GAPS), filled by `advisor.load` and `advisor.analyze`.
    """

    items: pd.DataFrame
    calls: pd.DataFrame
    ranges: pd.DataFrame
    info: TraceInfo
    notes: tuple[QualityNote, ...] = ()
    coarse_ns: int = 1
    device_names: dict[tuple[int, int], str] = field(default_factory=dict)
    gaps: pd.DataFrame = field(default_factory=GAPS.empty)

    @cached_property
    def launches(self) -> pd.DataFrame:
        """The calls that submit GPU items, index = launch_id."""
        return self.calls[self.calls["kind"].isin(SUBMITTING)]

    def with_gaps(self, gaps: pd.DataFrame) -> Timeline:
        """The same timeline with its gaps table."""
        return replace(self, gaps=gaps)

    def only_device(self, device: int) -> Timeline:
        """Items of one device; calls and ranges stay, since they explain it. Gaps are left to be computed anew.

        `item_count` goes on counting what a call submitted to any device. Raises UsageError when the device has no items.
        """
        keep = (self.items["device"] == device).to_numpy()
        if not keep.any():
            there = ", ".join(str(number) for number in sorted(self.items["device"].unique())) or "none"
            raise UsageError(f"device {device}: no GPU items on it in this trace; devices with items: {there}")
        return self._subset(keep, np.ones(len(self.calls), dtype=bool), np.ones(len(self.ranges), dtype=bool))

    def between(self, start_ns: int, end_ns: int) -> Timeline:
        """Items that start inside [start_ns, end_ns), their launches, and the calls and ranges that touch the window.

        Ranges around the launch of a kept item stay too, although the CPU was ahead. Counts and depths stay as in the whole.
        Gaps are left to be computed anew.
        """
        items = ((self.items["start_ns"] >= start_ns) & (self.items["start_ns"] < end_ns)).to_numpy()
        calls = _touches(self.calls, start_ns, end_ns)
        calls[_linked_rows(self.items["launch_id"][items])] = True
        ranges = _touches(self.ranges, start_ns, end_ns)
        around = np.unique(_linked_rows(self.calls["range_id"][calls]))
        while len(around):
            ranges[around] = True
            around = np.unique(_linked_rows(self.ranges["parent_id"].iloc[around]))
        return self._subset(items, calls, ranges)

    def items_of_ranges(self, range_ids: Ints) -> tuple[Ints, Ints]:
        """Items launched inside each of these ranges: (item ids int64 (m,), position in `range_ids` int64 (m,)).

        A launch is inside a range when its call starts in [start, end) on the range's thread or, for ranges on the main
        thread of a process, on a thread that works for it (autograd's; see `advisor.threads`). A nested range repeats its
        parent's items; within one range each item is listed once, in order of launch.
        """
        launches = self.calls[self.calls["item_count"] > 0].sort_values("start_ns", kind="stable")
        order, first = self._items_by_launch
        nothing = np.zeros(0, np.int64)
        items, owners = [nothing], [nothing]
        wanted = self.ranges.loc[range_ids, ["rank", "pid", "tid", "start_ns", "end_ns"]].reset_index(drop=True)
        for (rank, pid, tid), rows in wanted.groupby(["rank", "pid", "tid"]):
            tids = self.thread_roles.working_for(as_thread((rank, pid, tid)))
            here = launches[(launches["rank"] == rank) & (launches["pid"] == pid) & launches["tid"].isin(tids)]
            start = here["start_ns"].to_numpy()
            low = np.searchsorted(start, rows["start_ns"].to_numpy())
            high = np.maximum(np.searchsorted(start, rows["end_ns"].to_numpy()), low)
            at, owner = _expand(low, high - low, rows.index.to_numpy(dtype=np.int64))
            launch = here.index.to_numpy(dtype=np.int64)[at]
            slot, owner = _expand(first[launch], first[launch + 1] - first[launch], owner)
            items.append(order[slot])
            owners.append(owner)
        return np.concatenate(items), np.concatenate(owners)

    def launch_ranges(self, kinds: Sequence[str]) -> pd.Series:
        """The innermost range of the given kinds around each launch: Int64, index = launch_id, <NA> for none.

        A launch of a helper thread (autograd's; see `advisor.threads`) outside every such range of its own counts to the
        innermost one that its process's main thread was in at that time.
        """
        launches = self.launches
        chosen = self.ranges[self.ranges["kind"].isin(kinds)]
        rows = chosen.index.to_numpy(dtype=np.int64)
        chosen = chosen.reset_index(drop=True)
        parent, _ = nest(chosen, self.coarse_ns - 1)
        found = innermost_at(chosen, parent, launches)
        lost = launches[found < 0]
        moved = self._on_main_threads(lost)
        found[np.flatnonzero(found < 0)] = innermost_at(chosen, parent, moved)
        row = rows[np.maximum(found, 0)] if len(rows) else np.zeros(len(found), np.int64)
        return pd.Series(_optional(np.where(found >= 0, row, NONE)), index=launches.index, name="range_id")

    def _on_main_threads(self, launches: pd.DataFrame) -> pd.DataFrame:
        """The launches with those of helper threads moved to the main thread of their process."""
        roles = self.thread_roles
        moved = launches[["rank", "pid", "tid", "start_ns"]].copy()
        for helper in roles.helpers:
            mine = (moved["rank"] == helper.rank) & (moved["pid"] == helper.pid) & (launches["tid"] == helper.tid)
            moved.loc[mine, "tid"] = roles.main[helper[:2]].tid
        return moved

    @cached_property
    def thread_roles(self) -> ThreadRoles:
        """Which threads work for which."""
        return thread_roles(self.calls[self.calls["item_count"] > 0], self.ranges)

    @cached_property
    def _items_by_launch(self) -> tuple[Ints, Ints]:
        """Item ids sorted by launch, and where each launch's slice begins: int64 (linked,), int64 (calls + 1,)."""
        linked = np.flatnonzero(self.items["launch_id"].notna().to_numpy())
        launch = self.items["launch_id"].to_numpy(dtype="float64", na_value=np.nan)[linked].astype(np.int64)
        order = np.argsort(launch, kind="stable")
        counts = np.bincount(launch, minlength=len(self.calls))
        return linked[order].astype(np.int64), np.concatenate(([0], np.cumsum(counts))).astype(np.int64)

    def _subset(self, items: Bools, calls: Bools, ranges: Bools) -> Timeline:
        """The kept rows, renumbered; links to dropped rows become <NA>."""
        call_rows, range_rows = _new_rows(calls), _new_rows(ranges)
        kept_items = self.items[items].reset_index(drop=True)
        kept_calls = self.calls[calls].reset_index(drop=True)
        kept_ranges = self.ranges[ranges].reset_index(drop=True)
        kept_items["launch_id"] = _relinked(kept_items["launch_id"], call_rows)
        kept_calls["range_id"] = _relinked(kept_calls["range_id"], range_rows)
        kept_ranges["parent_id"] = _relinked(kept_ranges["parent_id"], range_rows)
        return replace(self, items=kept_items, calls=kept_calls, ranges=kept_ranges, gaps=GAPS.empty())


def build(raw: RawTrace) -> Timeline:
    """Link a raw trace: items to launches, calls to ranges, ranges to parents. Rows are renumbered by (rank, start)."""
    calls, ranges, items = _renumbered(raw.calls), _renumbered(raw.ranges), _renumbered(raw.items)
    launch = _launch_rows(items, calls)
    items["launch_id"] = _optional(launch)
    calls["item_count"] = np.bincount(launch[launch >= 0], minlength=len(calls)).astype(np.int64)
    # With a clock of 1 µs a child may end one tick after its parent.
    parent, depth = nest(ranges, raw.coarse_ns - 1)
    ranges["parent_id"] = _optional(parent)
    ranges["depth"] = depth
    calls["range_id"] = _optional(innermost_at(ranges, parent, calls))
    return Timeline(
        ITEMS.build(items),
        CALLS.build(calls),
        RANGES.build(ranges),
        raw.info,
        raw.notes,
        raw.coarse_ns,
        raw.device_names,
    )


def concat(parts: list[RawTrace], info: TraceInfo, notes: tuple[QualityNote, ...] = ()) -> RawTrace:
    """Several ranks as one raw trace; `rank` keeps them apart."""
    names: dict[tuple[int, int], str] = {}
    for part in parts:
        names.update(part.device_names)
    return RawTrace(
        items=_stacked([part.items for part in parts]),
        calls=_stacked([part.calls for part in parts]),
        ranges=_stacked([part.ranges for part in parts]),
        info=info,
        notes=tuple(note for part in parts for note in part.notes) + notes,
        coarse_ns=max(part.coarse_ns for part in parts),
        device_names=names,
    )


def _stacked(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Frames one below the other, categories united: plain concat falls back to objects where categories differ."""
    made = {}
    for column in frames[0].columns:
        parts = [frame[column] for frame in frames]
        if isinstance(parts[0].dtype, pd.CategoricalDtype):
            made[column] = pd.Series(union_categoricals([part.array for part in parts]))
        else:
            made[column] = pd.concat(parts, ignore_index=True)
    return pd.DataFrame(made)


def _renumbered(frame: pd.DataFrame) -> pd.DataFrame:
    order = np.lexsort((-frame["end_ns"].to_numpy(), frame["start_ns"].to_numpy(), frame["rank"].to_numpy()))
    return frame.iloc[order].reset_index(drop=True)


def _launch_rows(items: pd.DataFrame, calls: pd.DataFrame) -> Ints:
    """Row of the launch of each item, -1 for none: int64 (items,).

    Where several calls share an id, those that submit work come first, then the earliest: it is the outermost, a runtime
    call around the driver call it makes.
    """
    made = np.full(len(items), NONE, dtype=np.int64)
    source = calls[calls["correlation"].notna()]
    submits = source["kind"].isin(SUBMITTING).to_numpy()
    source = source.iloc[np.argsort(~submits, kind="stable")]
    by_process = (items["pid"] != 0).to_numpy()
    wanted = items["correlation"].notna().to_numpy()
    for keys, mask in (
        (["rank", "correlation"], wanted & ~by_process),
        (["rank", "pid", "correlation"], wanted & by_process),
    ):
        if mask.any() and len(source):
            unique = source.drop_duplicates(keys, keep="first")
            index = pd.MultiIndex.from_frame(unique[keys].astype("int64"))
            at = index.get_indexer(pd.MultiIndex.from_frame(items.loc[mask, keys].astype("int64")))
            made[mask] = np.where(at >= 0, unique.index.to_numpy()[at], NONE)
    return made


def _optional(rows: Ints) -> pd.api.extensions.ExtensionArray:
    """Row numbers with -1 for none as a nullable column."""
    return pd.arrays.IntegerArray(np.maximum(rows, 0), rows < 0)


def _linked_rows(links: pd.Series) -> Ints:
    return links.dropna().to_numpy(dtype=np.int64)


def _new_rows(kept: Bools) -> Ints:
    """New row of each old one, -1 for a dropped one."""
    return np.where(kept, np.cumsum(kept) - 1, NONE)


def _relinked(links: pd.Series, new_rows: Ints) -> pd.api.extensions.ExtensionArray:
    old = links.fillna(NONE).to_numpy(dtype=np.int64)
    return _optional(np.where(old >= 0, new_rows[np.maximum(old, 0)], NONE) if len(new_rows) else old)


def _touches(frame: pd.DataFrame, start_ns: int, end_ns: int) -> Bools:
    touching: Bools = ((frame["end_ns"] > start_ns) & (frame["start_ns"] < end_ns)).to_numpy(dtype=bool)
    return touching.copy()


def _expand(low: Ints, length: Ints, owner: Ints) -> tuple[Ints, Ints]:
    """low[i], low[i] + 1, ... (length[i] of them) for every i in turn, with owner[i] beside each."""
    total = int(length.sum())
    begin = np.cumsum(length) - length
    at = np.arange(total, dtype=np.int64) - np.repeat(begin, length) + np.repeat(low, length)
    return at, np.repeat(owner, length)
