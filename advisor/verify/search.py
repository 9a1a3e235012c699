"""The search: eager children once, then the candidates of each group wave by wave until one pays, the budget is spent, or none
is left."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from advisor.errors import ScriptFailed
from advisor.model import Attempt, EqualityOutcome, Outcome, Verification
from advisor.units import format_ns
from advisor.verify import combine, follow, hazards, states
from advisor.verify.candidate import Candidate, Sources
from advisor.verify.children import ChildRun, Order, Script, run_wave
from advisor.verify.combine import NUMERIC, Eager
from advisor.workload.turn import CROWDED
from advisor.workload.verify_job import FixSpec, Schedule, VerifySpec

IN_PLACE: Final = "in_place"
_MORE: Final = ("eager-third", "eager-fourth")
_DONE: Final = (Outcome.VERIFIED, Outcome.NOT_FASTER)


@dataclass(frozen=True)
class Limits:
    """What a search may cost. Times in seconds."""

    budget_s: float = 60.0
    max_attempts: int = 6
    timeout_s: float = 120.0  # of one child
    what_if: bool = True
    # children that may be set up at once; five are needed for a span as written and with a fix
    parallel: int = field(default_factory=lambda: max(1, min(6, (os.cpu_count() or 2) // 2)))


@dataclass
class Search:
    """One search. `loop` is (file, line) of the hot loop, or None when the steps are the span's own executions."""

    script: Script
    sources: Sources
    loop: tuple[str, int] | None
    folder: Path
    limits: Limits
    schedule: Schedule = field(default_factory=Schedule)
    tell: Callable[[str], None] = lambda text: None
    before: Callable[[Candidate], None] = lambda candidate: None

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._attempts: list[Attempt] = []
        self._tried: set[tuple[object, ...]] = set()
        self._fixed: dict[tuple[str, ...], ChildRun] = {}
        self._number = 0
        self._eager: Eager | None = None
        self._more: list[ChildRun] | None = None
        self._spent_on: list[str] = []
        self.notes: list[str] = []

    def run(self, *groups: list[Candidate], strategies: tuple[str, ...] = ()) -> Verification:
        """Try the candidates of each group, best first, until one of it pays. The limits are those of all groups together.

        `strategies` are compared on the first candidate of all. Raises ScriptFailed when the script does not even run eagerly.
        """
        left = [candidate for group in groups for candidate in self._search(group)]
        first = next((group[0] for group in groups if group), None)
        if first is not None and strategies and not self._spent():
            self._try([(first, name) for name in strategies])
        if self._spent_on:
            rest = "the rest went into starting Python, importing torch and building the model"
            self.notes.append(f"measuring took: {', '.join(self._spent_on)}; {rest}")
        untried = [candidate.label for candidate in left if candidate.key not in self._tried]
        return Verification(
            attempts=tuple(self._attempts),
            untried=tuple(dict.fromkeys(untried)),
            budget_ns=round(self.limits.budget_s * 1e9),
            wall_ns=round((time.monotonic() - self._began) * 1e9),
            notes=tuple(self.notes),
        )

    def _search(self, candidates: list[Candidate]) -> list[Candidate]:
        """Wave by wave until one pays; the candidates left over."""
        queue = list(candidates)
        while queue and not self._spent():
            wave = self._next_wave(queue)
            if not wave:
                break
            for candidate, _ in wave:
                self.before(candidate)
            found = self._try(wave)
            if any(one.outcome in _DONE for one, _ in found):
                break
            follow = [more for one, ran in found for more in self._follow(one, ran)]
            queue = [*follow, *queue]
        return queue

    def _spent(self) -> bool:
        over = time.monotonic() - self._began > self.limits.budget_s
        return over or len(self._attempts) >= self.limits.max_attempts

    def _next_wave(self, queue: list[Candidate]) -> list[tuple[Candidate, str]]:
        """The next candidate as it is and, beside it, with the fixes its source already calls for."""
        while queue:
            candidate = queue.pop(0)
            if candidate.key in self._tried:
                continue
            wave = [candidate]
            if self.limits.what_if:
                better = candidate.fixed(*follow.foreseen(self.sources, candidate))
                if better.key != candidate.key and better.key not in self._tried:
                    wave.append(better)
            self._tried |= {one.key for one in wave}
            return [(one, IN_PLACE) for one in wave]
        return []

    def _follow(self, attempt: Attempt, ran: tuple[Candidate, ChildRun]) -> list[Candidate]:
        candidate, run = ran
        if run.report is None or candidate.module:
            return []
        hazard = attempt.equality.hazard.id if attempt.equality and attempt.equality.hazard else ""
        found = follow.follow_up(self.sources, candidate, run.report, hazard)
        if not self.limits.what_if:
            found = [one for one in found if len(one.fixes) <= len(candidate.fixes)]
        return [one for one in found if one.key not in self._tried]

    # --- children --------------------------------------------------------------------------------------------------------

    def _try(self, wave: list[tuple[Candidate, str]]) -> list[tuple[Attempt, tuple[Candidate, ChildRun]]]:
        orders: list[Order] = []
        if self._eager is None:
            orders += [self._order("eager", wave[0][0], "eager"), self._order("eager-again", wave[0][0], "eager")]
        for candidate, _ in wave:
            numeric = self._numeric(candidate)
            if numeric and numeric not in self._fixed and all(order.name != self._name(numeric) for order in orders):
                fixes = tuple(FixSpec(id=name) for name in numeric)
                orders.append(self._order(self._name(numeric), _with_fixes(candidate, fixes), "eager"))
        graphs = []
        for candidate, strategy in wave:
            self._number += 1
            graphs.append(self._order(f"attempt-{self._number}", candidate, "graph", strategy))
        runs = {run.name: run for run in self._run([*orders, *graphs])}
        self._take_eager(runs)
        for numeric in {self._numeric(candidate) for candidate, _ in wave}:
            if self._name(numeric) in runs:
                self._fixed[numeric] = runs[self._name(numeric)]
        found = []
        for order, (candidate, strategy) in zip(graphs, wave, strict=True):
            assert self._eager is not None
            eager = Eager(self._eager.first, self._eager.again, self._fixed.get(self._numeric(candidate)))
            attempt = combine.attempt(order.name, candidate, runs[order.name], eager, self.sources, strategy)
            if _unexplained(attempt, runs[order.name]):
                eager = self._with_noise(order, eager)
                attempt = combine.attempt(order.name, candidate, runs[order.name], eager, self.sources, strategy)
            if _unsettled(attempt):
                eager = dataclasses.replace(eager, proof=self._proof(order))
                attempt = combine.attempt(order.name, candidate, runs[order.name], eager, self.sources, strategy)
            self._attempts.append(attempt)
            found.append((attempt, (candidate, runs[order.name])))
        return found

    def _with_noise(self, order: Order, eager: Eager) -> Eager:
        """`eager` with the first of two further eager runs that differs from the first, or unchanged.

        Two eager runs can agree by chance though the script is not repeatable (fused attention on an H200: one pair in a few).
        Only eager runs are asked again, never the graph: a script that is repeatable keeps its difference.
        """
        if self._more is None:
            self.notes.append(
                f"{order.name}: nothing explained the difference, so the script was run eagerly twice more"
            )
            spec = msgspec.structs.replace(order.spec, role="eager", fixes=())
            self._more = self._run([Order(name, spec, self.folder / name) for name in _MORE])
        first = states.load(eager.first.state_path)
        for run in self._more:
            if run.report is not None and run.report.ending == "ran":
                if states.tensors_differ(first, states.load(run.state_path)):
                    return dataclasses.replace(eager, again=run)
        return eager

    def _proof(self, order: Order) -> tuple[ChildRun, ChildRun, ChildRun]:
        """The attempt and its eager pair once more under deterministic algorithms: plain eager runs differ too much."""
        self.notes.append(f"{order.name}: equality was judged under deterministic algorithms, the gain without them")
        numeric = tuple(fix for fix in order.spec.fixes if fix.id in NUMERIC)
        eager = msgspec.structs.replace(order.spec, role="eager", fixes=numeric, deterministic=True)
        graph = msgspec.structs.replace(order.spec, deterministic=True)
        names = (f"{order.name}-eager", f"{order.name}-eager-again", f"{order.name}-graph")
        specs = (eager, eager, graph)
        runs = self._run([Order(name, spec, self.folder / name) for name, spec in zip(names, specs, strict=True)])
        return runs[0], runs[1], runs[2]

    def _take_eager(self, runs: dict[str, ChildRun]) -> None:
        if self._eager is not None:
            return
        first, again = runs["eager"], runs["eager-again"]
        for run in (first, again):
            if run.timed_out:
                raise ScriptFailed(
                    f"the script did not reach {self.schedule.total} steps within its time limit; see {run.log}"
                )
            if run.report is None:
                raise ScriptFailed(
                    f"the script ended without a report ({run.crash_text()}): {run.last_lines()}; see {run.log}"
                )
            if run.report.ending == "failed":
                raise ScriptFailed(f"the script failed: {run.report.message}; its output is in {run.log}")
        self._eager = Eager(first, again)

    def _run(self, orders: list[Order]) -> list[ChildRun]:
        """The children's runs, in order. When they do not fit into the GPU's memory together, one after the other."""
        runs: list[ChildRun] = []
        while len(runs) < len(orders):
            size = max(1, self.limits.parallel)
            wave = orders[len(runs) : len(runs) + size]
            found = run_wave(self.script, wave, self.limits.timeout_s, self.tell)
            if len(wave) > 1 and any(_ran_out(run) for run in found):
                self.notes.append("out of memory with several children at once: they were run one after the other")
                self.limits = dataclasses.replace(self.limits, parallel=1)
                continue
            runs += found
            self.notes += [f"{run.name} was {CROWDED}" for run in found if run.crowded]
        self._spent_on += [f"{run.name} {format_ns(run.wall_ns)}" for run in runs]
        return runs

    def _order(self, name: str, candidate: Candidate, role: str, strategy: str = IN_PLACE) -> Order:
        file, line = self.loop if self.loop is not None else ("", 0)
        spec = VerifySpec(
            role="graph" if role == "graph" else "eager",
            loop_file=file,
            loop_line=line,
            span_file=candidate.file,
            first_line=candidate.first,
            last_line=candidate.last,
            module=candidate.module,
            strategy=strategy,
            fixes=candidate.fixes if role == "graph" or name.startswith("eager-with") else (),
            schedule=self.schedule,
        )
        return Order(name, spec, self.folder / name)

    @staticmethod
    def _numeric(candidate: Candidate) -> tuple[str, ...]:
        return tuple(sorted({fix.id for fix in candidate.fixes} & NUMERIC))

    @staticmethod
    def _name(numeric: tuple[str, ...]) -> str:
        return "eager-with-" + "-".join(numeric) if numeric else "eager-with-nothing"


def _ran_out(run: ChildRun) -> bool:
    return run.report is not None and "out of memory" in run.report.message


def _unsettled(attempt: Attempt) -> bool:
    """Whether the script's own noise, and not the graph, may be what two runs differ by."""
    equality = attempt.equality
    if equality is None:
        return False
    noisy = equality.noise_max_abs_difference > 0 and not equality.python_values
    differs = equality.outcome is EqualityOutcome.DIFFERS
    return equality.outcome is EqualityOutcome.NOT_CHECKED or (differs and noisy)


def _unexplained(attempt: Attempt, run: ChildRun) -> bool:
    """Whether tensors differ from eager although two eager runs agreed and no hazard was seen that explains it."""
    equality = attempt.equality
    if equality is None or equality.outcome is not EqualityOutcome.DIFFERS or run.report is None:
        return False
    explained = equality.python_values or hazards.suspected(run.report, attempt.location)
    return equality.noise_max_abs_difference == 0 and not explained


def _with_fixes(candidate: Candidate, fixes: tuple[FixSpec, ...]) -> Candidate:
    """The candidate with these fixes instead of its own."""
    return Candidate(candidate.file, candidate.first, candidate.last, fixes, candidate.module)
