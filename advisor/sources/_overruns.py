"""GPU items that run over the ones behind them on the same stream: records with a broken duration, cut back.

A stream works in order. Items overlap on one by some microseconds (rounding, programmatic dependent launch), and inside
a graph its branches may share one; but no item encloses the next, launched by another call, by half its own length. One
such record, seen on ROCm, turns a second of idle time into busy time.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

_FLOOR_NS: Final = 50_000


def clip_overruns(items: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """`items` with each overrunning one ended where its successor starts, and how many those were.

    An item overruns when it ends after the end of the next item of its stream that another launch made, more than 50 µs
    and more than half its own length after that item's start.
    """
    order = np.lexsort((items["start_ns"], items["stream"], items["device"]))
    device, stream = items["device"].to_numpy()[order], items["stream"].to_numpy()[order]
    start, end = items["start_ns"].to_numpy()[order], items["end_ns"].to_numpy()[order]
    launch = items["correlation"].fillna(-1).to_numpy("int64")[order]
    neighbours = (device[1:] == device[:-1]) & (stream[1:] == stream[:-1])
    unrelated = (launch[1:] != launch[:-1]) | (launch[1:] < 0)
    over = end[:-1] - start[1:]
    broken = neighbours & unrelated & (end[:-1] > end[1:]) & (over > _FLOOR_NS) & (2 * over > end[:-1] - start[:-1])
    if not broken.any():
        return items, 0
    at = np.flatnonzero(broken)
    clipped = items["end_ns"].to_numpy().copy()
    clipped[order[at]] = start[at + 1]
    return items.assign(end_ns=clipped), len(at)
