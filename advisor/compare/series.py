"""What a series in the order it was measured shows: a drift, or two modes."""

from __future__ import annotations

from collections.abc import Iterable
from math import erfc, sqrt
from typing import Any, Final, NamedTuple

import numpy as np

from advisor.compare.order import Floats, as_floats

_MIN_SERIES: Final = 12  # a quarter of fewer values than three says nothing
_DRIFT_ALPHA: Final = (
    0.005  # a drift never accuses, it only keeps a difference from accusing: a lenient threshold is safe
)
_DRIFT_RATIO: Final = 0.02
_SLOPE_POINTS: Final = 400
# Two halves of a normal sample cut at its mean are 2.65 pooled deviations apart, of a uniform one 3.46.
_MODE_SEPARATION: Final = 5.0
_MODE_SHARE: Final = 0.1
_MODE_RATIO: Final = 0.02  # closer modes than this do not matter to anyone


class Drift(NamedTuple):
    """`ratio`: last quarter's median over the first quarter's, minus 1. `is_drift`: significant and at least 2 %."""

    ratio: float
    p_value: float
    is_drift: bool


class Modes(NamedTuple):
    """Two clusters of a sample: their medians, and the share of values in the upper one."""

    low: float
    high: float
    high_share_ratio: float


def drift(values: Iterable[Any]) -> Drift:
    """Whether a series of positive values, in measured order, moved from its first to its last quarter.

    Heat and power limits lower clocks within a run (15 % in a hundred iterations was seen); a test that treats such
    samples as exchangeable calls the later run slower.
    """
    series = as_floats(values)
    if len(series) < _MIN_SERIES:
        return Drift(0.0, 1.0, False)
    quarter = len(series) // 4
    start = float(np.median(series[:quarter]))
    ratio = float(np.median(series[-quarter:])) / start - 1 if start > 0 else 0.0
    # The slope uses every value, so that a jump of the last few alone is not called a drift of the whole.
    slope_ratio = theil_sen(series) * (len(series) - 1) / start if start > 0 else 0.0
    p_value = _trend_p(series)
    agrees = ratio * slope_ratio > 0 and abs(slope_ratio) >= _DRIFT_RATIO / 2
    return Drift(ratio, p_value, agrees and p_value < _DRIFT_ALPHA and abs(ratio) >= _DRIFT_RATIO)


def _trend_p(series: Floats) -> float:
    """Two-sided p that values do not depend on their position: Spearman's rho, normal approximation rho·sqrt(n - 1)."""
    _, inverse, counts = np.unique(series, return_inverse=True, return_counts=True)
    if len(counts) < 2:
        return 1.0
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    rho = float(np.corrcoef(ranks, np.arange(len(series)))[0, 1])
    return erfc(abs(rho) * sqrt((len(series) - 1) / 2))


def theil_sen(values: Iterable[Any]) -> float:
    """The median slope per position over all pairs (Sen 1968); long series are thinned evenly to 400 points."""
    series = as_floats(values)
    if len(series) < 2:
        return 0.0
    at = np.unique(np.linspace(0, len(series) - 1, min(len(series), _SLOPE_POINTS)).astype(np.int64))
    left, right = np.triu_indices(len(at), 1)
    return float(np.median((series[at[right]] - series[at[left]]) / (at[right] - at[left])))


def two_modes(values: Iterable[Any]) -> Modes | None:
    """The two clusters of a clearly bimodal sample, else None.

    The cut minimises the variance within (Otsu 1979). Bimodal means: both clusters hold a tenth of the values and two
    of them, and their means lie at least five pooled deviations and 2 % apart.
    """
    ordered = np.sort(as_floats(values))
    count = len(ordered)
    if count < 4:
        return None
    sizes = np.arange(1, count, dtype=np.float64)
    sums = np.cumsum(ordered)[:-1]
    lower, upper = sums / sizes, (ordered.sum() - sums) / (count - sizes)
    cut = int(np.argmax(sizes * (count - sizes) * (upper - lower) ** 2)) + 1
    below, above = ordered[:cut], ordered[cut:]
    if min(len(below), len(above)) < max(2.0, _MODE_SHARE * count):
        return None
    return Modes(float(np.median(below)), float(np.median(above)), len(above) / count) if _apart(below, above) else None


def _apart(below: Floats, above: Floats) -> bool:
    distance = float(above.mean() - below.mean())
    spread = float(np.sqrt((below.var() * len(below) + above.var() * len(above)) / (len(below) + len(above))))
    return distance >= _MODE_SEPARATION * spread and distance >= _MODE_RATIO * abs(float(below.mean()))
