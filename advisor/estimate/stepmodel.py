"""One recorded step as arrays: what each CPU call costs and waits for, and what each GPU item needs before it can run.

A step is chosen near the median and tiled by `simulate`. Two rules keep the recording's own accidents out of the model:
waiting is never a duration (a synchronising call's length in the trace is replaced by "until that item is done"), and an item's
start is never a time (it is what the launch, its stream and its events allow).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from advisor import calls as api
from advisor.estimate.costs import Costs
from advisor.intervals import Coverage, union
from advisor.metrics.gaps import data_waits, synchronising
from advisor.regions import StepWindows
from advisor.threads import Thread
from advisor.timeline import Timeline

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

NONE: Final = -(1 << 40)  # no such item; -1 is the last item of the step before
STREAM_GAP_NS: Final = 1_000.0  # between two queued items of a stream, where the step shows none
QUEUE_LIMIT: Final = 1_000  # the driver blocks a launch with about 1024 pending
_LONG_AGO: Final = -(1 << 61)
_OVERHEAD_FLOOR: Final = 0.2  # of a traced duration that is left when the profiler's cost is taken off
_WAIT_EVENTS: Final = frozenset(name for name in ("cudaStreamWaitEvent", "cuStreamWaitEvent", "hipStreamWaitEvent"))


@dataclass(frozen=True)
class StepModel:
    """`c` calls in the order they began, `n` items in launch order. All durations ns, float64.

    thread:   int64 (c,)  0 is the step's thread with those that work for it, others run on their own
    think:    (c,)  CPU time of the thread since its previous call (for the first: since the step began)
    api:      (c,)  the call's own time, waiting taken out
    traced_api: int64 (c,)  the call's recorded duration
    events:   int64 (c,)  recorded ranges and calls inside think + api: each cost the profiler something
    wait:     int64 (c,)  the item whose end the call waits for, NONE for none, -1 for the last of the step before
    back:     (c,)  from that item's end until the call returns
    first, count: int64 (c,)  the items it submits: first .. first + count - 1
    stalled:  bool (c,)  the call was held up by a full launch queue, which the simulation has of its own
    start:    int64 (c,)  recorded start, for telling which region a call lies in
    think_from: int64 (c,)  recorded time at which the thinking before each call began
    end_ns:   recorded end of the step on the CPU
    tail:     (threads,)  CPU time of each thread from its last call to the end of the step; `tail_events` as `events`
    item_ids: int64 (n,)  rows of `timeline.items`;  stream: int64 (n,) 0..s-1
    lead:     (n,)  from the call's start to the item's, on an idle device
    gap:      (n,)  at least so long after the stream's previous item (negative where they overlap)
    length:   (n,)  the item's duration;  needs: int64 (n,) an item of another stream it waits for, or NONE
    late:     bool (n,)  recorded after the device ran dry: its start was the launch's doing
    data:     recorded time in which the step's thread waited for its next batch
    """

    thread: Ints
    think: Floats
    api: Floats
    traced_api: Ints
    events: Ints
    wait: Ints
    back: Floats
    first: Ints
    count: Ints
    stalled: Bools
    start: Ints
    think_from: Ints
    end_ns: int
    tail: Floats
    tail_events: int
    item_ids: Ints
    stream: Ints
    lead: Floats
    gap: Floats
    length: Floats
    needs: Ints
    late: Bools
    data: Coverage = field(default_factory=lambda: union([], []))

    @property
    def item_count(self) -> int:
        return len(self.item_ids)

    @property
    def cpu_ns(self) -> float:
        """CPU time of the step on its own thread, without waiting."""
        mine = self.thread == 0
        return float(self.think[mine].sum() + self.api[mine].sum() + self.tail[0])

    def deflated(self, per_event_ns: float, scale: float = 1.0, floor_ns: float = 0.0) -> StepModel:
        """The model with the profiler's cost of each recorded event taken off the CPU side, then scaled.

        A duration keeps at least a fifth of itself, so that a wrong cost cannot make work vanish. The lead of an item is part
        launch call: it shrinks with that, down to `floor_ns`, the machine's own launch-to-start time.
        """
        share = self.think / np.maximum(self.think + self.api, 1e-9)
        off = per_event_ns * self.events
        think = np.maximum(self.think - off * share, _OVERHEAD_FLOOR * self.think) * scale
        call = np.maximum(self.api - off * (1 - share), _OVERHEAD_FLOOR * self.api) * scale
        shrink = np.repeat(call / np.maximum(self.api, 1e-9), self.count)
        lead = np.where(self.lead > floor_ns, np.maximum(self.lead * np.minimum(shrink, 1.0), floor_ns), self.lead)
        tail = self.tail.copy()
        tail[0] = max(tail[0] - per_event_ns * self.tail_events, _OVERHEAD_FLOOR * tail[0])
        return replace(self, think=think, api=call, lead=lead, tail=tail * scale)

    def scaled_calls(self, factor: Floats) -> StepModel:
        """CPU time of each call (and the thinking before it) times its factor: float64 (c,)."""
        return replace(self, think=self.think * factor, api=self.api * factor)

    def scaled_items(self, factor: float) -> StepModel:
        """The GPU side faster or slower by a factor."""
        return replace(self, length=self.length * factor)


def representative(steps: StepWindows, busy_ns: Ints) -> int:
    """The step nearest the medians of device time, CPU time and busy time (int64 (n,)) together: a step of median length whose
    neighbour was odd borrows time from it. The last one, which has no successor, only when there is no other."""
    last = max(steps.count - 1, 1)
    cpu = np.append(np.diff(steps.cpu_start_ns), steps.cpu_end_ns[-1:] - steps.cpu_start_ns[-1:])
    distance = np.zeros(last)
    for length in (steps.end_ns - steps.start_ns, cpu, busy_ns):
        usual = max(float(np.median(length[:last])), 1.0)
        distance += np.abs(length[:last] - usual) / usual
    return int(np.argmin(distance))


def build_model(timeline: Timeline, steps: StepWindows, index: int, costs: Costs) -> StepModel | None:
    """The model of step `index`; None when no launch of it is on record."""
    begin, end, follows = _cpu_window(steps, index)
    calls = _calls_of(timeline, steps, index, begin, end)
    if not (calls["item_count"] > 0).any():
        return None
    logical = _logical_threads(timeline, steps, index, calls)
    keep = logical >= 0
    calls, logical = calls[keep], logical[keep]
    order, first = _items_in_launch_order(timeline, steps, calls)
    items = _ItemTimes.of(timeline, order, np.repeat(np.arange(len(calls)), np.diff(first)))
    until = end if follows else _last_end(calls, steps, index)
    think, own, tail = _cpu_costs(calls, logical, begin, until)
    wait, back, own, lead_cap = _waits(calls, items, first, own)
    events, tail_events = _event_counts(timeline, steps, index, calls, logical, (begin, end))
    lead, gap, late = _item_limits(calls, items, costs, lead_cap)
    stalled = _stalls(calls, items, own)
    own = np.where(stalled, np.median(own[~stalled]) if (~stalled).any() else own, own)
    return StepModel(
        thread=logical,
        think=think,
        api=own,
        traced_api=(calls["end_ns"] - calls["start_ns"]).to_numpy(),
        events=events,
        wait=wait,
        back=back,
        first=first[:-1],
        count=np.diff(first),
        stalled=stalled,
        start=calls["start_ns"].to_numpy(),
        think_from=calls["start_ns"].to_numpy() - think.astype(np.int64),
        end_ns=until,
        tail=tail,
        tail_events=tail_events,
        item_ids=order,
        stream=items.stream,
        lead=lead,
        gap=gap,
        length=(items.end - items.start).astype(np.float64),
        needs=_event_needs(calls, items, first),
        late=late,
        data=_data_waits(timeline, steps, index, calls["tid"].to_numpy()[logical == 0]),
    )


@dataclass(frozen=True)
class _ItemTimes:
    """Recorded times of the step's items in launch order; `call` is the position of each one's launch, `before` the end of what
    ran on its stream before it, in this step or an earlier one."""

    before: Ints
    start: Ints
    end: Ints
    stream: Ints
    call: Ints
    is_copy: Bools

    @classmethod
    def of(cls, timeline: Timeline, order: Ints, call: Ints) -> _ItemTimes:
        rows = timeline.items.iloc[order]
        return cls(
            _stream_before(timeline, rows)[order],
            rows["start_ns"].to_numpy(),
            rows["end_ns"].to_numpy(),
            pd.factorize(rows["stream"].to_numpy())[0].astype(np.int64),
            call.astype(np.int64),
            (rows["kind"] == "memcpy").to_numpy(),
        )


def _stream_before(timeline: Timeline, rows: pd.DataFrame) -> Ints:
    """For every item of the device the rows lie on: when the items begun before it on its stream were over. int64 (items,)."""
    items = timeline.items
    made = np.full(len(items), _LONG_AGO, dtype=np.int64)
    device = items[(items["rank"] == rows["rank"].iloc[0]) & (items["device"] == rows["device"].iloc[0])]
    for positions in device.groupby("stream", sort=False).indices.values():
        mine = device.index.to_numpy()[positions]  # items are in order of their start
        made[mine[1:]] = np.maximum.accumulate(items["end_ns"].to_numpy()[mine])[:-1]
    return made


def _cpu_window(steps: StepWindows, index: int) -> tuple[int, int, bool]:
    """CPU time of the step: to the start of the next one where that follows on, else to its own end."""
    begin, end = int(steps.cpu_start_ns[index]), int(steps.cpu_end_ns[index])
    if index + 1 < steps.count:
        following = int(steps.cpu_start_ns[index + 1])
        if end <= following <= end + (end - begin) // 2:
            return begin, following, True
    return begin, end, False


def _last_end(calls: pd.DataFrame, steps: StepWindows, index: int) -> int:
    return max(int(steps.cpu_end_ns[index]), int(calls["end_ns"].max()))


def _calls_of(timeline: Timeline, steps: StepWindows, index: int, begin: int, end: int) -> pd.DataFrame:
    calls = timeline.calls
    inside = (calls["rank"] == steps.rank) & (calls["start_ns"] >= begin) & (calls["start_ns"] < end)
    mine = calls[inside.to_numpy()]
    own = mine[mine["tid"] == steps.tid[index]]
    launching = mine[mine["item_count"] > 0]
    source = own if len(own) else launching
    return mine[mine["pid"] == source["pid"].iloc[0]] if len(source) else mine.iloc[:0]


def _logical_threads(timeline: Timeline, steps: StepWindows, index: int, calls: pd.DataFrame) -> Ints:
    """0 for the step's thread and those that work for it, 1.. for others that launch, -1 for threads that never do."""
    tids = calls["tid"].to_numpy()
    tid, pid = int(steps.tid[index]), int(calls["pid"].iloc[0])
    launching = set(np.unique(tids[(calls["item_count"] > 0).to_numpy()]).tolist())
    if tid not in launching and not (tids == tid).any():  # a bare sequence names no thread of its own
        tid = int(tids[np.flatnonzero((calls["item_count"] > 0).to_numpy())[0]])
    mine = set(timeline.thread_roles.working_for(Thread(steps.rank, pid, tid))) | {tid}
    numbers = {one: number for number, one in enumerate(sorted(launching - mine), start=1)}
    return np.array([0 if one in mine else numbers.get(one, -1) for one in tids.tolist()], dtype=np.int64)


def _items_in_launch_order(timeline: Timeline, steps: StepWindows, calls: pd.DataFrame) -> tuple[Ints, Ints]:
    """Item rows ordered by (call, start), and where each call's slice begins: int64 (n,), int64 (c + 1,)."""
    order, first = timeline._items_by_launch
    rows = calls.index.to_numpy(dtype=np.int64)
    pieces = [order[first[row] : first[row + 1]] for row in rows.tolist()]
    on_device = (timeline.items["device"] == steps.device).to_numpy()
    pieces = [piece[on_device[piece]] for piece in pieces]
    start = timeline.items["start_ns"].to_numpy()
    pieces = [piece[np.argsort(start[piece], kind="stable")] if len(piece) > 1 else piece for piece in pieces]
    return np.concatenate(pieces), np.concatenate(([0], np.cumsum([len(piece) for piece in pieces]))).astype(np.int64)


def _cpu_costs(calls: pd.DataFrame, logical: Ints, begin: int, end: int) -> tuple[Floats, Floats, Floats]:
    """Thinking before each call, the call's own time, and each thread's time after its last call. Nested calls count once."""
    start, stop = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    think, own = np.zeros(len(calls)), np.zeros(len(calls))
    tail = np.zeros(int(logical.max()) + 1)
    for thread in range(len(tail)):
        rows = np.flatnonzero(logical == thread)
        reached = np.concatenate(([begin], np.maximum.accumulate(np.maximum(stop[rows], begin))))
        think[rows] = np.maximum(start[rows] - reached[:-1], 0)
        own[rows] = np.maximum(stop[rows] - np.maximum(start[rows], reached[:-1]), 0)
        tail[thread] = max(end - reached[-1], 0)
    return think, own, tail


def _waits(calls: pd.DataFrame, items: _ItemTimes, first: Ints, own: Floats) -> tuple[Ints, Floats, Floats, Floats]:
    """What each call waits for, how long it then takes to return, its own time without waiting, and the longest lead its own
    item may have. A synchronising call waits for the last launched item that was done when it returned; a copy that returned
    after its item ended waits for that (pageable memory)."""
    count = len(calls)
    start, stop = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    wait, back, own = np.full(count, NONE, dtype=np.int64), np.zeros(count), own.copy()
    cap = np.full(count, np.inf)
    for row in np.flatnonzero(synchronising(calls) & (np.diff(first) == 0)).tolist():
        done = np.flatnonzero(items.end[: first[row]] <= stop[row])
        wait[row] = done[-1] if len(done) else -1
        finished = int(items.end[done].max()) if len(done) else 0
        if finished > start[row]:
            back[row] = stop[row] - finished
            own[row] = min(own[row], 1_000.0)
        else:
            back[row] = 0.0
    copies = np.flatnonzero((calls["kind"] == api.MEMCPY).to_numpy() & (np.diff(first) == 1))
    for row in copies.tolist():
        item = int(first[row])
        if items.end[item] <= stop[row]:
            wait[row], back[row] = item, float(stop[row] - items.end[item])
            cap[row] = own[row] = min(own[row], max(float(items.start[item] - start[row]), 0.0), 20_000.0)
    return wait, back, own, cap


def _item_limits(calls: pd.DataFrame, items: _ItemTimes, costs: Costs, cap: Floats) -> tuple[Floats, Floats, Bools]:
    """Lead and gap of each item, and which were launched late. Where the recording cannot show one of the two, because the
    other decided, the median of those that show it stands in."""
    called, returned = calls["start_ns"].to_numpy()[items.call], calls["end_ns"].to_numpy()[items.call]
    late = (items.before < returned) & (items.call != np.concatenate(([-1], items.call[:-1])))
    seen = (items.start - called).astype(np.float64)
    shown = late & (seen >= 0)
    usual = float(np.median(seen[shown])) if shown.any() else costs.launch_to_start.expected
    lead = np.where(shown, seen, min(usual, 3 * costs.launch_to_start.high))
    lead = np.minimum(lead, np.where(np.isfinite(cap[items.call]), cap[items.call], np.inf))
    waited = ~late & (items.before > _LONG_AGO)
    apart = (items.start - items.before).astype(np.float64)
    usual_gap = float(np.clip(np.median(apart[waited]), 0.0, 3_000.0)) if waited.any() else STREAM_GAP_NS
    return lead, np.where(waited, apart, usual_gap), late


def _stalls(calls: pd.DataFrame, items: _ItemTimes, own: Floats) -> Bools:
    """Launches held up because about a thousand were pending: long calls made while the queue was near its limit."""
    begun = np.sort(items.start)
    start = calls["start_ns"].to_numpy()
    launched = np.searchsorted(np.sort(start[items.call]), start)
    pending = launched - np.searchsorted(begun, start)
    return np.asarray((pending > QUEUE_LIMIT * 0.9) & (own > 5 * np.median(own)), dtype=bool)


def _event_needs(calls: pd.DataFrame, items: _ItemTimes, first: Ints) -> Ints:
    """Items of other streams that an item waits for. A stream-wait call binds the next launched item to the last item launched
    before it on another stream, if the recording agrees (that one ended before this one began)."""
    needs = np.full(len(items.start), NONE, dtype=np.int64)
    rows = np.flatnonzero(calls["api"].isin(list(_WAIT_EVENTS)).to_numpy())
    for row in rows.tolist():
        item = int(first[row])
        if item >= len(needs) or item == 0:
            continue
        others = np.flatnonzero(items.stream[:item] != items.stream[item])
        if len(others) and items.end[others[-1]] <= items.start[item]:
            needs[item] = others[-1]
    return needs


def _data_waits(timeline: Timeline, steps: StepWindows, index: int, tids: Ints) -> Coverage:
    """Where a thread of the step waits for its next batch. A graph over it does not shorten that: it cannot be captured."""
    ranges = timeline.ranges
    mine = (ranges["rank"] == steps.rank) & ranges["tid"].isin(np.append(np.unique(tids), steps.tid[index]))
    waits = ranges[mine.to_numpy() & data_waits(ranges)]
    return union(waits["start_ns"], waits["end_ns"])


def _event_counts(
    timeline: Timeline, steps: StepWindows, index: int, calls: pd.DataFrame, logical: Ints, window: tuple[int, int]
) -> tuple[Ints, int]:
    """Recorded ranges and calls in the time of each call on the step's thread, and after the last one."""
    ranges = timeline.ranges
    tids = calls["tid"].to_numpy()[logical == 0]
    mine = (ranges["rank"] == steps.rank) & ranges["tid"].isin(np.append(np.unique(tids), steps.tid[index]))
    opened = np.sort(ranges["start_ns"].to_numpy()[mine.to_numpy()])
    events = np.zeros(len(calls), dtype=np.int64)
    rows = np.flatnonzero(logical == 0)
    stop = np.maximum.accumulate(calls["end_ns"].to_numpy()[rows])
    at = np.searchsorted(opened, np.concatenate(([window[0]], stop)))
    events[rows] = np.diff(at) + 1
    return events, int(np.searchsorted(opened, window[1]) - at[-1])
