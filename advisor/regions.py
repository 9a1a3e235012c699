"""Named pieces of the program, found in a timeline, as plain values; past here only values, no frames."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from advisor.model import Region

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Occurrences:
    """Which items each occurrence of one region launched, on one device. `n` occurrences, `m` items in all.

    item_ids:    int64 (m,)  rows of `timeline.items`, ordered by start within an occurrence
    occurrence:  int64 (m,)  0..n-1, non-decreasing
    step_index:  int64 (n,)  the step each occurrence lies in, -1 outside every step
    cpu_start_ns, cpu_end_ns: int64 (n,)  the CPU range, or first launch start and last launch end of a kernel sequence
    tid:         int64 (n,)  thread of the CPU range (of the first launch for a kernel sequence)
    """

    region_id: str
    item_ids: Ints
    occurrence: Ints
    step_index: Ints
    cpu_start_ns: Ints
    cpu_end_ns: Ints
    tid: Ints


@dataclass(frozen=True)
class FoundRegion:
    """A region with the rows behind its figures."""

    region: Region
    occurrences: Occurrences
