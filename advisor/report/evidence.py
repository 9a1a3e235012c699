"""What an attempt or an estimate shows, as labelled lines that each say how the number came to be."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Final

from advisor.model import Attempt, EqualityOutcome, Estimate, Fix, NumberKind, Outcome
from advisor.units import format_bytes, format_count, format_ns, format_ratio, format_speedup

_FROZEN_SHOWN: Final = 8
_NOISY_RATIO: Final = 0.05  # two runs of the same code; above it the medians say less than their digits


_PACKAGES: Final = re.compile(r"\S*/(?:site|dist)-packages/")


def without_packages(text: str) -> str:
    """`text` with library files named from their package on: where it is installed says nothing."""
    return _PACKAGES.sub("", text)


@dataclass(frozen=True)
class Fact:
    """One line: a label, a value, and where the value comes from."""

    label: str
    value: str
    kind: str = ""
    hint: str = ""


def fix_words(fixes: Iterable[Fix]) -> str:
    """The titles of fixes in a sentence; one that was needed at several places is said once, with its number."""
    counts = Counter(fix.title for fix in fixes)
    return " and ".join(title if count == 1 else f"{title} ({count} places)" for title, count in counts.items())


def attempt_facts(attempt: Attempt) -> list[Fact]:
    """Everything a capture showed, most decisive first."""
    facts = [*_timing_facts(attempt), *_equality_facts(attempt)]
    if attempt.replay_count or attempt.fallback_count:
        eager = (
            f", {format_count(attempt.fallback_count)} iterations fell back to eager" if attempt.fallback_count else ""
        )
        facts.append(Fact("Replays", f"{format_count(attempt.replay_count)}{eager}", "measured"))
    if attempt.node_count is not None:
        against = (
            f" against {format_count(attempt.traced_item_count)} traced items" if attempt.traced_item_count else ""
        )
        other = attempt.traced_item_count not in (None, attempt.node_count)
        hint = _other_path(attempt) if other else ""
        facts.append(Fact("Graph", f"{format_count(attempt.node_count)} nodes{against}", "measured", hint))
    if attempt.capture_ns is not None:
        instantiate = (
            f" + {format_ns(attempt.instantiate_ns)} to instantiate" if attempt.instantiate_ns is not None else ""
        )
        facts.append(Fact("One-off cost", f"{format_ns(attempt.capture_ns)} to capture{instantiate}", "measured"))
    if attempt.break_even_replays is not None:
        facts.append(Fact("Pays back after", f"{format_count(attempt.break_even_replays)} replays", "measured"))
    if attempt.pool_bytes is not None:
        facts.append(Fact("Memory pool", format_bytes(attempt.pool_bytes), "measured"))
    if attempt.frozen:
        more = f" and {len(attempt.frozen) - _FROZEN_SHOWN} more" if len(attempt.frozen) > _FROZEN_SHOWN else ""
        hint = "the graph keeps these Python numbers; capture again when one of them changes"
        facts.append(Fact("Constants", f"{', '.join(attempt.frozen[:_FROZEN_SHOWN])}{more}", "measured", hint))
    return facts


def _other_path(attempt: Attempt) -> str:
    """Why a graph may hold other kernels than the recording."""
    captured = "the library takes another path while a stream captures"
    return f"the fix runs other kernels, or {captured}" if attempt.fixes else captured


def _timing_facts(attempt: Attempt) -> list[Fact]:
    timing = attempt.timing
    if timing is None:
        return []
    low, high = format_speedup(timing.speedup_low_ratio), format_speedup(timing.speedup_high_ratio)
    eager, graph = len(timing.eager.samples_ns), len(timing.graph.samples_ns)
    label = "Step, wrong results" if attempt.outcome == Outcome.DIFFERS else "Step"
    found = [
        Fact(label, f"{format_speedup(timing.speedup_ratio)} faster, 95 % interval {low} to {high}", "measured",
             f"medians of {eager} eager and {graph} graphed steps, interleaved, no profiler"),
        Fact("Noise (A/A)", f"{format_ratio(timing.noise_ratio)} between two eager runs", "measured",
             "the machine was unsteady: trust the interval, not the middle" if timing.noise_ratio > _NOISY_RATIO else ""),
    ]  # fmt: skip
    if timing.region_speedup_ratio is not None:
        found.insert(1, Fact("Region alone", f"{format_speedup(timing.region_speedup_ratio)} faster", "measured"))
    return found


def _equality_facts(attempt: Attempt) -> list[Fact]:
    equality = attempt.equality
    if equality is None:
        return []
    scope = f"{format_count(equality.tensor_count)} tensors at each of {format_count(equality.step_count)} steps"
    words = {
        EqualityOutcome.BITWISE: f"bit-identical: {scope}",
        EqualityOutcome.WITHIN_NOISE: f"within the difference of two eager runs ({equality.max_abs_difference:.3g}): {scope}",
        EqualityOutcome.NOT_CHECKED: "not compared",
        EqualityOutcome.DIFFERS: f"differ from step {equality.first_step} on, first in {equality.first_name or 'a value'}, "
        f"by up to {equality.max_abs_difference:.3g} (two eager runs: {equality.noise_max_abs_difference:.3g})",
    }
    values = f"Python values differ: {', '.join(equality.python_values)}" if equality.python_values else ""
    return [Fact("Results", words[equality.outcome], "measured", values)]


def prediction_fact(attempt: Attempt, estimate: Estimate | None) -> Fact | None:
    """What was predicted for the step before the capture, beside what it took. None where the two share no clock."""
    if (
        estimate is None
        or attempt.timing is None
        or estimate.kind == NumberKind.PROFILED
        or not attempt.timing.graph.samples_ns
    ):
        return None
    measured = median(attempt.timing.graph.samples_ns)
    error = estimate.after_ns / measured - 1
    inside = estimate.before_ns - estimate.saved_high_ns <= measured <= estimate.before_ns - estimate.saved_low_ns
    where = "inside" if inside else "outside"
    return Fact(
        "Prediction",
        f"{format_ns(estimate.after_ns)} a step, {error:+.1%} off".replace("%", " %"),
        NumberKind.ESTIMATED.value,
        f"made before the capture; the measured {format_ns(measured)} lies {where} its interval",
    )


def estimate_facts(estimate: Estimate) -> list[Fact]:
    """The estimate with its interval and what it rests on."""
    kind = NumberKind.ESTIMATED.value
    low, high = estimate.before_ns - estimate.saved_high_ns, estimate.before_ns - estimate.saved_low_ns
    facts = [
        Fact("Saves", f"{format_ns(estimate.saved_ns)} a step, {format_ns(estimate.saved_low_ns)} to "
                      f"{format_ns(estimate.saved_high_ns)}", kind),
        Fact("Step afterwards", f"{format_ns(estimate.after_ns)}, {format_ns(low)} to {format_ns(high)}", kind),
    ]  # fmt: skip
    if estimate.binds_next:
        facts.append(Fact("Limited then by", {"gpu": "the GPU", "cpu": "the CPU", "sync": "synchronisations"}.get(
            estimate.binds_next, estimate.binds_next), kind))  # fmt: skip
    if estimate.break_even_replays is not None:
        facts.append(Fact("Pays back after", f"{format_count(estimate.break_even_replays)} replays", kind))
    if estimate.pool_bytes is not None:
        facts.append(Fact("Memory pool", f"about {format_bytes(estimate.pool_bytes)}", kind))
    return facts + [Fact("Assumes", text) for text in estimate.assumptions[:2]]
