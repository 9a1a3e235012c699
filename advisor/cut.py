"""One step of a timeline as plain columns for drawing: CPU ranges, launches, streams and gaps."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from advisor.model import Lane, TimelineCut
from advisor.regions.rows import StepWindows
from advisor.timeline import Timeline

Ints = npt.NDArray[np.int64]

MAX_EVENTS: Final = 50_000
_MARGIN: Final = 0.02  # of the step shown on both sides


def median_step(windows: StepWindows) -> int:
    """Index of the step of median length (the last one only when it is alone: its window may be cut short)."""
    lengths = (windows.end_ns - windows.start_ns)[: max(1, windows.count - 1)]
    return int(np.argsort(lengths, kind="stable")[len(lengths) // 2])


def step_cut(timeline: Timeline, windows: StepWindows, index: int, label: str) -> TimelineCut:
    """The events of step `index` on its device and on the CPU threads that launched for it."""
    start, end = int(windows.start_ns[index]), int(windows.end_ns[index])
    cpu_start, cpu_end = int(windows.cpu_start_ns[index]), int(windows.cpu_end_ns[index])
    low, high = min(start, cpu_start), max(end, min(cpu_end, end + (end - start)))
    margin = int(_MARGIN * (high - low))
    return window_cut(timeline, windows.rank, windows.device, (low - margin, high + margin), label)


def window_cut(timeline: Timeline, rank: int, device: int, window: tuple[int, int], label: str) -> TimelineCut:
    """The events of one device and its launching threads that touch the window, clipped to it."""
    names = _Names()
    items = _touching(timeline.items, rank, window)
    items = items[items["device"] == device]
    calls = _touching(timeline.calls, rank, window)
    ranges = _touching(timeline.ranges, rank, window)
    ranges = ranges[~ranges["kind"].isin(["overhead"])]
    dropped = max(0, len(items) + len(calls) + len(ranges) - MAX_EVENTS)
    if dropped:
        # The shortest CPU ranges say least; items and launches are what the picture is for.
        keep = (ranges["end_ns"] - ranges["start_ns"]).nlargest(max(0, len(ranges) - dropped)).index
        ranges = ranges.loc[keep].sort_values("start_ns")
    launch_order = calls.sort_values(["pid", "tid", "start_ns"])
    position = {int(row): at for at, row in enumerate(launch_order.index)}
    lanes = [
        *_range_lanes(ranges, window, names),
        *_call_lanes(launch_order, window, names),
        *_stream_lanes(items, window, names, position),
        *_gap_lane(timeline, rank, device, window, names),
    ]
    return TimelineCut(
        label=label,
        start_ns=window[0],
        end_ns=window[1],
        lanes=tuple(lanes),
        names=tuple(names.table),
        truncated_count=dropped,
    )


class _Names:
    """Interned names: index of each in `table`."""

    def __init__(self) -> None:
        self.table: list[str] = []
        self._index: dict[str, int] = {}

    def ids(self, names: pd.Series) -> tuple[int, ...]:
        return tuple(self._id(str(name)) for name in names)

    def _id(self, name: str) -> int:
        if name not in self._index:
            self._index[name] = len(self.table)
            self.table.append(name)
        return self._index[name]


def _touching(frame: pd.DataFrame, rank: int, window: tuple[int, int]) -> pd.DataFrame:
    found = frame[(frame["rank"] == rank) & (frame["end_ns"] > window[0]) & (frame["start_ns"] < window[1])]
    return found.sort_values("start_ns", kind="stable")


def _times(frame: pd.DataFrame, window: tuple[int, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    start = frame["start_ns"].clip(lower=window[0]).to_numpy()
    end = frame["end_ns"].clip(upper=window[1]).to_numpy()
    return tuple((start - window[0]).tolist()), tuple((end - start).tolist())


def _range_lanes(ranges: pd.DataFrame, window: tuple[int, int], names: _Names) -> list[Lane]:
    lanes = []
    for (pid, tid), rows in ranges.groupby(["pid", "tid"], sort=True):
        start, duration = _times(rows, window)
        depth = rows["depth"].to_numpy()
        lanes.append(
            Lane(
                id=f"cpu-{pid}-{tid}",
                label=f"CPU thread {tid}",
                kind="cpu",
                start_ns=start,
                duration_ns=duration,
                name_ids=names.ids(rows["name"]),
                depths=tuple((depth - depth.min()).tolist()),
            )
        )
    return lanes


def _call_lanes(calls: pd.DataFrame, window: tuple[int, int], names: _Names) -> list[Lane]:
    lanes = []
    for (pid, tid), rows in calls.groupby(["pid", "tid"], sort=True):
        start, duration = _times(rows, window)
        lanes.append(
            Lane(
                id=f"launch-{pid}-{tid}",
                label=f"CUDA API, thread {tid}",
                kind="launch",
                start_ns=start,
                duration_ns=duration,
                name_ids=names.ids(rows["api"]),
            )
        )
    return lanes


def _stream_lanes(items: pd.DataFrame, window: tuple[int, int], names: _Names, position: dict[int, int]) -> list[Lane]:
    lanes = []
    for stream, rows in items.groupby("stream", sort=True):
        start, duration = _times(rows, window)
        links = [-1 if pd.isna(row) else position.get(int(row), -1) for row in rows["launch_id"]]
        lanes.append(
            Lane(
                id=f"stream-{stream}",
                label=f"GPU stream {stream}",
                kind="stream",
                start_ns=start,
                duration_ns=duration,
                name_ids=names.ids(rows["name"]),
                links=tuple(links),
            )
        )
    return lanes


def _gap_lane(timeline: Timeline, rank: int, device: int, window: tuple[int, int], names: _Names) -> list[Lane]:
    found = _touching(timeline.gaps, rank, window)
    found = found[found["device"] == device]
    start, duration = _times(found, window)
    return [
        Lane(
            id="gaps",
            label="GPU idle",
            kind="gap",
            start_ns=start,
            duration_ns=duration,
            name_ids=names.ids(found["cause"]),
        )
    ]
