"""Inline timelines: rows written by hand, joined by the real `build`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from advisor.calls import call_kind
from advisor.model import TraceInfo
from advisor.tables import CALLS, ITEMS, RANGES
from advisor.timeline import RawTrace, Timeline, build

Row = dict[str, Any]
MAIN, BACKWARD = 100, 101


def kernel(start: int, end: int, correlation: int | None = None, **other: Any) -> Row:
    return {
        "rank": 0, "device": 0, "stream": 7, "kind": "kernel", "name": "k", "start_ns": start, "end_ns": end, "pid": 0,
        "correlation": correlation, **other,
    }  # fmt: skip


def copy(start: int, end: int, correlation: int, copy_kind: str, memory: str = "pageable") -> Row:
    return kernel(
        start,
        end,
        correlation,
        kind="memcpy",
        name=f"Memcpy {copy_kind}",
        copy_kind=copy_kind,
        host_memory=memory,
        bytes=4,
    )


def call(start: int, end: int, correlation: int | None = None, api: str = "cudaLaunchKernel", tid: int = MAIN) -> Row:
    return {
        "rank": 0, "pid": 1, "tid": tid, "api": api, "kind": call_kind(api), "start_ns": start, "end_ns": end,
        "correlation": correlation,
    }  # fmt: skip


def rng(start: int, end: int, name: str, kind: str = "op", tid: int = MAIN) -> Row:
    return {"rank": 0, "pid": 1, "tid": tid, "kind": kind, "name": name, "start_ns": start, "end_ns": end}


def timeline(items: Iterable[Row], calls: Iterable[Row] = (), ranges: Iterable[Row] = ()) -> Timeline:
    def columns(rows: Iterable[Row], schema: Any) -> dict[str, list[Any]]:
        kept = list(rows)
        needed = [c for c in schema.columns if c not in schema.linked]
        return {c: [row.get(c) for row in kept] for c in needed}

    return build(
        RawTrace(
            items=ITEMS.build(columns(items, ITEMS)),
            calls=CALLS.build(columns(calls, CALLS)),
            ranges=RANGES.build(columns(ranges, RANGES)),
            info=TraceInfo(source="inline", files=()),
        )
    )
