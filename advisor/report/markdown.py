"""The report as Markdown: for a pull request, an issue or a notebook. Tables, no images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from advisor.model import Outcome
from advisor.report.content import RegionRow, RunContent
from advisor.report.evidence import Fact, attempt_facts, estimate_facts, fix_words
from advisor.report.figures import CAUSE_ORDER, CAUSE_WORDS, bar_graphed, step_figures
from advisor.report.terminal import ANSWER_WORDS
from advisor.units import format_count, format_ns, format_ratio, format_speedup

_MAX_REGIONS = 15


def render(content: RunContent) -> str:
    """The findings in full sentences and tables, ending with how they came to be."""
    verdict = content.verdict
    parts = [
        f"# {cell(verdict.sentence)}",
        f"**{ANSWER_WORDS[verdict.answer].capitalize()}**"
        + (f". Next: {text(verdict.next_step)}" if verdict.next_step else ""),
        _list(verdict.reasons),
        _time(content),
        _sure(content),
        _changes(content),
        _regions(content),
        _findings(content),
        _provenance(content),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def cell(value: object) -> str:
    """Text as one table cell: nothing in it can open a tag, a column, a code span or a line."""
    plain = " ".join(str(value).split())
    for character in "\\`|<>*_[]":
        plain = plain.replace(
            character, f"\\{character}" if character not in "<>" else {"<": "&lt;", ">": "&gt;"}[character]
        )
    return plain


def text(value: str) -> str:
    """Text of a sentence; its `quoted` parts stay code."""
    parts = value.split("`")
    if len(parts) % 2 == 0:
        return cell(value)
    return "".join(code(part) if index % 2 else cell_keeping_space(part) for index, part in enumerate(parts))


def cell_keeping_space(value: str) -> str:
    """`cell`, with the space at both ends kept."""
    head = " " if value[:1].isspace() else ""
    tail = " " if value.strip() and value[-1:].isspace() else ""
    return f"{head}{cell(value)}{tail}"


def code(value: str) -> str:
    """A code span; its backticks become primes, since a span cannot hold them."""
    return f"`{' '.join(value.replace('`', '′').split())}`"


def fence(value: str, language: str) -> str:
    """A code block whose fence is longer than any run of backticks in it."""
    longest = max((len(run) for run in value.replace("\n", " ").split(" ") if set(run) == {"`"}), default=0)
    marks = "`" * max(3, longest + 1)
    return f"{marks}{language}\n{value.rstrip()}\n{marks}"


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {text(item)}" for item in items)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are figures. Cells must be escaped already."""
    made = [f"| {' | '.join(row)} |" for row in rows]
    if not made:
        return ""
    rule = "|".join(["---", *["---:"] * (len(head) - 1)])
    return "\n".join([f"| {' | '.join(head)} |", f"|{rule}|", *made])


def _time(content: RunContent) -> str:
    figures = step_figures(content)
    if figures is None:
        return "## Where the time goes\n\nNothing ran on a GPU in this recording."
    idle = figures.idle.by_cause()
    rows = [("step" if content.analysis.step else "recording", figures.total_ns, figures.kind.value)]
    rows.append(("GPU busy", figures.busy_ns, "profiled"))
    rows += [
        (f"idle, {cause.value}: {CAUSE_WORDS[cause]}", idle[cause], figures.parts_kind.value)
        for cause in CAUSE_ORDER
        if idle[cause]
    ]
    rows += [
        (f"of launch: {layer.value}", ns, figures.parts_kind.value)
        for layer, ns in figures.layers.by_layer().items()
        if ns
    ]
    graphed = bar_graphed(content, figures)
    if graphed is not None:
        rows.append(
            ("step graphed", graphed.total_ns, "verified" if graphed.kind.value == "measured" else graphed.kind.value)
        )
    table = _table(
        ("", "time", "share", "kind"),
        (
            (cell(label), format_ns(ns), format_ratio(ns / figures.total_ns if figures.total_ns else 0), kind)
            for label, ns, kind in rows
        ),
    )
    clock = (
        f"Under the profiler: {format_ns(figures.traced_ns)}, {figures.inflation_ratio or 1:.2f}× as long."
        if figures.kind.value == "measured"
        else "Times are the trace's; the profiler may have inflated them."
    )
    return f"## Where the time goes\n\n{table}\n\n{clock}"


def _facts(facts: Iterable[Fact]) -> str:
    return _table(("", "", "kind"), ((cell(one.label), cell(one.value), one.kind) for one in facts))


def _sure(content: RunContent) -> str:
    attempt, estimate = content.headline_attempt, content.headline_estimate
    facts = attempt_facts(attempt) if attempt else estimate_facts(estimate) if estimate else []
    notes = [
        f"{note.severity.value}: {note.message}" + (f" (no claim on {', '.join(note.forbids)})" if note.forbids else "")
        for note in content.analysis.quality
    ]
    quality = _list(notes) or "- nothing was dropped or mended"
    return "\n\n".join(part for part in ("## How sure", _facts(facts), "Trace quality:", quality) if part)


def _changes(content: RunContent) -> str:
    attempt = content.headline_attempt
    diffs = [
        f"{cell(fix.title)}:\n\n{fence(fix.diff, 'diff')}" for fix in (attempt.fixes if attempt else ()) if fix.diff
    ]
    return "\n\n".join(["## What to change", *diffs]) if diffs else ""


def _regions(content: RunContent) -> str:
    rows = content.region_rows
    if not rows:
        return ""
    table = _table(
        ("region", "items", "of step", "busy", "idle", "saves, estimated", "verified"),
        (_region(row) for row in rows[:_MAX_REGIONS]),
    )
    more = f"\n\nand {len(rows) - _MAX_REGIONS} more." if len(rows) > _MAX_REGIONS else ""
    return f"## Regions\n\n{table}{more}"


def _region(row: RegionRow) -> tuple[str, ...]:
    region, estimate, best = row.region, row.estimate, row.best
    verified = "not run" if best is None else best.outcome.value.replace("_", " ")
    if best is not None and best.outcome == Outcome.VERIFIED and best.timing is not None:
        fixes = f" with {fix_words(best.fixes)}" if best.fixes else ""
        verified = f"{format_speedup(best.timing.speedup_ratio)}{fixes}"
    figures = ("–",) * 4
    if region is not None:
        share = format_ratio(region.step_share_ratio)
        figures = (format_count(region.item_count), share, format_ns(region.busy_ns), format_ns(region.idle.total_ns))
    saved = "–"
    if estimate is not None:
        saved = f"{format_ns(estimate.saved_ns)} ({format_ns(estimate.saved_low_ns)} to {format_ns(estimate.saved_high_ns)})"
    return (cell(row.label), *figures, saved, cell(verified))


def _findings(content: RunContent) -> str:
    analysis = content.analysis
    lines = [
        f"- **blocker** {_place(one.location)}{cell(one.title)}: {text(one.fix)}"
        for one in (*analysis.blockers, *(attempt.blocker for attempt in content.attempts if attempt.blocker))
    ]
    lines += [f"- **hazard** {_place(one.location)}{cell(one.title)}: {text(one.fix)}" for one in analysis.hazards]
    lines += [
        f"- **{one.severity.value}** {_place(one.location)}{text(one.title)}. {text(one.detail)}"
        + (f" Fix: {text(one.fix)}" if one.fix else "")
        for one in analysis.findings
    ]
    return "## Findings\n\n" + "\n".join(dict.fromkeys(lines)) if lines else ""


def _place(location: object) -> str:
    label = getattr(location, "label", "")
    return f"{code(label)} " if label else ""


def _provenance(content: RunContent) -> str:
    trace, manifest = content.analysis.trace, content.manifest
    facts = [
        f"recording: {', '.join(trace.files)} ({trace.source} {trace.format_detail})".replace(" )", ")"),
        f"GPU: {', '.join(dict.fromkeys(trace.gpu_names))}" if trace.gpu_names else "",
        f"torch {trace.torch_version}" if trace.torch_version else "",
        f"command: `{' '.join(manifest.command)}`" if manifest else "",
        f"driver {manifest.driver_version}" if manifest and manifest.driver_version else "",
        "" if content.clock else "not clocked without the profiler",
        "" if content.calibration else "machine constants are defaults",
        "" if content.verification else "no region was captured",
        *(content.manifest.notes if content.manifest else ()),
        f"cgadvisor {content.analysis.tool_version}",
    ]
    return f"## How this was made\n\n{_list(fact for fact in facts if fact)}"
