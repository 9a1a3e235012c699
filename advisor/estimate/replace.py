"""The model of a step with graphs in it: the calls of a region become one replay, the gaps between its items in-graph gaps.

Everything else stays as it is. Synchronisations inside a region move to its end and still wait there, since no capture can hold
them; `keep_syncs=False` asks what the step would be without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from advisor.estimate.stepmodel import NONE, Bools, Floats, Ints, StepModel
from advisor.intervals import Coverage, difference, intersection, union


@dataclass(frozen=True)
class GraphCosts:
    """What one replay costs, in ns. `copies` input copies, each `copy_cpu` on the thread and `copy_gpu` on the stream."""

    node_gap: float
    replay_cpu: float
    replay_cpu_per_node: float
    graph_start: float  # from the end of the replay call to the first node, on an idle device
    copies: int = 0
    copy_cpu: float = 0.0
    copy_gpu: float = 0.0
    extra_gpu: float = 0.0  # of kernels in the graph that the recording does not hold


FREE: Final = GraphCosts(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Spans:
    """The occurrences of the regions to graph inside the modelled step: CPU windows int64 (k,), on the step's thread."""

    start_ns: Ints
    end_ns: Ints

    @classmethod
    def joined(cls, parts: Sequence[Spans]) -> Spans:
        """The spans of several regions; one inside another is left out, since the outer graph holds it."""
        start = np.concatenate([part.start_ns for part in parts])
        end = np.concatenate([part.end_ns for part in parts])
        order = np.lexsort((-end, start))
        start, end = start[order], end[order]
        reached = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end)[:-1]))
        return cls(start[start >= reached], end[start >= reached])

    def owner(self, model: StepModel) -> Ints:
        """The span each call of the step's own thread lies in, -1 for none: int64 (c,)."""
        if not len(self.start_ns):
            return np.full(len(model.start), -1, dtype=np.int64)
        order = np.argsort(self.start_ns, kind="stable")
        start, end = self.start_ns[order], self.end_ns[order]
        at = np.searchsorted(start, model.start, side="right") - 1
        inside = (at >= 0) & (model.start < end[np.maximum(at, 0)]) & (model.thread == 0)
        return np.where(inside, order[np.maximum(at, 0)], -1).astype(np.int64)


def with_graphs(model: StepModel, spans: Spans, costs: GraphCosts, *, keep_syncs: bool = True) -> StepModel:
    """The model with each span replaced by one replay. Spans must not overlap; one that launches nothing changes nothing.

    Items keep their streams and order. An item that was launched late gets the in-graph gap before it; one that was queued in
    time keeps the gap it had, since a graph changes nothing there.
    """
    owner = spans.owner(model)
    if not (owner >= 0).any():
        return model
    launches = np.bincount(owner[owner >= 0], model.count[owner >= 0], len(spans.start_ns)) > 0
    owner = np.where((owner >= 0) & launches[np.maximum(owner, 0)], owner, -1)
    if not (owner >= 0).any():
        return model
    used = np.flatnonzero(launches)
    cover = union(spans.start_ns[used], spans.end_ns[used])
    first_row = {number: int(np.flatnonzero(owner == number)[0]) for number in used.tolist()}
    key = np.array([first_row[one] if one >= 0 else row for row, one in enumerate(owner.tolist())], dtype=np.int64)
    order = np.argsort(key, kind="stable")
    heads = np.flatnonzero(np.concatenate(([True], np.diff(key[order]) > 0)))
    return _regrouped(model, (owner, order, heads), _outside(model, cover), costs, keep_syncs)


def _outside(model: StepModel, cover: Coverage) -> tuple[Floats, float]:
    """The share of each call's thinking, and of the step's tail, that lies outside the spans or waits for data: it stays."""
    cover = difference(cover, intersection(cover, model.data))
    length = np.maximum(model.start - model.think_from, 1)
    share = 1.0 - cover.within(model.think_from, model.start) / length
    last = int((model.start + model.traced_api)[model.thread == 0].max())
    tail = max(model.end_ns - last, 1)
    return np.where(model.thread == 0, share, 1.0), 1.0 - float(cover.within(last, max(model.end_ns, last))) / tail


def _regrouped(
    model: StepModel,
    groups: tuple[Ints, Ints, Ints],
    outside: tuple[Floats, float],
    costs: GraphCosts,
    keep_syncs: bool,
) -> StepModel:
    """Calls in the new order, one row a group; `groups` is (span of each call, order of calls, where each group begins)."""
    owner, order, heads = groups
    is_graph = owner[order[heads]] >= 0
    count = np.add.reduceat(model.count[order], heads)
    first = np.cumsum(count) - count
    items = _item_order(model, order)
    rank = np.empty(model.item_count, dtype=np.int64)
    rank[items] = np.arange(model.item_count)
    replay = costs.replay_cpu + costs.replay_cpu_per_node * count + costs.copies * costs.copy_cpu
    waits = np.maximum.reduceat(np.where(model.wait[order] == NONE, 0, 1), heads) > 0
    own_wait = model.wait[order[heads]]
    wait = np.where(own_wait >= 0, rank[np.maximum(own_wait, 0)], own_wait)
    wait = np.where(is_graph, np.where(waits & keep_syncs, first + count - 1, NONE), wait)
    back = np.maximum.reduceat(model.back[order], heads)
    lead, gap = _graph_items(model, items, (first, count, is_graph), replay, costs)
    needs = model.needs[items]
    tail = model.tail.copy()
    tail[0] *= outside[1]
    return replace(
        model,
        thread=model.thread[order[heads]],
        think=np.add.reduceat((model.think * outside[0])[order], heads),
        api=np.where(is_graph, replay, model.api[order[heads]]),
        traced_api=model.traced_api[order[heads]],
        events=model.events[order[heads]],
        wait=wait,
        back=back,
        first=first,
        count=count,
        stalled=model.stalled[order[heads]],
        start=model.start[order[heads]],
        think_from=model.think_from[order[heads]],
        tail=tail,
        item_ids=model.item_ids[items],
        stream=model.stream[items],
        lead=lead,
        gap=gap,
        length=model.length[items],
        needs=np.where(needs >= 0, rank[np.maximum(needs, 0)], needs),
        late=model.late[items],
    )


def _item_order(model: StepModel, order: Ints) -> Ints:
    """Positions of the items when the calls are taken in this order: int64 (n,)."""
    count, first = model.count[order], model.first[order]
    begin = np.cumsum(count) - count
    return np.arange(int(count.sum()), dtype=np.int64) - np.repeat(begin - first, count)


def _graph_items(
    model: StepModel, items: Ints, rows: tuple[Ints, Ints, Bools], replay: Floats, costs: GraphCosts
) -> tuple[Floats, Floats]:
    """Lead and gap of the items in their new order: inside a graph all are launched by the replay."""
    first, count, is_graph = rows
    lead, gap = model.lead[items].copy(), model.gap[items].copy()
    inside = np.repeat(is_graph, count)
    lead = np.where(inside, np.repeat(replay, count) + costs.graph_start, lead)
    gap = np.where(inside & model.late[items], costs.node_gap, gap)
    starts = first[is_graph]
    # The copies run before the first node; the gap before the graph itself is the stream's own.
    gap[starts] = np.maximum(model.gap[items][starts], 0.0) + costs.copies * costs.copy_gpu + costs.extra_gpu
    return lead, gap
