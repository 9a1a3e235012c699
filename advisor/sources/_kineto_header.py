"""What stands around a trace's events: where the array begins, and the few keys beside it that matter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from advisor.errors import TraceError
from advisor.sources._json_mend import mend

_KEY: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_KEY_BYTES: Final = 64  # of `"traceEvents" : [`, which two blocks may share
_NODES: Final = re.compile(rb'"nodes"\s*:\s*\[')
_BOM: Final = b"\xef\xbb\xbf"
_HEAD_BYTES: Final = 64 << 20
_LATEST_BASE_NS: Final = 2**61  # the year 2043
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Header(msgspec.Struct):
    """The keys beside `traceEvents` that are read; no other one is, so nothing of the environment is carried on."""

    schemaVersion: Any = None
    baseTimeNanoseconds: Any = None
    deviceProperties: Any = None
    computeProperties: Any = None  # its name before schema 1
    distributedInfo: Any = None
    cuda_runtime_version: Any = None
    cupti_version: Any = None
    hip_runtime_version: Any = None
    roctracer_version: Any = None

    @property
    def base_ns(self) -> int:
        """What to add to every time, in ns; 0 when the file has none, or none that leaves room for the times."""
        base = _whole(self.baseTimeNanoseconds, 0)
        return base if abs(base) < _LATEST_BASE_NS else 0

    @property
    def rank(self) -> int | None:
        info = self.distributedInfo
        rank = _whole(info.get("rank"), -1) if isinstance(info, dict) else -1
        return rank if rank >= 0 else None

    @property
    def gpu_names(self) -> dict[int, str]:
        """Device -> name, where the file has one that is not empty."""
        listed = self.deviceProperties or self.computeProperties
        found = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
        named = {_whole(entry.get("id"), -1): entry.get("name") for entry in found}
        return {device: name for device, name in named.items() if device >= 0 and isinstance(name, str) and name}

    @property
    def cuda_version(self) -> str:
        """ "12.8" of 12080; empty when the file does not say."""
        number = _whole(self.cuda_runtime_version, 0)
        return f"{number // 1000}.{number % 1000 // 10}" if number > 0 else ""

    @property
    def detail(self) -> str:
        parts = (
            ("schemaVersion", self.schemaVersion),
            ("CUPTI", self.cupti_version),
            ("HIP", self.hip_runtime_version),
            ("roctracer", self.roctracer_version),
        )
        return ", ".join(f"{label} {value}" for label, value in parts if isinstance(value, int | float | str))


class Opened(NamedTuple):
    """A document up to its event array. `blocks` is the text that follows; `offset` the bytes before it."""

    head: bytes  # empty for a bare list
    blocks: Iterator[bytes]
    offset: int


def open_array(path: Path, blocks: Iterator[bytes]) -> Opened:
    """Find the event array: under `traceEvents`, or the document itself. Raises TraceError when there is none."""
    text = b""
    for block in blocks:
        searched = max(0, len(text) - _KEY_BYTES)
        text += block
        begin = _first(text)
        if begin == len(text):
            continue
        if text[begin] == ord("["):
            return Opened(b"", chain([text[begin + 1 :]], blocks), begin + 1)
        if text[begin] != ord("{"):
            raise TraceError(f"{path}: not JSON (it begins with {_shown(text[begin:])}); give a Kineto or Chrome trace")
        if found := _KEY.search(text, searched):
            return Opened(text[begin : found.start()], chain([text[found.end() :]], blocks), found.end())
        if len(text) > _HEAD_BYTES:
            break
    raise TraceError(f"{path}: {_why_none(text)}")


def parse_header(head: bytes, rest: bytes) -> tuple[Header, bool]:
    """The keys before and after the array, and whether all of both could be read."""
    if not head:
        return Header(), True
    closed = head.rstrip().rstrip(b",") + b"}"
    whole = head + b'"traceEvents":[]' + rest.rstrip(b"\0 \t\r\n")
    for text, complete in ((whole, True), (closed, not rest.strip(b"\0 \t\r\n"))):
        for candidate in chain([text], mend(text)):
            try:
                return msgspec.json.decode(candidate, type=Header), complete
            except _UNREADABLE:
                continue
    return Header(), False


def _first(text: bytes) -> int:
    """Where the document's first character is."""
    begin = len(_BOM) if text.startswith(_BOM) else 0
    return len(text) - len(text[begin:].lstrip(b"\0 \t\r\n"))


def _why_none(text: bytes) -> str:
    if _NODES.search(text):
        return "a PyTorch ExecutionTrace (it has nodes), not a profiler trace; give what export_chrome_trace wrote"
    if not text[_first(text) :]:
        return "the file holds nothing but blanks; export the trace again"
    try:
        msgspec.json.decode(text[_first(text) :])
    except _UNREADABLE as error:
        return f"not JSON, or cut before its traceEvents ({error}); give a Kineto or Chrome trace"
    return "JSON, but no trace: it has no list named traceEvents; give what export_chrome_trace wrote"


def _shown(text: bytes) -> str:
    return repr(text[:12].decode("utf-8", errors="replace"))


def _whole(value: Any, default: int) -> int:
    """An integer, or one in a string or float; `default` when there is none that 64 bits hold."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return default
    return number if abs(number) < 2**62 else default
