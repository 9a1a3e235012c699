"""The rows behind a region's figures."""

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

    @property
    def count(self) -> int:
        return len(self.cpu_start_ns)


@dataclass(frozen=True)
class FoundRegion:
    """A region with the rows behind its figures."""

    region: Region
    occurrences: Occurrences


@dataclass(frozen=True)
class StepWindows:
    """The steps of one device: int64 (n,) arrays.

    start_ns, end_ns: on the device, from the first item of a step to the first item of the next one (to its own last item
        for the last step and where other work lies between two steps), so consecutive steps add up without holes.
    cpu_start_ns, cpu_end_ns, tid: the CPU range of each step and its thread.
    """

    rank: int
    device: int
    start_ns: Ints
    end_ns: Ints
    cpu_start_ns: Ints
    cpu_end_ns: Ints
    tid: Ints

    @property
    def count(self) -> int:
        return len(self.start_ns)
