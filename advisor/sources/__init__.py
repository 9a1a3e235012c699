"""Readers of recorded traces. One file a format, each with one `SOURCE`; all give the same tables.

`load` picks the reader by looking at the file's first bytes, not at its name.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from advisor.timeline import RawTrace, Timeline


@dataclass(frozen=True)
class Source:
    """One trace format. `accepts` looks at the path and the first 4096 bytes; `read` raises TraceError."""

    id: str
    accepts: Callable[[Path, bytes], bool]
    read: Callable[[Path, int], RawTrace]  # (file, rank to use when the file names none)


def load(path: str | os.PathLike[str]) -> Timeline:
    """The joined timeline of a file, or of a folder with one file a rank. Raises TraceError."""
    raise NotImplementedError
