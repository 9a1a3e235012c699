"""Trace events as typed structs: the phases and fields the tables need, everything else skipped while decoding.

Numbers that writers also spell as strings or floats are unions; times stay raw text, for float64 would lose nanoseconds
of an absolute time in microseconds.
"""

from __future__ import annotations

from typing import Any, Final, Union

import msgspec
from msgspec import Raw, Struct

from advisor.sources._kineto_columns import MISSING

Number = int | float | str | None
_ABSENT: Final = Raw(b"null")
NO_TEXT: Final = Raw(b"")


class Args(Struct, frozen=True, gc=False):
    """The arguments that become columns. Writers up to 1.8 spell "Input dims" with a small d."""

    correlation: Number = MISSING
    stream: Number = MISSING
    device: Number = MISSING
    bytes: Number = MISSING
    graph_id: Number = msgspec.field(default=MISSING, name="graph id")
    graph_node_id: Number = msgspec.field(default=MISSING, name="graph node id")
    dims: Raw = msgspec.field(default=NO_TEXT, name="Input Dims")
    old_dims: Raw = msgspec.field(default=NO_TEXT, name="Input dims")


_NO_ARGS: Final = Args()


class _Event(Struct, gc=False, tag_field="ph"):
    """What complete, begin and end events share; `ts` in µs, as written."""

    cat: str | None = None
    name: str | int | float | None = ""
    pid: Number = MISSING
    tid: Number = MISSING
    ts: Raw = _ABSENT
    args: Args | None = _NO_ARGS


class Complete(_Event, gc=False, tag="X"):
    """An event with a duration, in µs, as written."""

    dur: Raw = _ABSENT


class Begin(_Event, gc=False, tag="B"):
    """The start of an event that an `End` on the same thread closes."""


class End(_Event, gc=False, tag="E"):
    """The end of the innermost open event of its thread."""


# Every other phase of the Chrome format: flows, instants, metadata, counters, objects. Fields are not even looked at.
_SKIPPED: Final = tuple(
    msgspec.defstruct(f"Skipped{number}", [], tag_field="ph", tag=phase, gc=False)
    for number, phase in enumerate("IiCbnestfSTpFPONDMVvRc()")
)
_UNION: Any = Union[(Complete, Begin, End, *_SKIPPED)]

decode_many = msgspec.json.Decoder(list[_UNION]).decode
decode_one = msgspec.json.Decoder(_UNION).decode
