"""Kineto events into the unlinked tables: which category is which row, and what their names and arguments mean."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec import Raw

from advisor import calls as api
from advisor.marks import decode as decode_mark
from advisor.sources._kineto_columns import (
    MISSING,
    IntColumn,
    Ints,
    NameColumn,
    TimeColumn,
    as_id,
    as_place,
    optional,
    recoded,
)
from advisor.sources._kineto_events import Begin, Complete, End
from advisor.sources._overruns import clip_overruns
from advisor.tables import CALLS, ITEMS, RANGE_KINDS, RANGES

Bools = npt.NDArray[np.bool_]

# Names of categories since 1.9, and as 1.8 and older wrote them. HIP calls come as cuda_runtime.
_ITEMS: Final = {
    "kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset",
    "Kernel": "kernel", "Memcpy": "memcpy", "Memset": "memset",
}  # fmt: skip
_CALLS: Final = ("cuda_runtime", "cuda_driver", "Runtime")
_RANGES: Final = {
    "cpu_op": "op", "Operator": "op", "user_annotation": "user", "python_function": "python", "overhead": "overhead",
}  # fmt: skip
# On GPU tracks, but no GPU work; or spans of the recording. Known and left out on purpose.
_LEFT_OUT: Final = frozenset(
    "gpu_user_annotation cuda_sync cuda_event Trace cpu_instant_event cuda_profiler_range collective_comm".split()
)
_PAIR_CATEGORY: Final = "user_annotation"  # of begin/end events that name none
_STEP: Final = re.compile(r"^ProfilerStep\s*#\d+$")
_MODULE: Final = "nn.Module: "
_COPY: Final = re.compile(r"^Memcpy (?P<kind>[HDAP])to(?P<to>[HDAP])(?: \((?P<source>\w+) -> (?P<target>\w+)\))?")
_HOST_MEMORY: Final = {"Pageable": "pageable", "Pinned": "pinned"}
_LONGEST_NS: Final = 7 * 24 * 3600 * 1_000_000_000


@dataclass
class Lost:
    """Rows left out of the tables, and values that could not be kept."""

    untimed: int = 0  # no number as ts or dur, or a negative dur
    unstarted: int = 0  # GPU rows stamped 0
    endless: int = 0  # over seven days
    bad_ids: int = 0
    unpaired: int = 0  # begin without end, end without begin
    repeated_calls: int = 0  # calls whose correlation id another call has, without lying inside it
    shared_ids: int = 0  # correlation ids that several processes use
    overruns: int = 0  # items cut back to the start of their successor


class _Rows:
    """The columns every table has."""

    def __init__(self) -> None:
        self.category = NameColumn()
        self.name = NameColumn()
        self.start = TimeColumn()
        self.duration = TimeColumn()
        self.pid = IntColumn(as_place)
        self.tid = IntColumn(as_place)

    def extend(self, events: list[Complete]) -> None:
        self.category.extend([event.cat for event in events])
        self.name.extend([event.name for event in events])
        self.start.extend([event.ts for event in events])
        self.duration.extend([event.dur for event in events])
        self.pid.extend([event.pid for event in events])
        self.tid.extend([event.tid for event in events])

    def kept(self, lost: Lost, *, on_gpu: bool = False) -> Bools:
        """Rows with a usable time; counts the others."""
        start, duration = self.start.array(), self.duration.array()
        untimed = (start == MISSING) | (duration < 0)
        unstarted = (start == 0) & ~untimed if on_gpu else np.zeros(len(start), dtype=bool)
        endless = (duration > _LONGEST_NS) & ~untimed & ~unstarted
        lost.untimed += int(untimed.sum())
        lost.unstarted += int(unstarted.sum())
        lost.endless += int(endless.sum())
        keep: Bools = ~(untimed | unstarted | endless)
        return keep

    def texts(self) -> list[str]:
        """The distinct names; a number is one, too."""
        return ["" if name is None else str(name) for name in self.name.names()]

    def common(self, keep: Bools, rank: int, base_ns: int) -> dict[str, Any]:
        start = self.start.array()[keep] + base_ns
        return {
            "rank": np.full(len(start), rank, dtype=np.int64),
            "start_ns": start,
            "end_ns": start + self.duration.array()[keep],
        }

    def thread(self, keep: Bools) -> dict[str, Ints]:
        pid, tid = self.pid.array()[keep], self.tid.array()[keep]
        return {"pid": np.where(pid == MISSING, 0, pid), "tid": np.where(tid == MISSING, 0, tid)}


class _ItemRows(_Rows):
    def __init__(self) -> None:
        super().__init__()
        self.arguments = {
            name: IntColumn(as_id) for name in ("correlation", "device", "bytes", "graph_id", "graph_node_id")
        }
        self.stream = IntColumn(as_place)

    def extend(self, events: list[Complete]) -> None:
        super().extend(events)
        arguments = [event.args for event in events]
        for name, column in self.arguments.items():
            column.extend([getattr(one, name, MISSING) for one in arguments])
        self.stream.extend([getattr(one, "stream", MISSING) for one in arguments])

    def frame(self, rank: int, base_ns: int, lost: Lost) -> pd.DataFrame:
        keep = self.kept(lost, on_gpu=True)
        names, codes = self.texts(), self.name.codes()[keep]
        kind = recoded(self.category.codes()[keep], self.category.names(), _ITEMS.get)
        copied = np.asarray(kind == "memcpy")
        of_copy = np.where(copied, codes, len(names)).astype(np.int32)
        values = {name: column.array()[keep] for name, column in self.arguments.items()}
        lost.bad_ids += self.arguments["correlation"].unusable
        device, stream = values["device"], self.stream.array()[keep]
        place = self.thread(keep)
        return ITEMS.build(
            self.common(keep, rank, base_ns)
            | {
                "device": np.where(device == MISSING, place["pid"], device),
                "stream": np.where(stream == MISSING, place["tid"], stream),
                "kind": kind,
                "name": recoded(codes, names, str),
                "pid": np.zeros(len(codes), dtype=np.int64),
                "correlation": optional(_positive(values["correlation"])),
                "graph_id": optional(_positive(values["graph_id"])),
                "graph_node_id": optional(_positive(values["graph_node_id"])),
                "bytes": optional(np.where(np.asarray(kind == "kernel"), MISSING, values["bytes"])),
                "copy_kind": recoded(of_copy, [*names, None], _copy_kind),
                "host_memory": recoded(of_copy, [*names, None], _host_memory),
            }
        )


class _CallRows(_Rows):
    def __init__(self) -> None:
        super().__init__()
        self.correlation = IntColumn(as_id)

    def extend(self, events: list[Complete]) -> None:
        super().extend(events)
        self.correlation.extend([MISSING if event.args is None else event.args.correlation for event in events])

    def frame(self, rank: int, base_ns: int, lost: Lost) -> pd.DataFrame:
        keep = self.kept(lost)
        names, codes = self.texts(), self.name.codes()[keep]
        columns = self.common(keep, rank, base_ns) | self.thread(keep)
        kind = recoded(codes, names, lambda name: api.call_kind(api.normalise(name)))
        lost.bad_ids += self.correlation.unusable
        correlation = _positive(self.correlation.array()[keep])
        submits = np.asarray(kind.isin(api.SUBMITTING))
        inner = _repeated(correlation, columns, submits, lost)
        return CALLS.build(
            columns
            | {
                "api": recoded(codes, names, api.normalise),
                "kind": kind,
                "correlation": optional(np.where(inner, MISSING, correlation)),
            }
        )


class _RangeRows(_Rows):
    def __init__(self) -> None:
        super().__init__()
        self.shapes = NameColumn()

    def extend(self, events: list[Complete]) -> None:
        super().extend(events)
        arguments = [event.args for event in events]
        self.shapes.extend([b"" if one is None else bytes(one.dims or one.old_dims) for one in arguments])

    def frame(self, rank: int, base_ns: int, lost: Lost) -> pd.DataFrame:
        keep = self.kept(lost)
        names, codes = self.texts(), self.name.codes()[keep]
        return RANGES.build(
            self.common(keep, rank, base_ns)
            | self.thread(keep)
            | {
                "kind": self._kinds(keep, codes, names),
                "name": recoded(codes, names, str),
                "shapes": recoded(self.shapes.codes()[keep], self.shapes.names(), _spelled),
            }
        )

    def _kinds(self, keep: Bools, codes: npt.NDArray[np.int32], names: list[str]) -> pd.Categorical:
        """The category's kind, but for steps, the tool's own marks and modules, which the name tells."""
        number = {kind: RANGE_KINDS.index(kind) for kind in RANGE_KINDS}
        made = np.array([number[_RANGES[category]] for category in self.category.names()], dtype=np.int32)[
            self.category.codes()[keep]
        ]
        special = np.array([number[_special(name)] for name in names], dtype=np.int32)[codes]
        annotated = np.isin(made, (number["op"], number["user"])) & np.isin(special, (number["step"], number["mark"]))
        module = (made == number["python"]) & (special == number["module"])
        return recoded(np.where(annotated | module, special, made), RANGE_KINDS, str)


class Tables:
    """Takes events chunk by chunk, then gives the frames once."""

    def __init__(self) -> None:
        self.event_count = 0
        self.ignored: Counter[str] = Counter()  # complete events by a category that is none of ours
        self.lost = Lost()
        self._items, self._calls, self._ranges = _ItemRows(), _CallRows(), _RangeRows()
        self._open: dict[tuple[Any, Any], list[Begin]] = defaultdict(list)

    def add(self, events: list[Any]) -> None:
        """Sort one chunk of events into the tables. Rows keep the order of the file, which settles ties in time."""
        self.event_count += len(events)
        items: list[Complete] = []
        calls: list[Complete] = []
        ranges: list[Complete] = []
        route = dict.fromkeys(_ITEMS, items) | dict.fromkeys(_CALLS, calls) | dict.fromkeys(_RANGES, ranges)
        for event in events:
            if type(event) is Begin:
                self._open[event.pid, event.tid].append(event)
                continue
            whole = self._closed(event) if type(event) is End else event
            if type(whole) is Complete:
                bucket = route.get(whole.cat)  # type: ignore[arg-type]
                if bucket is not None:
                    bucket.append(whole)
                elif whole.cat not in _LEFT_OUT:
                    self.ignored[whole.cat or "without a category"] += 1
        for rows, found in ((self._items, items), (self._calls, calls), (self._ranges, ranges)):
            rows.extend(found)

    def finish(self, rank: int, base_ns: int) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        """Items, calls and ranges; `base_ns` is added to every time."""
        self.lost.unpaired += sum(len(stack) for stack in self._open.values())
        items, self.lost.overruns = clip_overruns(self._items.frame(rank, base_ns, self.lost))
        return (
            items,
            self._calls.frame(rank, base_ns, self.lost),
            self._ranges.frame(rank, base_ns, self.lost),
        )

    @property
    def decimals(self) -> int:
        """The most digits behind the point of any start time in µs; -1 without rows."""
        return max(rows.start.decimals for rows in (self._items, self._calls, self._ranges))

    def _closed(self, end: End) -> Complete | None:
        """The complete event of an end and the begin it closes; None, and counted, when nothing is open."""
        stack = self._open[end.pid, end.tid]
        if not stack:
            self.lost.unpaired += 1
            return None
        begin = stack.pop()
        times = TimeColumn()
        times.extend([begin.ts, end.ts])
        start, stop = times.array().tolist()
        length = "null" if MISSING in (start, stop) else f"{(stop - start) // 1000}.{(stop - start) % 1000:03d}"
        return Complete(
            cat=begin.cat or _PAIR_CATEGORY, name=begin.name, pid=begin.pid, tid=begin.tid, ts=begin.ts, args=begin.args,
            dur=Raw(length.encode()),
        )  # fmt: skip


def _positive(ids: Ints) -> Ints:
    """Ids of which 0 means none, as CUPTI and Kineto have it."""
    return np.where(ids > 0, ids, MISSING)


def _repeated(correlation: Ints, columns: dict[str, Any], submits: Bools, lost: Lost) -> Bools:
    """Calls whose correlation id an outer call of the process has: that one is the submitter, a runtime call around the
    driver call it makes. Where no call lies in the other, the first that can submit counts."""
    start, end, pid = columns["start_ns"], columns["end_ns"], columns["pid"]
    made = np.zeros(len(correlation), dtype=bool)
    used = np.flatnonzero(correlation != MISSING)
    order = used[np.lexsort((-end[used], start[used], ~submits[used], correlation[used], pid[used]))]
    same_id = correlation[order][1:] == correlation[order][:-1]
    again = same_id & (pid[order][1:] == pid[order][:-1])
    if len(used) and pid[used].min() != pid[used].max():
        lost.shared_ids = int((~again).sum()) + 1 - len(np.unique(correlation[used]))
    if not again.any():
        return made
    first = np.maximum.accumulate(np.where(np.concatenate(([True], ~again)), np.arange(len(order)), 0))
    inner, outer = order[1:][again], order[first[1:][again]]
    made[inner] = True
    lost.repeated_calls = int(((start[inner] < start[outer]) | (end[inner] > end[outer])).sum())
    return made


def _special(name: str) -> str:
    """ "step", "mark" or "module" when the name says so, else "op", which changes nothing."""
    if _STEP.match(name):
        return "step"
    if name.startswith(_MODULE):
        return "module"
    return "mark" if decode_mark(name) is not None else "op"


def _copy_kind(name: str | None) -> str | None:
    """ "h2d" of "Memcpy HtoD (Pageable -> Device)"; an array is on the device."""
    found = _COPY.match(name) if name else None
    if found is None:
        return None
    kind = f"{found['kind']}2{found['to']}".replace("A", "D").lower()
    return kind if kind in ("h2d", "d2h", "d2d", "p2p", "h2h") else None


def _host_memory(name: str | None) -> str | None:
    """ "pageable" or "pinned", from the host side of the copy; None when the name says neither."""
    found = _COPY.match(name) if name else None
    if found is None:
        return None
    return _HOST_MEMORY.get(found["source"] or "") or _HOST_MEMORY.get(found["target"] or "")


def _spelled(text: bytes) -> str | None:
    """Shapes in one spelling, whatever the file's layout: `[[64, 256], []]`."""
    if not text or text == b"null":
        return None
    try:
        return json.dumps(json.loads(text))
    except (ValueError, RecursionError):  # numbers of thousands of digits, lists in lists without end
        return text.decode("utf-8", errors="replace")
