"""A trace as four joined tables. Sources hand over a `RawTrace`; `build` resolves every link once.

- item -> launch by (rank, pid, correlation): one launch to N items, for a graph launch;
- call -> innermost range, range -> parent range, by containment on the same thread;
- items belong to ranges by their *launch*, never by a time window: the GPU runs behind the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from advisor.calls import SUBMITTING
from advisor.model import QualityNote, TraceInfo
from advisor.nesting import innermost_at, nest
from advisor.tables import CALLS, GAPS, ITEMS, RANGES

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


@dataclass(frozen=True)
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
        """Items of one device; calls and ranges stay, since they explain it. Raises KeyError when it has no items."""
        keep = (self.items["device"] == device).to_numpy()
        if not keep.any():
            raise KeyError(device)
        return self._rebuilt(self.items[keep], self.calls, self.ranges)

    def between(self, start_ns: int, end_ns: int) -> Timeline:
        """Items that start inside [start_ns, end_ns) with their launches, and the calls and ranges that touch the window."""
        items = self.items[(self.items["start_ns"] >= start_ns) & (self.items["start_ns"] < end_ns)]
        used = np.zeros(len(self.calls), dtype=bool)
        used[items["launch_id"].dropna().to_numpy(dtype="int64")] = True
        # Launches inside the window whose items ran after it would read as lost records, so only used ones are kept.
        submits = (self.calls["item_count"] > 0).to_numpy()
        touches = ((self.calls["end_ns"] > start_ns) & (self.calls["start_ns"] < end_ns)).to_numpy()
        ranges = self.ranges[(self.ranges["end_ns"] > start_ns) & (self.ranges["start_ns"] < end_ns)]
        return self._rebuilt(items, self.calls[used | (touches & ~submits)], ranges)

    def items_of_ranges(self, range_ids: Ints) -> tuple[Ints, Ints]:
        """Items launched inside each of these ranges: (item ids int64 (m,), position in `range_ids` int64 (m,)).

        A launch is inside a range when its call starts in [start, end) on the range's thread, or on a thread of the same
        process that works for others (autograd's, see `_helper_threads`). A nested range repeats its parent's items.
        """
        launches = self.calls[self.calls["item_count"] > 0].sort_values("start_ns", kind="stable")
        order, first = self._items_by_launch
        found: list[tuple[Ints, Ints]] = []
        wanted = self.ranges.loc[range_ids, ["rank", "pid", "tid", "start_ns", "end_ns"]].reset_index(drop=True)
        helpers = self._helper_threads
        for (rank, pid, tid), rows in wanted.groupby(["rank", "pid", "tid"]):
            here = launches[(launches["rank"] == rank) & (launches["pid"] == pid)]
            if len(helpers):
                mine = (here["tid"] == tid) | here["tid"].isin([t for r, p, t in helpers if r == rank and p == pid])
            else:
                mine = here["tid"] == tid
            here = here[mine.to_numpy()]
            start = here["start_ns"].to_numpy()
            low = np.searchsorted(start, rows["start_ns"].to_numpy())
            high = np.maximum(np.searchsorted(start, rows["end_ns"].to_numpy()), low)
            at, owner = _expand(low, high - low, rows.index.to_numpy(dtype=np.int64))
            launch = here.index.to_numpy(dtype=np.int64)[at]
            slot, owner = _expand(first[launch], first[launch + 1] - first[launch], owner)
            found.append((order[slot], owner))
        if not found:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return np.concatenate([one for one, _ in found]), np.concatenate([one for _, one in found])

    @cached_property
    def _items_by_launch(self) -> tuple[Ints, Ints]:
        """Item ids sorted by launch, and where each launch's slice begins: int64 (linked,), int64 (calls + 1,)."""
        linked = np.flatnonzero(self.items["launch_id"].notna().to_numpy())
        launch = self.items["launch_id"].to_numpy(dtype="float64", na_value=np.nan)[linked].astype(np.int64)
        order = np.argsort(launch, kind="stable")
        counts = np.bincount(launch, minlength=len(self.calls))
        return linked[order].astype(np.int64), np.concatenate(([0], np.cumsum(counts))).astype(np.int64)

    @cached_property
    def _helper_threads(self) -> frozenset[tuple[int, int, int]]:
        """Launching threads (rank, pid, tid) that work while another thread waits for them: autograd's.

        Such a thread runs autograd's nodes and opens no step or statement range of its own, or opens no named range at all.
        """
        ranges, names = self.ranges, self.ranges["name"].cat.categories
        autograd = [name for name in names if str(name).startswith("autograd::engine::evaluate_function")]
        threads = _thread_set(self.calls[self.calls["item_count"] > 0])
        owners = _thread_set(ranges[ranges["kind"].isin(["step", "mark"])])
        named = _thread_set(ranges[ranges["kind"].isin(["user", "nvtx"])])
        runs_nodes = _thread_set(ranges[ranges["name"].isin(autograd)])
        return frozenset((threads - owners) - (named - runs_nodes))

    def _rebuilt(self, items: pd.DataFrame, calls: pd.DataFrame, ranges: pd.DataFrame) -> Timeline:
        raw = RawTrace(items, calls, ranges, self.info, self.notes, self.coarse_ns, self.device_names)
        return build(raw)


def build(raw: RawTrace) -> Timeline:
    """Link a raw trace: items to launches, calls to ranges, ranges to parents. Rows are renumbered by start."""
    calls = _renumbered(raw.calls)
    ranges = _renumbered(raw.ranges)
    items = _renumbered(raw.items)
    launch = _launch_rows(items, calls)
    linked = launch >= 0
    items["launch_id"] = pd.arrays.IntegerArray(np.where(linked, launch, 0), ~linked)
    calls["item_count"] = np.bincount(launch[linked], minlength=len(calls)).astype(np.int64)
    parent, depth = nest(ranges)
    ranges["parent_id"] = pd.arrays.IntegerArray(np.maximum(parent, 0), parent < 0)
    ranges["depth"] = depth
    inner = innermost_at(ranges, parent, calls)
    calls["range_id"] = pd.arrays.IntegerArray(np.maximum(inner, 0), inner < 0)
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
    """Frames one below the other, categories united: pandas would fall back to objects where they differ."""
    made = pd.concat([frame.astype({c: "object" for c in _categories(frame)}) for frame in frames], ignore_index=True)
    return made.astype({c: "category" for c in _categories(frames[0])})


def _categories(frame: pd.DataFrame) -> list[str]:
    return [column for column in frame.columns if isinstance(frame[column].dtype, pd.CategoricalDtype)]


def _renumbered(frame: pd.DataFrame) -> pd.DataFrame:
    order = np.lexsort((-frame["end_ns"].to_numpy(), frame["start_ns"].to_numpy(), frame["rank"].to_numpy()))
    return frame.iloc[order].reset_index(drop=True)


def _launch_rows(items: pd.DataFrame, calls: pd.DataFrame) -> Ints:
    """Row of the launch of each item, -1 for none: int64 (items,). Where several calls share an id the earliest wins: it is
    the outermost, a runtime call around the driver call it makes."""
    made = np.full(len(items), -1, dtype=np.int64)
    source = calls[calls["correlation"].notna()]
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
            made[mask] = np.where(at >= 0, unique.index.to_numpy()[at], -1)
    return made


def _expand(low: Ints, length: Ints, owner: Ints) -> tuple[Ints, Ints]:
    """low[i], low[i] + 1, ... (length[i] of them) for every i in turn, with owner[i] beside each."""
    total = int(length.sum())
    begin = np.cumsum(length) - length
    at = np.arange(total, dtype=np.int64) - np.repeat(begin, length) + np.repeat(low, length)
    return at, np.repeat(owner, length)


def _thread_set(frame: pd.DataFrame) -> set[tuple[int, int, int]]:
    pairs = frame[["rank", "pid", "tid"]].drop_duplicates()
    return {(int(rank), int(pid), int(tid)) for rank, pid, tid in pairs.itertuples(index=False)}
