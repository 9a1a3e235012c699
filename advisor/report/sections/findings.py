"""What stops a capture, what would make one wrong, and what else was seen; each with its place and its fix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from advisor.model import Blocker, Finding, Hazard, SourceSpan
from advisor.report.content import RunContent
from advisor.report.sections import Body, Section

_T = TypeVar("_T", Blocker, Hazard)
_GROUPS = (
    ("blocker", "Stops a capture"),
    ("hazard", "Would make a capture wrong or slow"),
    ("finding", "Also seen"),
)


@dataclass(frozen=True)
class Card:
    """One finding of any kind."""

    group: str
    severity: str
    id: str
    title: str
    detail: str
    fix: str
    place: str
    library: str
    found_by: str
    count_per_step: float
    url: str


def _build(content: RunContent) -> Body:
    analysis = content.analysis
    blockers = list(analysis.blockers)
    hazards = list(analysis.hazards)
    for attempt in content.attempts:
        blockers += [attempt.blocker] if attempt.blocker is not None else []
        hazards += [
            *attempt.hazards,
            *([attempt.equality.hazard] if attempt.equality and attempt.equality.hazard else []),
        ]
    cards = [*map(_blocker, _unique(blockers)), *map(_hazard, _unique(hazards)), *map(_finding, analysis.findings)]
    groups = [(title, [card for card in cards if card.group == group]) for group, title in _GROUPS]
    shown = {(one.id, one.location) for one in blockers}
    return Body(
        {
            "groups": [(title, found) for title, found in groups if found],
            "syncs": [one for one in analysis.syncs if (one.id, one.location) not in shown],
        }
    )


def _unique(found: list[_T]) -> list[_T]:
    kept: dict[tuple[str, SourceSpan | None], _T] = {}
    for one in found:
        kept.setdefault((one.id, one.location), one)
    return list(kept.values())


def _place(location: SourceSpan | None) -> str:
    return location.label if location is not None else ""


def _blocker(one: Blocker) -> Card:
    return Card(
        "blocker", "error", one.id, one.title, one.evidence, one.fix, _place(one.location), one.library_location, one.found_by,
        one.count_per_step, "",
    )  # fmt: skip


def _hazard(one: Hazard) -> Card:
    return Card(
        "hazard", "warning", one.id, one.title, one.evidence, one.fix, _place(one.location), "", one.found_by, 0.0, ""
    )


def _finding(one: Finding) -> Card:
    # A link from a run folder is somebody else's text: only the web is opened.
    url = one.url if one.url.startswith(("https://", "http://")) else ""
    return Card(
        "finding",
        one.severity.value,
        one.id,
        one.title,
        one.detail,
        one.fix,
        _place(one.location),
        "",
        "trace",
        0.0,
        url,
    )


SECTION = Section("findings", 70, "Findings", _build)
