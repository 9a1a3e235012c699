"""Idle gaps of each device, with one exclusive cause each, and launch-bound time split into the four layers.

A gap is a maximal stretch without any GPU item; it belongs to the item that ends it, and that item's launch decides the
cause (design words, in this order): no launch -> unknown; profiler overhead -> profiler; the queue was drained by a
synchronising call -> sync; waiting for data -> input; the launch came too late -> launch; it was queued in time -> device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from advisor import calls as api
from advisor.intervals import Coverage, Ints, difference, intersection, union
from advisor.model import Cause, IdleByCause, Layer, Layers
from advisor.tables import GAPS, rows_by
from advisor.timeline import Timeline

LONG_GAP_NS: Final = 1_000_000  # launch gaps are 2-50 µs; a longer one is host work, data or a wait
_OVERLAP_SHARE: Final = 0.1  # of a gap that profiler overhead must cover to own it
_INPUT_SHARE: Final = 0.5  # of a gap that waiting for data must cover to own it
# torch's own names for time inside a DataLoader, in record_function ranges and in Python frames.
_INPUT_NAMES: Final = r"^enumerate\(DataLoader\)#|^torch/utils/data/dataloader\.py\(\d+\): __next__|\[cga:data:\d+\]$"
# Ranges that torch records like ops but that wrap user-level Python.
_NOT_OPS: Final = r"^(?:ProfilerStep#|Optimizer\.|enumerate\(DataLoader\)#|## Call CompiledFxGraph)"

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Activity:
    """What the CPU side of one rank was doing, as interval sets over its launching processes."""

    api: Coverage
    api_or_op: Coverage
    waiting_for_data: Coverage
    overhead: Coverage
    sync_starts: Ints  # synchronising calls, sorted by start
    sync_ends: Ints  # running maximum of their ends


@dataclass(frozen=True)
class DeviceIdle:
    """Busy and idle time of one device as interval sets: every question about a window is a sum over them."""

    rank: int
    device: int
    start_ns: int
    end_ns: int
    busy: Coverage
    causes: dict[Cause, Coverage]
    layers: dict[Layer, Coverage]

    def idle(self, start_ns: int, end_ns: int) -> IdleByCause:
        """Idle time in [start_ns, end_ns) clipped to the device's span, by cause."""
        return IdleByCause(
            **{f"{cause}_ns": int(found.within(start_ns, end_ns)) for cause, found in self.causes.items()}
        )

    def layer_times(self, start_ns: int, end_ns: int) -> Layers:
        """Launch-bound idle time in [start_ns, end_ns), by layer."""
        return Layers(**{f"{layer}_ns": int(found.within(start_ns, end_ns)) for layer, found in self.layers.items()})


def gaps(timeline: Timeline) -> pd.DataFrame:
    """All gaps of all devices between each device's first and last item: a `tables.GAPS` frame, sorted by device, start."""
    frames = []
    activities: dict[int, _Activity] = {}
    for (rank, device), rows in rows_by(timeline.items, ["rank", "device"]).items():
        if rank not in activities:
            activities[rank] = _activity(timeline, rank)
        frames.append(_device_gaps(timeline, activities[rank], (rank, device), rows))
    return pd.concat(frames, ignore_index=True) if frames else GAPS.empty()


def device_idle(timeline: Timeline, rank: int, device: int) -> DeviceIdle:
    """Busy and idle interval sets of one device. Uses `timeline.gaps`; raises KeyError for a device without items."""
    items = timeline.items
    mine = ((items["rank"] == rank) & (items["device"] == device)).to_numpy()
    if not mine.any():
        raise KeyError((rank, device))
    busy = union(items["start_ns"].to_numpy()[mine], items["end_ns"].to_numpy()[mine])
    found = timeline.gaps
    found = found[(found["rank"] == rank) & (found["device"] == device)]
    start, end, cause = found["start_ns"].to_numpy(), found["end_ns"].to_numpy(), found["cause"].to_numpy()
    causes = {kind: union(start[cause == kind.value], end[cause == kind.value]) for kind in Cause}
    late = cause == Cause.LAUNCH.value
    layers = _layer_sets(start[late], end[late], found["submission_ns"].to_numpy()[late], _activity(timeline, rank))
    return DeviceIdle(rank, device, int(busy.starts[0]), int(busy.ends[-1]), busy, causes, layers)


def _device_gaps(timeline: Timeline, activity: _Activity, where: tuple[int, int], rows: Ints) -> pd.DataFrame:
    items = timeline.items
    start, end = items["start_ns"].to_numpy()[rows], items["end_ns"].to_numpy()[rows]
    order = np.lexsort((end, start))
    start, reached, rows = start[order], np.maximum.accumulate(end[order]), rows[order]
    opens = np.flatnonzero(start[1:] > reached[:-1]) + 1
    gap_start, gap_end, ender = reached[opens - 1], start[opens], rows[opens]
    launch_id = items["launch_id"].to_numpy(dtype="float64", na_value=np.nan)[ender]
    launched = ~np.isnan(launch_id)
    call_start, call_end = _launch_times(timeline, launch_id, launched)
    is_copy_in = (items["copy_kind"].to_numpy()[ender] == "h2d") & launched
    cause = _causes(activity, gap_start, gap_end, (call_start, call_end, launched, is_copy_in))
    returned = np.clip(call_end, gap_start, gap_end)
    late = cause == Cause.LAUNCH.value
    layer = _layer_times(activity, gap_start, returned, gap_end, late)
    return GAPS.build(
        {
            "rank": np.full(len(ender), where[0]),
            "device": np.full(len(ender), where[1]),
            "start_ns": gap_start,
            "end_ns": gap_end,
            "cause": pd.Categorical(cause, categories=[kind.value for kind in Cause]),
            "item_id": ender,
            **layer,
        }
    )


def _launch_times(timeline: Timeline, launch_id: npt.NDArray[np.float64], launched: Bools) -> tuple[Ints, Ints]:
    """Call start and end of each gap's launch; 0 where there is none."""
    row = np.where(launched, launch_id, 0).astype(np.int64)
    if len(timeline.calls) == 0:
        return np.zeros(len(row), np.int64), np.zeros(len(row), np.int64)
    return timeline.calls["start_ns"].to_numpy()[row], timeline.calls["end_ns"].to_numpy()[row]


def _causes(
    activity: _Activity, start: Ints, end: Ints, launch: tuple[Ints, Ints, Bools, Bools]
) -> npt.NDArray[np.object_]:
    call_start, call_end, launched, is_copy_in = launch
    length = end - start
    overhead = activity.overhead.within(start, end) >= _OVERLAP_SHARE * length
    # A call that began before the device ran dry and returned after it was waiting for exactly that.
    last_sync = np.searchsorted(activity.sync_starts, start, side="right") - 1
    drained = (
        (last_sync >= 0) & (activity.sync_ends[np.maximum(last_sync, 0)] >= start)
        if len(activity.sync_starts)
        else np.zeros(len(start), dtype=bool)
    )
    drained &= call_end > start  # queued before the queue ran dry is not drained
    waiting = activity.waiting_for_data.within(start, np.clip(call_end, start, end)) >= _INPUT_SHARE * length
    inside_call = np.clip(call_end, start, end) - np.clip(call_start, start, end)
    staging = is_copy_in & (inside_call >= _INPUT_SHARE * length)
    late = call_end > start
    cause = np.full(len(start), Cause.DEVICE.value, dtype=object)
    # Assigned from the weakest to the strongest, so that the first of the documented order wins.
    for mask, kind in (
        (late, Cause.LAUNCH),
        (waiting | staging, Cause.INPUT),
        (drained, Cause.SYNC),
        (overhead, Cause.PROFILER),
        (~launched, Cause.UNKNOWN),
    ):
        cause[mask] = kind.value
    return cause


def _layer_times(activity: _Activity, start: Ints, returned: Ints, end: Ints, late: Bools) -> dict[str, Ints]:
    """The four layers of each gap; zero where the gap is not launch-bound."""
    driver = activity.api.within(start, returned)
    working = activity.api_or_op.within(start, returned)
    found = {
        "language_ns": returned - start - working,
        "framework_ns": working - driver,
        "driver_ns": driver,
        "submission_ns": end - returned,
    }
    return {name: np.where(late, value, 0) for name, value in found.items()}


def _layer_sets(start: Ints, end: Ints, submission: Ints, activity: _Activity) -> dict[Layer, Coverage]:
    """The same split as `_layer_times`, as interval sets that can be cut by any window."""
    returned = end - submission
    before_return = union(start, returned)
    working = intersection(before_return, activity.api_or_op)
    driver = intersection(before_return, activity.api)
    return {
        Layer.LANGUAGE: difference(before_return, working),
        Layer.FRAMEWORK: difference(working, driver),
        Layer.DRIVER: driver,
        Layer.SUBMISSION: union(returned, end),
    }


def _activity(timeline: Timeline, rank: int) -> _Activity:
    calls = timeline.calls[timeline.calls["rank"] == rank]
    ranges = timeline.ranges[timeline.ranges["rank"] == rank]
    threads = _launching_threads(calls)
    on_launcher = _on_threads(ranges, threads)
    call_set = calls[_on_threads(calls, threads)]
    ops = ranges[on_launcher & (ranges["kind"] == "op").to_numpy() & ~_named(ranges, _NOT_OPS)]
    data = ranges[on_launcher & data_waits(ranges)]
    overhead = ranges[(ranges["kind"] == "overhead").to_numpy()]
    syncs = calls[synchronising(calls)].sort_values("start_ns")
    in_api = union(call_set["start_ns"], call_set["end_ns"])
    return _Activity(
        api=in_api,
        api_or_op=union(
            np.concatenate((call_set["start_ns"].to_numpy(), ops["start_ns"].to_numpy())),
            np.concatenate((call_set["end_ns"].to_numpy(), ops["end_ns"].to_numpy())),
        ),
        waiting_for_data=union(data["start_ns"], data["end_ns"]),
        overhead=union(overhead["start_ns"], overhead["end_ns"]),
        sync_starts=syncs["start_ns"].to_numpy(),
        sync_ends=np.maximum.accumulate(syncs["end_ns"].to_numpy()) if len(syncs) else np.zeros(0, np.int64),
    )


def data_waits(ranges: pd.DataFrame) -> Bools:
    """Ranges in which a thread waits for its next batch: torch's DataLoader, and the tool's own mark of a fetch."""
    return _named(ranges, _INPUT_NAMES)


def _named(ranges: pd.DataFrame, pattern: str) -> Bools:
    """Rows whose name matches. Each distinct name is looked at once: a trace has a million rows and few names."""
    names = ranges["name"].cat
    matches = names.categories.astype(str).str.contains(pattern)
    codes = names.codes.to_numpy()
    return np.asarray(np.append(matches, False)[codes], dtype=bool)  # code -1 (no name) picks the appended False


def _launching_threads(calls: pd.DataFrame) -> set[tuple[int, int]]:
    """Threads that submitted work. Only what they do explains a late launch; a data thread's work does not."""
    submits = calls[calls["item_count"] > 0]
    return set(zip(submits["pid"].tolist(), submits["tid"].tolist(), strict=True))


def _on_threads(frame: pd.DataFrame, threads: set[tuple[int, int]]) -> Bools:
    pairs = pd.MultiIndex.from_arrays([frame["pid"], frame["tid"]])
    return np.asarray(pairs.isin(list(threads))) if threads else np.zeros(len(frame), dtype=bool)


def synchronising(calls: pd.DataFrame) -> Bools:
    """Calls that return only when the device is done: synchronise calls and copies without `Async` in the name."""
    names = [str(name) for name in calls["api"].cat.categories]
    blocking = [name for name in names if api.call_kind(name) == api.SYNC or api.is_blocking_copy(name)]
    return calls["api"].isin(blocking).to_numpy()
