"""Raw samples as a strip plot: one row a run, one dot a sample, positions in percent of a shared axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from advisor.model import Measurement

_MAX_DOTS = 240
_JITTER = (0.5, 0.18, 0.82, 0.34, 0.66, 0.1, 0.9, 0.26, 0.74, 0.42, 0.58)


@dataclass(frozen=True)
class StripRow:
    """One run's samples. `dots` are (x percent, y 0..1); `low`/`high` the middle half of the samples."""

    label: str
    tone: str
    count: int
    median_ns: float
    median_x: float
    low_x: float
    high_x: float
    outside: int
    dots: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Strip:
    """Rows on one axis that starts at zero, so that lengths compare."""

    rows: tuple[StripRow, ...]
    end_ns: float


def strip(runs: Sequence[tuple[str, str, Measurement | None]]) -> Strip | None:
    """A plot of the runs (label, tone, samples) that have samples; None when none has.

    The axis ends at 1.15 × the largest 95th percentile; samples beyond are counted, not drawn, so one stall does not
    flatten the rest.
    """
    kept = [(label, tone, one.samples_ns) for label, tone, one in runs if one is not None and one.samples_ns]
    if not kept:
        return None
    end = 1.15 * max(_percentile(values, 0.95) for _, _, values in kept)
    return Strip(tuple(_row(label, tone, values, end) for label, tone, values in kept), end)


def _row(label: str, tone: str, values: Sequence[int], end: float) -> StripRow:
    shown = [value for value in values if value <= end]
    every = max(1, -(-len(shown) // _MAX_DOTS))
    dots = tuple((round(100 * value / end, 2), _JITTER[i % len(_JITTER)]) for i, value in enumerate(shown[::every]))
    return StripRow(
        label=label,
        tone=tone,
        count=len(values),
        median_ns=median(values),
        median_x=round(100 * median(values) / end, 2),
        low_x=round(100 * _percentile(values, 0.25) / end, 2),
        high_x=round(100 * min(_percentile(values, 0.75) / end, 1.0), 2),
        outside=len(values) - len(shown),
        dots=dots,
    )


def _percentile(values: Sequence[int], share: float) -> float:
    if len(values) == 1:
        return float(values[0])
    return quantiles(values, n=100, method="inclusive")[round(share * 100) - 1]
