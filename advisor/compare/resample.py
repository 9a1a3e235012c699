"""Bootstrap intervals of medians and of their ratios, exact in distribution and cheap in the sample size.

A bootstrap resample of n sorted values takes the indices floor(n·U) of n uniform numbers; floor is monotone, so the
resample's k-th value is the sorted value at floor(n·U_(k)), and the k-th of n uniforms is Beta(k, n - k + 1)
(David and Nagaraja, Order Statistics, 3rd ed., 2.1). One Beta draw replaces n draws and a sort.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from advisor.compare.order import Floats, as_floats

REPEATS: Final = 4_000


class Ratio(NamedTuple):
    """A ratio of medians with its interval."""

    ratio: float
    low: float
    high: float


def bootstrap_median_interval(values: Iterable[Any], seed: int = 0, level: float = 0.95) -> tuple[float, float]:
    """The percentile bootstrap interval of the median. Raises ValueError when there are no values."""
    low, high = np.quantile(median_draws([as_floats(values)], np.random.default_rng(seed)), _tails(level))
    return float(low), float(high)


def bootstrap_ratio(a: Iterable[Any], b: Iterable[Any], seed: int = 0, level: float = 0.95) -> Ratio:
    """median(a) / median(b) with its percentile bootstrap interval: eager over graphed is the speed-up.

    Raises ValueError when a side has no values or one that is not positive: a ratio of times needs positive times.
    """
    return ratio_of_groups([as_floats(a)], [as_floats(b)], seed, level)


def ratio_of_groups(a: Sequence[Floats], b: Sequence[Floats], seed: int = 0, level: float = 0.95) -> Ratio:
    """As `bootstrap_ratio`, where a side is a list of processes, resampled as wholes and then within.

    The median of a side is the median of its processes' medians, so that a long process does not outvote a short one.
    """
    for side in (a, b):
        if any(len(group) and group.min() <= 0 for group in side):
            raise ValueError("a ratio of medians needs positive values")
    rng = np.random.default_rng(seed)
    draws = median_draws(a, rng) / median_draws(b, rng)
    low, high = np.quantile(draws, _tails(level))
    return Ratio(group_median(a) / group_median(b), float(low), float(high))


def group_median(groups: Sequence[Floats]) -> float:
    """The median of the groups' medians."""
    return float(np.median([np.median(group) for group in groups]))


def median_draws(groups: Sequence[Floats], rng: np.random.Generator, repeats: int = REPEATS) -> Floats:
    """`repeats` bootstrap medians, float64 (repeats,): groups are resampled, then values within each group."""
    if not groups or not all(len(group) for group in groups):
        raise ValueError("a bootstrap of no values")
    ordered = [np.sort(group) for group in groups]
    if len(ordered) == 1:
        return _draws(ordered[0], rng, repeats)
    chosen = rng.integers(len(ordered), size=(repeats, len(ordered)))
    drawn = np.empty(chosen.shape)
    for index, group in enumerate(ordered):
        mask = chosen == index
        drawn[mask] = _draws(group, rng, int(mask.sum()))
    return np.asarray(np.median(drawn, axis=1), dtype=np.float64)


def _draws(ordered: Floats, rng: np.random.Generator, repeats: int) -> Floats:
    count = len(ordered)
    if count == 1:
        return np.full(repeats, ordered[0])
    lower = (count + 1) // 2  # 1-based rank of the (lower) middle value
    first = rng.beta(lower, count - lower + 1, repeats)
    at_first = ordered[np.minimum((count * first).astype(np.int64), count - 1)]
    if count % 2:
        return at_first
    # The next order statistic of the same resample: the minimum of the uniforms that remain above the first.
    second = first + (1 - first) * rng.beta(1, count - lower, repeats)
    at_second = ordered[np.minimum((count * second).astype(np.int64), count - 1)]
    return np.asarray((at_first + at_second) / 2, dtype=np.float64)


def _tails(level: float) -> list[float]:
    return [(1 - level) / 2, (1 + level) / 2]
