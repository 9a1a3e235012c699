"""An Nsight Systems export as columns: opened read-only, tables and columns probed, never assumed.

Tables appear in an export only when they are not empty, and older exports lack columns: both read as "nothing here".
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from advisor.errors import TraceError

Ints = npt.NDArray[np.int64]

MAGIC: Final = b"SQLite format 3\0"
NULL: Final = int(np.iinfo(np.int64).min)  # stands for SQL NULL in an integer column
_SAID_LIMIT: Final = 120
_PROCESS_BITS: Final = 24
_LOW: Final = (1 << _PROCESS_BITS) - 1


@contextmanager
def opened(path: Path) -> Iterator[Database]:
    """The database at `path`, closed afterwards. Every fault of the file becomes a TraceError of one line."""
    check_whole(path)
    # `immutable` takes no lock and writes no journal: nothing appears beside the user's file.
    uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
    connection = None
    try:
        connection = sqlite3.connect(uri, uri=True)
        # A name in another encoding must not cost the trace.
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        yield Database(path, connection)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter when SQLite quotes damaged bytes
        # SQLite quotes whole CREATE statements, over many lines.
        said = " ".join(str(error).split())[:_SAID_LIMIT]
        raise TraceError(f"{path}: damaged SQLite file ({said}); export the report again") from error
    finally:
        if connection is not None:
            connection.close()


def check_whole(path: Path) -> None:
    """Raise TraceError for a file that is no SQLite database, is cut short, or is still being written."""
    try:
        with path.open("rb") as file:
            header = file.read(100)
        size = path.stat().st_size
    except OSError as error:
        raise TraceError(f"{path}: cannot read: {error.strerror}") from error
    if len(header) < 100 or not header.startswith(MAGIC):
        raise TraceError(f"{path}: not an SQLite database; give what `nsys export --type sqlite` wrote")
    for suffix in ("-journal", "-wal"):
        beside = path.with_name(path.name + suffix)
        if beside.exists() and beside.stat().st_size:
            raise TraceError(
                f"{path}: an export is still being written or was interrupted ({beside.name} lies beside it); "
                "wait for it or export the report again"
            )
    page = int.from_bytes(header[16:18], "big")
    expected = (65536 if page == 1 else page) * int.from_bytes(header[28:32], "big")
    # The page count is only to be trusted when the last writer kept it (SQLite file format, section 1.3.7).
    if header[24:28] == header[92:96] and size < expected:
        raise TraceError(f"{path}: cut short, {size:,} of {expected:,} bytes; copy or export it again")


class Database:
    """Column access to one export. Methods raise sqlite3.Error on damage, turned into TraceError by `opened`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self.tables = frozenset(name for (name,) in connection.execute("SELECT name FROM sqlite_master"))

    def columns(self, table: str) -> frozenset[str]:
        """Column names of a table; none when the table is not there."""
        return frozenset(row[1] for row in self._connection.execute(f'PRAGMA table_info("{table}")'))

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """All rows of a query on tables the caller has found to be there."""
        return self._connection.execute(query).fetchall()

    def ints(self, table: str, wanted: Sequence[str], where: str = "1") -> dict[str, Ints]:
        """Integer columns of a table in row order, int64 (n,) each; NULL for SQL NULL and for columns it lacks."""
        there = self.columns(table)
        if not there:
            return {column: np.zeros(0, dtype=np.int64) for column in wanted}
        read = [column for column in wanted if column in there]
        count = int(self._connection.execute(f'SELECT count(*) FROM "{table}" WHERE {where}').fetchone()[0])
        names = ", ".join(f'ifnull("{column}", {NULL + 1} - 1)' for column in read)
        cursor = self._connection.execute(f'SELECT {names} FROM "{table}" WHERE {where} ORDER BY rowid')
        try:
            flat = np.fromiter(chain.from_iterable(cursor), dtype=np.int64, count=count * len(read))
        except (TypeError, ValueError, OverflowError) as error:
            raise TraceError(f"{self.path}: table {table} holds something else than integers: {error}") from error
        matrix = flat.reshape(count, len(read))
        found = {column: np.ascontiguousarray(matrix[:, at]) for at, column in enumerate(read)}
        return {column: found.get(column, np.full(count, NULL, dtype=np.int64)) for column in wanted}

    @cached_property
    def strings(self) -> dict[int, str]:
        """StringIds: id -> text."""
        if not {"id", "value"} <= self.columns("StringIds"):
            return {}
        rows = self.rows("SELECT id, value FROM StringIds WHERE value IS NOT NULL")
        return {key: str(value) for key, value in rows if isinstance(key, int)}

    def names(self, ids: Ints, missing: str) -> pd.Categorical:
        """Texts of string ids as a categorical; `missing` where there is no such string."""
        codes, distinct = pd.factorize(ids)
        texts = np.array([self.strings.get(int(key), missing) for key in distinct], dtype=object)
        return categorical(codes.astype(np.int64), texts)


def categorical(codes: Ints, texts: npt.NDArray[np.object_]) -> pd.Categorical:
    """texts[codes] as a categorical; equal texts become one category."""
    again, categories = pd.factorize(texts)
    if len(texts) == 0:
        return pd.Categorical.from_codes([], categories=pd.Index([], dtype=object))
    return pd.Categorical.from_codes(again[codes], categories=pd.Index(categories))


def optional(values: Ints) -> pd.arrays.IntegerArray:
    """An integer column with NULL as <NA>."""
    return pd.arrays.IntegerArray(np.where(values == NULL, 0, values), values == NULL)


def process_of(global_ids: Ints) -> Ints:
    """The process part of globalPid or globalTid; 0 where there is none."""
    return np.where(global_ids == NULL, 0, global_ids & ~np.int64(_LOW))


def pid_of(global_ids: Ints) -> Ints:
    """The operating system's process id in a globalPid or globalTid; 0 where there is none."""
    return np.where(global_ids == NULL, 0, (global_ids >> _PROCESS_BITS) & _LOW)


def tid_of(global_ids: Ints) -> Ints:
    """The thread id in a globalTid; 0 where there is none."""
    return np.where(global_ids == NULL, 0, global_ids & _LOW)


def timed(columns: dict[str, Ints]) -> npt.NDArray[np.bool_]:
    """Rows with a start and an end that does not come before it."""
    start, end = columns["start"], columns["end"]
    good: npt.NDArray[np.bool_] = (start != NULL) & (end != NULL) & (end >= start)
    return good
