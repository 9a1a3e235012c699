"""Names the tool gives its own ranges, written by `advisor.workload` and read back by `advisor.regions`.

The same text goes to NVTX and to `record_function`, so a Kineto and an Nsight trace of one run join by it. On the wire
a mark is its label and a short tag: `train.py:12-17 [cga:stmt:7]`. Kinds:

    loop   one loop, from before its first to after its last iteration
    iter   one iteration of loop `id`
    stmt   one statement that can launch work
    module one nn.Module call, labelled with its path
    optim  one optimizer step
    data   waiting for the next item of a DataLoader (or of any iterator a `for` statement pulls from)
    region a user's `advisor.region(...)`
"""

from __future__ import annotations

import re
from typing import NamedTuple

KINDS = ("loop", "iter", "stmt", "module", "optim", "data", "region")
NVTX_DOMAIN = "cgadvisor"
_TAG = re.compile(r"^(?P<label>.*) \[cga:(?P<kind>[a-z]+):(?P<id>\d+)\]$", re.DOTALL)
_SPAN = re.compile(r"^(?P<file>.+):(?P<first>\d+)(?:-(?P<last>\d+))?$")


class Mark(NamedTuple):
    """One parsed mark. `id` is unique per (kind, source construct) within a run, the same in every pass."""

    label: str
    kind: str
    id: int


class Span(NamedTuple):
    """Lines of a source file, 1-based and inclusive; `file` relative to the script's folder."""

    file: str
    first_line: int
    last_line: int


def encode(label: str, kind: str, mark_id: int) -> str:
    """The text of a range. Raises ValueError for an unknown kind."""
    if kind not in KINDS:
        raise ValueError(f"unknown mark kind {kind!r}")
    return f"{label} [cga:{kind}:{mark_id}]"


def decode(text: str) -> Mark | None:
    """The mark written as `text`, or None when the range is not the tool's."""
    found = _TAG.match(text)
    if found is None or found["kind"] not in KINDS:
        return None
    return Mark(found["label"], found["kind"], int(found["id"]))


def span_label(file: str, first_line: int, last_line: int) -> str:
    """`train.py:12-17`, or `train.py:12` for one line."""
    return f"{file}:{first_line}" if first_line == last_line else f"{file}:{first_line}-{last_line}"


def parse_span(label: str) -> Span | None:
    """The source lines a label names, or None when it is not of the form `file:first[-last]`."""
    found = _SPAN.match(label)
    if found is None:
        return None
    first = int(found["first"])
    return Span(found["file"], first, int(found["last"] or first))
