"""Is head different from base? A test, a minimum effect, a noise band and the process as the unit of replication.

A side is one or more processes, each a series of raw samples in measured order. A difference counts only when

1. the effect (ratio of medians) reaches the larger of the minimum effect and twice the A/A noise, and the absolute floor;
2. Mann-Whitney on the samples gives p < alpha;
3. with several processes a side, a t test on the logarithms of their medians agrees: samples of one process share its
   luck (memory layout, clocks, an algorithm picked at start), so a thousand of them are still one draw of that luck;
4. no drift within a series is large enough to explain it, unless the sides were interleaved.

A single process whose samples take two paths is compared within its two modes as well (`advisor.compare.modes`): its median
jumps between them and hides a shift of both.

What fails 2-4 and yet looks like a difference is not called "the same": it gets its own answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import sqrt
from typing import Any, Final

import numpy as np

from advisor.compare.modes import mode_shift
from advisor.compare.order import Floats, as_floats
from advisor.compare.ranks import can_reach, mann_whitney, paired_t, student_p, welch
from advisor.compare.resample import Ratio, group_median, ratio_of_groups
from advisor.compare.series import drift, two_modes
from advisor.model import Value

_NOISE_FACTOR: Final = 2.0  # one A/A pair is one draw of the noise; twice it covers about 95 % of the next ones


class Change(StrEnum):
    """The answer. The last three are inconclusive: it looks different, or cannot be seen, and the evidence is thin."""

    SAME = "same"
    SLOWER = "slower"
    FASTER = "faster"
    BELOW_FLOOR = "below_floor"  # significant, and smaller than anyone should care about in absolute terms
    DRIFTING = "drifting"
    TOO_FEW = "too_few"
    TOO_NOISY = "too_noisy"

    @property
    def is_inconclusive(self) -> bool:
        return self in (Change.DRIFTING, Change.TOO_FEW, Change.TOO_NOISY)


@dataclass(frozen=True)
class Rule:
    """What counts as a difference. Ratios are relative to base: 0.05 is 5 %."""

    min_effect_ratio: float = 0.05
    min_effect_ns: float = 5_000.0
    alpha: float = 0.001  # on samples
    process_alpha: float = 0.01  # on process medians
    max_unseen_ratio: float = 0.30  # an interval that does not rule out this slow-down is too noisy to pass
    noise_ratio: float = 0.0  # A/A: relative difference of two runs of the same code
    paired: bool = False  # process i of base ran next to process i of head
    seed: int = 0


class Comparison(Value, frozen=True, kw_only=True):
    """Head against base. `ratio` is head over base (above 1 is slower for times), with a 95 % interval."""

    change: Change
    ratio: float
    ratio_low: float
    ratio_high: float
    base_median: float
    head_median: float
    required_ratio: float  # the effect that would have counted
    p_value: float
    base_count: int
    head_count: int
    base_process_count: int
    head_process_count: int
    process_p_value: float | None = None
    between_process_ratio: float | None = None  # largest spread of process medians within a side
    drift_ratio: float = 0.0  # largest significant drift within a series, signed
    mode_ratio: float | None = None  # head over base within two modes, when that is what decided
    notes: tuple[str, ...] = ()


def is_different(base: Sequence[Iterable[Any]], head: Sequence[Iterable[Any]], rule: Rule | None = None) -> Comparison:
    """Compare two sides, each a list of processes, each a series of positive samples in measured order.

    Raises ValueError when a side has no samples or one that is not positive.
    """
    rule = rule or Rule()
    raw = (_groups(base), _groups(head))
    paired = rule.paired and len(raw[0]) == len(raw[1]) >= 2
    sides = _normalised(*raw) if paired else raw
    evidence = _weigh(sides, rule, paired)
    moved = _largest_drift(raw)
    change = _decide(evidence, rule, 0.0 if paired else moved)
    modes = _mode_evidence(raw, evidence, rule, change)
    if modes is not None:
        change = _decide(modes, rule, moved)
    return Comparison(
        change=change,
        ratio=evidence.ratio.ratio,
        ratio_low=evidence.ratio.low,
        ratio_high=evidence.ratio.high,
        base_median=group_median(raw[0]),
        head_median=group_median(raw[1]),
        required_ratio=evidence.required,
        p_value=evidence.p_value,
        base_count=sum(len(group) for group in raw[0]),
        head_count=sum(len(group) for group in raw[1]),
        base_process_count=len(raw[0]),
        head_process_count=len(raw[1]),
        process_p_value=evidence.process_p,
        between_process_ratio=_between(raw),
        drift_ratio=moved,
        mode_ratio=modes.ratio.ratio if modes else None,
        notes=(*_drift_notes(moved, paired), *_mode_notes(raw), *_count_notes(change, evidence)),
    )


@dataclass(frozen=True)
class _Evidence:
    ratio: Ratio
    shift: float
    required: float
    p_value: float
    reachable: bool
    process_p: float | None
    separated: bool  # every process of one side beyond every process of the other


def _groups(side: Sequence[Iterable[Any]]) -> list[Floats]:
    groups = [group for group in (as_floats(values) for values in side) if len(group)]
    if not groups:
        raise ValueError("a comparison needs samples on both sides")
    if any(group.min() <= 0 for group in groups):
        raise ValueError("a comparison of ratios needs positive samples")
    return groups


def _normalised(base: list[Floats], head: list[Floats]) -> tuple[list[Floats], list[Floats]]:
    """Both sides of each round divided by the round's own level: what moved both (heat, a neighbour) cancels."""
    levels = np.array([sqrt(float(np.median(one) * np.median(two))) for one, two in zip(base, head, strict=True)])
    factors = levels / np.exp(np.log(levels).mean())
    return (
        [group / factor for group, factor in zip(base, factors, strict=True)],
        [group / factor for group, factor in zip(head, factors, strict=True)],
    )


def _weigh(sides: tuple[list[Floats], list[Floats]], rule: Rule, paired: bool) -> _Evidence:
    base, head = sides
    pooled_base, pooled_head = np.concatenate(base), np.concatenate(head)
    middle = group_median(base)
    logs = [np.log([float(np.median(group)) for group in side]) for side in sides]
    return _Evidence(
        ratio=ratio_of_groups(head, base, rule.seed),
        shift=group_median(head) - middle,
        required=max(rule.min_effect_ratio, _NOISE_FACTOR * rule.noise_ratio),
        p_value=mann_whitney(pooled_base, pooled_head).p_value,
        reachable=can_reach(len(pooled_base), len(pooled_head), rule.alpha),
        process_p=_process_p(logs[0], logs[1], paired),
        separated=bool(logs[0].max() < logs[1].min() or logs[1].max() < logs[0].min()),
    )


def _mode_evidence(
    sides: tuple[list[Floats], list[Floats]], evidence: _Evidence, rule: Rule, change: Change
) -> _Evidence | None:
    """The same evidence from within two modes, where the medians saw nothing and the modes a significant difference.

    For one process a side: with more, the process test already says what luck explains.
    """
    base, head = sides
    if change not in (Change.SAME, Change.TOO_NOISY) or len(base) + len(head) > 2 or not evidence.reachable:
        return None
    found = mode_shift(base[0], head[0], rule.seed, evidence.required)
    if found is None or not found.is_significant(rule.alpha):
        return None
    shift = (found.ratio - 1) * group_median(base)
    p_value = found.p_value if found.p_within is None else min(found.p_value, found.p_within)
    return replace(evidence, ratio=Ratio(found.ratio, found.ratio, found.ratio), shift=shift, p_value=p_value)


def _process_p(base: Floats, head: Floats, paired: bool) -> float | None:
    """p of the process test on log medians; None when neither side has two processes to show their spread."""
    if paired:
        return paired_t(head - base).p_value
    if min(len(base), len(head)) >= 2:
        return welch(base, head).p_value
    if max(len(base), len(head)) < 2:
        return None
    many, one = (base, head) if len(base) > 1 else (head, base)
    # One new process against the spread of several: the prediction interval of a t distribution.
    error = float(many.std(ddof=1)) * sqrt(1 + 1 / len(many))
    distance = abs(float(one[0] - many.mean()))
    return student_p(distance / error, len(many) - 1) if error > 0 else float(distance == 0)


def _decide(evidence: _Evidence, rule: Rule, moved: float) -> Change:
    effect = evidence.ratio.ratio - 1
    # A slow-down and its inverse are one effect: +25 % one way is -20 % the other.
    if max(abs(effect), abs(1 / evidence.ratio.ratio - 1)) < evidence.required:
        return _unseen(evidence, rule)
    if not evidence.reachable:
        return Change.TOO_FEW if abs(evidence.shift) >= rule.min_effect_ns else Change.BELOW_FLOOR
    if evidence.p_value >= rule.alpha:
        return _unseen(evidence, rule)
    if abs(evidence.shift) < rule.min_effect_ns:
        return Change.BELOW_FLOOR
    if evidence.process_p is not None and evidence.process_p >= rule.process_alpha:
        return Change.TOO_FEW if evidence.separated else _unseen(evidence, rule)
    if abs(effect) < evidence.required + abs(moved) and moved:
        return Change.DRIFTING
    return Change.SLOWER if effect > 0 else Change.FASTER


def _unseen(evidence: _Evidence, rule: Rule) -> Change:
    """Not different: the same, unless the interval is so wide that a large slow-down would not have been seen."""
    too_wide = evidence.ratio.high - 1 > max(rule.max_unseen_ratio, 2 * evidence.required)
    return Change.TOO_NOISY if too_wide and evidence.ratio.high > evidence.ratio.low else Change.SAME


def _between(sides: tuple[list[Floats], list[Floats]]) -> float | None:
    spreads = []
    for side in sides:
        medians = [float(np.median(group)) for group in side]
        if len(medians) > 1:
            spreads.append(max(medians) / min(medians) - 1)
    return max(spreads, default=None)


def _largest_drift(sides: tuple[list[Floats], list[Floats]]) -> float:
    found = [drift(group) for side in sides for group in side]
    return max((one.ratio for one in found if one.is_drift), key=abs, default=0.0)


def _drift_notes(moved: float, paired: bool) -> list[str]:
    if not moved:
        return []
    cancels = "; interleaving cancels it" if paired else ""
    return [f"drift: samples moved {moved:+.1%} from the first to the last quarter of a series{cancels}"]


def _mode_notes(sides: tuple[list[Floats], list[Floats]]) -> list[str]:
    notes = []
    for name, side in zip(("base", "head"), sides, strict=True):
        by_process = len(side) >= 4
        modes = two_modes([float(np.median(group)) for group in side] if by_process else np.concatenate(side))
        if modes is not None:
            share = f"{modes.high_share_ratio:.0%} of its {'processes' if by_process else 'samples'}"
            notes.append(f"bimodal: {name} has two modes; {share} take {modes.high / modes.low:.2f} times as long")
    return notes


def _count_notes(change: Change, evidence: _Evidence) -> list[str]:
    notes = []
    if evidence.process_p is None:
        notes.append("one process a side: differences between processes cannot be seen")
    if change == Change.TOO_FEW:
        notes.append("too few samples or processes for the test to reach its threshold; record more")
    return notes
