"""Growing columns: Python values of one chunk in, numpy arrays of the whole file out, no boxed value kept."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]

MISSING: Final = -(2**63)  # inside the reader only; a frame has <NA> instead
_LIMIT: Final = 2**63
_NUMERIC: Final = b"0123456789.,-"
_MOST_DIGITS: Final = 19  # of nanoseconds; some such numbers are too large, and then are caught by `_LATEST_NS`
_LATEST_NS: Final = 2**62  # so that a base can be added
_TRAILING_NUMBER: Final = re.compile(r"-?\d+$")


class IntColumn:
    """int64 values. `convert` makes one of a value that is no int64: a string, float, None or a larger integer.

    `unusable` counts the values that are there but are no number of 64 bits; they became `MISSING`.
    """

    def __init__(self, convert: Callable[[Any], int]) -> None:
        self.unusable = 0
        self._values = array("q")
        self._convert = convert

    def extend(self, values: list[Any]) -> None:
        try:
            self._values.fromlist(values)  # all or nothing
        except (TypeError, OverflowError):
            made = [self._convert(value) for value in values]
            self.unusable += sum(
                a == MISSING and b is not None and b != MISSING for a, b in zip(made, values, strict=True)
            )
            self._values.fromlist(made)

    def array(self) -> Ints:
        return np.frombuffer(self._values, dtype=np.int64) if self._values else np.zeros(0, np.int64)


class NameColumn:
    """Strings as codes of the distinct ones, in order of first use."""

    def __init__(self) -> None:
        self._codes = array("i")
        self._known = _Numbering()

    def extend(self, values: Iterable[Any]) -> None:
        self._codes.fromlist(list(map(self._known.__getitem__, values)))

    def names(self) -> list[Any]:
        return list(self._known)

    def codes(self) -> npt.NDArray[np.int32]:
        return np.frombuffer(self._codes, dtype=np.int32) if self._codes else np.zeros(0, np.int32)


class TimeColumn:
    """Times in µs as decimal text, kept as exact nanoseconds: int64, `MISSING` where the text is no number.

    `decimals` is the most digits behind the point seen, -1 before any: 0 says that the writer rounded to microseconds.
    """

    def __init__(self) -> None:
        self._values = array("q")
        self.decimals = -1

    def extend(self, texts: list[Any]) -> None:
        """Add the numbers of `texts`, bytes-like."""
        if not texts:
            return
        joined = b",".join(texts)
        made = self._fast(joined, len(texts))
        if made is None:
            made = np.array([self._one(bytes(text)) for text in texts], dtype=np.int64)
        self._values.frombytes(made.tobytes())

    def array(self) -> Ints:
        return np.frombuffer(self._values, dtype=np.int64) if self._values else np.zeros(0, np.int64)

    def _fast(self, joined: bytes, count: int) -> Ints | None:
        """All at once: plain decimals with up to three digits behind the point. None when there is anything else."""
        if joined.translate(None, _NUMERIC):
            return None
        text = np.frombuffer(joined, dtype=np.uint8)
        end = np.append(np.flatnonzero(text == ord(",")), len(text))
        begin = np.concatenate(([0], end[:-1] + 1))
        point = np.flatnonzero(text == ord("."))
        decimals = np.zeros(count, dtype=np.int64)
        owner = np.searchsorted(end, point)
        decimals[owner] = end[owner] - point - 1
        digits = end - begin + 3 - decimals
        digits[owner] -= 1
        if int((end - begin).min()) == 0 or int(decimals.max()) > 3 or int(digits.max()) > _MOST_DIGITS:
            return None
        whole: Ints = np.fromstring(joined.replace(b".", b"").decode(), dtype=np.int64, sep=",")
        made: Ints = whole * (10 ** (3 - decimals))  # what overflows comes out beyond the limit, too
        if int(np.abs(made).max()) >= _LATEST_NS:
            return None
        self.decimals = max(self.decimals, int(decimals.max()))
        return made

    def _one(self, text: bytes) -> int:
        try:
            number = Decimal(text.strip(b'"').decode())
            exact = (number * 1000).to_integral_value(ROUND_HALF_EVEN)
        except (InvalidOperation, UnicodeDecodeError):
            return MISSING
        if not number.is_finite() or abs(exact) >= _LATEST_NS:
            return MISSING
        exponent = number.as_tuple().exponent
        self.decimals = max(self.decimals, -exponent if isinstance(exponent, int) and exponent < 0 else 0)
        return int(exact)


def as_id(value: Any) -> int:
    """An id written as a string, float or integer of any size; `MISSING` when it is none that 64 bits hold."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return MISSING
    if isinstance(value, float) and number != value:
        return MISSING
    return number if -_LIMIT < number < _LIMIT else MISSING


def as_place(value: Any) -> int:
    """A process, thread or stream: an id, unsigned 64-bit ones wrapped, the number of "stream 7", else one made of the text."""
    if isinstance(value, int):
        return (value + _LIMIT) % (2 * _LIMIT) - _LIMIT
    number = as_id(value)
    if number != MISSING or not isinstance(value, str):
        return number
    found = _TRAILING_NUMBER.search(value)
    return as_id(found[0]) if found else -int.from_bytes(value.encode()[:7].ljust(1, b"\0"), "big") - 1


def optional(values: Ints, missing: npt.NDArray[np.bool_] | None = None) -> pd.api.extensions.ExtensionArray:
    """A nullable column: <NA> where `missing`, or where a value is `MISSING`."""
    mask = values == MISSING if missing is None else missing
    return pd.arrays.IntegerArray(np.where(mask, 0, values), mask)


def recoded(codes: npt.NDArray[np.int32], names: Sequence[Any], meaning: Callable[[Any], str | None]) -> pd.Categorical:
    """A category column of what each name means; <NA> where `meaning` says None. Names of one meaning are one category."""
    numbering = _Numbering()
    table = [-1 if (text := meaning(name)) is None else numbering[text] for name in names]
    made = np.array(table, dtype=np.int32)[codes] if len(table) else np.zeros(0, np.int32)
    return pd.Categorical.from_codes(made, categories=pd.Index(list(numbering), dtype="str"))


class _Numbering(dict[Any, int]):
    """Numbers its keys in order of first use."""

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number
