"""CPU side of an Nsight Systems export: CUDA API calls, NVTX ranges and the profiler's own overhead."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from advisor.calls import call_kind, normalise
from advisor.marks import NVTX_DOMAIN, decode
from advisor.sources._nsys_database import (
    NULL,
    Database,
    Ints,
    categorical,
    optional,
    pid_of,
    process_of,
    tid_of,
    timed,
)

_RUNTIME: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
_NVTX: Final = "NVTX_EVENTS"
_RANGE_TYPES: Final = "59, 60, 70, 71"  # push/pop and start/end, live and imported
_DOMAIN_CREATED: Final = 75
# CUPTI also calls overhead what the driver does in any run; only the rest is the profiler's doing.
_DRIVER_WORK: Final = frozenset(
    {
        "command buffer full",
        "lazy function loading",
        "runtime triggered module loading",
        "driver compiler",
        "jit compiler",
    }
)
# torch.autograd.profiler.emit_nvtx: "aten::mm, seq = 12, op_id = 3, sizes = [[8, 256], [256, 256]], input_op_ids = [...]"
_SEQUENCE: Final = ", seq = "
_OP_ID: Final = ", op_id = "
_SIZES: Final = ", sizes = "
_INPUT_IDS: Final = ", input_op_ids = "
_OP: Final = re.compile(r"^(?!FSDP::)[\w.]+(?:::[\w.<>]+)+(?:: \w+)?$|^Optimizer\.|^enumerate\(DataLoader\)#")


@dataclass(frozen=True)
class HostSide:
    """`calls` and `ranges`: columns of their tables but rank, with `process` beside.

    lost: rows without usable times; open_: ranges that had not ended when the recording did, ended at its last event.
    """

    calls: pd.DataFrame
    ranges: pd.DataFrame
    lost: int
    open_: int


def read_host(database: Database, last_item_ns: int) -> HostSide:
    """API calls and ranges. `last_item_ns` is the end of the GPU's work, for ranges that never closed."""
    calls, lost_calls = _read_calls(database)
    last = max(last_item_ns, int(calls["end_ns"].max()) if len(calls) else 0)
    ranges, lost_ranges, open_ = _read_nvtx(database, last)
    overhead = [_read_overhead(database, table) for table in ("CUPTI_ACTIVITY_KIND_OVERHEAD", "PROFILER_OVERHEAD")]
    parts = [part for part in (ranges, *overhead) if len(part)]
    return HostSide(calls, pd.concat(parts, ignore_index=True) if parts else ranges, lost_calls + lost_ranges, open_)


def _read_calls(database: Database) -> tuple[pd.DataFrame, int]:
    columns = database.ints(_RUNTIME, ("start", "end", "globalTid", "correlationId", "nameId"))
    good = timed(columns)
    lost = int((~good).sum())
    columns = {name: values[good] for name, values in columns.items()}
    raw = database.names(columns["nameId"], "unknown")
    apis = np.array([normalise(str(name)) for name in raw.categories], dtype=object)
    codes = raw.codes.astype(np.int64)
    kinds = np.array([call_kind(api) for api in apis], dtype=object)
    frame = pd.DataFrame(
        {
            "process": process_of(columns["globalTid"]),
            "pid": pid_of(columns["globalTid"]),
            "tid": tid_of(columns["globalTid"]),
            "api": categorical(codes, apis),
            "kind": categorical(codes, kinds),
            "start_ns": columns["start"],
            "end_ns": columns["end"],
            "correlation": optional(columns["correlationId"]),
        }
    )
    return _without_echoes(frame), lost


def _without_echoes(calls: pd.DataFrame) -> pd.DataFrame:
    """Without the second row of calls recorded twice: backtrace and MPI builds wrap a call in a row of the same name and id."""
    api, correlation = calls["api"].cat.codes.to_numpy(), calls["correlation"].fillna(NULL).to_numpy(dtype=np.int64)
    process, tid = calls["process"].to_numpy(), calls["tid"].to_numpy()
    start, end = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    order = np.lexsort((-end, start, api, correlation, tid, process))
    same = np.zeros(len(order), dtype=bool)
    if len(order) > 1:
        before, after = order[:-1], order[1:]
        same[1:] = (correlation[after] != NULL) & (start[after] < end[before])
        for key in (process, tid, correlation, api):
            same[1:] &= key[after] == key[before]
    keep = np.ones(len(order), dtype=bool)
    keep[order[same]] = False
    return calls[keep].reset_index(drop=True)


def _read_nvtx(database: Database, last_ns: int) -> tuple[pd.DataFrame, int, int]:
    there = database.columns(_NVTX)
    where = f"eventType IN ({_RANGE_TYPES})" if "eventType" in there else "1"
    columns = database.ints(_NVTX, ("start", "end", "globalTid", "textId", "domainId"), where)
    open_ = (columns["end"] == NULL) & (columns["start"] != NULL)
    if open_.any():
        last_ns = max(last_ns, int(columns["end"].max()), int(columns["start"].max()))
        columns["end"] = np.where(open_, last_ns, columns["end"])
    codes, found = _labels(_texts(database, columns["textId"], where))
    good = timed(columns)
    codes, columns = codes[good], {name: values[good] for name, values in columns.items()}
    ours = [domain for domain, name in _domains(database).items() if name == NVTX_DOMAIN]
    kinds = np.array([*(label.kind for label in found), None], dtype=object)[codes]
    kinds = np.where(np.isin(columns["domainId"], ours), "mark", kinds)
    frame = pd.DataFrame(
        {
            "process": process_of(columns["globalTid"]),
            "pid": pid_of(columns["globalTid"]),
            "tid": tid_of(columns["globalTid"]),
            "kind": pd.Categorical(kinds),
            "name": categorical(codes, np.array([label.name for label in found], dtype=object)),
            "start_ns": columns["start"],
            "end_ns": columns["end"],
            "shapes": _shapes(codes, [label.sizes for label in found]),
        }
    )
    return frame, int((~good).sum()), int(open_.sum())


def _texts(database: Database, ids: Ints, where: str) -> list[str]:
    """Text of each range: written out in the row, or registered and given by id."""
    texts: list[object] = [database.strings.get(int(key)) for key in ids]
    if "text" in database.columns(_NVTX):
        inline = database.rows(f'SELECT "text" FROM "{_NVTX}" WHERE {where} ORDER BY rowid')
        texts = [one if one is not None else other for (one,), other in zip(inline, texts, strict=True)]
    # A range without text keeps its place in the nesting.
    return ["(no name)" if text is None else str(text) for text in texts]


class _Label(NamedTuple):
    kind: str
    name: str
    sizes: str | None  # input shapes


def _labels(texts: list[str]) -> tuple[Ints, list[_Label]]:
    """Code of each text's label, and the labels. Texts end in running numbers, so their stems are what repeats."""
    seen: dict[tuple[str, bool, bool, str | None], int] = {}
    codes = np.fromiter((seen.setdefault(_stem(text), len(seen)) for text in texts), dtype=np.int64, count=len(texts))
    return codes, [_label(*stem) for stem in seen]


def _stem(text: str) -> tuple[str, bool, bool, str | None]:
    """A text cut into (name, whether emit_nvtx wrote it, whether it has a sequence number, input shapes)."""
    name, has_sequence, rest = text.partition(_SEQUENCE)
    if not has_sequence:
        name, has_id, rest = text.partition(_OP_ID)
        if not has_id:
            name, has_sizes, _ = text.partition(_SIZES)
            if not has_sizes:
                return text, False, False, None
            rest = text[len(name) :]
    sizes = rest.partition(_SIZES)[2].partition(_INPUT_IDS)[0] or None
    return name, True, bool(has_sequence), sizes


def _label(name: str, emitted: bool, has_sequence: bool, sizes: str | None) -> _Label:
    if decode(name) is not None:
        return _Label("mark", name, None)
    if name.startswith("ProfilerStep#"):
        return _Label("step", name, None)
    if not emitted:
        return _Label("op" if name.startswith("aten::") else "nvtx", name, None)
    is_op = has_sequence or _OP.match(name) is not None
    return _Label("op" if is_op else "user", name, sizes)


def _domains(database: Database) -> dict[int, str]:
    """Domain id -> name, from the rows that created them."""
    if not {"eventType", "domainId"} <= database.columns(_NVTX):
        return {}
    where = f"eventType = {_DOMAIN_CREATED}"
    columns = database.ints(_NVTX, ("domainId", "textId"), where)
    texts = _texts(database, columns["textId"], where)
    return {int(domain): text for domain, text in zip(columns["domainId"], texts, strict=True)}


def _shapes(codes: Ints, sizes: list[str | None]) -> pd.Categorical:
    if not any(sizes):
        return pd.Categorical([None] * len(codes), categories=[])
    return pd.Categorical(np.array([*sizes, None], dtype=object)[codes])


def _read_overhead(database: Database, table: str) -> pd.DataFrame:
    columns = database.ints(table, ("start", "end", "globalTid", "nameId"))
    names = database.names(columns["nameId"], "profiler")
    mine = np.array([str(name).lower() not in _DRIVER_WORK for name in names.categories], dtype=bool)
    good = timed(columns) & (mine[names.codes] if len(names) else np.zeros(0, dtype=bool))
    columns = {name: values[good] for name, values in columns.items()}
    return pd.DataFrame(
        {
            "process": process_of(columns["globalTid"]),
            "pid": pid_of(columns["globalTid"]),
            "tid": tid_of(columns["globalTid"]),
            "kind": pd.Categorical(["overhead"] * len(columns["start"])),
            "name": names[good],
            "start_ns": columns["start"],
            "end_ns": columns["end"],
            "shapes": pd.Categorical([None] * len(columns["start"]), categories=[]),
        }
    )
