"""The shift between two samples that both have two modes, tested mode by mode.

A step that takes one of two paths has a median that jumps between the modes, and a rank test sees mostly how many samples
fell into which mode. Splitting each side into its two clusters and comparing lower with lower and upper with upper removes
that. The p-value is a permutation test of the very statistic, splitting included, so it holds for any distribution.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np

from advisor.compare.order import Floats, as_floats

_MIN_VALUES: Final = 12  # a side; clusters of fewer than a handful have no mean worth comparing
_MAX_VALUES: Final = 400  # thinned evenly by rank above: the permutations sort every row
_CLUSTER_SHARE: Final = 0.15
_PERMUTATIONS: Final = 4_000


class ModeShift(NamedTuple):
    """`ratio` of b over a within the two modes; `p_value` two-sided, not below 1 / (permutations + 1)."""

    ratio: float
    p_value: float


def mode_shift(a: Iterable[Any], b: Iterable[Any], seed: int = 0, least: float = 0.0) -> ModeShift | None:
    """The shift of b against a within two clusters each, on logarithms; values must be positive.

    None with fewer than 12 values a side, or when the shift is below `least` (relative), before the costly test.
    """
    first, second = np.log(as_floats(a)), np.log(as_floats(b))
    if min(len(first), len(second)) < _MIN_VALUES:
        return None
    first, second = _thinned(first), _thinned(second)
    observed = float(_statistic(first[None, :], second[None, :])[0])
    if abs(observed) < np.log1p(least):
        return None
    rng = np.random.default_rng(seed)
    pooled = np.concatenate((first, second))
    shuffled = rng.permuted(np.broadcast_to(pooled, (_PERMUTATIONS, len(pooled))), axis=1)
    drawn = _statistic(shuffled[:, : len(first)], shuffled[:, len(first) :])
    p_value = (1 + int((np.abs(drawn) >= abs(observed) - 1e-12).sum())) / (_PERMUTATIONS + 1)
    return ModeShift(float(np.exp(observed)), p_value)


def _statistic(a: Floats, b: Floats) -> Floats:
    """Per row: difference of the lower clusters' means and of the upper ones', weighted by their sizes."""
    low_a, high_a, share_a = _clusters(a)
    low_b, high_b, share_b = _clusters(b)
    weight = (share_a * a.shape[1] + share_b * b.shape[1]) / (a.shape[1] + b.shape[1])
    return np.asarray(weight * (low_b - low_a) + (1 - weight) * (high_b - high_a))


def _clusters(rows: Floats) -> tuple[Floats, Floats, Floats]:
    """Per row: mean below and above the cut of least variance within (Otsu), and the share of values below."""
    ordered = np.sort(rows, axis=1)
    count = ordered.shape[1]
    least = max(2, int(_CLUSTER_SHARE * count))
    sizes = np.arange(least, count - least + 1)
    sums = np.cumsum(ordered, axis=1)
    below = sums[:, sizes - 1] / sizes
    above = (sums[:, -1:] - sums[:, sizes - 1]) / (count - sizes)
    cut = np.argmax(sizes * (count - sizes) * (above - below) ** 2, axis=1)
    row = np.arange(len(ordered))
    return below[row, cut], above[row, cut], sizes[cut] / count


def _thinned(values: Floats) -> Floats:
    if len(values) <= _MAX_VALUES:
        return values
    return np.asarray(np.quantile(values, (np.arange(_MAX_VALUES) + 0.5) / _MAX_VALUES), dtype=np.float64)
