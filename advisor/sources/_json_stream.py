"""The text of a JSON file as blocks of bytes, plain or gzipped by its first bytes, whole or cut short.

Nothing here holds the document: a 1 GB trace passes through in blocks of about half a megabyte.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, Final

from advisor.errors import TraceError

_zlib: ModuleType = zlib
try:  # three times as fast; an optional extra
    from isal import isal_zlib

    _zlib = isal_zlib
except ImportError:
    pass

# 512 KB keeps a block's decoded events in the processor's cache: 1.2 to 1.7 times as fast as 8 MB.
BLOCK_BYTES: Final = 512 * 1024
GZIP_MAGIC: Final = b"\x1f\x8b"
_COMPRESSED_BYTES: Final = 32 * 1024  # what is lost when a damaged part follows
_GZIP_WINDOW: Final = 31
_DAMAGED: Final[tuple[type[Exception], ...]] = (zlib.error, _zlib.error)


@dataclass
class Ending:
    """How the file ended. `fault` is empty for a whole file, else what was wrong, for a note."""

    fault: str = ""


def read_blocks(path: Path, ending: Ending) -> Iterator[bytes]:
    """The uncompressed bytes of `path` in blocks of at least `BLOCK_BYTES` but for the last.

    A gzip file that is cut or damaged gives what is readable, and says so in `ending`. Raises TraceError when the file
    cannot be opened, or holds nothing.
    """
    empty = True
    for block in _gathered(_pieces(path, ending)):
        empty = False
        yield block
    if empty:
        what = f"no readable byte ({ending.fault})" if ending.fault else "the file is empty"
        raise TraceError(f"{path}: {what}; export the trace again")


def peek(head: bytes, size: int = 4096) -> bytes:
    """The first uncompressed bytes of a file that begins with `head`; empty when they cannot be had."""
    if not head.startswith(GZIP_MAGIC):
        return head[:size]
    try:
        return bytes(_zlib.decompressobj(_GZIP_WINDOW).decompress(head, size))
    except _DAMAGED:
        return b""


def _pieces(path: Path, ending: Ending) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            magic = file.read(2)
            file.seek(0)
            if magic == GZIP_MAGIC:
                yield from _gunzip(file, ending)
            else:
                while piece := file.read(BLOCK_BYTES):
                    yield piece
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error


def _gunzip(file: BinaryIO, ending: Ending) -> Iterator[bytes]:
    """Every member of a gzip file, inflated; padding after the last one is ignored."""
    machine = _zlib.decompressobj(_GZIP_WINDOW)
    while data := machine.unused_data or file.read(_COMPRESSED_BYTES):
        if machine.eof:  # another member, or padding
            data = data.lstrip(b"\0")
            if not data or not GZIP_MAGIC.startswith(data[:2]):
                return
            machine = _zlib.decompressobj(_GZIP_WINDOW)
        try:
            yield machine.decompress(data)
        except _DAMAGED as error:
            ending.fault = f"the gzip data are damaged near compressed byte {file.tell():,} ({error})"
            return
    if not machine.eof:
        ending.fault = "the gzip file is cut short"


def _gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Pieces joined until a block is full."""
    parts: list[bytes] = []
    size = 0
    for piece in pieces:
        parts.append(piece)
        size += len(piece)
        if size >= BLOCK_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
    if size:
        yield b"".join(parts)
