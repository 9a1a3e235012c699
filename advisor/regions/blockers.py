"""Synchronising calls and host copies inside the steps: what would stop a capture, with the line that did it.

The op that was running decides the id (the table is docs/blockers.md); the innermost statement range or Python frame of a
user's file gives the line. A call without any framework op around it was made explicitly.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from advisor.marks import decode, parse_span
from advisor.metrics.gaps import synchronising
from advisor.model import Blocker, SourceSpan
from advisor.regions.rows import StepWindows
from advisor.tables import optional_ids, rows_by
from advisor.timeline import Timeline

Ints = npt.NDArray[np.int64]

_MAX_STEPS: Final = 50  # looked at; more steps repeat the same lines


@dataclass(frozen=True)
class _Kind:
    id: str
    title: str
    fix: str


_ITEM = _Kind("sync-item", "a tensor value read on the host", "keep the value on the GPU and read it after the replay")
_BOOL = _Kind("sync-bool", "a Python branch on a tensor", "use torch.where, or move the test out of the region")
_TO_HOST = _Kind("sync-d2h", "a copy of a tensor to the host", "copy after the replay, into pinned memory")
_PAGEABLE = _Kind(
    "sync-h2d-pageable",
    "a copy from pageable host memory",
    "stage it into a static GPU tensor before the region",
)
_EXPLICIT = _Kind("sync-explicit", "an explicit synchronisation", "remove it, or move it out of the region")
_SCALER = _Kind(
    "scaler-step", "GradScaler.step reading found_inf", "use an optimizer with fused=True, or keep step outside"
)
_NONZERO = _Kind("dyn-nonzero", "an output whose size depends on data", "torch.where or a multiplication by the mask")
_UNIQUE = _Kind("dyn-unique", "a count that unique needs on the host", "compute it before the region")
_REPEAT = _Kind("dyn-repeat-interleave", "repeat_interleave without output_size", "pass output_size=")
_INDEX = _Kind(
    "sync-index-list", "an index given as a list or CPU tensor", "build the index on the GPU once, before the region"
)

# First match wins, from the innermost enclosing op outwards.
_BY_OP: Final = (
    (re.compile(r"^aten::is_nonzero$"), _BOOL),
    (re.compile(r"^aten::(?:nonzero|nonzero_numpy|masked_select|argwhere)$"), _NONZERO),
    (re.compile(r"^aten::(?:_unique2?|unique_dim|unique_consecutive)$"), _UNIQUE),
    (re.compile(r"^aten::repeat_interleave$"), _REPEAT),
    (re.compile(r"^aten::(?:item|_local_scalar_dense)$"), _ITEM),
)
_SCALER_RANGE = re.compile(r"grad_scaler\.py\(\d+\): (?:step|_maybe_opt_step)|GradScaler\.step")
_INDEX_OPS = re.compile(r"^aten::(?:index|index_put_?|_index_put_impl_)$")
_FRAME = re.compile(r"^(?P<file>[^<>]+\.py)\((?P<line>\d+)\): (?P<function>.+)$")
_LIBRARY = re.compile(r"(?:^|/)(?:site-packages|dist-packages|torch|torchvision|transformers|lib/python[\d.]+)/|^<")


def find_blockers(timeline: Timeline, windows: StepWindows) -> tuple[Blocker, ...]:
    """One Blocker per (id, line), with its count per step, the most frequent first. Looks at the first 50 steps."""
    counts: dict[tuple[_Kind, str], int] = defaultdict(int)
    where: dict[tuple[_Kind, str], tuple[SourceSpan | None, str]] = {}
    steps = min(windows.count, _MAX_STEPS)
    walker = _Walker(timeline)
    for row, is_copy in _suspects(timeline, windows, steps):
        kind, span, evidence = walker.explain(row, is_copy)
        key = (kind, span.label if span else evidence)
        counts[key] += 1
        where.setdefault(key, (span, evidence))
    found = [
        Blocker(
            id=kind.id,
            title=kind.title,
            evidence=where[kind, place][1],
            fix=kind.fix,
            location=where[kind, place][0],
            count_per_step=count / steps,
            region_id="step",
        )
        for (kind, place), count in counts.items()
    ]
    return tuple(sorted(found, key=lambda blocker: -blocker.count_per_step))


def _suspects(timeline: Timeline, windows: StepWindows, steps: int) -> list[tuple[int, str]]:
    """Calls inside the steps that block, with the kind of host copy they made ("" for none): (row of calls, copy)."""
    calls = timeline.calls
    blocking = synchronising(calls)
    copies = _host_copies(timeline)
    candidates = np.flatnonzero(
        (blocking | np.isin(np.arange(len(calls)), list(copies))) & _in_steps(calls, windows, steps)
    )
    rows = candidates[(calls["rank"].to_numpy()[candidates] == windows.rank)]
    rows = rows[np.argsort(calls["start_ns"].to_numpy()[rows], kind="stable")]
    ops = (timeline.ranges["kind"] == "op").to_numpy(dtype=bool)
    inner = optional_ids(calls["range_id"])
    found: list[tuple[int, str]] = []
    for row in rows.tolist():
        # `.item()` is a copy and then a synchronise of the same op: one finding, not two.
        if blocking[row] and found and row not in copies and _same_op(inner, ops, found[-1][0], row):
            continue
        found.append((row, copies.get(row, "")))
    return found


def _host_copies(timeline: Timeline) -> dict[int, str]:
    """Launch row -> "d2h" or "h2d" for copies that cannot be captured: any to the host, pageable ones to the device."""
    items = timeline.items
    linked = items[items["launch_id"].notna() & (items["kind"] == "memcpy")]
    to_host = linked[linked["copy_kind"] == "d2h"]
    pageable = linked[(linked["copy_kind"] == "h2d") & (linked["host_memory"] != "pinned")]
    return {int(row): "h2d" for row in pageable["launch_id"]} | {int(row): "d2h" for row in to_host["launch_id"]}


def _in_steps(calls: pd.DataFrame, windows: StepWindows, steps: int) -> npt.NDArray[np.bool_]:
    order = np.argsort(windows.cpu_start_ns, kind="stable")[:steps]
    starts, ends = windows.cpu_start_ns[order], windows.cpu_end_ns[order]
    start = calls["start_ns"].to_numpy()
    at = np.searchsorted(starts, start, side="right") - 1
    return np.asarray((at >= 0) & (start < ends[np.maximum(at, 0)]))


def _same_op(inner: Ints, ops: npt.NDArray[np.bool_], one: int, other: int) -> bool:
    return bool(inner[one] >= 0 and inner[one] == inner[other] and ops[inner[one]])


class _Walker:
    """Walks from a call outwards through the ranges of its thread."""

    def __init__(self, timeline: Timeline) -> None:
        ranges = timeline.ranges
        self._names = ranges["name"].astype(str).to_numpy()
        self._kinds = ranges["kind"].astype(str).to_numpy()
        self._parents = optional_ids(ranges["parent_id"])
        calls = timeline.calls
        self._apis, self._inner = calls["api"].astype(str).to_numpy(), optional_ids(calls["range_id"])
        self._processes, self._times = calls[["rank", "pid"]].to_numpy(), calls["start_ns"].to_numpy()
        marks = ranges[ranges["kind"] == "mark"]
        self._marks = {key: marks.index.to_numpy()[rows] for key, rows in rows_by(marks, ["rank", "pid"]).items()}
        self._starts, self._ends = ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()

    def explain(self, row: int, copy: str) -> tuple[_Kind, SourceSpan | None, str]:
        """Kind, user line and evidence of the blocking call in `row`."""
        enclosing = self._enclosing(row)
        ops = [self._names[at] for at in enclosing if self._kinds[at] == "op"]
        span = self._line(enclosing) or self._statement_at(row)
        kind = self._kind(ops, [self._names[at] for at in enclosing], copy)
        within = f" in {ops[0]}" if ops else ""
        return kind, span, f"{self._apis[row]}{within}"

    def _enclosing(self, row: int) -> list[int]:
        at = int(self._inner[row])
        found: list[int] = []
        while at >= 0:
            found.append(at)
            at = int(self._parents[at])
        return found

    @staticmethod
    def _kind(ops: list[str], names: list[str], copy: str) -> _Kind:
        if any(_SCALER_RANGE.search(name) for name in names):
            return _SCALER
        for pattern, kind in _BY_OP:
            if any(pattern.match(op) for op in ops):
                return kind
        if copy == "h2d":
            return _INDEX if any(_INDEX_OPS.match(op) for op in ops) else _PAGEABLE
        if copy == "d2h":
            return _TO_HOST
        return _EXPLICIT

    def _line(self, enclosing: list[int]) -> SourceSpan | None:
        for at in enclosing:
            mark = decode(self._names[at]) if self._kinds[at] == "mark" else None
            span = parse_span(mark.label) if mark and mark.kind in ("stmt", "iter", "loop") else None
            if span:
                return SourceSpan(file=span.file, first_line=span.first_line, last_line=span.last_line)
        for at in enclosing:
            frame = _FRAME.match(self._names[at]) if self._kinds[at] == "python" else None
            if frame and not _LIBRARY.search(frame["file"]):
                return SourceSpan(file=frame["file"], first_line=int(frame["line"]), last_line=int(frame["line"]))
        return None

    def _statement_at(self, row: int) -> SourceSpan | None:
        """The innermost statement open on another thread of the process: backward runs on autograd's own thread."""
        rank, pid = self._processes[row].tolist()
        index = self._marks.get((rank, pid))
        if index is None:
            return None
        at = int(self._times[row])
        open_now = index[(self._starts[index] <= at) & (self._ends[index] > at)]
        ordered = open_now[np.argsort(self._starts[open_now], kind="stable")][::-1]
        return self._line(ordered.tolist())
