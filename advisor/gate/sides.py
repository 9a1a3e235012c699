"""What a person may put on either side of a gate: a run folder, a findings.json, a baseline file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from advisor.bundle import FILE_NAMES, Bundle, convert_artefact
from advisor.errors import BundleError
from advisor.gate import baseline
from advisor.gate.counts import RunArtefacts, snapshot_of
from advisor.gate.snapshot import KIND, Snapshot
from advisor.model import Analysis, Clock, Manifest, Verification

_PEEK_BYTES: Final = 1 << 16
_TRACE_KEYS: Final = (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"', b'"displayTimeUnit"')
_TRACE_SUFFIXES: Final = (".gz", ".sqlite", ".nsys-rep")


def is_trace(path: Path) -> bool:
    """Whether `path` is a recorded trace rather than an artefact of this tool; a folder without artefacts may be ranks."""
    if path.is_dir():
        return not any((path / name).exists() for name in FILE_NAMES.values())
    if path.suffix in _TRACE_SUFFIXES:
        return path.exists()
    try:
        with path.open("rb") as file:
            head = file.read(_PEEK_BYTES)
    except OSError:
        return False
    return head.lstrip()[:1] == b"[" or any(key in head for key in _TRACE_KEYS)


def label_of(path: Path) -> str:
    """The name of a path as text that can be written anywhere: a file name need not be Unicode."""
    return os.fsencode(path.name or str(path)).decode("utf-8", "replace")


def load_side(path: Path) -> Snapshot:
    """The snapshot of a run folder, a findings.json or a baseline file. Raises BundleError."""
    if path.is_dir():
        bundle = Bundle.open(path)
        run = RunArtefacts(
            bundle.load(Analysis),
            bundle.load_if_present(Manifest),
            bundle.load_if_present(Clock),
            bundle.load_if_present(Verification),
        )
        return snapshot_of(run, label_of(path))
    try:
        raw = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError as error:
        raise BundleError(f"{path}: no such run folder, findings.json or baseline") from error
    except (OSError, msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BundleError(f"{path}: not readable as JSON: {error}") from error
    if isinstance(raw, dict) and raw.get("kind") == KIND:
        return baseline.load(path)
    return snapshot_of(RunArtefacts(convert_artefact(raw, Analysis, str(path))), label_of(path.with_suffix("")))
