"""A run is a folder: each command adds one JSON artefact, written to a temporary name and renamed.

Artefacts carry a `format` number. A newer one is refused by name; an older one is upgraded by `_UPGRADES`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from advisor.errors import BundleError
from advisor.model import Analysis, Calibration, Clock, Manifest, Predictions, Verification

T = TypeVar("T", Manifest, Clock, Calibration, Analysis, Predictions, Verification)

FILE_NAMES: Final[dict[type, str]] = {
    Manifest: "manifest.json",
    Clock: "clock.json",
    Calibration: "calibration.json",
    Analysis: "findings.json",
    Predictions: "predictions.json",
    Verification: "verification.json",
}
REPORT_NAME: Final = "report.html"
TRACE_NAME: Final = "trace.json.gz"
NSYS_NAME: Final = "nsys.sqlite"
CURRENT_FORMAT: Final = 1
# (artefact, old format) -> function from the old raw object to the next format's.
_UPGRADES: dict[tuple[type, int], Callable[[dict[str, Any]], dict[str, Any]]] = {}


class Bundle:
    """Reads and writes the artefacts of one run folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def open(cls, folder: Path) -> Bundle:
        """An existing run folder. Raises BundleError when it is none."""
        if not folder.is_dir():
            raise BundleError(f"{folder}: no such run folder; `cgadvisor profile` or `analyze` makes one")
        if not any((folder / name).exists() for name in FILE_NAMES.values()):
            raise BundleError(f"{folder}: not a run folder (no {', '.join(sorted(FILE_NAMES.values()))} in it)")
        return cls(folder)

    @classmethod
    def create(cls, folder: Path) -> Bundle:
        """A run folder that exists afterwards; what is in it stays."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BundleError(f"{folder}: cannot make the run folder: {error.strerror}") from error
        return cls(folder)

    def path(self, name: str) -> Path:
        return self.folder / name

    def has(self, kind: type) -> bool:
        return (self.folder / FILE_NAMES[kind]).exists()

    def save(self, value: Manifest | Clock | Calibration | Analysis | Predictions | Verification) -> Path:
        """Write an artefact; the old one stays valid until the new one is complete."""
        text = msgspec.json.format(msgspec.json.encode(value), indent=1)
        return write_atomically(self.folder / FILE_NAMES[type(value)], text)

    def load(self, kind: type[T]) -> T:
        """Read an artefact. Raises BundleError when it is missing, broken or newer than this version reads."""
        return load_artefact(self.folder / FILE_NAMES[kind], kind)

    def load_if_present(self, kind: type[T]) -> T | None:
        return self.load(kind) if self.has(kind) else None


def write_atomically(path: Path, data: bytes) -> Path:
    """Write `data` so that a killed process leaves either the old file or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise BundleError(f"{path}: cannot write: {error.strerror}") from error
    return path


def load_artefact(path: Path, kind: type[T]) -> T:
    """The artefact of type `kind` in the file `path`, upgraded to the current format. Raises BundleError."""
    try:
        raw = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError as error:
        raise BundleError(f"{path}: no such file; run the command that makes {FILE_NAMES[kind]} first") from error
    except (OSError, msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BundleError(f"{path}: not readable as JSON: {error}") from error
    return convert_artefact(raw, kind, str(path))


def convert_artefact(raw: object, kind: type[T], where: str) -> T:
    """A decoded JSON object as an artefact of type `kind`. Raises BundleError naming `where`."""
    if not isinstance(raw, Mapping):
        raise BundleError(f"{where}: expected a JSON object with a format number")
    found = raw.get("format", 1)  # omit_defaults leaves format 1 out
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise BundleError(f"{where}: format {found!r} is not a format number")
    if found > CURRENT_FORMAT:
        raise BundleError(f"{where}: format {found} is newer than this cgadvisor reads ({CURRENT_FORMAT}); upgrade it")
    upgraded = dict(raw)
    for number in range(found, CURRENT_FORMAT):
        upgraded = _UPGRADES[kind, number](upgraded)
    try:
        return msgspec.convert(upgraded, kind, strict=True)
    except msgspec.ValidationError as error:
        raise BundleError(f"{where}: not a valid {FILE_NAMES[kind]}: {error}") from error
