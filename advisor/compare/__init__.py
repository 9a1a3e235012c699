"""Statistics on raw samples: medians, intervals, tests, drift, and the one question "is this different?".

Plain numbers in, plain values out. Everything random takes a seed and is reproducible; numpy is the only dependency.
"""

from advisor.compare.decide import Change, Comparison, Rule, is_different
from advisor.compare.modes import ModeShift, mode_shift
from advisor.compare.order import distribution, median, quantiles
from advisor.compare.ranks import Significance, can_reach, hodges_lehmann, mann_whitney, welch
from advisor.compare.resample import Ratio, bootstrap_median_interval, bootstrap_ratio
from advisor.compare.series import Drift, Modes, drift, theil_sen, two_modes

__all__ = [
    "Change",
    "Comparison",
    "Drift",
    "ModeShift",
    "Modes",
    "Ratio",
    "Rule",
    "Significance",
    "bootstrap_median_interval",
    "bootstrap_ratio",
    "can_reach",
    "distribution",
    "drift",
    "hodges_lehmann",
    "is_different",
    "mann_whitney",
    "median",
    "mode_shift",
    "quantiles",
    "theil_sen",
    "two_modes",
    "welch",
]
