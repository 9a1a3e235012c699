"""What graphing a region would save per step, before anything is captured.

    estimates = estimate_regions(timeline, step, windows, found, calibration, clock)

One `Estimate` a region, with the terms that lead from the step now to the step then. See docs/estimate.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from advisor.estimate.build import Estimator
from advisor.estimate.build import estimate_regions as _estimate_regions
from advisor.estimate.fixes import extra_kernels
from advisor.model import Calibration, Clock, Estimate, Step
from advisor.regions import FoundRegion, StepWindows
from advisor.timeline import Timeline

__all__ = ["Estimator", "estimate_regions", "extra_kernels"]


def estimate_regions(
    timeline: Timeline,
    step: Step,
    steps: StepWindows,
    found: Sequence[FoundRegion],
    calibration: Calibration | None = None,
    clock: Clock | None = None,
) -> tuple[Estimate, ...]:
    """An estimate for every region that lies inside the steps, in the order of `found`.

    timeline: with its gaps filled; steps: the windows of `step`; found: regions with the rows behind them. Without a clock
    the figures are those of the profiled trace and say so; without a calibration the documented default constants serve.
    """
    return _estimate_regions(timeline, step, steps, found, calibration, clock)
