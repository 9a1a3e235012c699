"""What the Kineto reader had to mend, drop or guess, as notes: one a fact, each with its count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from advisor.model import QualityNote, Severity
from advisor.sources._json_events import Damage
from advisor.sources._kineto_tables import Lost

_FEW_RATIO: Final = 0.01  # of the events: a loss above it may be part of the GPU side
_TIME_CLAIMS: Final = ("busy", "idle", "causes", "layers", "estimate")
_SHOWN_CATEGORIES: Final = 4


@dataclass(frozen=True)
class Read:
    """All that went wrong while a file was read."""

    damage: Damage
    fault: str  # of the file's compression
    lost: Lost
    ignored: Counter[str]
    event_count: int
    header_complete: bool


def notes_on(read: Read) -> tuple[QualityNote, ...]:
    """The notes, worst first."""
    return (*_endings(read), *_damaged(read), *_rows(read), *_ids(read.lost), *_ignored(read))


def _endings(read: Read) -> Iterator[QualityNote]:
    damage = read.damage
    if not (read.fault or damage.unclosed):
        return
    where = "" if damage.cut_offset is None else f"; the event at byte {damage.cut_offset:,} is cut"
    why = read.fault or "the file ends before its list of events is closed: the writer was stopped"
    yield QualityNote(
        id="truncated-file",
        severity=Severity.WARNING,
        count=1,
        message=f"{why}{where}. {read.event_count:,} events before that were read, what followed is unknown: totals are too low",
        forbids=("estimate",),
    )


def _damaged(read: Read) -> Iterator[QualityNote]:
    damage = read.damage
    if damage.dropped_count:
        ratio = damage.dropped_count / (damage.dropped_count + read.event_count)
        yield QualityNote(
            id="dropped-events",
            severity=Severity.WARNING,
            count=damage.dropped_count,
            ratio=ratio,
            message=f"{_events(damage.dropped_count)} could not be read and left out, the first at byte "
            f"{damage.dropped_offset:,}: {damage.dropped_reason}",
            forbids=_TIME_CLAIMS if ratio > _FEW_RATIO else (),
        )
    if damage.mended_count:
        yield QualityNote(
            id="mended-events",
            severity=Severity.INFO,
            count=damage.mended_count,
            ratio=damage.mended_count / max(read.event_count, 1),
            message=f"{_events(damage.mended_count)} with broken JSON text mended, the first at byte {damage.mended_offset:,}",
        )
    if not read.header_complete:
        yield QualityNote(
            id="unreadable-header",
            severity=Severity.INFO if damage.unclosed else Severity.WARNING,
            count=1,
            message="keys beside the events could not all be read: rank, GPU names, versions or base time may be missing",
        )


def _rows(read: Read) -> Iterator[QualityNote]:
    lost = read.lost
    for identity, count, what in (
        ("untimed-events", lost.untimed, "have no number as start or duration, or a negative duration"),
        ("unstarted-items", lost.unstarted, "of the GPU are stamped 0: the profiler lost their times"),
        ("endless-events", lost.endless, "last over seven days"),
    ):
        if count:
            ratio = count / read.event_count
            yield QualityNote(
                id=identity,
                severity=Severity.WARNING,
                count=count,
                ratio=ratio,
                message=f"{_events(count)} {what}, and left out",
                forbids=_TIME_CLAIMS if ratio > _FEW_RATIO else (),
            )
    if lost.overruns:
        yield QualityNote(
            id="overrunning-items",
            severity=Severity.WARNING,
            count=lost.overruns,
            message=f"{_events(lost.overruns)} of the GPU run over the next ones of their stream, which cannot be; their "
            "durations are broken and end where the next begins",
        )
    if lost.unpaired:
        yield QualityNote(
            id="unpaired-events",
            severity=Severity.INFO,
            count=lost.unpaired,
            message=f"{_events(lost.unpaired)} begin without an end or end without a begin, and are left out",
        )


def _ids(lost: Lost) -> Iterator[QualityNote]:
    if lost.bad_ids:
        yield QualityNote(
            id="unusable-correlations",
            severity=Severity.WARNING,
            count=lost.bad_ids,
            message=f"{lost.bad_ids:,} correlation ids are no 64-bit integers: those items have no launch",
        )
    if lost.repeated_calls:
        yield QualityNote(
            id="repeated-correlations",
            severity=Severity.WARNING,
            count=lost.repeated_calls,
            message=f"{lost.repeated_calls:,} API calls carry the correlation id of another call; the first counts as launch",
        )
    if lost.shared_ids:
        yield QualityNote(
            id="shared-correlations",
            severity=Severity.WARNING,
            count=lost.shared_ids,
            message=f"{lost.shared_ids:,} correlation ids are used by several processes (a merged file): which launch an item "
            "belongs to cannot be told; give one file per rank",
            forbids=("causes", "layers", "launches", "estimate"),
        )


def _ignored(read: Read) -> Iterator[QualityNote]:
    if not read.ignored:
        return
    count = sum(read.ignored.values())
    shown = ", ".join(f"{number:,} {category}" for category, number in read.ignored.most_common(_SHOWN_CATEGORIES))
    more = ", …" if len(read.ignored) > _SHOWN_CATEGORIES else ""
    yield QualityNote(
        id="ignored-categories",
        severity=Severity.INFO,
        count=count,
        ratio=count / read.event_count,
        message=f"{_events(count)} of categories this tool does not read: {shown}{more}",
    )


def _events(count: int) -> str:
    return "1 event" if count == 1 else f"{count:,} events"
