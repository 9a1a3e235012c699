"""Small hand-made Nsight Systems exports: only the tables and columns a test names."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PID = 77
PROCESS = (1 << 48) | (PID << 24)  # the bits above the pid number the machine
MAIN = PROCESS | PID
OTHER = PROCESS | 78

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
NVTX = "NVTX_EVENTS"

Row = Mapping[str, Any]

STRINGS = {
    1: "cudaLaunchKernel_v7000",
    2: "cudaGraphLaunch_v10000",
    3: "cudaMemcpyAsync_v3020",
    4: "cudaStreamSynchronize_v3020",
    5: "void gemm<float>(int)",
    6: "relu",
    7: "registered range",
    8: "cgadvisor",
    9: "Command Buffer Full",
    10: "CUPTI Buffer flush",
    11: "cudaMemsetAsync_v3020",
}


def kernel(start: int, end: int, correlation: int, **other: Any) -> Row:
    return {
        "start": start, "end": end, "deviceId": 0, "streamId": 7, "correlationId": correlation, "globalPid": PROCESS,
        "demangledName": 5, "shortName": 6, **other,
    }  # fmt: skip


def api(start: int, end: int, correlation: int | None, name: int = 1, **other: Any) -> Row:
    return {
        "start": start, "end": end, "eventClass": 0, "globalTid": MAIN, "correlationId": correlation, "nameId": name, **other,
    }  # fmt: skip


def nvtx(start: int, end: int | None, text: str | None = None, text_id: int | None = None, **other: Any) -> Row:
    return {
        "start": start, "end": end, "eventType": 59, "text": text, "textId": text_id, "globalTid": MAIN, "domainId": 0, **other,
    }  # fmt: skip


def write(path: Path, tables: Mapping[str, Sequence[Row]], *, meta: str | None = "META_DATA_EXPORT") -> Path:
    """An export at `path`; columns are those of each table's rows, all untyped as SQLite allows."""
    made = dict(tables)
    if "StringIds" not in made:
        made["StringIds"] = [{"id": key, "value": value} for key, value in STRINGS.items()]
    if meta is not None:
        made[meta] = [
            {"name": "EXPORT_SCHEMA_VERSION", "value": "3.28.1"},
            {"name": "EXPORT_PRODUCT_VERSION", "value": "2026.4.1"},
        ]
    connection = sqlite3.connect(path)
    for name, rows in made.items():
        columns = list(dict.fromkeys(column for row in rows for column in row))
        connection.execute(f'CREATE TABLE "{name}" ({", ".join(columns)})')
        marks = ", ".join("?" for _ in columns)
        connection.executemany(
            f'INSERT INTO "{name}" VALUES ({marks})', [[row.get(c) for c in columns] for row in rows]
        )
    connection.commit()
    connection.close()
    return path
