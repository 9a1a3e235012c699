"""What an Nsight Systems export says about itself: versions, GPU names, and its own complaints."""

from __future__ import annotations

import re
from typing import Final

from advisor.model import QualityNote, Severity
from advisor.sources._nsys_database import Database

_EXPORT_TABLES: Final = ("META_DATA_EXPORT", "EXPORT_META_DATA")  # since schema 3.1, and before
# Diagnostics that say records are missing; the rest counts events or tells of permissions.
_LOSS: Final = re.compile(
    r"\b(?:dropped|lost|discarded|not all|incomplete|overflow|might (?:not )?have)\b", re.IGNORECASE
)
_PATH: Final = re.compile(r"(?<![\w.])(?:~|\.{0,2})/[^\s:;,]+")
_INFO_LEVEL: Final = 1
_TEXT_LIMIT: Final = 160


def is_export(database: Database) -> bool:
    """Whether the database is an Nsight Systems export at all."""
    return any(
        table in database.tables for table in (*_EXPORT_TABLES, "TARGET_INFO_SESSION_START_TIME", "ANALYSIS_DETAILS")
    )


def format_detail(database: Database) -> str:
    """`schema 3.20.3, nsys 2025.3.2.0`; empty when the export does not say."""
    found: dict[str, str] = {}
    for table in _EXPORT_TABLES:
        if {"name", "value"} <= database.columns(table):
            found.update((str(name), str(value)) for name, value in database.rows(f"SELECT name, value FROM {table}"))
    parts = (("schema", "EXPORT_SCHEMA_VERSION"), ("nsys", "EXPORT_PRODUCT_VERSION"))
    return ", ".join(f"{label} {found[key]}" for label, key in parts if found.get(key))


def cuda_version(database: Database) -> str:
    """The driver's CUDA version as `13.0`, or empty."""
    if not {"name", "value"} <= database.columns("TARGET_INFO_SYSTEM_ENV"):
        return ""
    rows = database.rows("SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'CudaDriverVersion'")
    text = str(rows[0][0]) if rows else ""
    return f"{int(text) // 1000}.{int(text) % 1000 // 10}" if text.isdigit() else ""


def gpu_names(database: Database, pid: int) -> dict[int, str]:
    """CUDA device number in process `pid` -> GPU name.

    Where the export maps devices per process (CUDA_VISIBLE_DEVICES renumbers them) that decides, else the GPU's own number.
    """
    there = database.columns("TARGET_INFO_GPU")
    if not {"id", "name"} <= there:
        return {}
    by_id = _by_number(database.rows("SELECT id, name FROM TARGET_INFO_GPU"))
    if {"gpuId", "cudaId", "pid"} <= database.columns("TARGET_INFO_CUDA_DEVICE"):
        rows = database.rows(f"SELECT cudaId, gpuId FROM TARGET_INFO_CUDA_DEVICE WHERE pid = {int(pid)}")
        if rows:
            return _by_number([(device, by_id[gpu]) for device, gpu in rows if isinstance(gpu, int) and gpu in by_id])
    number = "ifnull(cuDevice, id)" if "cuDevice" in there else "id"
    return _by_number(database.rows(f"SELECT {number}, name FROM TARGET_INFO_GPU"))


def _by_number(rows: list[tuple[object, ...]]) -> dict[int, str]:
    """(number, text) rows as a dictionary; rows without a number say nothing."""
    return {number: str(text) for number, text in rows if isinstance(number, int)}


def complaints(database: Database) -> tuple[QualityNote, ...]:
    """A note when the recorder itself says that events are missing."""
    if not {"severity", "text"} <= database.columns("DIAGNOSTIC_EVENT"):
        return ()
    where = f"text IS NOT NULL AND severity > {_INFO_LEVEL}"
    rows = database.rows(f"SELECT text FROM DIAGNOSTIC_EVENT WHERE {where} ORDER BY rowid")
    texts = [str(text) for (text,) in rows if _LOSS.search(str(text))]
    if not texts:
        return ()
    # Paths tell of the machine and its user, not of the trace.
    first = _PATH.sub("(path)", " ".join(texts[0].split()))[:_TEXT_LIMIT]
    return (
        QualityNote(
            id="recorder-lost-events",
            severity=Severity.ERROR,
            count=len(texts),
            message=f'the recorder reports missing events: "{first}"; record a shorter stretch (--capture-range, fewer steps)',
            forbids=("estimate",),
        ),
    )


def mending_notes(lost: int, open_: int, processes: int) -> tuple[QualityNote, ...]:
    """What the reader dropped, closed, or numbered."""
    notes = []
    if lost:
        what = f"{lost:,} rows without a start and a later end were left out"
        notes.append(QualityNote(id="rows-without-times", severity=Severity.WARNING, count=lost, message=what))
    if open_:
        what = f"{open_:,} NVTX ranges had not ended when the recording did; they end at its last event here"
        notes.append(QualityNote(id="open-ranges", severity=Severity.INFO, count=open_, message=what))
    if processes > 1:
        what = f"the report holds {processes} processes with GPU work; each is shown as a rank, in the order of their devices"
        notes.append(QualityNote(id="processes-as-ranks", severity=Severity.INFO, count=processes, message=what))
    return tuple(notes)
