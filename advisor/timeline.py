"""A trace as four joined tables. Sources hand over a `RawTrace`; `build` resolves every link once.

- item -> launch by (rank, pid, correlation): one launch to N items, for a graph launch;
- call -> innermost range, range -> parent range, by containment on the same thread;
- items belong to ranges by their *launch*, never by a time window: the GPU runs behind the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd

from advisor.model import QualityNote, TraceInfo


@dataclass(frozen=True)
class RawTrace:
    """What a source read, unlinked: frames made by `ITEMS`, `CALLS` and `RANGES` of `advisor.tables`.

    `notes` are what the reader had to mend or drop. `coarse_ns` is the clock's resolution where it is coarser than 1 ns
    (1000 for integer-µs traces, 250 for float64 epoch-µs), else 1.
    """

    items: pd.DataFrame
    calls: pd.DataFrame
    ranges: pd.DataFrame
    info: TraceInfo
    notes: tuple[QualityNote, ...] = ()
    coarse_ns: int = 1
    device_names: dict[tuple[int, int], str] = field(default_factory=dict)  # (rank, device) -> GPU name
