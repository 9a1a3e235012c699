"""What graphing a region would save per step, before anything is captured.

    estimates = Estimator.of(timeline, step, windows, found, calibration, clock).estimates(found)

One `Estimate` a region, with the terms that lead from the step now to the step then. See docs/estimate.md.
"""

from advisor.estimate.build import Estimator
from advisor.estimate.fixes import extra_kernels

__all__ = ["Estimator", "extra_kernels"]
