"""Every region: what it costs, what a graph would save, and every attempt to capture it."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.model import Attempt, Estimate, Outcome, Term
from advisor.report.content import RegionRow, RunContent
from advisor.report.evidence import Fact, attempt_facts, prediction_fact
from advisor.report.figures import CAUSE_ORDER, CAUSE_WORDS
from advisor.report.samples import Strip, strip
from advisor.report.sections import Body, Section
from advisor.report.snippet import graph_code
from advisor.report.windows import span_of, windows_by_label

OUTCOME_WORDS = {
    Outcome.VERIFIED: "verified",
    Outcome.NOT_FASTER: "not faster",
    Outcome.DIFFERS: "results differ",
    Outcome.BLOCKED: "blocked",
    Outcome.NO_REPLAY: "no replay ran",
    Outcome.CRASHED: "crashed",
    Outcome.TIMED_OUT: "timed out",
    Outcome.NOT_ATTEMPTED: "not attempted",
}
_MAX_ROWS = 200


@dataclass(frozen=True)
class AttemptView:
    """One attempt with its plot and facts."""

    attempt: Attempt
    word: str
    facts: tuple[Fact, ...]
    plot: Strip | None


@dataclass(frozen=True)
class RegionView:
    """One table row and what opens under it."""

    key: str
    row: RegionRow
    verified_word: str
    verified_ratio: float
    causes: tuple[tuple[str, str, int], ...]  # cause, words, ns
    terms: tuple[tuple[Term, float], ...]  # with |ns| over the largest
    attempts: tuple[AttemptView, ...]
    code: str | None
    window: tuple[int, int] | None


def _build(content: RunContent) -> Body:
    cut = content.analysis.timeline
    windows = windows_by_label(cut) if cut is not None else {}
    rows = content.region_rows
    views = [_view(content, index, row, windows) for index, row in enumerate(rows[:_MAX_ROWS])]
    return Body(
        {
            "views": views,
            "left_out": max(0, len(rows) - _MAX_ROWS),
            "verification": content.verification,
            "attempt_count": len(content.attempts),
        }
    )


def _view(content: RunContent, index: int, row: RegionRow, windows: dict[str, list[tuple[int, int]]]) -> RegionView:
    best = row.best
    causes = row.region.idle.by_cause() if row.region else {}
    return RegionView(
        key=f"region-{index}",
        row=row,
        verified_word=OUTCOME_WORDS[best.outcome] if best is not None else "not run",
        verified_ratio=row.verified_ratio,
        causes=tuple((one.value, CAUSE_WORDS[one], causes[one]) for one in CAUSE_ORDER if causes.get(one)),
        terms=_terms(row.estimate),
        attempts=tuple(_attempt(attempt, row.estimate) for attempt in row.attempts),
        code=_code(content, row),
        window=span_of(windows.get(row.label, [])),
    )


def _terms(estimate: Estimate | None) -> tuple[tuple[Term, float], ...]:
    if estimate is None:
        return ()
    top = max((abs(term.ns) for term in estimate.terms), default=0) or 1
    return tuple((term, abs(term.ns) / top) for term in estimate.terms)


def _attempt(attempt: Attempt, estimate: Estimate | None) -> AttemptView:
    timing = attempt.timing
    plot = None
    if timing is not None:
        plot = strip(
            [
                ("eager", "eager", timing.eager),
                ("eager again (A/A)", "eager", timing.eager_again),
                ("graphed", "graph", timing.graph),
            ]
        )
    predicted = prediction_fact(attempt, estimate)
    facts = (*attempt_facts(attempt), *([predicted] if predicted else []))
    return AttemptView(attempt, OUTCOME_WORDS[attempt.outcome], facts, plot)


def _code(content: RunContent, row: RegionRow) -> str | None:
    """Code for a region that was verified, or that is worth trying; none for one whose capture failed."""
    tried = row.best
    if content.manifest is None or (tried is None and row.saved_ns <= 0):
        return None
    if tried is not None and tried.outcome != Outcome.VERIFIED:
        return None
    location = row.region.location if row.region else None
    location = location or (tried.location if tried else None)
    return graph_code(content.manifest.source_files.get(location.file, ""), location) if location else None


SECTION = Section("regions", 50, "Regions", _build)
