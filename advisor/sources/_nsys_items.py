"""GPU items of an Nsight Systems export: kernels, copies, memsets and whole graph executions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from advisor.sources._nsys_database import NULL, Database, Ints, categorical, optional, pid_of, process_of, timed

_KERNEL: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
_COMMON: Final = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphId", "graphNodeId")
_KERNEL_NAMES: Final = ("demangledName", "shortName", "mangledName")  # the best first
_GRAPH_BITS: Final = 32

# CUpti_ActivityMemcpyKind and CUpti_ActivityMemoryKind; Kineto's spelling of both sides of a copy.
_COPY_KINDS: Final = {
    1: ("HtoD", "h2d"),
    2: ("DtoH", "d2h"),
    3: ("HtoA", "h2d"),
    4: ("AtoH", "d2h"),
    5: ("AtoA", "d2d"),
    6: ("AtoD", "d2d"),
    7: ("DtoA", "d2d"),
    8: ("DtoD", "d2d"),
    9: ("HtoH", "h2h"),
    10: ("PtoP", "p2p"),
    11: ("HtoD", "h2d"),
    12: ("DtoH", "d2h"),
    13: ("DtoD", "d2d"),
}
_MEMORY: Final = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device Static", 6: "Managed"}
_HOST_MEMORY: Final = {0: "pageable", 1: "pinned"}


def read_items(database: Database) -> tuple[pd.DataFrame, int]:
    """Columns of `tables.ITEMS` but rank, with `process` (globalPid) beside; and how many rows had no usable time."""
    parts, dropped = [], 0
    for read in (_kernels, _copies, _memsets, _graphs):
        part, lost = read(database)
        dropped += lost
        if len(part):
            parts.append(part)
    if not parts:
        return _frame({column: np.zeros(0, np.int64) for column in _COMMON}, "kernel", pd.Categorical([]), {}), dropped
    stacked = {}
    for column in parts[0].columns:
        if isinstance(parts[0][column].dtype, pd.CategoricalDtype):
            values = [part[column].astype(object) for part in parts]
            stacked[column] = pd.Series(pd.Categorical(pd.concat(values, ignore_index=True)))
        else:
            stacked[column] = pd.concat([part[column] for part in parts], ignore_index=True)
    return pd.DataFrame(stacked), dropped


def _read(database: Database, table: str, more: tuple[str, ...]) -> tuple[dict[str, Ints], int]:
    columns = database.ints(table, _COMMON + more)
    good = timed(columns)
    return {name: values[good] for name, values in columns.items()}, int((~good).sum())


def _kernels(database: Database) -> tuple[pd.DataFrame, int]:
    columns, lost = _read(database, _KERNEL, _KERNEL_NAMES)
    ids = columns[_KERNEL_NAMES[0]]
    for other in _KERNEL_NAMES[1:]:
        ids = np.where(ids == NULL, columns[other], ids)
    return _frame(columns, "kernel", database.names(ids, "unknown kernel"), {}), lost


def _copies(database: Database) -> tuple[pd.DataFrame, int]:
    columns, lost = _read(database, "CUPTI_ACTIVITY_KIND_MEMCPY", ("bytes", "copyKind", "srcKind", "dstKind"))
    kinds, source, target = columns["copyKind"], columns["srcKind"], columns["dstKind"]
    codes, distinct = _distinct(kinds, source, target)
    names = [f"Memcpy {_COPY_KINDS.get(kind, ('', ''))[0]}{_sides(one, other)}" for kind, one, other in distinct]
    copy_kind = [_COPY_KINDS.get(kind, ("", None))[1] for kind, _, _ in distinct]
    host = [_host_memory(kind, one, other) for kind, one, other in distinct]
    more = {
        "bytes": optional(columns["bytes"]),
        "copy_kind": _per_row(codes, copy_kind),
        "host_memory": _per_row(codes, host),
    }
    return _frame(columns, "memcpy", categorical(codes, np.array(names, dtype=object)), more), lost


def _host_memory(kind: int, source: int, target: int) -> str | None:
    """What the host side of a copy is; None for copies without one and for managed memory."""
    side = {"h2d": source, "h2h": source, "d2h": target}.get(_COPY_KINDS.get(kind, ("", ""))[1], NULL)
    return _HOST_MEMORY.get(side)


def _sides(source: int, target: int) -> str:
    if source not in _MEMORY or target not in _MEMORY:
        return ""
    return f" ({_MEMORY[source]} -> {_MEMORY[target]})"


def _memsets(database: Database) -> tuple[pd.DataFrame, int]:
    columns, lost = _read(database, "CUPTI_ACTIVITY_KIND_MEMSET", ("bytes", "memKind"))
    codes, distinct = _distinct(columns["memKind"])
    names = [f"Memset ({_MEMORY.get(kind, 'Device')})" for (kind,) in distinct]
    more = {"bytes": optional(columns["bytes"])}
    return _frame(columns, "memset", categorical(codes, np.array(names, dtype=object)), more), lost


def _graphs(database: Database) -> tuple[pd.DataFrame, int]:
    """Executions recorded as a whole (`--cuda-graph-trace=graph`): busy time of which nothing is known inside."""
    columns, lost = _read(database, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", ())
    codes, distinct = _distinct(columns["graphId"])
    names = ["CUDA graph" if graph == NULL else f"CUDA graph {graph}" for (graph,) in distinct]
    return _frame(columns, "graph", categorical(codes, np.array(names, dtype=object)), {}), lost


def _frame(columns: dict[str, Ints], kind: str, names: pd.Categorical, more: dict[str, Any]) -> pd.DataFrame:
    count = len(columns["start"])
    node = np.where(columns["graphNodeId"] == 0, NULL, columns["graphNodeId"])
    graph = np.where(columns["graphId"] == 0, NULL, columns["graphId"])
    # Exports before 3.24 have no graphId; the upper half of a node's id is its graph's.
    graph = np.where((graph == NULL) & (node != NULL), node >> _GRAPH_BITS, graph)
    nothing: Callable[[], pd.Categorical] = lambda: pd.Categorical([None] * count, categories=[])  # noqa: E731
    return pd.DataFrame(
        {
            "process": process_of(columns["globalPid"]),
            "pid": pid_of(columns["globalPid"]),
            "device": np.where(columns["deviceId"] == NULL, 0, columns["deviceId"]),
            "stream": np.where(columns["streamId"] == NULL, 0, columns["streamId"]),
            "kind": pd.Categorical([kind] * count, categories=[kind]),
            "name": names,
            "start_ns": columns["start"],
            "end_ns": columns["end"],
            "correlation": optional(columns["correlationId"]),
            "graph_id": optional(graph),
            "graph_node_id": optional(node),
            "bytes": more.get("bytes", optional(np.full(count, NULL, dtype=np.int64))),
            "copy_kind": more.get("copy_kind", nothing()),
            "host_memory": more.get("host_memory", nothing()),
        }
    )


def _distinct(*columns: Ints) -> tuple[Ints, list[tuple[int, ...]]]:
    """Code of each row's combination of values, and the combinations: names are made once per combination."""
    stacked = np.stack(columns, axis=1)
    found, codes = np.unique(stacked, axis=0, return_inverse=True)
    return codes.reshape(-1).astype(np.int64), [tuple(int(value) for value in row) for row in found]


def _per_row(codes: Ints, values: list[str | None]) -> pd.Categorical:
    """values[codes] as a categorical, None as <NA>."""
    texts: npt.NDArray[np.object_] = np.array([*values, None], dtype=object)
    return pd.Categorical(texts[codes]) if len(codes) else pd.Categorical([], categories=[])
