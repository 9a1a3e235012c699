"""The drawn step as a Chrome trace for ui.perfetto.dev, with two tracks of its own: idle time by cause, and regions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from advisor.errors import UsageError
from advisor.model import Lane, TimelineCut
from advisor.report.content import RunContent
from advisor.report.windows import windows_by_label

_CPU, _GPU, _ADVISOR = 1, 2, 3
_PROCESSES = {_CPU: "CPU", _GPU: "GPU", _ADVISOR: "cgadvisor"}


def render(content: RunContent) -> bytes:
    """Chrome trace JSON; times in µs with ns digits, from the start of the cut. Raises UsageError without a cut."""
    cut = content.analysis.timeline
    if cut is None:
        raise UsageError(
            "--perfetto: this run has no step to cut; nothing in its recording repeats or it holds no GPU items"
        )
    events = [*_metadata(), *_lanes(cut), *_regions(content, cut)]
    document = {"displayTimeUnit": "ns", "traceEvents": events, "otherData": {"cut": cut.label}}
    return msgspec.json.encode(document)


def _metadata() -> Iterable[dict[str, Any]]:
    for pid, name in _PROCESSES.items():
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}}


def _thread(pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


def _us(ns: int) -> float:
    return ns / 1_000


def _lanes(cut: TimelineCut) -> Iterable[dict[str, Any]]:
    launches: list[tuple[int, int, int]] = []  # tid, start, end of each launch, in the order links count them
    for lane in (lane for lane in cut.lanes if lane.kind == "launch"):
        tid = cut.lanes.index(lane) + 1
        launches += [(tid, start, start + ns) for start, ns in zip(lane.start_ns, lane.duration_ns, strict=True)]
    for tid, lane in enumerate(cut.lanes, 1):
        pid = _GPU if lane.kind == "stream" else _ADVISOR if lane.kind == "gap" else _CPU
        yield _thread(pid, tid, "idle time by cause" if lane.kind == "gap" else lane.label)
        yield from _events(cut, lane, pid, tid)
        yield from _flows(lane, tid, launches)


def _events(cut: TimelineCut, lane: Lane, pid: int, tid: int) -> Iterable[dict[str, Any]]:
    rows = zip(lane.start_ns, lane.duration_ns, lane.name_ids, strict=True)
    for start, duration, name in rows:
        yield {
            "ph": "X",
            "name": cut.names[name],
            "cat": lane.kind,
            "pid": pid,
            "tid": tid,
            "ts": _us(start),
            "dur": _us(duration),
        }


def _flows(lane: Lane, tid: int, launches: list[tuple[int, int, int]]) -> Iterable[dict[str, Any]]:
    """An arrow from each launch to each of its items."""
    for index, (start, link) in enumerate(zip(lane.start_ns, lane.links, strict=False)):
        if not 0 <= link < len(launches):
            continue
        launch_tid, launch_start, _ = launches[link]
        name = {"cat": "launch", "name": "launch", "id": tid * 1_000_000 + index}
        yield {"ph": "s", **name, "pid": _CPU, "tid": launch_tid, "ts": _us(launch_start)}
        yield {"ph": "f", "bp": "e", **name, "pid": _GPU, "tid": tid, "ts": _us(start)}


def _regions(content: RunContent, cut: TimelineCut) -> Iterable[dict[str, Any]]:
    """One track a region, so that nested and interleaved ones do not collide."""
    windows = windows_by_label(cut)
    tid = 1_000
    for row in content.region_rows:
        found = windows.get(row.label, [])
        if not found:
            continue
        tid += 1
        yield _thread(_ADVISOR, tid, f"region {row.label}")
        best = row.best
        note: dict[str, Any] = {"saves_us_estimated": row.saved_ns / 1_000} if row.estimate else {}
        note |= {"outcome": best.outcome.value} if best is not None else {}
        for start, end in found:
            yield {"ph": "X", "name": row.label, "cat": "region", "pid": _ADVISOR, "tid": tid, "ts": _us(start),
                   "dur": _us(end - start), "args": note}  # fmt: skip
