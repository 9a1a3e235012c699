"""Counts the steps of a known source and tells a pass where each begins and ends."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from advisor.workload import modules
from advisor.workload.imports import when_imported
from advisor.workload.loader import stopper
from advisor.workload.mark import Handler
from advisor.workload.steps import Source

LOOP_METHODS: Final = ("loop", "item", "next", "done", "end", "tick", "untick")


class Listener(Protocol):
    """A pass. `index` counts the steps of the program from 0, the same in every pass."""

    def step_begins(self, index: int) -> None: ...

    def step_ends(self, index: int, *, goes_on: bool) -> None:
        """`goes_on`: the next step begins at this very moment."""

    def step_dropped(self, index: int) -> None:
        """What had begun was no step: the loop was over."""

    def wants_stop(self) -> bool: ...


class Driver:
    """Turns what the marks and hooks report into steps. One thread at a time drives it: the one that runs the source."""

    def __init__(self, source: Source, listener: Listener, *, index: int = 0) -> None:
        self.source = source
        self.index = index
        self._listener = listener
        self._open = False
        self._in_item = False
        self._optimizer: int | None = None

    def attach(self, *, inside: bool = False) -> None:
        """Hook into torch for sources that are no loop. `inside`: the source's first step is running already."""
        kind = self.source.kind
        if kind == "optimizer":
            when_imported("torch", self._watch_optimizers)
        elif kind == "module":
            when_imported("torch", lambda: modules.watch_module(self.source.name, self.enter, self.leave))
        elif kind == "range":
            modules.region_steps(self.source.name, self.enter, self.leave, _no_region)
            when_imported("torch", lambda: modules.watch_ranges(self.source.name, self.enter, self.leave))
        if inside:
            self.begin()

    def _watch_optimizers(self) -> None:
        modules.watch_optimizers(None, self.optimizer_step)

    def begin(self) -> None:
        self._open = True
        self._listener.step_begins(self.index)

    def finish(self, *, goes_on: bool) -> None:
        if self._open:
            self._open = False
            index = self.index
            self.index += 1
            self._listener.step_ends(index, goes_on=goes_on)

    def drop(self) -> None:
        if self._open:
            self._open = False
            self._listener.step_dropped(self.index)

    def check_stop(self) -> None:
        """Where a step may begin, the run may end."""
        if self._listener.wants_stop():
            stopper.stop()

    # a loop

    def handlers(self) -> dict[str, Handler]:
        """What to install in MARKS for a loop; everything else does nothing."""
        wanted = self.source.id if self.source.kind == "loop" else -1
        return {name: _only(wanted, getattr(self, f"on_{name}")) for name in LOOP_METHODS}

    def on_loop(self) -> None:
        self._in_item = False
        self.begin()

    def on_item(self) -> None:
        self._in_item = True
        self.check_stop()

    def on_next(self) -> None:
        if self._in_item:
            self._in_item = False
            self.finish(goes_on=True)
            self.begin()

    def on_done(self) -> None:
        self.drop()

    def on_end(self) -> None:
        self.drop()

    def on_tick(self) -> None:
        self.check_stop()
        self.finish(goes_on=True)
        self.begin()

    def on_untick(self) -> None:
        self.drop()

    # an optimizer

    def optimizer_step(self, optimizer: Any) -> None:
        if type(optimizer).__name__ != self.source.name:
            return
        if self._optimizer is None:
            self._optimizer = id(optimizer)
        if self._optimizer == id(optimizer):
            self.finish(goes_on=True)
            self.check_stop()
            self.begin()

    # a module or a range

    def enter(self) -> None:
        self.check_stop()
        self.begin()

    def leave(self) -> None:
        self.finish(goes_on=False)


def _only(wanted: int, method: Any) -> Handler:
    def handle(identity: int) -> None:
        if identity == wanted:
            method()

    return handle


def _no_region(_name: str) -> AbstractContextManager[None]:
    return contextlib.nullcontext()
