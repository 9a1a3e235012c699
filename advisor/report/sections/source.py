"""The hot loop's lines with what each launches, waits for and costs, in the margin."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.model import Cause, LineRow
from advisor.report.content import RunContent
from advisor.report.figures import CAUSE_ORDER
from advisor.report.sections import Body, Section
from advisor.report.windows import span_of, windows_by_label

_CONTEXT_LINES = 3
_MAX_STEP_LINES = 120


@dataclass(frozen=True)
class Mark:
    """A blocker or hazard in the margin."""

    kind: str
    title: str
    fix: str


@dataclass(frozen=True)
class Line:
    """One line of source. `row` is the span that starts here; `window` its part of the drawn step, (start, end) ns."""

    number: int
    text: str
    row: LineRow | None
    inside: bool
    heat_ratio: float
    causes: tuple[tuple[Cause, int], ...]
    window: tuple[int, int] | None
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class SourceFile:
    name: str
    lines: tuple[Line, ...]
    complete: bool  # False: only the spans' own first lines are known


def _build(content: RunContent) -> Body:
    rows = content.analysis.lines
    if not rows:
        return Body({"files": (), "marks": _loose_marks(content)})
    cut = content.analysis.timeline
    windows = windows_by_label(cut) if cut is not None else {}
    names = list(dict.fromkeys(row.location.file for row in rows))
    return Body({"files": tuple(_file(content, name, windows) for name in names), "marks": ()})


def _file(content: RunContent, name: str, windows: dict[str, list[tuple[int, int]]]) -> SourceFile:
    rows = [row for row in content.analysis.lines if row.location.file == name]
    starts: dict[int, LineRow] = {}
    for row in rows:
        starts.setdefault(row.location.first_line, row)  # rows come outermost first
    source = content.manifest.source_files.get(name) if content.manifest else None
    if source is not None:
        text = source.splitlines()
        first, last = _extent(content, name, rows)
        first, last = max(first - _CONTEXT_LINES, 1), min(last + _CONTEXT_LINES, len(text))
        numbered = [(number, text[number - 1]) for number in range(first, last + 1)]
    else:
        numbered = [(number, "    " * row.depth + row.text) for number, row in sorted(starts.items())]
    top = max((row.step_share_ratio for row in rows), default=0.0) or 1.0
    inside = {n for row in rows for n in range(row.location.first_line, row.location.last_line + 1)}
    marks = _marks(content, name)
    lines = tuple(
        _line(number, line, starts.get(number), number in inside, top, windows, marks.get(number, ()))
        for number, line in numbered
    )
    return SourceFile(name, lines, source is not None)


def _extent(content: RunContent, name: str, rows: list[LineRow]) -> tuple[int, int]:
    """The lines to show: every known span, and the step around them unless it is long."""
    spans = [row.location for row in rows]
    step = content.analysis.step.location if content.analysis.step else None
    if step is not None and step.file == name and step.last_line - step.first_line <= _MAX_STEP_LINES:
        spans.append(step)
    return min(span.first_line for span in spans), max(span.last_line for span in spans)


def _line(  # noqa: PLR0913 - one argument a column of the view
    number: int,
    text: str,
    row: LineRow | None,
    inside: bool,
    top_ratio: float,
    windows: dict[str, list[tuple[int, int]]],
    marks: tuple[Mark, ...],
) -> Line:
    causes = row.idle.by_cause() if row is not None else {}
    return Line(
        number=number,
        text=text,
        row=row,
        inside=inside,
        heat_ratio=row.step_share_ratio / top_ratio if row is not None else 0.0,
        causes=tuple((cause, causes[cause]) for cause in CAUSE_ORDER if causes.get(cause)),
        window=span_of(windows.get(row.location.label, [])) if row is not None else None,
        marks=marks,
    )


def _marks(content: RunContent, name: str) -> dict[int, tuple[Mark, ...]]:
    found: dict[int, tuple[Mark, ...]] = {}
    analysis = content.analysis
    raised = [attempt.blocker for attempt in content.attempts if attempt.blocker is not None]
    for kind, group in (("blocker", (*analysis.blockers, *raised)), ("hazard", analysis.hazards)):
        for one in group:
            if one.location is not None and one.location.file == name:
                mark = Mark(kind, one.title, one.fix)
                before = found.get(one.location.first_line, ())
                if mark not in before:
                    found[one.location.first_line] = (*before, mark)
    return found


def _loose_marks(content: RunContent) -> tuple[str, ...]:
    """Places of blockers, for a trace whose lines are unknown."""
    return tuple(one.location.label for one in content.analysis.blockers if one.location is not None)


SECTION = Section("source", 40, "The hot loop, line by line", _build)
