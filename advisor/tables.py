"""The tables of a timeline: column names, dtypes and units, and nowhere else.

A missing link is `<NA>`, never -1; times are int64 ns on one clock per rank. `Schema.build` is the only maker of a
frame, so every frame that exists has these columns in this order.

Sources fill `ITEMS`, `CALLS` and `RANGES` without the linked columns; `advisor.timeline.build` links them once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

CATEGORY: Final = "category"
INT: Final = "int64"
OPTIONAL_INT: Final = "Int64"

ITEM_KINDS: Final = ("kernel", "memcpy", "memset", "graph")
COPY_KINDS: Final = ("h2d", "d2h", "d2d", "p2p", "h2h")
RANGE_KINDS: Final = ("op", "user", "step", "python", "module", "nvtx", "mark", "overhead")


@dataclass(frozen=True)
class Schema:
    """Column name -> dtype of one table. Columns in `linked` are <NA> (counts: 0) until the timeline fills them."""

    name: str
    columns: Mapping[str, str]
    linked: frozenset[str] = frozenset()

    def build(self, data: Mapping[str, Any] | pd.DataFrame) -> pd.DataFrame:
        """A frame with exactly this schema's columns, cast; columns absent from `data` are <NA> when nullable.

        Raises KeyError when a column that cannot be missing is absent, ValueError when a time is negative in length.
        """
        length = _length(data)
        made = {column: self._column(data, column, dtype, length) for column, dtype in self.columns.items()}
        frame = pd.DataFrame(made, columns=list(self.columns))
        if "end_ns" in self.columns and bool((frame["end_ns"] < frame["start_ns"]).any()):
            raise ValueError(f"{self.name}: a row ends before it starts")
        return frame

    def empty(self) -> pd.DataFrame:
        """The table without rows."""
        return self.build({column: [] for column in self.columns})

    def _column(self, data: Mapping[str, Any] | pd.DataFrame, column: str, dtype: str, length: int) -> Any:
        if column in data:
            values = data[column]
            return values if isinstance(values, pd.Series) and values.dtype == dtype else _cast(values, dtype)
        if dtype in (OPTIONAL_INT, CATEGORY):
            return _cast([None] * length, dtype)
        if column in self.linked:
            return np.zeros(length, dtype=dtype)
        raise KeyError(f"{self.name}: column {column!r} is missing")


def rows_by(frame: pd.DataFrame, keys: list[str]) -> dict[tuple[int, ...], npt.NDArray[np.int64]]:
    """Positions of the rows of each combination of integer key columns, sorted by key; int64 arrays, ascending."""
    if len(frame) == 0:
        return {}
    columns = [frame[key].to_numpy(dtype="int64") for key in keys]
    order = np.lexsort(columns[::-1])
    changes = np.any([column[order][1:] != column[order][:-1] for column in columns], axis=0)
    parts = np.split(order, np.flatnonzero(changes) + 1)
    return {tuple(int(column[part[0]]) for column in columns): part for part in parts}


def optional_ids(column: pd.Series) -> npt.NDArray[np.int64]:
    """A nullable id column as int64 with -1 for <NA>, for code that walks links in numpy."""
    return column.to_numpy(dtype="int64", na_value=-1)


def _length(data: Mapping[str, Any] | pd.DataFrame) -> int:
    return len(data) if isinstance(data, pd.DataFrame) else max((len(values) for values in data.values()), default=0)


def _cast(values: Any, dtype: str) -> Any:
    if dtype == CATEGORY:
        return values if isinstance(values, pd.Categorical) else pd.Categorical(values)
    return pd.array(values, dtype=dtype) if dtype == OPTIONAL_INT else np.asarray(values, dtype=dtype)


ITEMS: Final = Schema(
    "items",
    {
        "rank": INT,
        "device": INT,
        "stream": INT,
        "kind": CATEGORY,  # ITEM_KINDS; "graph" is one opaque graph execution (graph-granularity Nsight reports)
        "name": CATEGORY,
        "start_ns": INT,
        "end_ns": INT,
        "pid": INT,  # process of the launch where the file says (Nsight), else 0
        "correlation": OPTIONAL_INT,  # unique within (rank, pid)
        "graph_id": OPTIONAL_INT,
        "graph_node_id": OPTIONAL_INT,
        "bytes": OPTIONAL_INT,
        "copy_kind": CATEGORY,  # COPY_KINDS or <NA>
        "host_memory": CATEGORY,  # "pageable" | "pinned" | <NA>: the host side of a copy
        "launch_id": OPTIONAL_INT,  # row of `calls`
    },
    linked=frozenset({"launch_id"}),
)

CALLS: Final = Schema(
    "calls",
    {
        "rank": INT,
        "pid": INT,
        "tid": INT,
        "api": CATEGORY,  # normalised, see advisor.calls
        "kind": CATEGORY,  # advisor.calls.CALL_KINDS
        "start_ns": INT,
        "end_ns": INT,
        "correlation": OPTIONAL_INT,
        "item_count": INT,  # items it submitted: 0, 1, or N for a graph launch
        "range_id": OPTIONAL_INT,  # innermost range on the same thread
    },
    linked=frozenset({"item_count", "range_id"}),
)

RANGES: Final = Schema(
    "ranges",
    {
        "rank": INT,
        "pid": INT,
        "tid": INT,
        "kind": CATEGORY,  # RANGE_KINDS
        "name": CATEGORY,
        "start_ns": INT,
        "end_ns": INT,
        "shapes": CATEGORY,  # input shapes as the file spells them, or <NA>
        "parent_id": OPTIONAL_INT,  # innermost enclosing range on the same thread
        "depth": INT,
    },
    linked=frozenset({"parent_id", "depth"}),
)

GAPS: Final = Schema(
    "gaps",
    {
        "rank": INT,
        "device": INT,
        "start_ns": INT,
        "end_ns": INT,
        "cause": CATEGORY,  # advisor.model.Cause
        "item_id": OPTIONAL_INT,  # row of `items`: the item that ends the gap
        "language_ns": INT,  # the four layers: their sum is the gap's length when cause is "launch", else 0
        "framework_ns": INT,
        "driver_ns": INT,
        "submission_ns": INT,
    },
)
