"""Order statistics of one sample, and its histogram over logarithmic bins."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from math import ceil, log10
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from advisor.model import Distribution

Floats = npt.NDArray[np.float64]

_BINS_PER_DECADE: Final = 8
_MAX_BINS: Final = 48


def as_floats(values: Iterable[Any]) -> Floats:
    """`values` (any iterable, array or Series of numbers) as float64 (n,). Raises ValueError when one is not finite."""
    array = np.asarray(values if hasattr(values, "__len__") else list(values), dtype=np.float64).ravel()
    if not np.isfinite(array).all():
        raise ValueError("a sample holds a value that is not finite")
    return array


def median(values: Iterable[Any]) -> float:
    """The median. Raises ValueError when there are no values: a median of nothing must not look like a measurement."""
    array = as_floats(values)
    if not len(array):
        raise ValueError("median of no values")
    return float(np.median(array))


def quantiles(values: Iterable[Any], shares: Iterable[float]) -> tuple[float, ...]:
    """Quantiles by linear interpolation (Hyndman-Fan type 7), one per share in 0..1. Raises ValueError when empty."""
    array = as_floats(values)
    if not len(array):
        raise ValueError("quantiles of no values")
    return tuple(float(value) for value in np.quantile(array, list(shares)))


def distribution(values: Iterable[Any]) -> Distribution | None:
    """Order statistics and a histogram of `values`; None when there are none.

    Bins are logarithmic over the positive values, at most 48. Values that are zero or negative (a launch latency may
    be) share one extra bin in front, from the minimum to the first positive edge. `bin_counts` sums to `count`.
    """
    array = as_floats(values)
    if not len(array):
        return None
    edges, counts = _log_histogram(array)
    low, p25, middle, p75, high = (float(value) for value in np.quantile(array, [0.05, 0.25, 0.5, 0.75, 0.95]))
    return Distribution(
        count=len(array),
        minimum=float(array.min()),
        p05=low,
        p25=p25,
        median=middle,
        p75=p75,
        p95=high,
        maximum=float(array.max()),
        mean=float(array.mean()),
        bin_edges=tuple(edges),
        bin_counts=tuple(counts),
    )


def _log_histogram(array: Floats) -> tuple[list[float], list[int]]:
    positive = array[array > 0]
    if not len(positive):
        return [float(array.min()), 0.0 if array.min() < 0 else 1.0], [len(array)]
    edges = _log_edges(float(positive.min()), float(positive.max()))
    counts = [int(count) for count in np.histogram(positive, edges)[0]]
    if len(positive) < len(array):
        # A zero in the data needs an edge below the first positive one, whatever its size.
        return [float(array.min()), *edges], [len(array) - len(positive), *counts]
    return list(edges), counts


def _log_edges(low: float, high: float) -> list[float]:
    """Edges from `low` to `high` inclusive; a single value gets one bin of 5 % on both sides, so that it has a width."""
    if low == high:
        return [low / 1.05, high * 1.05]
    bins = min(_MAX_BINS, max(1, ceil(_BINS_PER_DECADE * (log10(high) - log10(low)))))
    edges = [float(edge) for edge in np.geomspace(low, high, bins + 1)]
    # geomspace rounds; the outer edges must not lose the extreme values.
    edges[0], edges[-1] = low, high
    return edges if all(left < right for left, right in pairwise(edges)) else [low, high]
