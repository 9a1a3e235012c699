"""Nsight Systems: .sqlite exports of schema 2.9 to 3.28, and .nsys-rep through `nsys export`.

All times are int64 ns since the session began. A report of several processes becomes one rank a process: correlation ids,
threads and waits are a process's own.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pandas as pd

from advisor.errors import TraceError
from advisor.model import TraceInfo
from advisor.sources import Source
from advisor.sources import _nsys_about as about
from advisor.sources._nsys_database import MAGIC, Database, opened
from advisor.sources._nsys_host import HostSide, read_host
from advisor.sources._nsys_items import read_items
from advisor.tables import CALLS, ITEMS, RANGES
from advisor.timeline import RawTrace

_REPORTS: Final = (".nsys-rep", ".qdrep")
_EXPORTS: Final = (".sqlite",)
_EXPORT_LIMIT_S: Final = 1800


def accepts(path: Path, head: bytes) -> bool:
    """Whether the file is an SQLite database, or calls itself a report or an export: then `read` says what is wrong."""
    return head.startswith(MAGIC) or path.suffix.lower() in (*_REPORTS, *_EXPORTS)


def read(path: Path, rank: int) -> RawTrace:
    """The unlinked tables of one report; its processes become ranks `rank`, `rank` + 1, ... Raises TraceError."""
    with path.open("rb") as file:
        is_export = file.read(len(MAGIC)) == MAGIC
    if is_export or path.suffix.lower() not in _REPORTS:
        return _read_export(path, rank)
    with tempfile.TemporaryDirectory(prefix="cgadvisor-") as folder:
        exported = _export(path, Path(folder) / "report.sqlite")
        raw = _read_export(exported, rank)
    return replace(raw, info=msgspec.structs.replace(raw.info, files=(path.name,)))


def _export(report: Path, target: Path) -> Path:
    """`nsys export` of the report to `target`. Raises TraceError with the command to run elsewhere when it cannot."""
    by_hand = f"nsys export --type sqlite --output {report.stem}.sqlite {report.name}"
    nsys = shutil.which("nsys")
    if nsys is None:
        raise TraceError(
            f"{report}: reading a report needs `nsys` on PATH; where it is, run `{by_hand}` and give the .sqlite"
        )
    command = [nsys, "export", "--type", "sqlite", "--force-overwrite", "true", "--output", str(target), str(report)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_EXPORT_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TraceError(f"{report}: `nsys export` did not finish ({error}); run `{by_hand}` by hand") from error
    if done.returncode or not target.exists():
        said = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise TraceError(
            f"{report}: `nsys export` failed: {said}; a report needs the nsys that wrote it or a newer one"
        )
    return target


def _read_export(path: Path, rank: int) -> RawTrace:
    with opened(path) as database:
        if not about.is_export(database):
            raise TraceError(f"{path}: an SQLite database, but not of Nsight Systems; give what `nsys export` wrote")
        items, lost = read_items(database)
        host = read_host(database, int(items["end_ns"].max()) if len(items) else 0)
        _refuse_nothing(path, items, host)
        ranks = _ranks(items, host, rank)
        used = items[["process", "pid", "device"]].drop_duplicates()
        names = {}
        for process, pid, device in used.itertuples(index=False):
            name = about.gpu_names(database, int(pid)).get(int(device))
            if name:
                names[ranks[int(process)], int(device)] = name
        processes = int(used["process"].nunique())
        notes = about.complaints(database) + about.mending_notes(lost + host.lost, host.open_, processes)
        info = _info(path, database, names, processes)
    tables = (ITEMS.build(_ranked(items, ranks)), CALLS.build(_ranked(host.calls, ranks)), _ranges(host, items, ranks))
    info = msgspec.structs.replace(info, event_count=sum(len(table) for table in tables))
    return RawTrace(*tables, info=info, notes=notes, device_names=names)


def _refuse_nothing(path: Path, items: pd.DataFrame, host: HostSide) -> None:
    """Raise TraceError when the export holds nothing but the profiler's own overhead."""
    if len(items) or len(host.calls) or (host.ranges["kind"] != "overhead").any():
        return
    raise TraceError(
        f"{path}: no GPU work, no CUDA calls and no NVTX ranges in this report: CUDA was not traced; "
        "record again with `nsys profile -t cuda,nvtx --cuda-graph-trace=node`"
    )


def _ranks(items: pd.DataFrame, host: HostSide, first: int) -> dict[int, int]:
    """Process -> rank: those with GPU work first, by their lowest device, then those with calls or ranges only."""
    lowest = items.groupby("process")["device"].min()
    working = sorted(lowest.index, key=lambda process: (lowest[process], process))
    others = {int(process) for frame in (host.calls, host.ranges) for process in frame["process"].unique()}
    order = [*(int(process) for process in working), *sorted(others - set(working))]
    return {process: first + at for at, process in enumerate(order)}


def _ranked(frame: pd.DataFrame, ranks: dict[int, int]) -> pd.DataFrame:
    return frame.assign(rank=frame["process"].map(ranks).astype(np.int64))


def _ranges(host: HostSide, items: pd.DataFrame, ranks: dict[int, int]) -> pd.DataFrame:
    """All ranges; the profiler's overhead only in processes that used a GPU, where it can have delayed something."""
    if not len(items):
        return RANGES.build(_ranked(host.ranges, ranks))
    matters = (host.ranges["kind"] != "overhead") | host.ranges["process"].isin(items["process"].unique())
    return RANGES.build(_ranked(host.ranges[matters].reset_index(drop=True), ranks))


def _info(path: Path, database: Database, names: dict[tuple[int, int], str], processes: int) -> TraceInfo:
    return TraceInfo(
        source="nsight",
        files=(path.name,),
        format_detail=about.format_detail(database),
        gpu_names=tuple(dict.fromkeys(names.values())),
        cuda_version=about.cuda_version(database),
        rank_count=max(1, processes),
    )


SOURCE = Source(id="nsight", accepts=accepts, read=read)
