"""The shift between two samples that both have two modes, tested mode by mode.

A step that takes one of two paths has a median that jumps between the modes, and a rank test sees mostly how many samples
fell into which mode. Splitting each side into its two clusters and comparing lower with lower and upper with upper removes
that. `p_value` is a permutation test of the very statistic, splitting included, so it holds for any distribution; but when
both modes did shift, the pooled values it permutes have four clusters, and it hardly sees 30 samples of each. Where the two
sides, laid over each other, clearly have two modes, `p_within` permutes those aligned values instead (the residuals, after
Freedman and Lane 1983). That is exact for no distribution and far off for a skewed one, so `is_significant` asks both.
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
# Halves of a normal sample lie 2.65 pooled deviations apart, of a uniform one 3.46. Chosen with `p_within` and `_SUPPORT` on
# simulated samples of eleven shapes, so that none raises more than 0.5 % false alarms (benchmarks/gate_simulation.py).
_SEPARATION: Final = 3.4
_SMALLER_SHARE: Final = 0.2
_SUPPORT: Final = 20.0  # times alpha: what the exact test must at least say


class ModeShift(NamedTuple):
    """`ratio` of b over a within the two modes; both p two-sided and not below 1 / (permutations + 1).

    `p_within` is None where the values do not clearly have two modes.
    """

    ratio: float
    p_value: float
    p_within: float | None = None

    def is_significant(self, alpha: float) -> bool:
        """Whether the exact test says so, or the sharper one with the exact one's support."""
        if self.p_value < alpha:
            return True
        return self.p_within is not None and self.p_within < alpha / 2 and self.p_value < _SUPPORT * alpha


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
    aligned = np.concatenate((first, second - observed))
    clear = min(_share(first), _share(second)) >= _SMALLER_SHARE and _separation(aligned) >= _SEPARATION
    return ModeShift(
        float(np.exp(observed)),
        _permuted(np.concatenate((first, second)), len(first), observed, seed),
        _permuted(aligned, len(first), observed, seed) if clear else None,
    )


def _permuted(pooled: Floats, first_count: int, observed: float, seed: int) -> float:
    """The share of random splits of `pooled` whose statistic reaches `observed`."""
    rng = np.random.default_rng(seed)
    shuffled = rng.permuted(np.broadcast_to(pooled, (_PERMUTATIONS, len(pooled))), axis=1)
    drawn = _statistic(shuffled[:, :first_count], shuffled[:, first_count:])
    return (1 + int((np.abs(drawn) >= abs(observed) - 1e-12).sum())) / (_PERMUTATIONS + 1)


def _share(values: Floats) -> float:
    """The share of values in the smaller cluster."""
    share = float(_clusters(values[None, :])[2][0])
    return min(share, 1 - share)


def _separation(values: Floats) -> float:
    """The distance of the two clusters' means in pooled standard deviations within them."""
    low, high, share = (float(part[0]) for part in _clusters(values[None, :]))
    ordered = np.sort(values)
    cut = round(share * len(values))
    within = float(ordered[:cut].var()) * cut + float(ordered[cut:].var()) * (len(values) - cut)
    return (high - low) / float(np.sqrt(within / len(values))) if within > 0 else np.inf


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
