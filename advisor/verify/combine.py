"""From what the children left behind to one Attempt: equality, gain, and the most likely reason when something is wrong."""

from __future__ import annotations

import ast
import math
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from advisor.compare import bootstrap_ratio
from advisor.errors import BundleError
from advisor.model import (
    Attempt,
    Blocker,
    Equality,
    EqualityOutcome,
    Fix,
    Hazard,
    Measurement,
    Outcome,
    SourceSpan,
    Timing,
)
from advisor.units import format_ns, format_speedup
from advisor.verify import hazards, states
from advisor.verify.candidate import Candidate, Sources
from advisor.verify.children import ChildRun
from advisor.verify.hazards import HAZARDS
from advisor.workload import whatif
from advisor.workload.diagnose import KINDS
from advisor.workload.verify_job import ChildReport, FixSpec

NUMERIC: Final = frozenset({"capturable", "lr-tensor", "fused"})  # these change what eager itself computes
MIN_GAIN_RATIO: Final = 0.03  # a step shortened by less is no reason to maintain a graph
_MIN_SAMPLES: Final = 5


@dataclass(frozen=True)
class Eager:
    """The eager children an attempt is compared with. `fixed` ran with the numeric fixes of this attempt.

    `proof`, when it is there, replaces the states: eager, eager again and graph, all under deterministic algorithms.
    """

    first: ChildRun
    again: ChildRun | None = None
    fixed: ChildRun | None = None
    proof: tuple[ChildRun, ChildRun, ChildRun] | None = None


def attempt(
    identity: str, candidate: Candidate, run: ChildRun, eager: Eager, sources: Sources, strategy: str = "in_place"
) -> Attempt:
    """The attempt a graph child made."""
    base = Attempt(
        id=identity,
        region_label=candidate.label,
        outcome=Outcome.CRASHED,
        message="",
        location=None
        if candidate.module
        else SourceSpan(file=candidate.file, first_line=candidate.first, last_line=candidate.last),
        strategy=strategy,
        fixes=tuple(_fix(fix, candidate, run.report or eager.first.report, sources) for fix in candidate.fixes),
        wall_ns=run.wall_ns,
        log=f"{run.folder.parent.name}/{run.folder.name}/{run.log.name}",
    )
    report = run.report
    if report is None:
        if run.timed_out:
            return _with(base, outcome=Outcome.TIMED_OUT, message="still running at its time limit; ended")
        return _with(base, message=f"the process ended without a report ({run.crash_text()}): {run.last_lines(1)}")
    base = _with_counts(base, report)
    if report.ending == "blocked" or (report.ending == "failed" and report.failed is not None):
        return _blocked(base, report)
    if report.ending == "refused":
        return _refused(base, report)
    if report.ending == "failed":
        return _with(base, message=f"the script failed: {report.message}")
    return _measured(base, candidate, run, report, eager)


def _with(base: Attempt, **changes: object) -> Attempt:
    return msgspec.structs.replace(base, **changes)


def _with_counts(base: Attempt, report: ChildReport) -> Attempt:
    return _with(
        base,
        replay_count=report.replay_count,
        fallback_count=report.fallback_count,
        signature_count=len(report.signatures),
        node_count=report.node_count,
        pool_bytes=report.pool_bytes,
        capture_ns=report.capture_ns,
        instantiate_ns=report.instantiate_ns,
        side_effects=report.effects,
        frozen=report.frozen,
    )


# Where the environment lies on a machine is nobody else's business, and may hold a user's name.
_PACKAGES: Final = re.compile(r"^.*/(?:site|dist)-packages/")


def _blocked(base: Attempt, report: ChildReport) -> Attempt:
    failed = report.failed
    assert failed is not None
    title, fix = KINDS[failed.blocker]
    library = _PACKAGES.sub("", failed.library)
    where = SourceSpan(file=failed.file, first_line=failed.line, last_line=failed.line) if failed.file else None
    blocker = Blocker(
        id=failed.blocker,
        title=title,
        evidence=failed.evidence,
        fix=fix,
        location=where,
        library_location=library,
        found_by="capture",
    )
    place = where.label if where else base.region_label
    inside = f", raised in {library}" if library else ""
    return _with(base, outcome=Outcome.BLOCKED, blocker=blocker, message=f"blocked at {place}: {title}{inside}")


def _refused(base: Attempt, report: ChildReport) -> Attempt:
    suspect = report.suspects[0].id if report.suspects else "control-flow"
    title, fix = HAZARDS.get(suspect, HAZARDS["hidden-input"])
    blocker = Blocker(
        id=suspect, title=title, evidence=report.message, fix=fix, location=base.location, found_by="source"
    )
    hazard = Hazard(id=suspect, title=title, evidence=report.message, fix=fix, location=base.location)
    return _with(
        base, outcome=Outcome.BLOCKED, blocker=blocker, hazards=(hazard,), message=f"not captured: {report.message}"
    )


# --- measured attempts ------------------------------------------------------------------------------------------------------


def _measured(base: Attempt, candidate: Candidate, run: ChildRun, report: ChildReport, eager: Eager) -> Attempt:
    only_the_first = report.replay_count == 1 and report.fallback_count > 0
    if report.replay_count == 0 or report.node_count == 0 or only_the_first:
        suspected = hazards.suspected(report, base.location)
        return _with(base, outcome=Outcome.NO_REPLAY, message=_no_replay(report), hazards=suspected)
    try:
        judged = _judged(candidate, run, report, eager)
    except BundleError as error:
        return _with(base, message=str(error))
    equality = judged.equality
    timing = _timing(report, eager, own=not candidate.fixes)
    base = _with(base, equality=equality, timing=timing, hazards=hazards.suspected(report, base.location))
    if timing is not None:
        base = _with(base, break_even_replays=_break_even(report, timing))
    if equality.outcome in (EqualityOutcome.DIFFERS, EqualityOutcome.NOT_CHECKED):
        return _differs(base, report, judged)
    return _judge_gain(base, report, timing, eager.proof is not None)


def _judged(candidate: Candidate, run: ChildRun, report: ChildReport, eager: Eager) -> states.Judged:
    dead = frozenset(report.dead_names)
    if eager.proof is not None:
        first, again, graph = (states.load(one.state_path) for one in eager.proof)
        return states.judge(first, graph, (first, again), dead)
    numeric = any(fix.id in NUMERIC for fix in candidate.fixes)
    reference = eager.fixed if numeric and eager.fixed is not None else eager.first
    return states.judge(states.load(reference.state_path), states.load(run.state_path), _pair(eager), dead)


def _pair(eager: Eager) -> tuple[states.Run, states.Run] | None:
    if eager.again is None:
        return None
    return states.load(eager.first.state_path), states.load(eager.again.state_path)


def _no_replay(report: ChildReport) -> str:
    if report.node_count == 0:
        return "the captured graph is empty: nothing of the span runs on the capturing stream"
    if report.span_count == 0:
        return "the span never ran in the recorded steps"
    if report.signatures:
        return (
            f"captured, but every later iteration differed from the captured one "
            f"({len(report.signatures)} signatures in {report.fallback_count} fallbacks: {report.signatures[0]})"
        )
    return "no replay ran"


def _timing(report: ChildReport, eager: Eager, own: bool) -> Timing | None:
    """Step times. As written: replays against eager blocks of the same process; with a fix: against the eager child."""
    graph = _samples(report, "replay") or _samples(report, "mixed")
    first = _samples(eager.first.report, "eager")
    again = _samples(eager.again.report, "eager") if eager.again is not None else []
    inside = _samples(report, "eager")
    before = inside if own and len(inside) >= _MIN_SAMPLES else first
    if len(graph) < _MIN_SAMPLES or len(before) < _MIN_SAMPLES:
        return None
    ratio = bootstrap_ratio(before, graph)
    region_eager, region_graph = report.region_eager_ns, report.region_replay_ns
    regional = bool(region_eager and region_graph and statistics.median(region_graph) > 0)
    return Timing(
        eager=Measurement(samples_ns=tuple(before)),
        graph=Measurement(samples_ns=tuple(graph)),
        eager_again=Measurement(samples_ns=tuple(again or first)),
        region_eager=Measurement(samples_ns=region_eager) if region_eager else None,
        region_graph=Measurement(samples_ns=region_graph) if region_graph else None,
        speedup_ratio=ratio.ratio,
        speedup_low_ratio=ratio.low,
        speedup_high_ratio=ratio.high,
        region_speedup_ratio=statistics.median(region_eager) / statistics.median(region_graph) if regional else None,
        noise_ratio=_block_noise(report) if before is inside else _apart(first, again),
    )


def _samples(report: ChildReport | None, kind: str) -> list[int]:
    return [one.device_ns for one in report.samples if one.kind == kind and one.device_ns > 0] if report else []


def _apart(one: Sequence[int], two: Sequence[int]) -> float:
    """A/A: how far apart two sets of eager samples are, relative to their median."""
    if not one or not two:
        return 0.0
    first, second = statistics.median(one), statistics.median(two)
    return abs(first - second) / max(1.0, min(first, second))


def _block_noise(report: ChildReport) -> float:
    """A/A inside one process: eager blocks in turn, odd against even."""
    turns: list[list[int]] = []
    last = None
    for sample in report.samples:
        if sample.kind != "eager":
            continue
        if last is None or sample.step != last + 1:
            turns.append([])
        turns[-1].append(sample.device_ns)
        last = sample.step
    return _apart([v for values in turns[::2] for v in values], [v for values in turns[1::2] for v in values])


def _break_even(report: ChildReport, timing: Timing) -> int | None:
    gain = statistics.median(timing.eager.samples_ns) - statistics.median(timing.graph.samples_ns)
    cost = (report.capture_ns or 0) + (report.instantiate_ns or 0)
    return math.ceil(cost / gain) if gain > 0 else None


def _judge_gain(base: Attempt, report: ChildReport, timing: Timing | None, proven: bool) -> Attempt:
    if timing is None:
        return _with(base, outcome=Outcome.NO_REPLAY, message="the results are equal, but too few steps could be timed")
    before, after = (statistics.median(side.samples_ns) for side in (timing.eager, timing.graph))
    pair = f"{format_ns(before)} → {format_ns(after)} per step"
    exact = base.equality is not None and base.equality.outcome is EqualityOutcome.BITWISE
    equal = "results bit-identical" if exact else "results within the noise of two eager runs"
    how = " under deterministic algorithms" if proven else ""
    how += " and a changed learning rate" if report.lr_changed else ""
    proof = f"{equal} over {report.replay_count} replays{how}"
    if timing.speedup_low_ratio > 1.0 and before - after > max(timing.noise_ratio, MIN_GAIN_RATIO) * before:
        interval = f"95 % interval {timing.speedup_low_ratio:.2f}–{timing.speedup_high_ratio:.2f}×"
        text = f"{format_speedup(timing.speedup_ratio)} ({interval}), {pair}, {proof}"
        return _with(base, outcome=Outcome.VERIFIED, message=text)
    text = f"not worth a graph: {format_speedup(timing.speedup_ratio)}, {pair}, {proof}"
    return _with(base, outcome=Outcome.NOT_FASTER, message=text)


# --- differences and hazards -------------------------------------------------------------------------------------------------


def _differs(base: Attempt, report: ChildReport, judged: states.Judged) -> Attempt:
    equality = judged.equality
    if equality.outcome is EqualityOutcome.NOT_CHECKED:
        return _with(base, outcome=Outcome.DIFFERS, message=judged.unproven or "no step was checked in both runs")
    identity = hazards.likely(report, equality)
    title, fix = HAZARDS[identity]
    evidence = next((one.evidence for one in report.suspects if one.id == identity), "") or hazards.effect(
        report, identity
    )
    hazard = Hazard(
        id=identity,
        title=title,
        evidence=evidence or f"first difference: {equality.first_name}",
        fix=fix,
        location=hazards.line_of(evidence) or base.location,
        found_by="capture",
    )
    size = f" by up to {equality.max_abs_difference:.3g}" if equality.max_abs_difference else ""
    text = f"results differ from step {equality.first_step} on: {equality.first_name}{size}; likely cause: {title}"
    return _with(
        base,
        outcome=Outcome.DIFFERS,
        message=text,
        equality=_with_hazard(equality, hazard),
        hazards=(hazard, *(one for one in base.hazards if one.id != identity)),
    )


def _with_hazard(equality: Equality, hazard: Hazard) -> Equality:
    return msgspec.structs.replace(equality, hazard=hazard)


# --- fixes, shown --------------------------------------------------------------------------------------------------------------


def _fix(fix: FixSpec, candidate: Candidate, report: ChildReport | None, sources: Sources) -> Fix:
    """The fix with the diff of the user's lines."""
    diffs = list(_diffs(fix, candidate, report, sources))
    return Fix(id=fix.id, title=whatif.TITLES.get(fix.id, fix.id), diff="\n".join(diffs))


def _diffs(fix: FixSpec, candidate: Candidate, report: ChildReport | None, sources: Sources) -> Iterable[str]:
    if fix.id in NUMERIC:
        for fact in report.optimizers if report else ():
            if fact.file in sources.texts and fact.line:
                tree = ast.parse(sources.texts[fact.file])
                edit = whatif.constructor_edit(fix.id, tree, fact.line)
                if edit is not None:
                    yield whatif.diff(fact.file, sources.texts[fact.file], [edit])
    elif fix.file in sources.texts:
        from advisor.workload import spans

        tree = ast.parse(sources.texts[fix.file])
        try:
            span = spans.locate(tree, candidate.first, candidate.last).statements if fix.id != "zero-grad" else []
        except spans.SpanError:
            span = []
        changes = whatif.edits(fix, tree, span)
        if changes:
            yield whatif.diff(fix.file, sources.texts[fix.file], changes)
