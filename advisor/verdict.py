"""The answer: one of six, in one sentence, with its reasons. Facts in, `Verdict` out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final

from advisor.model import Answer, Attempt, Blocker, Cause, Estimate, NumberKind, Outcome, Region, Verdict, Verification
from advisor.rules import Facts
from advisor.units import format_count, format_counted, format_ns, format_ratio, format_speedup

# torch.profiler without Python stacks made steps 1.1 to 2.03 times as long on the seven workloads measured on an H200
# (docs/estimate.md). The tool's own trace pass is dearer, but its times are clocked again without a profiler.
PROFILER_INFLATION = 2.1
_LEAST_SURE = 1.05
_BASIS: Final = frozenset({"busy", "idle", "causes", "launches"})  # without these nothing can be said
_GAIN: Final = frozenset({"estimate"})  # without it a busy GPU can still be told, and that graphs are in use
_GRAPHED = 0.9  # of the items inside replays: the program is graphed, what is left are copies and edges


def decide(facts: Facts) -> Verdict:
    """The verdict from the trace alone. It never says `graph_it`: that takes a verification."""
    if refusal := _refusal(facts):
        return refusal
    best = _best(facts, facts.regions)
    free = _best(facts, (region for region in facts.regions if not _blocked(region) and not _reshaped(region)))
    if _is_graphed(facts) and not _pays(facts, best):
        return _already_graphed(facts)
    if facts.step is None or _few(facts):
        return _without_step(facts)
    if _mostly_long_gaps(facts):
        return _long_gaps(facts)
    if best is None and facts.busy_ratio < facts.config.busy_ratio_gpu_bound and (refusal := _refusal(facts, _GAIN)):
        return refusal
    if best is None or not _pays(facts, best):
        return _not_worth_it(facts, best)
    if _least_speedup(best, facts.regions) < _LEAST_SURE:
        return _profiler_may_have_caused_it(facts, best)
    sure = free is not None and _pays(facts, free) and _least_speedup(free, facts.regions) >= _LEAST_SURE
    if free is not None and sure and (free is best or free.saved_ns >= best.saved_ns / 2):
        return _probably(facts, free, best)
    return _blocked_verdict(facts, best)


def with_verification(verdict: Verdict, verification: Verification | None) -> Verdict:
    """The verdict once attempts were made: a verified gain as written, else what a fix would bring, else the failure."""
    attempts = verification.attempts if verification else ()
    as_written = [attempt for attempt in attempts if not attempt.fixes]
    fixed = [attempt for attempt in attempts if attempt.fixes]
    best, best_fixed = _fastest(as_written), _fastest(fixed)
    if best is not None and (best_fixed is None or _speedup(best) >= 0.9 * _speedup(best_fixed)):
        return _verified(best)
    if best_fixed is not None:
        return _verified_with_fix(best_fixed, best, _first(as_written, Outcome.BLOCKED))
    failed = next((found for outcome in _FAILURES if (found := _first(attempts, outcome)) is not None), None)
    return _failed(failed, verdict) if failed is not None else verdict


def _refusal(facts: Facts, claims: frozenset[str] = _BASIS) -> Verdict | None:
    """Cannot tell, when the recording cannot support one of the claims."""
    needed = facts.forbidden & claims
    if not needed:
        return None
    notes = [note for note in facts.quality if set(note.forbids) & needed]
    return Verdict(
        answer=Answer.CANNOT_TELL,
        sentence=f"Cannot tell: {notes[0].message}.",
        reasons=tuple(note.message for note in notes[1:]),
        next_step="Record again as the first line says, or run `cgadvisor profile script.py`, which checks its own recording.",
        kind=NumberKind.PROFILED,
    )


def _best(facts: Facts, regions: Iterable[Region]) -> Estimate | None:
    """The estimate with the largest expected saving; the step's own wins ties, since it comes first."""
    estimates = [facts.estimates[region.id] for region in regions if region.id in facts.estimates]
    return max(estimates, key=lambda estimate: estimate.saved_ns, default=None)


def _pays(facts: Facts, estimate: Estimate | None) -> bool:
    if estimate is None or estimate.before_ns <= 0:
        return False
    return estimate.saved_ns >= facts.config.min_saved_ratio * estimate.before_ns


def _is_graphed(facts: Facts) -> bool:
    """Items tell, unless graph executions were recorded as a whole: then one item stands for a graph and time tells."""
    graphs = facts.device.graphs
    return graphs.item_ratio >= _GRAPHED or (graphs.opaque_ns > 0 and graphs.busy_ratio >= _GRAPHED)


def _mostly_long_gaps(facts: Facts) -> bool:
    """A bare trace whose idle time is a few long gaps: host work a graph would not touch. A clocked run of a known script
    is another matter: what Python does inside the region is skipped by a replay."""
    busy = facts.busy_ratio >= facts.config.busy_ratio_gpu_bound
    return facts.clock is None and not busy and facts.long_gap_ratio > 0.5


def _blocked(region: Region) -> bool:
    return region.sync_count > 0 or region.d2h_count > 0


def _reshaped(region: Region) -> bool:
    """Its input shapes keep changing, as in decoding with a growing cache: a graph of one call serves hardly another. One odd
    occurrence (a last batch) is no change; a region with several occurrences a step has a graph for each."""
    if region.occurrences_per_step > 1.5 or region.occurrence_count < 3:
        return False
    return 2 * ((region.shape_signature_count or 1) - 1) >= region.occurrence_count


def _stops(facts: Facts, region_id: str) -> str:
    """What stops a capture of the region, in words."""
    region = next(region for region in facts.regions if region.id == region_id)
    words = []
    if _blocked(region):
        words.append(_culprits(facts.blockers) or "a synchronising call or a copy to the host inside the region")
    if _reshaped(region):
        shapes, count = format_count(region.shape_signature_count or 1), format_count(region.occurrence_count)
        words.append(f"input shapes that keep changing ({shapes} sets in {count} steps)")
    return " and ".join(words) or "a synchronisation"


def _label(facts: Facts, region_id: str) -> str:
    region = next(region for region in facts.regions if region.id == region_id)
    return "the whole step" if region.id == "step" else region.label


def speed_words(estimate: Estimate, regions: Sequence[Region]) -> str:
    """The factor; from a profiled trace alone a range, since the profiler may have doubled the CPU side of the step."""
    if estimate.kind != NumberKind.PROFILED:
        return format_speedup(estimate.speedup_ratio)
    low = _least_speedup(estimate, regions)
    if low < _LEAST_SURE:
        return f"up to {format_speedup(estimate.speedup_ratio)}"
    return f"{format_speedup(low).removesuffix('×')} to {format_speedup(estimate.speedup_ratio)}"


def _least_speedup(estimate: Estimate, regions: Sequence[Region]) -> float:
    """The smallest factor that fits the evidence. Unprofiled, a step takes at least its GPU work, and at least its CPU work as
    traced over the worst inflation seen: where the first is the longer, the idle time may be all the profiler's. Launch-bound
    gaps over 1 ms, at that speed too, may be work that no graph skips."""
    slowest = estimate.before_ns - estimate.saved_low_ns
    if estimate.kind != NumberKind.PROFILED:
        return estimate.before_ns / max(slowest, 1)
    fastest_now = max(estimate.before_ns / PROFILER_INFLATION, estimate.after_ns)
    return float(fastest_now / max(slowest + _long_launch_ns(estimate, regions) / PROFILER_INFLATION, 1))


def _long_launch_ns(estimate: Estimate, regions: Sequence[Region]) -> float:
    """Launch-bound time of a step, inside the region, in gaps over 1 ms."""
    region = next((one for one in regions if one.id == estimate.region_id), None)
    return min(region.long_gap_ns, region.idle.launch_ns) * region.occurrences_per_step if region else 0.0


def _range(estimate: Estimate) -> str:
    low, high = estimate.before_ns - estimate.saved_high_ns, estimate.before_ns - estimate.saved_low_ns
    return f"{format_ns(estimate.before_ns)} → {format_ns(estimate.after_ns)} ({format_ns(low)} to {format_ns(high)})"


def _once(facts: Facts) -> bool:
    return facts.clock is None and facts.step is not None and facts.step.count == 1


def _estimated(facts: Facts) -> str:
    return "estimated from a single step" if _once(facts) else "estimated"


def _single(facts: Facts) -> tuple[str, ...]:
    """The one step may be the first, which loads libraries and tunes kernels: nothing shows that it is a usual one."""
    return ("one step is on record, and it may be a warm-up",) if _once(facts) else ()


def _long_words(facts: Facts, estimate: Estimate) -> tuple[str, ...]:
    ns = _long_launch_ns(estimate, facts.regions)
    if estimate.kind != NumberKind.PROFILED or ns < 0.1 * estimate.before_ns:
        return ()
    return (
        f"{format_ns(ns)} of a step pass in gaps over 1 ms: other work of the program on the CPU may stay as it is",
    )


def _probably(facts: Facts, free: Estimate, best: Estimate) -> Verdict:
    reasons = [f"the step is {_idle_words(facts)}", *_single(facts), *_long_words(facts, free)]
    if free is not best:
        reasons.append(
            f"{_label(facts, best.region_id)} would give {speed_words(best, facts.regions)}, but "
            f"{_stops(facts, best.region_id)} blocks it"
        )
    return Verdict(
        answer=Answer.PROBABLY,
        sentence=f"One graph over {_label(facts, free.region_id)} would probably make a step "
        f"{speed_words(free, facts.regions)} faster: {_range(free)}, {_estimated(facts)}, not verified.",
        reasons=tuple(reasons),
        region_id=free.region_id,
        next_step="`cgadvisor profile script.py` captures the region, measures the real gain and checks the results.",
    )


def _profiler_may_have_caused_it(facts: Facts, best: Estimate) -> Verdict:
    if best.kind == NumberKind.PROFILED:
        share = format_ratio(best.saved_ns / best.before_ns)
        why = (
            f"as traced, one graph over {_label(facts, best.region_id)} would save {share} of a step, but a profiler can slow "
            f"the CPU side {PROFILER_INFLATION}×, and without it the GPU may never wait"
        )
    else:
        why = f"the estimate for {_label(facts, best.region_id)} is too wide: {_range(best)}"
    return Verdict(
        answer=Answer.CANNOT_TELL,
        sentence=f"Cannot tell from this recording: {why}.",
        reasons=(f"the step is {_idle_words(facts)}",),
        region_id=best.region_id,
        next_step="`cgadvisor profile script.py` clocks the step without a profiler and verifies.",
        kind=best.kind,
    )


def _blocked_verdict(facts: Facts, best: Estimate) -> Verdict:
    region = next(region for region in facts.regions if region.id == best.region_id)
    move = facts.blockers[0].fix if facts.blockers else "Move the synchronisation out of the region."
    if not _blocked(region):
        move = "Pad to a few bucket sizes (a static cache) and capture one graph for each."
    return Verdict(
        answer=Answer.BLOCKED,
        sentence=f"Blocked by {_stops(facts, best.region_id)}; without it one graph over {_label(facts, best.region_id)} would "
        f"make a step about {speed_words(best, facts.regions)} faster: {_range(best)}, {_estimated(facts)}.",
        reasons=_single(facts)
        + _long_words(facts, best)
        + tuple(f"{blocker.title}: {blocker.fix}" for blocker in facts.blockers[:3]),
        region_id=best.region_id,
        next_step=move,
    )


_BETWEEN: Final = "Look at what the program does between the steps: data, evaluation, checkpoints."


def _between(facts: Facts) -> str:
    """Words for a GPU that is busy in the steps and idle between them, so that nobody goes looking for slow kernels."""
    device = facts.device
    span = device.end_ns - device.start_ns
    bound = facts.config.busy_ratio_gpu_bound
    if facts.busy_ratio < bound or not span or device.busy_ns / span >= bound:
        return ""
    share = format_ratio(device.busy_ns / span)
    return f", but with what lies between the steps the GPU is busy only {share} of the recording"


def _not_worth_it(facts: Facts, best: Estimate | None) -> Verdict:
    most = (
        f"a graph would save about {format_ratio(max(best.saved_ns, 0) / best.before_ns)} of a step"
        if best
        else "no region has launch gaps a graph could remove"
    )
    return Verdict(
        answer=Answer.NOT_WORTH_IT,
        sentence=f"Not worth it: the step is {_idle_words(facts)}; {most}{_between(facts)}.",
        reasons=_other_causes(facts),
        region_id=best.region_id if best else None,
        next_step=_BETWEEN if _between(facts) else _instead(facts),
    )


_LONG_GAP_WORDS: Final = {
    Cause.LAUNCH: "other work of the program on the CPU",
    Cause.SYNC: "work of the program after synchronisations",
    Cause.INPUT: "waiting for input",
    Cause.DEVICE: "work that was queued in time and waited on the device (for another stream, a copy or another GPU)",
    Cause.PROFILER: "the profiler's own work",
    Cause.UNKNOWN: "of unknown cause",
}


def _main_cause(facts: Facts) -> Cause:
    idle = (facts.step_region or facts.device).idle
    return max(idle.by_cause().items(), key=lambda pair: pair[1])[0]


def _long_gaps(facts: Facts) -> Verdict:
    return Verdict(
        answer=Answer.NOT_WORTH_IT,
        sentence=f"Not worth it yet: {format_ratio(facts.long_gap_ratio)} of the idle time is gaps over 1 ms, "
        f"{_LONG_GAP_WORDS[_main_cause(facts)]} and not the rate of launches; the GPU is busy "
        f"{format_ratio(facts.busy_ratio)} of the time.",
        reasons=_other_causes(facts),
        next_step=_instead(facts),
        kind=NumberKind.PROFILED,
    )


def _already_graphed(facts: Facts) -> Verdict:
    graphs = facts.device.graphs
    of = "time" if facts.step else "recording"
    share = (
        f"{format_ratio(graphs.busy_ratio)} of the busy time"
        if graphs.opaque_ns
        else f"{format_ratio(graphs.item_ratio)} of the GPU items"
    )
    return Verdict(
        answer=Answer.ALREADY_GRAPHED,
        sentence=f"Already graphed: {share} {'lies' if graphs.opaque_ns else 'run'} inside "
        f"{format_counted(graphs.launch_count, 'graph replay')}; the GPU is busy {format_ratio(facts.busy_ratio)} of the {of}.",
        kind=NumberKind.PROFILED,
    )


_RECORD_STEPS: Final = (
    "Record at least three steps, each marked by `prof.step()` or a record_function or NVTX range of its own."
)
_FEW_ITEMS: Final = 20  # so few cannot show how busy a GPU is kept: one kernel alone is busy all of its recording


def _few(facts: Facts) -> bool:
    """A graph that was recorded as a whole is one item and many kernels: such items are not counted out."""
    return facts.device.item_count < _FEW_ITEMS and not facts.device.graphs.opaque_ns


def _without_step(facts: Facts) -> Verdict:
    if facts.busy_ratio >= facts.config.busy_ratio_gpu_bound and not _few(facts):
        return Verdict(
            answer=Answer.NOT_WORTH_IT,
            sentence=f"Not worth it: the GPU is busy {format_ratio(facts.busy_ratio)} of the recording.",
            next_step=_instead(facts),
            kind=NumberKind.PROFILED,
        )
    why = (
        "this recording is too short to judge by"
        if facts.step
        else "nothing in this recording repeats often enough to be a step"
    )
    return Verdict(
        answer=Answer.CANNOT_TELL,
        sentence=f"Cannot tell: {why} "
        f"({format_counted(facts.device.item_count, 'GPU item')}, busy {format_ratio(facts.busy_ratio)}).",
        reasons=_other_causes(facts),
        next_step=_RECORD_STEPS,
        kind=NumberKind.PROFILED,
    )


def _idle_words(facts: Facts) -> str:
    """ "busy 5.0 % of the time and waits for launches 93.1 %" from the step, else the window."""
    region = facts.step_region
    idle = region.idle if region else facts.device.idle
    total = region.extent_ns if region else facts.device.end_ns - facts.device.start_ns
    words = f"busy {format_ratio(facts.busy_ratio)} of the time"
    cause, ns = max(idle.by_cause().items(), key=lambda pair: pair[1])
    names = {
        "launch": "waits for launches",
        "sync": "waits after synchronisations",
        "input": "waits for input",
        "device": "waits on the device itself",
        "profiler": "was held up by the profiler",
        "unknown": "is idle for unknown reasons",
    }
    return f"{words} and {names[cause.value]} {format_ratio(ns / total)}" if total and ns > 0.02 * total else words


def _other_causes(facts: Facts) -> tuple[str, ...]:
    region = facts.step_region
    idle = region.idle if region else facts.device.idle
    total = idle.total_ns
    return tuple(
        f"{format_ratio(ns / total)} of the idle time has cause `{cause.value}`"
        for cause, ns in sorted(idle.by_cause().items(), key=lambda pair: -pair[1])
        if total and ns > 0.1 * total
    )


def _instead(facts: Facts) -> str:
    if facts.busy_ratio >= facts.config.busy_ratio_gpu_bound:
        return "Look at the kernels: precision, fusion, batch size. The launches are not the limit."
    return "Treat the main cause of the idle time first, then measure again."


def _culprits(blockers: tuple[Blocker, ...]) -> str:
    named = [
        f"{blocker.location.label} ({blocker.title})" if blocker.location else blocker.title for blocker in blockers[:2]
    ]
    return " and ".join(named)


# --- with attempts ---------------------------------------------------------------------------------------------------


def _fastest(attempts: Iterable[Attempt]) -> Attempt | None:
    verified = [attempt for attempt in attempts if attempt.outcome == Outcome.VERIFIED and attempt.timing is not None]
    return max(verified, key=_speedup, default=None)


def _speedup(attempt: Attempt) -> float:
    return attempt.timing.speedup_ratio if attempt.timing else 1.0


def _first(attempts: Iterable[Attempt], outcome: Outcome) -> Attempt | None:
    return next((attempt for attempt in attempts if attempt.outcome == outcome), None)


def _gain(attempt: Attempt) -> str:
    timing = attempt.timing
    assert timing is not None
    before, after = median(timing.eager.samples_ns), median(timing.graph.samples_ns)
    return f"{format_speedup(timing.speedup_ratio)} faster, {format_ns(before)} → {format_ns(after)}"


def _equal(attempt: Attempt) -> str:
    equality = attempt.equality
    if equality is None:
        return "results not compared"
    how = "bit-identical" if equality.outcome.value == "bitwise" else "equal within the noise of two eager runs"
    return f"results {how} over {format_count(equality.step_count)} steps"


def _verified(attempt: Attempt) -> Verdict:
    return Verdict(
        answer=Answer.GRAPH_IT,
        sentence=f"One graph over {attempt.region_label} makes a step {_gain(attempt)}, {_equal(attempt)}.",
        reasons=attempt.side_effects,
        region_id=attempt.region_id,
        attempt_id=attempt.id,
        kind=NumberKind.MEASURED,
    )


def _verified_with_fix(fixed: Attempt, best: Attempt | None, blocked: Attempt | None) -> Verdict:
    places = Counter(fix.title for fix in fixed.fixes)
    fixes = ", ".join(title if count == 1 else f"{title} ({count} places)" for title, count in places.items())
    change = f"with one change ({fixes})" if len(fixed.fixes) == 1 else f"with {len(fixed.fixes)} changes ({fixes})"
    if best is not None:
        head, answer = f"As written, one graph over {best.region_label} makes a step {_gain(best)}", Answer.GRAPH_IT
    else:
        where = blocked.blocker.location.label if blocked and blocked.blocker and blocked.blocker.location else ""
        head, answer = f"Blocked as written{f' at {where}' if where else ''}", Answer.BLOCKED
    return Verdict(
        answer=answer,
        sentence=f"{head}; {change} one graph over {fixed.region_label} makes a step {_gain(fixed)}, {_equal(fixed)}.",
        reasons=fixed.side_effects,
        region_id=fixed.region_id,
        attempt_id=fixed.id,
        next_step=f"Apply the fix: {fixes}.",
        kind=NumberKind.MEASURED,
    )


# What an attempt without a gain means for the whole, the most telling first. An attempt that says nothing about the script
# (a crash, a time limit) leaves the gain open, and says so.
_FAILURES: Final = {
    Outcome.DIFFERS: (Answer.BLOCKED, "Do not graph it as written"),
    Outcome.NOT_FASTER: (Answer.NOT_WORTH_IT, "Not worth it"),
    Outcome.BLOCKED: (Answer.BLOCKED, "Blocked"),
    Outcome.NO_REPLAY: (Answer.BLOCKED, "Blocked, no replay could run"),
    Outcome.TIMED_OUT: (Answer.CANNOT_TELL, "Cannot tell, the attempt ran into its time limit"),
    Outcome.CRASHED: (Answer.CANNOT_TELL, "Cannot tell, the attempt crashed"),
}


def _failed(attempt: Attempt, before: Verdict) -> Verdict:
    answer, words = _FAILURES[attempt.outcome]
    message = attempt.message.removeprefix("not worth a graph: ").removeprefix("blocked ")
    return Verdict(
        answer=answer,
        sentence=f"{words}: {message}",
        reasons=(f"before the attempt: {before.sentence}",),
        region_id=attempt.region_id,
        attempt_id=attempt.id,
        next_step=attempt.blocker.fix if attempt.blocker else "",
        kind=NumberKind.MEASURED,
    )
