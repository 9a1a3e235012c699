"""The elements of one long JSON array, streamed out of a document that need not be valid or whole.

Text is cut near the end of each block where one element ends and the next begins, whatever the layout, and the piece is
decoded at once. A piece that does not decode (damage, or a cut that fell inside an element) is read again element by
element; only what cannot be mended is dropped, and every repair and loss is written into a `Damage`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from advisor.sources._json_mend import mend

T = TypeVar("T")

_BETWEEN: Final = re.compile(rb"\}(\s*,\s*)(?=\{)")
# Where reading can begin again after damage: an element's end, then a key that only a trace event begins with.
_BEGIN: Final = rb'\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|s|bp|attr)"\s*:'
_RESUME: Final = re.compile(rb"\}(?=[\s,\0]*" + _BEGIN + rb")")
_RESTART: Final = re.compile(_BEGIN)
_PHASE: Final = re.compile(rb'"ph"\s*:\s*"[A-Za-z]"')
_LAST: Final = re.compile(rb'\}(?=[\s,\0]*\](?:\s*,\s*"|\s*\}|[\s\0]*\Z))')
_FILLING: Final = re.compile(rb"[\s,\0]*")
_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)
_BROKEN: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_PHASE_BYTES: Final = 64  # of a phase that two blocks may share
_CUT_WINDOWS: Final = (16 * 1024, 256 * 1024)


@dataclass
class Damage:
    """What had to be mended or was lost. Offsets are bytes of the uncompressed text, of the first case."""

    mended_count: int = 0
    mended_offset: int = 0
    dropped_count: int = 0
    dropped_offset: int = 0
    dropped_reason: str = ""
    cut_offset: int | None = None  # the text ends inside an element, which begins here
    unclosed: bool = False  # the text ends without closing the array

    def mended(self, offset: int) -> None:
        if not self.mended_count:
            self.mended_offset = offset
        self.mended_count += 1

    def dropped(self, offset: int, reason: str) -> None:
        if not self.dropped_count:
            self.dropped_offset, self.dropped_reason = offset, reason
        self.dropped_count += 1


class _Part(NamedTuple, Generic[T]):
    """What one stretch of text held: elements, how many bytes of it are done with, whether the array closed in it."""

    found: list[T]
    used: int
    closed: bool


@dataclass
class ArrayReader(Generic[T]):
    """Reads an array's elements as lists of `T`. After `read` is exhausted, `rest` is the text behind the array."""

    decode_many: Callable[[bytes], list[T]]
    decode_one: Callable[[bytes], T]
    damage: Damage = field(default_factory=Damage)
    rest: bytes = b""

    def read(self, blocks: Iterator[bytes], offset: int) -> Iterator[list[T]]:
        """Lists of elements from text that starts behind the array's `[`, which is byte `offset` of the document."""
        buffer, wanted = b"", 0
        for block in blocks:
            buffer += block
            if len(buffer) < wanted:
                continue
            part = self._until_last_cut(buffer, offset)
            if part.found:
                yield part.found
            buffer, offset = buffer[part.used :], offset + part.used
            if part.closed:
                buffer, amid = _behind(buffer, blocks)
                if not amid:
                    self.rest = buffer
                    return
            # Without progress the same bytes would be scanned for every block: wait until there are twice as many.
            wanted = 0 if part.used else 2 * len(buffer)
        amid = True
        while amid:
            part = self._one_by_one(buffer, offset, final=True)
            if part.found:
                yield part.found
            buffer, offset = buffer[part.used :], offset + part.used
            amid = part.closed and _PHASE.search(buffer) is not None
        self.damage.unclosed = not part.closed
        self.rest = buffer

    def _until_last_cut(self, buffer: bytes, offset: int) -> _Part[T]:
        cut = _last_cut(buffer)
        if cut is None:
            return _Part([], 0, False)
        try:
            return _Part(self.decode_many(b"[" + buffer[: cut.start(1)] + b"]"), cut.end(), False)
        except _BROKEN:
            return self._one_by_one(buffer[: cut.end()], offset, final=False)

    def _one_by_one(self, text: bytes, offset: int, *, final: bool) -> _Part[T]:
        """Every element of `text`. An incomplete one at its end is left for the next call, or cut off when `final`."""
        found: list[T] = []
        resume = _Resume(text)
        position, lost = 0, False
        while True:
            position, closed = self._skip_filling(text, position, offset)
            if closed or position == len(text):
                return _Part(found, position, closed)
            element, end = self._element(text, position, resume.after(position))
            if end is None and final:
                end = _end_of_last(text, position)
            if end is None:  # nothing behind this point can be told apart
                if not final:
                    return _Part(found, position, False)
                self.damage.cut_offset = offset + position
                return _Part(found, len(text), False)
            if element is None:
                element = self._mended(text[position:end], offset + position, lost)
            lost = element is None
            if element is not None:
                found.append(element)
            position = end

    def _skip_filling(self, text: bytes, position: int, offset: int) -> tuple[int, bool]:
        """Where the next element or bracket is, and whether it was the bracket that closes the array."""
        found = _FILLING.match(text, position)
        assert found is not None  # it matches nothing at all, too
        filling, end = found[0], found.end()
        closed = text[end : end + 1] == b"]"
        commas = filling.count(b",")
        missing = not commas and not closed and end < len(text) and text[position - 1 : position] == b"}"
        if missing or commas > 1 or (commas and closed) or (b"\0" in filling and end < len(text)):
            self.damage.mended(offset + position)
        return (end + 1 if closed else end), closed

    def _element(self, text: bytes, position: int, stop: int | None) -> tuple[T | None, int | None]:
        """The valid element at `position` and its end. No element: it is broken. No end either: it is not complete.

        `stop`, where the next event seems to begin, is right nearly always. It is not when objects in a list inside the
        element look like events; then the brackets are counted.
        """
        if text[position] != ord("{"):
            begin = _RESTART.search(text, position)
            return None, None if begin is None else begin.start()
        element = None if stop is None else self._decoded(text[position:stop])
        if element is not None:
            return element, stop
        end = _bracket_end(text, position, stop)
        if end is not None and end != stop:
            element = self._decoded(text[position:end])
            if element is not None:
                return element, end
        return None, stop or end

    def _decoded(self, text: bytes) -> T | None:
        try:
            return self.decode_one(text)
        except _BROKEN:
            return None

    def _mended(self, text: bytes, offset: int, after_loss: bool) -> T | None:
        reason = "not a JSON object"
        if text.startswith(b"{"):
            for candidate in mend(text):
                try:
                    element = self.decode_one(candidate)
                except _BROKEN as error:
                    reason = str(error)
                else:
                    self.damage.mended(offset)
                    return element
        if not after_loss:  # the remains of an element that was lost are no second loss
            self.damage.dropped(offset, reason)
        return None


class _Resume:
    """The next place to begin again; remembers it, so that a text is searched once and not once per element."""

    def __init__(self, text: bytes) -> None:
        self._text, self._end, self._none_left = text, -1, False

    def after(self, position: int) -> int | None:
        if self._end <= position and not self._none_left:
            found = _RESUME.search(self._text, position)
            self._none_left = found is None
            self._end = -1 if found is None else found.end()
        return self._end if self._end > position else None


def _last_cut(buffer: bytes) -> re.Match[bytes] | None:
    """A place near the end of `buffer` where one element seems to end and another to begin."""
    for window in _CUT_WINDOWS:
        if found := _BETWEEN.search(buffer, max(0, len(buffer) - window)):
            return found
    return _BETWEEN.search(buffer)


def _behind(text: bytes, blocks: Iterator[bytes]) -> tuple[bytes, bool]:
    """What follows a bracket that seems to close the array, and whether there are events in it: then it was damage."""
    searched = 0
    while not (amid := _PHASE.search(text, searched) is not None) and (block := next(blocks, None)) is not None:
        searched = max(0, len(text) - _PHASE_BYTES)
        text += block
    return text, amid


def _end_of_last(text: bytes, position: int) -> int | None:
    """The end of the array's last element, when only the end of the document follows."""
    found = _LAST.search(text, position)
    return None if found is None else found.end()


def _bracket_end(text: bytes, position: int, stop: int | None) -> int | None:
    """Where the object that begins at `position` ends, by matching brackets outside strings; None when nothing closes it.

    It goes past `stop` only where that lies directly in a list: anywhere else a quote or a bracket must be missing, and
    looking for its partner through the rest of the text would cost much and find a wrong one.
    """
    open_brackets: list[int] = []
    for token in _TOKEN.finditer(text, position):
        if stop is not None and token.end() > stop:
            if token.start() < stop or open_brackets[-1] != ord("["):
                return None
            stop = None
        first = text[token.start()]
        if first in b"{[":
            open_brackets.append(first)
        elif first in b"}]":
            open_brackets.pop()
            if not open_brackets:
                return token.end()
    return None
