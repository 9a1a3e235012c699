"""The parts of the HTML report: one file each, found by the registry.

A section file defines `SECTION = Section(id, order, title, build)`. `build` turns a `RunContent` into the values of the template
`templates/<id>.html` and, for scripts, data that is written as escaped JSON into `<script id="data-<id>">`.
A section never drops out: without its input it says in a sentence which command adds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.report.content import RunContent


@dataclass(frozen=True)
class Body:
    """What one section shows: template values, and optionally data for its script (anything msgspec writes as JSON)."""

    values: Mapping[str, Any] = field(default_factory=dict)
    data: Any = None


@dataclass(frozen=True)
class Section:
    """One section of the page; `order` sorts them, `title` is its heading and its entry in the navigation."""

    id: str
    order: int
    title: str
    build: Callable[[RunContent], Body]
