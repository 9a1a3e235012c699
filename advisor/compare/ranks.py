"""Two-sample tests: Mann-Whitney U on samples, Welch's t on the few means of processes; the Hodges-Lehmann shift."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import comb, erfc, exp, lgamma, log, sqrt
from typing import Any, Final, NamedTuple

import numpy as np

from advisor.compare.order import Floats, as_floats

_EXACT_MAX: Final = 25  # per side; counts stay below 2**53, so float64 holds them exactly
_PAIRS_MAX: Final = 4_000_000  # of the Hodges-Lehmann pairs; larger samples are thinned evenly by rank


class Significance(NamedTuple):
    """A two-sided test. `statistic` is U of the second sample for Mann-Whitney, t for Welch."""

    statistic: float
    p_value: float


def mann_whitney(a: Iterable[Any], b: Iterable[Any]) -> Significance:
    """Two-sided Mann-Whitney U test that `a` and `b` come from one distribution; U counts pairs with b > a.

    Exact for at most 25 values a side without ties, otherwise the normal approximation with tie and continuity
    correction (Mann and Whitney 1947; Lehmann, Nonparametrics, 1.3). Raises ValueError when a side is empty.
    """
    first, second = as_floats(a), as_floats(b)
    n, m = len(first), len(second)
    if not n or not m:
        raise ValueError("a test of no values")
    pooled = np.concatenate((first, second))
    values, inverse, counts = np.unique(pooled, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    u = float(ranks[n:].sum() - m * (m + 1) / 2)
    if len(values) == n + m and max(n, m) <= _EXACT_MAX:
        return Significance(u, _exact_p(n, m, u))
    return Significance(u, _normal_p(n, m, u, counts.astype(np.float64)))


def can_reach(n: int, m: int, alpha: float) -> bool:
    """Whether samples of n and m values can give an exact Mann-Whitney p <= alpha at all: 2 / C(n+m, n) <= alpha."""
    return n > 0 and m > 0 and 2 / comb(n + m, n) <= alpha


def hodges_lehmann(a: Iterable[Any], b: Iterable[Any]) -> float:
    """The shift of `b` against `a`: the median of all differences b_j - a_i. Raises ValueError when a side is empty."""
    first, second = as_floats(a), as_floats(b)
    if not len(first) or not len(second):
        raise ValueError("a shift of no values")
    limit = int(sqrt(_PAIRS_MAX))
    first, second = _thinned(first, limit), _thinned(second, limit)
    return float(np.median(second[:, None] - first[None, :]))


def welch(a: Iterable[Any], b: Iterable[Any]) -> Significance:
    """Welch's two-sided t test of the means of `a` and `b`; t is positive when b is larger.

    Raises ValueError with fewer than two values a side. Values without any spread give p = 0 when they differ.
    """
    first, second = as_floats(a), as_floats(b)
    if min(len(first), len(second)) < 2:
        raise ValueError("Welch's test needs two values a side")
    errors = [float(side.var(ddof=1)) / len(side) for side in (first, second)]
    difference, total = float(second.mean() - first.mean()), sum(errors)
    if total == 0:
        return Significance(0.0 if difference == 0 else np.inf * np.sign(difference), float(difference == 0))
    freedom = total**2 / sum(error**2 / (len(side) - 1) for error, side in zip(errors, (first, second), strict=True))
    statistic = difference / sqrt(total)
    return Significance(statistic, student_p(statistic, freedom))


def paired_t(differences: Iterable[Any]) -> Significance:
    """Two-sided t test that the mean of `differences` is 0. Raises ValueError with fewer than two."""
    values = as_floats(differences)
    if len(values) < 2:
        raise ValueError("a paired test needs two differences")
    error, mean = float(values.std(ddof=1)) / sqrt(len(values)), float(values.mean())
    if error == 0:
        return Significance(0.0 if mean == 0 else np.inf * np.sign(mean), float(mean == 0))
    return Significance(mean / error, student_p(mean / error, len(values) - 1))


def student_p(t: float, freedom: float) -> float:
    """P(|T| >= |t|) of Student's distribution: the regularised incomplete beta I_x(v/2, 1/2), x = v / (v + t²)."""
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def _exact_p(n: int, m: int, u: float) -> float:
    counts = _u_counts(min(n, m), max(n, m))
    tail = counts[: int(min(u, n * m - u)) + 1].sum() / counts.sum()
    return min(1.0, 2 * float(tail))


@lru_cache(maxsize=256)
def _u_counts(n: int, m: int) -> Floats:
    """How many of the C(n+m, n) orders give U = 0..nm: coefficients of the Gaussian binomial, factor by factor."""
    counts = np.zeros(n * m + 1)
    counts[0] = 1
    for index in range(1, n + 1):
        shift = m + index
        if shift <= n * m:
            counts[shift:] = counts[shift:] - counts[:-shift]
        for start in range(index):  # division by (1 - q^index): a running sum along every index-th coefficient
            counts[start::index] = np.cumsum(counts[start::index])
    return counts


def _normal_p(n: int, m: int, u: float, tie_counts: Floats) -> float:
    total = n + m
    ties = float((tie_counts**3 - tie_counts).sum()) / (total * (total - 1)) if total > 1 else 0.0
    variance = n * m / 12 * ((total + 1) - ties)
    if variance <= 0:  # every value is the same
        return 1.0
    z = max(0.0, abs(u - n * m / 2) - 0.5) / sqrt(variance)
    return erfc(z / sqrt(2))


def _thinned(values: Floats, limit: int) -> Floats:
    if len(values) <= limit:
        return values
    return np.quantile(values, (np.arange(limit) + 0.5) / limit)


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b) by Lentz's continued fraction (Numerical Recipes, 3rd ed., 6.4)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(1 - x)) / a
    tiny = 1e-300
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1), tiny)
    result = d
    for step in range(1, 300):
        even = step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step))
        odd = -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1))
        for numerator in (even, odd):
            d = 1 / _away_from_zero(1 + numerator * d, tiny)
            c = _away_from_zero(1 + numerator / c, tiny)
            result *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    return front * result


def _away_from_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny
