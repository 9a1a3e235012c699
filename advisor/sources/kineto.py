"""Kineto's Chrome traces: .json and .json.gz, of PyTorch 1.8 to today, CUDA and HIP.

One streaming pipeline: blocks of text, cut into pieces between events, decoded into typed structs, gathered in columns.
Times are exact: int64 ns from the decimal text, with the file's base added.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pandas as pd

from advisor.errors import TraceError
from advisor.model import TraceInfo
from advisor.sources import Source
from advisor.sources._json_events import ArrayReader
from advisor.sources._json_stream import Ending, peek, read_blocks
from advisor.sources._kineto_events import decode_many, decode_one
from advisor.sources._kineto_header import Header, open_array, parse_header
from advisor.sources._kineto_notes import Read, notes_on
from advisor.sources._kineto_tables import Tables
from advisor.timeline import RawTrace

_SUFFIXES: Final = (".json", ".json.gz")
_EPOCH_NS: Final = 2**50 * 1000  # 2005 in µs: from here on a float64 of microseconds steps by 250 ns
_FLOAT_STEP_NS: Final = 250
_MICROSECOND_NS: Final = 1000


def accepts(path: Path, head: bytes) -> bool:
    """Whether the file is JSON, or calls itself so: then `read` says what is wrong with it."""
    text = peek(head).removeprefix(b"\xef\xbb\xbf").lstrip(b"\0 \t\r\n")
    return text[:1] in (b"{", b"[") or path.name.lower().endswith(_SUFFIXES)


def read(path: Path, rank: int) -> RawTrace:
    """The unlinked tables of one trace; `rank` counts when the file names none. Raises TraceError."""
    ending = Ending()
    opened = open_array(path, read_blocks(path, ending))
    reader: ArrayReader[Any] = ArrayReader(decode_many, decode_one)
    tables = Tables()
    for events in reader.read(opened.blocks, opened.offset):
        tables.add(events)
    if not tables.event_count:
        raise TraceError(f"{path}: JSON, but not one trace event in it; give what export_chrome_trace wrote")
    header, header_complete = parse_header(opened.head, reader.rest)
    rank = rank if header.rank is None else header.rank
    items, calls, ranges = tables.finish(rank, header.base_ns)
    if not (len(items) or len(calls) or len(ranges)):
        raise TraceError(f"{path}: {tables.event_count:,} trace events, but no kernel, call, op or range among them")
    found = Read(reader.damage, ending.fault, tables.lost, tables.ignored, tables.event_count, header_complete)
    names = _used_names(header, items, rank)
    return RawTrace(
        items=items,
        calls=calls,
        ranges=ranges,
        info=_info(path, header, names, tables.event_count),
        notes=notes_on(found),
        coarse_ns=_coarse_ns(tables.decimals, (items, calls, ranges), header.base_ns),
        device_names=names,
    )


def _used_names(header: Header, items: pd.DataFrame, rank: int) -> dict[tuple[int, int], str]:
    """(rank, device) -> name of the GPUs that worked; files list all of the machine.

    ROCm numbers its devices otherwise than its list does: the name of a machine with one sort of GPU is plain all the same.
    """
    names = header.gpu_names
    only = next(iter(names.values())) if len(set(names.values())) == 1 else None
    used = sorted({int(device) for device in items["device"].unique()})
    return {(rank, device): name for device in used if (name := names.get(device, only)) is not None}


def _info(path: Path, header: Header, names: dict[tuple[int, int], str], event_count: int) -> TraceInfo:
    return TraceInfo(
        source="kineto",
        files=(path.name,),
        format_detail=header.detail,
        gpu_names=tuple(dict.fromkeys(names.values())),
        cuda_version=header.cuda_version,
        event_count=event_count,
    )


def _coarse_ns(decimals: int, frames: tuple[pd.DataFrame, ...], base_ns: int) -> int:
    """The clock's resolution: whole microseconds, float64 of absolute microseconds, or exact."""
    if decimals == 0:
        return _MICROSECOND_NS
    latest = max(int(frame["start_ns"].max()) for frame in frames if len(frame)) - base_ns
    return _FLOAT_STEP_NS if latest >= _EPOCH_NS and decimals in (1, 2) else 1


SOURCE = Source(id="kineto", accepts=accepts, read=read)
