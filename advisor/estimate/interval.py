"""How far the predicted step may be off: half-widths by source, joined as independent errors.

Sources: the range of each constant (measured, or the published one), the spread of the recorded steps where the CPU still
decides, how well the simulation reproduced the step it was made from, how well the region's share of CPU time is known, and what
the model leaves out (kernels run a little faster or slower in a replay; the library may pick others while a stream captures).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot
from typing import Final

KERNEL_DRIFT: Final = 0.04  # of the region's busy time: six of seven H200 workloads lay within 3 %
OTHER_NODES: Final = (
    0.2  # of the nodes, as small ones and upwards only: GPT-2's graph had 293 nodes for 245 recorded items
)
SHARE_CLOCKED: Final = 0.04  # of the CPU time taken out, where the clock timed the region's own statements
SHARE_SOLVED: Final = 0.10  # where only the whole step was clocked
SHARE_TRACED: Final = 0.15  # without a clock: the profiler weighs differently on Python, ops and launches


@dataclass(frozen=True)
class Width:
    """One source: the step after may be `less_ns` shorter or `more_ns` longer."""

    id: str
    label: str
    less_ns: float
    more_ns: float


@dataclass(frozen=True)
class Interval:
    """The predicted step with its bounds, in ns, and where the bounds come from."""

    low_ns: int
    expected_ns: int
    high_ns: int
    widths: tuple[Width, ...]


def interval(expected_ns: float, floor_ns: float, ceiling_ns: float, widths: tuple[Width, ...]) -> Interval:
    """Join the widths. The low end is never below `floor_ns` (the GPU's own work at its fastest), the high end never above
    `ceiling_ns` (a graph that costs more than the step it replaces would not be kept)."""
    less, more = hypot(*(width.less_ns for width in widths)), hypot(*(width.more_ns for width in widths))
    low = min(max(expected_ns - less, floor_ns), expected_ns)
    high = max(min(expected_ns + more, ceiling_ns), expected_ns)
    return Interval(
        round(low), round(expected_ns), round(high), tuple(width for width in widths if width.less_ns or width.more_ns)
    )
