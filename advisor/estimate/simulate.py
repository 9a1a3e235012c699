"""What-if simulation of a step: CPU threads and GPU streams as resources, tiled until it runs in its steady rhythm.

A thread does one thing at a time; a stream runs its items in the order they were submitted; an item starts when its launch, the
stream's previous item and the events it waits for allow; a synchronising call ends when its item has. `advisor.estimate.replace`
makes the model of a step with graphs in it; running both and comparing is the estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from advisor.estimate.stepmodel import NONE, QUEUE_LIMIT, StepModel

_TILES: Final = 4
_TILES_LARGE: Final = 3  # from so many items on: a long step finds its rhythm within one
_LARGE: Final = 2_000


@dataclass(frozen=True)
class Simulated:
    """A step in its steady rhythm.

    step_ns: from first item to first item; launch_idle_ns: idle time before items whose launch came too late, summed over
    streams: all that a graph could remove; sync_wait_ns: the thread waited for the device; cpu_ns: the thread's own work;
    gpu_ns: the longest any stream takes when everything is queued in time.
    """

    step_ns: float
    launch_idle_ns: float
    sync_wait_ns: float
    cpu_ns: float
    gpu_ns: float

    @property
    def binds(self) -> str:
        """What limits the step: the stream's own work, waiting at synchronisations, or the CPU."""
        if self.launch_idle_ns <= 0.02 * self.step_ns:
            return "gpu"
        if self.sync_wait_ns > max(0.1 * self.step_ns, self.step_ns - 1.02 * max(self.cpu_ns, self.gpu_ns)):
            return "sync" if self.cpu_ns < 0.9 * self.step_ns else "cpu"
        return "cpu"


def simulate(model: StepModel, tiles: int | None = None) -> Simulated:
    """Run the step `tiles` times back to back and measure the last ones (all but the first)."""
    tiles = tiles or (_TILES_LARGE if model.item_count > _LARGE else _TILES)
    clocks = [0.0] * len(model.tail)
    ready = [0.0] * (int(model.stream.max()) + 1 if model.item_count else 1)
    ends = [0.0] * (model.item_count * (tiles + 1))  # the tile before the first counts as done at 0
    begun: list[float] = []
    rows = _rows(model)
    firsts: list[float] = []
    waits: list[tuple[float, float]] = []
    for tile in range(tiles):
        base = model.item_count * (tile + 1)
        starts: list[float] = []
        waits.append(_one_tile(rows, base, (clocks, ready, ends, starts), begun))
        begun.extend(starts)
        firsts.append(min(starts) if starts else clocks[0])
        for thread, tail in enumerate(model.tail.tolist()):
            clocks[thread] = max(clocks[thread] + tail, clocks[0] if thread else 0.0)
    measured = max(tiles - 2, 1)
    step = (firsts[-1] - firsts[-1 - measured]) / measured if tiles > 1 else max(ends) - firsts[0]
    launch_idle, sync_wait = waits[-2] if tiles > 1 else waits[-1]
    return Simulated(step, launch_idle, sync_wait, model.cpu_ns, _stream_work(model))


_Row = tuple[int, float, float, int, float, int, tuple[tuple[int, float, float, float, int, int], ...]]


def _rows(model: StepModel) -> list[_Row]:
    """(thread, think, api, wait, back, queue slot, items) per call, items as (stream, lead, gap, length, needs, position)."""
    columns = [model.stream, model.lead, model.gap, model.length, model.needs, np.arange(model.item_count)]
    items = list(zip(*(column.tolist() for column in columns), strict=True))
    first, last = model.first.tolist(), (model.first + model.count).tolist()
    head = zip(
        model.thread.tolist(),
        model.think.tolist(),
        model.api.tolist(),
        model.wait.tolist(),
        model.back.tolist(),
        strict=True,
    )
    return [(*one, low, tuple(items[low:high])) for one, low, high in zip(head, first, last, strict=True)]


def _one_tile(
    rows: Sequence[_Row],
    base: int,
    state: tuple[list[float], list[float], list[float], list[float]],
    begun: Sequence[float],
) -> tuple[float, float]:
    """One pass over the calls; returns (launch wait, sync wait). `ends` is indexed from the tile before the first."""
    clocks, ready, ends, starts = state
    launch_idle = sync_wait = 0.0
    offset = len(begun) - QUEUE_LIMIT
    for thread, think, own, wait, back, slot, items in rows:
        now = clocks[thread] + think
        if items and offset + slot >= 0:  # a full queue holds the launch until an older item has begun
            index = offset + slot
            freed = begun[index] if index < len(begun) else starts[index - len(begun)]
            if freed > now:
                now = freed
        for stream, lead, gap, length, needs, position in items:
            free = ready[stream] + gap
            if needs != NONE and ends[base + needs] > free:
                free = ends[base + needs]
            start = now + lead
            if start > free:
                launch_idle += start - ready[stream]
            else:
                start = free
            starts.append(start)
            ready[stream] = ends[base + position] = start + length
        now += own
        if wait != NONE:
            until = ends[base + wait] + back
            if until > now:
                sync_wait += until - now
                now = until
        clocks[thread] = now
    return launch_idle, sync_wait


def _stream_work(model: StepModel) -> float:
    """The longest any stream needs when everything is queued in time."""
    if not model.item_count:
        return 0.0
    return float(np.bincount(model.stream, np.maximum(model.gap, 0.0) + model.length).max())
