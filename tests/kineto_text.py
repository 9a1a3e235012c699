"""Kineto trace text for tests: events as dicts, dumped in the layouts that writers use."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from advisor.sources.kineto import read
from advisor.timeline import RawTrace

Event = dict[str, Any]
_PLACEHOLDER = re.compile(r'"#([-+.\deE]+)#"')


def number(text: str) -> str:
    """Stands for a JSON number spelled exactly so."""
    return f"#{text}#"


def kernel(name: str, ts: str, dur: str, correlation: int, **other: Any) -> Event:
    args = {"device": 0, "context": 1, "stream": 7, "correlation": correlation, "grid": [4, 1, 1], **other}
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "pid": 0,
        "tid": 7,
        "ts": number(ts),
        "dur": number(dur),
        "args": args,
    }


def launch(ts: str, dur: str, correlation: int, name: str = "cudaLaunchKernel", cat: str = "cuda_runtime") -> Event:
    return {
        "ph": "X", "cat": cat, "name": name, "pid": 100, "tid": 101, "ts": number(ts), "dur": number(dur),
        "args": {"External id": 5, "cbid": 211, "correlation": correlation},
    }  # fmt: skip


def op(name: str, ts: str, dur: str, cat: str = "cpu_op", **args: Any) -> Event:
    return {
        "ph": "X", "cat": cat, "name": name, "pid": 100, "tid": 101, "ts": number(ts), "dur": number(dur), "args": args,
    }  # fmt: skip


def flow(ts: str, correlation: int) -> Event:
    return {"ph": "s", "id": correlation, "pid": 100, "tid": 101, "ts": number(ts), "cat": "ac2g", "name": "ac2g"}


def spelled(value: Any, **options: Any) -> str:
    """JSON text with `number`s as numbers."""
    return _PLACEHOLDER.sub(r"\1", json.dumps(value, **options))


def document(events: list[str], head: str = '"schemaVersion": 1,', tail: str = ', "traceName": "t.json"') -> str:
    """An object around events that are text already, laid out as Kineto does."""
    return "{" + head + '"traceEvents": [' + ",\n".join(events) + "\n]" + tail + "}"


def read_text(folder: Path, text: str | bytes, rank: int = 0, name: str = "trace.json") -> RawTrace:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read(path, rank)


def note_ids(raw: RawTrace) -> list[str]:
    return [note.id for note in raw.notes]
