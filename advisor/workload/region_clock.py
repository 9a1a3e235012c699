"""Times every statement and loop that runs, for a few steps: host time for all, CUDA events for the outermost ones."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from advisor.marks import encode
from advisor.model import Measurement
from advisor.workload import modules
from advisor.workload.mark import Handler

_EVENT_DEPTH: Final = 2  # ranges nested deeper get no events: recording one costs more than a statement
_MAX_SAMPLES: Final = 400_000
_COST_ROUNDS: Final = 20_000

Key = int | str  # a construct's id, or the text of a range without a place in the source


class RegionClock:
    """Samples per construct. A sample is (ns, ranges opened inside it), so that their cost can be taken off at the end."""

    def __init__(self, make_event: Callable[[], Any]) -> None:
        self.cost_ns = 0
        self._make_event = make_event
        self._samples: dict[Key, list[tuple[int, int]]] = defaultdict(list)
        self._events: dict[Key, list[tuple[Any, Any]]] = defaultdict(list)
        self._open: list[tuple[Key, int, int, Any]] = []  # key, start, ranges opened before, event
        self._opened = [0]
        self._steps = 0
        self._timing = False
        self._optimizer_hooks: modules.Removable | None = None

    def step_over(self) -> None:
        """A step ended. The first timed one is left out: it holds the switch itself."""
        if self._timing:
            if self._steps == 0:
                self._samples.clear()
                self._events.clear()
            self._steps += 1

    def handlers(self, inner: Mapping[str, Handler]) -> dict[str, Handler]:
        """Marks that time, on top of `inner` for the loops (the driver's)."""
        self._timing = True
        begin, close = self._timers()
        inner_loop, inner_end = inner["loop"], inner["end"]

        def loop(identity: int) -> None:
            begin(identity)
            inner_loop(identity)

        def end(identity: int) -> None:
            inner_end(identity)
            close(identity)

        return {**inner, "begin": begin, "close": close, "loop": loop, "end": end}

    def _timers(self) -> tuple[Callable[[Key], None], Callable[[Key], None]]:
        """`begin` and `close` as plain functions over local names: attribute look-ups would cost as much again."""
        owner, ident, clock = threading.get_ident(), threading.get_ident, time.perf_counter_ns
        open_, samples, events, opened = self._open, self._samples, self._events, self._opened
        make_event = self._make_event

        def begin(key: Key) -> None:
            if ident() != owner:
                return
            event = make_event() if len(open_) < _EVENT_DEPTH else None
            open_.append((key, clock(), opened[0], event))
            opened[0] += 1

        def close(key: Key) -> None:
            now = clock()
            if ident() != owner:
                return
            if not open_ or (open_[-1][0] != key and all(one[0] != key for one in open_)):
                return
            while open_:
                one, start, before, event = open_.pop()
                if one == key:
                    if opened[0] < _MAX_SAMPLES:
                        samples[key].append((now - start, opened[0] - before - 1))
                        if event is not None:
                            events[key].append((event, make_event()))
                    return

        return begin, close

    def watch_optimizers(self) -> None:
        begin, close = self._timers()
        self._optimizer_hooks = modules.watch_optimizers(
            lambda one: begin(modules.step_label(one)), lambda one: close(modules.step_label(one))
        )

    @contextlib.contextmanager
    def user_region(self, name: str) -> Iterator[None]:
        """What `advisor.region(name)` opens while regions are timed."""
        begin, close = self._timers()
        begin(f"region {name}")
        try:
            yield
        finally:
            close(f"region {name}")

    def measure_cost(self) -> None:
        """Time one begin/close pair in this very process, on a clock of its own that records no events."""
        if self._optimizer_hooks is not None:
            self._optimizer_hooks.remove()
        scratch = RegionClock(lambda: None)
        begin, close = scratch._timers()
        best = None
        for _ in range(5):
            started = time.perf_counter_ns()
            for _ in range(_COST_ROUNDS // 5):
                begin(0)
                close(0)
            took = (time.perf_counter_ns() - started) * 5 // _COST_ROUNDS
            best = took if best is None else min(best, took)
        self.cost_ns = best or 0

    def host_regions(self, text: Callable[[int], str | None]) -> dict[str, Measurement]:
        """Mark text -> host time of each occurrence, the cost of nested ranges taken off."""
        made = {}
        for key, samples in self._samples.items():
            name = _text(key, text)
            if name is not None:
                corrected = tuple(max(ns - inside * self.cost_ns, 0) for ns, inside in samples)
                made[name] = Measurement(samples_ns=corrected)
        return made

    def device_regions(self, text: Callable[[int], str | None]) -> dict[str, Measurement]:
        """Mark text -> CUDA-event time of each occurrence; ranges without events are left out."""
        made = {}
        for key, pairs in self._events.items():
            name = _text(key, text)
            times = [
                int(first.elapsed_time(last) * 1e6) for first, last in pairs if first is not None and last is not None
            ]
            if name is not None and times:
                made[name] = Measurement(samples_ns=tuple(times))
        return made

    def too_frequent(self, often: int, short_ns: int) -> tuple[int, ...]:
        """Statements that ran more than `often` times a step and took less than `short_ns` each."""
        steps = max(self._steps - 1, 1)
        return tuple(
            key
            for key, samples in self._samples.items()
            if isinstance(key, int)
            and len(samples) > often * steps
            and sorted(ns for ns, _ in samples)[len(samples) // 2] < short_ns
        )


def _text(key: Key, text: Callable[[int], str | None]) -> str | None:
    if isinstance(key, int):
        return text(key)
    import zlib

    kind, label = ("region", key.removeprefix("region ")) if key.startswith("region ") else ("optim", key)
    return encode(label, kind, zlib.crc32(f"{kind}:{label}".encode()))
