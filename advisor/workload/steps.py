"""Which repetition of the program is the step: found while it runs, or named by `--step-at`.

Counting launches through the torch dispatcher would cost more than what is measured, so the unprofiled pass goes by
evidence that is free: which loops are active, how long their iterations take, how often each optimizer steps in one
iteration, and whether the CUDA allocator handed out memory meanwhile (every eager operation asks for its output).

The hot loop is the outermost loop that works on the device and in whose iterations no optimizer steps more than once
(without an optimizer: whose iteration is short enough that the wanted number fits into the budget). Where the loop lies
in a library, the span between two optimizer steps is the step.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from advisor.errors import UsageError
from advisor.marks import parse_span
from advisor.model import SourceSpan
from advisor.workload.instrument import Construct

PLAN_NAME: Final = "plan.json"
MIN_COUNT: Final = 5  # iterations before a loop can be chosen
BUDGET_NS: Final = 20_000_000_000  # the wanted steps of a loop without optimizer must fit into this
PATIENCE_NS: Final = 30_000_000_000  # a script that has an optimizer gets this long to use it
_FIRST_IS_SLOW: Final = 5  # a first iteration may take this many times as long as the others may
_CONSIDER_EVERY_NS: Final = 1_000_000
_LONG_LOOP_NS: Final = 2_000_000_000
_KEEP: Final = 20_000  # iterations remembered per loop before the choice
_LINE: Final = re.compile(r"^(?P<file>.+):(?P<line>\d+)$")


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a step is. kind: "loop" (`id`), "optimizer", "module" or "range" (`name`), "none"."""

    kind: str
    label: str
    how: str
    id: int = 0
    name: str = ""

    @property
    def location(self) -> SourceSpan | None:
        span = parse_span(self.label) if self.kind == "loop" else None
        return SourceSpan(file=span.file, first_line=span.first_line, last_line=span.last_line) if span else None


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """plan.json: what the clock pass tells the trace pass, so that both describe the same steps.

    Steps are counted from the first of the program; [first_step, first_step + step_count) are recorded. `fast_loops`
    are loops whose wait for the next item is too short to be worth a range, `skip` statements that run too often.
    """

    source: Source
    first_step: int
    step_count: int
    step_ns: int = 0
    fast_loops: tuple[int, ...] = ()
    skip: tuple[int, ...] = ()


@dataclass(frozen=True)
class Spec:
    """`--step-at`, parsed. kind: "auto", "line", "optimizer", "module" or "range"."""

    kind: str
    name: str = ""
    line: int = 0

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Raises UsageError for a text of no known form."""
        if not text:
            return cls("auto")
        if text == "optimizer":
            return cls("optimizer")
        for kind in ("module", "range"):
            if text.startswith(f"{kind}:") and len(text) > len(kind) + 1:
                return cls(kind, text[len(kind) + 1 :])
        found = _LINE.match(text)
        if found and found["file"].endswith(".py"):
            return cls("line", found["file"], int(found["line"]))
        raise UsageError(f"--step-at {text}: expected FILE.py:LINE of a loop, `optimizer`, module:NAME or range:NAME")

    def names_loop(self, construct: Construct, constructs: Iterable[Construct]) -> bool:
        """Whether `construct` is the loop this spec means: the innermost loop of the file that holds the line."""
        if self.kind != "line" or not _same_file(construct.file, self.name):
            return False
        holding = [
            one
            for one in constructs
            if one.kind == "loop" and one.file == construct.file and one.first_line <= self.line <= one.last_line
        ]
        return bool(holding) and max(holding, key=lambda one: (one.first_line, -one.last_line)).id == construct.id


def _same_file(label: str, wanted: str) -> bool:
    wanted = wanted.replace("\\", "/").removeprefix("./")
    return label == wanted or label.endswith(f"/{wanted}") or wanted.endswith(f"/{label}")


@dataclass(slots=True)
class LoopState:
    """What is known of one loop before the step is chosen. Times in ns; `spans[i]` are start and end of iteration i."""

    construct: Construct
    depth: int
    entered_ns: int
    memory_at_entry: int | None
    torch_loaded: bool
    count: int = 0
    total_ns: int = 0
    wait_ns: int = 0
    start_ns: int = 0
    in_item: bool = False
    left_early: bool = False  # it was the choice once and was over before enough was recorded
    optimizer_total: int = 0  # the most steps of one optimizer in an iteration, summed over iterations
    now_stepping: dict[int, int] = field(default_factory=dict)  # in the current iteration, by optimizer
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    outer_starts: list[int] = field(default_factory=list)  # of enclosing activations, when the loop recurses

    @property
    def usual_ns(self) -> float:
        """Mean length of its iterations but the first, which loads kernels and libraries. Needs two."""
        begin, end = self.spans[0]
        return (self.total_ns - (end - begin)) / (self.count - 1)

    @property
    def most_steps_now(self) -> int:
        return max(self.now_stepping.values(), default=0)


class Chooser:
    """Watches loops and optimizer steps on the main thread until the step is chosen; then `chosen(source)` is called."""

    def __init__(
        self,
        constructs: Mapping[int, Construct],
        spec: Spec,
        wanted_steps: int,
        chosen: Callable[[Source, int], None],
        *,
        device: str = "cuda",
    ) -> None:
        self.states: dict[int, LoopState] = {}
        self.optimizer_ends: dict[int, list[int]] = {}  # by optimizer
        self.optimizer_names: dict[int, str] = {}
        self.trains = False  # an optimizer exists
        self._constructs = constructs
        self._spec = spec
        self._long_ns = BUDGET_NS // max(wanted_steps, 1)
        self._chosen = chosen
        self._device = device
        self._active: list[LoopState] = []
        self._owner = threading.get_ident()
        self._began_ns = time.perf_counter_ns()
        self._considered_ns = 0
        self.done = False

    # what the marks report

    def loop(self, identity: int) -> None:
        if self.done or threading.get_ident() != self._owner:
            return
        now = time.perf_counter_ns()
        state = self.states.get(identity)
        if state is None:
            construct = self._constructs[identity]
            loaded = "torch" in sys.modules
            state = LoopState(construct, len(self._active), now, allocation_count() if loaded else None, loaded)
            self.states[identity] = state
        if state in self._active:
            state.outer_starts.append(state.start_ns)
        self._active.append(state)
        state.start_ns, state.in_item = now, False
        if self._spec.names_loop(state.construct, self._constructs.values()):
            self._choose_loop(state, f"asked for: {self._spec.name}:{self._spec.line}")

    def item(self, identity: int) -> None:
        state = self.states.get(identity)
        if state is not None and self._is_mine(state):
            state.in_item = True
            state.wait_ns += time.perf_counter_ns() - state.start_ns

    def next(self, identity: int) -> None:
        state = self.states.get(identity)
        if state is None or not self._is_mine(state):
            return
        now = time.perf_counter_ns()
        if state.in_item:
            self._count(state, now)
        state.start_ns, state.in_item = now, False
        state.now_stepping.clear()
        if now - self._considered_ns >= _CONSIDER_EVERY_NS:
            self._considered_ns = now
            self._consider(now)

    def end(self, identity: int) -> None:
        state = self.states.get(identity)
        if state is None or not self._is_mine(state):
            return
        while self._active:  # what an exception left open goes too
            left = self._active.pop()
            if left.outer_starts:
                left.start_ns = left.outer_starts.pop()
            if left is state:
                break

    def tick(self, identity: int) -> None:
        """The top of the body of a loop that suspends: one iteration begins where the last one ends."""
        if identity not in self.states or self.states[identity] not in self._active:
            self.loop(identity)
        else:
            self.next(identity)
        state = self.states.get(identity)
        if state is not None:
            state.in_item = True

    def optimizer_step(self, optimizer: Any) -> None:
        if self.done or threading.get_ident() != self._owner:
            return
        key, now = id(optimizer), time.perf_counter_ns()
        self.optimizer_names.setdefault(key, type(optimizer).__name__)
        self.optimizer_ends.setdefault(key, []).append(now)
        for state in self._active:
            state.now_stepping[key] = state.now_stepping.get(key, 0) + 1
        if self._spec.kind == "optimizer":
            self._choose_optimizer(key, "asked for: optimizer")
        elif self._spec.kind == "auto" and len(self.optimizer_ends[key]) > MIN_COUNT:
            self._consider(now)

    def resume(self, identity: int, count: int) -> None:
        """The chosen loop was left after `count` iterations, before enough were recorded: look on."""
        self.done = False
        state = self.states[identity]
        state.count, state.left_early = count, True
        self.end(identity)

    # the choice

    def choose_late(self) -> Source | None:
        """The best of what has run, for a script that ended before a choice; None when nothing repeats."""
        if self._spec.kind != "auto":
            return None
        counted = [
            state
            for state in self.states.values()
            if state.count >= MIN_COUNT and state.optimizer_total <= 1.5 * state.count and self._works(state)
        ]
        trained = [state for state in counted if state.optimizer_total] or counted
        if trained:
            most = max(state.total_ns for state in trained)
            best = min((state for state in trained if state.total_ns >= most / 2), key=lambda state: state.depth)
            return self._loop_source(best, "the outermost loop that holds most of the work of a short run")
        for key, ends in self.optimizer_ends.items():
            if len(ends) > MIN_COUNT:
                return self._optimizer_source(key, "no loop of the script repeats; its optimizer does")
        return None

    def _is_mine(self, state: LoopState) -> bool:
        return not self.done and bool(self._active) and state in self._active[-4:]

    def _count(self, state: LoopState, now: int) -> None:
        state.count += 1
        state.total_ns += now - state.start_ns
        state.optimizer_total += state.most_steps_now
        if len(state.spans) < _KEEP:
            state.spans[state.count - 1] = (state.start_ns, now)

    def _consider(self, now: int) -> None:
        if self._spec.kind != "auto" or self.done:
            return
        for position, state in enumerate(self._active):
            judged = self._judge(state, now, self._active[position + 1 :])
            if judged == "good":
                self._choose_loop(state, self._why(state))
                return
            if judged == "wait":
                return
        for key, ends in self.optimizer_ends.items():
            if len(ends) > MIN_COUNT and not self._may_still_count(key):
                self._choose_optimizer(key, "the loop lies outside the instrumented files; its optimizer steps repeat")
                return

    def _may_still_count(self, key: int) -> bool:
        """Whether an active loop steps this optimizer about once an iteration, so that it may yet be the step."""
        return any(
            state.now_stepping.get(key, 0) == 1 and state.optimizer_total <= state.count for state in self._active
        )

    def _judge(self, state: LoopState, now: int, inside: Sequence[LoopState]) -> str:
        """ "good", "wait" (it may become so) or "out". `inside`: the loops that run within this one now."""
        if state.most_steps_now > 1 or state.optimizer_total > 1.5 * max(state.count, 1):
            return "out"
        stepped = state.optimizer_total > 0 or state.most_steps_now > 0
        if self.trains and not stepped and now - self._began_ns < PATIENCE_NS:
            return "out"  # evaluation before or beside the training
        if state.count <= 1 and not stepped and inside:
            # Nothing is known of its usual length yet. Of a loop inside that ended early it is known that it is too short.
            limit = PATIENCE_NS if any(one.left_early for one in inside) else _FIRST_IS_SLOW * self._long_ns
            return "wait" if state.total_ns + now - state.start_ns <= limit else "out"
        if state.count == 0:
            return "wait" if stepped or now - state.start_ns <= _FIRST_IS_SLOW * self._long_ns else "out"
        if not stepped and inside and state.usual_ns > self._long_ns:
            return "out"
        if not self._works(state):
            return "out"
        return "good" if state.count >= MIN_COUNT else "wait"

    def _works(self, state: LoopState) -> bool:
        """Whether the loop has used the device: an optimizer stepped in it, or memory was handed out since it began."""
        if state.optimizer_total:
            return True
        if self._device == "cpu":
            return state.torch_loaded
        now = allocation_count()
        if now is None:
            return False
        # Replays and in-place work ask for no memory: a loop that has run for long is believed without.
        return now > (state.memory_at_entry or 0) or state.total_ns >= _LONG_LOOP_NS

    def _why(self, state: LoopState) -> str:
        if state.optimizer_total:
            return "the outermost loop in whose iterations each optimizer steps at most once"
        return "the outermost loop that works on the device and repeats often enough"

    def _choose_loop(self, state: LoopState, why: str) -> None:
        self.done = True
        self._chosen(self._loop_source(state, why), state.count)

    def _loop_source(self, state: LoopState, why: str) -> Source:
        label = state.construct.label
        return Source(kind="loop", id=state.construct.id, label=label, how=f"hot loop {label}: {why}")

    def _choose_optimizer(self, key: int, why: str) -> None:
        self.done = True
        # Step k lies between the optimizer's k-th and next call: the one that begins now is the last call's.
        self._chosen(self._optimizer_source(key, why), len(self.optimizer_ends[key]) - 1)

    def _optimizer_source(self, key: int, why: str) -> Source:
        name = self.optimizer_names[key]
        return Source(kind="optimizer", name=name, label=f"{name}.step", how=f"between two steps of {name}: {why}")


def allocation_count() -> int | None:
    """Blocks the CUDA caching allocator has handed out so far in this process; None before CUDA is in use."""
    torch: Any = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None
    total = 0
    for device in range(cuda.device_count()):
        stats = cuda.memory_stats_as_nested_dict(device)
        total += int(stats.get("allocation", {}).get("all", {}).get("allocated", 0))
    return total
