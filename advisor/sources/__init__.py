"""Readers of recorded traces. One file a format, each with one `SOURCE`; all give the same tables.

`load` picks the reader by looking at the file's first bytes, not at its name.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pandas as pd

from advisor.errors import TraceError
from advisor.model import QualityNote, Severity, TraceInfo
from advisor.registry import members
from advisor.timeline import RawTrace, Timeline, build, concat

_HEAD_BYTES: Final = 4096
_UNNAMED: Final = 1 << 32  # ranks from here on are the reader's own count: the file named none
_WANTED: Final = "Kineto .json or .json.gz, Nsight Systems .sqlite or .nsys-rep"


@dataclass(frozen=True)
class Source:
    """One trace format. `accepts` looks at the file's name and its first 4096 bytes; `read` raises TraceError.

    `read(file, rank)` numbers the processes of a file that names no rank `rank`, `rank + 1`, ...
    """

    id: str
    accepts: Callable[[Path, bytes], bool]
    read: Callable[[Path, int], RawTrace]  # (file, rank to use when the file names none)


def load(path: str | os.PathLike[str]) -> Timeline:
    """The joined timeline of a file, or of a folder with one file a rank. Raises TraceError."""
    place = Path(path)
    if place.is_dir():
        return build(_read_folder(place))
    return build(_read_file(place, 0))


def _read_file(path: Path, rank: int) -> RawTrace:
    source = _source_of(path)
    if source is None:
        raise TraceError(f"{path}: not a trace; expected {_WANTED}")
    return source.read(path, rank)


def _source_of(path: Path) -> Source | None:
    """The reader that accepts the file. Raises TraceError when it cannot be opened or is empty."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except FileNotFoundError as error:
        raise TraceError(f"{path}: no such file or folder") from error
    except OSError as error:
        raise TraceError(f"{path}: cannot read: {error.strerror}") from error
    if not head:
        raise TraceError(f"{path}: the file is empty; record the trace again")
    # Asked without the name first: a database called trace.json is still a database.
    return next((source for name in (Path(), path) for source in _sources() if source.accepts(name, head)), None)


def _sources() -> tuple[Source, ...]:
    return members(sys.modules[__name__], "SOURCE", Source)


def _read_folder(folder: Path) -> RawTrace:
    """All traces of a folder as ranks of one run; what is no trace is skipped and noted."""
    parts: list[RawTrace] = []
    skipped: list[str] = []
    for path in _candidates(folder):
        try:
            parts.append(_read_file(path, _UNNAMED))
        except TraceError as error:
            skipped.append(f"{path.name} ({str(error).removeprefix(f'{path}: ').partition(';')[0]})")
    if not parts:
        held = f"; it holds {_some(skipped)}" if skipped else ""
        raise TraceError(f"{folder}: no trace in this folder{held}; expected one file a rank, {_WANTED}")
    if len({part.info.source for part in parts}) > 1:
        raise TraceError(f"{folder}: Kineto and Nsight traces in one folder; give the traces of one profiler only")
    parts, clashes = _own_ranks(parts)
    return concat(parts, _joint_info(parts), _folder_notes(skipped, clashes))


def _candidates(folder: Path) -> list[Path]:
    """Plain files in human order (rank2 before rank10). `nsys` leaves an export beside its report: one of them is enough."""
    try:
        files = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
    except OSError as error:
        raise TraceError(f"{folder}: cannot read: {error.strerror}") from error
    exported = {path.stem for path in files if path.suffix == ".sqlite"}
    files = [path for path in files if not (path.suffix == ".nsys-rep" and path.stem in exported)]
    return sorted(files, key=lambda path: [(part.isdigit(), part.zfill(20)) for part in re.split(r"(\d+)", path.name)])


def _own_ranks(parts: list[RawTrace]) -> tuple[list[RawTrace], int]:
    """The parts with ranks that no two of them share, and how many had to give up the rank they named.

    A rank the file names is kept; files without one take the free numbers in file order.
    """
    named = {rank for part in parts for rank in _ranks(part) if rank < _UNNAMED}
    taken: set[int] = set()
    free = (rank for rank in range(_UNNAMED) if rank not in named)
    made, clashes = [], 0
    for part in parts:
        moves = {}
        for rank in _ranks(part):
            keeps = rank < _UNNAMED and rank not in taken
            clashes += rank < _UNNAMED and not keeps
            moves[rank] = rank if keeps else next(free)
            taken.add(moves[rank])
        made.append(_renumbered(part, moves))
    return made, clashes


def _ranks(part: RawTrace) -> list[int]:
    found: set[int] = set()
    for frame in (part.items, part.calls, part.ranges):
        found.update(int(rank) for rank in frame["rank"].unique())
    return sorted(found)


def _renumbered(part: RawTrace, moves: dict[int, int]) -> RawTrace:
    if all(old == new for old, new in moves.items()):
        return part
    names = {(moves.get(rank, rank), device): name for (rank, device), name in part.device_names.items()}
    items, calls, ranges = (_moved(frame, moves) for frame in (part.items, part.calls, part.ranges))
    return replace(part, items=items, calls=calls, ranges=ranges, device_names=names)


def _moved(frame: pd.DataFrame, moves: dict[int, int]) -> pd.DataFrame:
    return frame.assign(rank=frame["rank"].map(moves).astype("int64"))


def _joint_info(parts: list[RawTrace]) -> TraceInfo:
    infos = [part.info for part in parts]
    return TraceInfo(
        source=infos[0].source,
        files=tuple(name for info in infos for name in info.files),
        format_detail="; ".join(dict.fromkeys(info.format_detail for info in infos if info.format_detail)),
        gpu_names=tuple(dict.fromkeys(name for info in infos for name in info.gpu_names)),
        cuda_version=next((info.cuda_version for info in infos if info.cuda_version), ""),
        torch_version=next((info.torch_version for info in infos if info.torch_version), ""),
        rank_count=sum(info.rank_count for info in infos),
        event_count=sum(info.event_count for info in infos),
    )


def _folder_notes(skipped: list[str], clashes: int) -> tuple[QualityNote, ...]:
    notes = []
    if skipped:
        what = f"files of the folder that are no trace were skipped: {_some(skipped)}"
        notes.append(QualityNote(id="skipped-files", severity=Severity.WARNING, count=len(skipped), message=what))
    if clashes:
        what = f"files that name a rank another file has: {clashes}; kept apart under free numbers"
        notes.append(QualityNote(id="rank-clash", severity=Severity.WARNING, count=clashes, message=what))
    return tuple(notes)


def _some(names: list[str], limit: int = 3) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
