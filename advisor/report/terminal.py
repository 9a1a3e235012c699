"""The findings on one screen: at most 40 lines of 100 columns, plain text, nothing a pipe would break."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from textwrap import shorten, wrap
from typing import Final

from advisor.model import Answer, Attempt, Layer, NumberKind, Outcome, Region, Severity
from advisor.report.content import RegionRow, RunContent
from advisor.report.evidence import fix_words, without_packages
from advisor.report.figures import CAUSE_ORDER, CAUSE_WORDS, StepFigures, step_figures
from advisor.units import format_bytes, format_count, format_counted, format_ns, format_ratio, format_speedup

MAX_LINES: Final = 40
_TOP_REGIONS: Final = 5
_LABEL_WIDTH: Final = 9
_BAR_WIDTH: Final = 24
ANSWER_WORDS: Final[dict[Answer, str]] = {
    Answer.GRAPH_IT: "graph it (verified)",
    Answer.PROBABLY: "graph it, probably (estimated)",
    Answer.NOT_WORTH_IT: "not worth it",
    Answer.BLOCKED: "blocked",
    Answer.ALREADY_GRAPHED: "already graphed",
    Answer.CANNOT_TELL: "cannot tell",
}
_LAYER_WORDS: Final[dict[Layer, str]] = {
    Layer.LANGUAGE: "Python, no framework op running",
    Layer.FRAMEWORK: "inside a framework op",
    Layer.DRIVER: "inside the CUDA call",
    Layer.SUBMISSION: "call returned, item not started",
}


def render(content: RunContent, width: int = 100, *, region: str | None = None, report: Path | None = None) -> str:
    """The one-screen summary; with `region` (id, label or glob) the details of that region in place of the table."""
    figures = step_figures(content)
    blocks = [
        _head(content, width),
        _verdict(content, width),
        _quality(content, width),
        _step(figures, width) if figures else ["Step      nothing ran on a GPU in this recording"],
        _detail(content, region, width) if region is not None else _regions(content, width),
        _stoppers(content, width),
        [_field("Report", str(report))] if report is not None else [],
    ]
    lines = [line for block in blocks for line in block]
    return "\n".join(_fit(lines, width, keep_last=report is not None))


def _fit(lines: list[str], width: int, keep_last: bool) -> list[str]:
    """No more than a screen; what is left out is counted, and the report's path stays."""
    lines = [shortened(line, width) for line in lines]
    if len(lines) <= MAX_LINES:
        return lines
    tail = lines[-1:] if keep_last else []
    kept = lines[: MAX_LINES - 1 - len(tail)]
    return [*kept, f"          … {len(lines) - len(kept) - len(tail)} more lines in the report", *tail]


def shortened(text: str, width: int) -> str:
    """`text` cut to `width` columns with an ellipsis."""
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def _field(label: str, text: str) -> str:
    return f"{label:<{_LABEL_WIDTH}} {text}"


def _wrapped(label: str, text: str, width: int, limit: int) -> list[str]:
    """A labelled paragraph of at most `limit` lines."""
    room = width - _LABEL_WIDTH - 1
    text = shorten(text, room * limit - 4 * limit, placeholder=" …")
    text = re.sub(r"(?<=\d) (?=(?:s|ms|µs|ns|%)(?!\w))", "\u00a0", text)  # a number keeps its unit on its line
    found = [line.replace("\u00a0", " ") for line in wrap(text, room, break_on_hyphens=False)] or [""]
    return [_field(label if index == 0 else "", line) for index, line in enumerate(found[:limit])]


def _head(content: RunContent, width: int) -> list[str]:
    trace = content.analysis.trace
    parts = [
        f"cgadvisor {content.analysis.tool_version}".strip(),
        content.manifest.script if content.manifest else _files(trace.files),
        ", ".join(dict.fromkeys(trace.gpu_names)),
        f"torch {trace.torch_version}" if trace.torch_version else "",
        f"{trace.rank_count} ranks" if trace.rank_count > 1 else "",
    ]
    return [shortened(" · ".join(part for part in parts if part), width)]


def _files(files: tuple[str, ...]) -> str:
    return files[0] + (f" and {len(files) - 1} more" if len(files) > 1 else "") if files else ""


def _verdict(content: RunContent, width: int) -> list[str]:
    verdict = content.verdict
    lines = ["", _field("Verdict", ANSWER_WORDS[verdict.answer].upper())]
    lines += _wrapped("", verdict.sentence, width, 3)
    if verdict.next_step:
        lines += _wrapped("Next", verdict.next_step, width, 2)
    return [*lines, ""]


def _quality(content: RunContent, width: int) -> list[str]:
    notes = content.analysis.quality
    items = sum(device.item_count for device in content.analysis.devices)
    what = f"{content.analysis.trace.source}, {format_counted(items, 'GPU item')}"
    graphs = content.device.graphs if content.device else None
    if graphs is not None and graphs.item_count:
        what += f", {format_ratio(graphs.item_ratio)} of them inside {format_counted(graphs.launch_count, 'graph replay')}"
    if content.device is not None and len(content.analysis.devices) > 1:
        count = len(content.analysis.devices)
        what += f"; judged by rank {content.device.rank}, device {content.device.device}, which has most of {count} devices"
    bad = [note for note in notes if note.severity != Severity.INFO]
    lines = _wrapped("Trace", what + ("" if bad else "; nothing found that limits the findings"), width, 2)
    for note in bad[:3]:
        forbids = f" [no claim on {', '.join(note.forbids)}]" if note.forbids else ""
        lines += [_field("", shortened(f"{note.severity.value}: {note.message}{forbids}", width - _LABEL_WIDTH - 1))]
    if len(bad) > 3:
        lines.append(_field("", f"and {len(bad) - 3} more"))
    return lines


def _step(figures: StepFigures, width: int) -> list[str]:
    if figures.kind == NumberKind.MEASURED:
        inflation = figures.inflation_ratio or 1.0
        clocked = figures.traced_ns / inflation
        # The attempt's eager side and the clock pass are two processes; where they differ, the factor needs its own base.
        apart = f" the clock pass ({format_ns(clocked)})" if format_ns(clocked) != format_ns(figures.total_ns) else " as long"
        text = (
            f"{format_ns(figures.total_ns)} unprofiled (median of {figures.clocked_count}); "
            f"{format_ns(figures.traced_ns)} under the profiler, {inflation:.2f}×{apart}"
        )
    else:
        of = f" (of {figures.traced_count})" if figures.traced_count > 1 else ""
        text = f"{format_ns(figures.traced_ns)}{of}, in the trace; the profiler may have inflated it"
    name = "Step" if figures.label != "the recording" else "Window"
    lines = _wrapped(name, f"{text} · {figures.label}", width, 2)
    lines.append(_share("Busy", "", figures.busy_ns, figures.total_ns, "GPU items, union over streams"))
    total = figures.idle.total_ns
    lines.append(_share("Idle", "", total, figures.total_ns, f"by cause ({figures.parts_kind.value})"))
    by_cause, by_layer = figures.idle.by_cause(), figures.layers.by_layer()
    for cause in CAUSE_ORDER:
        if by_cause[cause]:
            lines.append(_share("", cause.value, by_cause[cause], figures.total_ns, CAUSE_WORDS[cause]))
        if cause.value == "launch" and figures.layers.total_ns:
            lines += [
                _share("", f"  {layer.value}", by_layer[layer], figures.total_ns, _LAYER_WORDS[layer])
                for layer in Layer
            ]
    return [*lines, ""]


def _share(label: str, name: str, ns: int, total_ns: int, words: str) -> str:
    ratio = ns / total_ns if total_ns else 0.0
    filled = round(ratio * _BAR_WIDTH)
    bar = "█" * filled + "·" * (_BAR_WIDTH - filled)
    return f"{label:<{_LABEL_WIDTH}} {name:<12} {format_ns(ns):>8} {format_ratio(ratio):>7} {bar} {words}".rstrip()


def _regions(content: RunContent, width: int) -> list[str]:
    rows = [row for row in content.region_rows if row.saved_ns > 0 or row.attempts][:_TOP_REGIONS]
    if not rows:
        return [_field("Regions", f"{len(content.analysis.regions)} found, none with a gain a graph would bring"), ""]
    names = width - 64
    lines = [
        _field(
            "Regions",
            f"{'':<{names - _LABEL_WIDTH - 1}} {'items':>6} {'of step':>8} {'saves, estimated':>25} {'verified':>21}",
        )
    ]
    for row in rows:
        region = row.region
        items = format_count(region.item_count) if region else "–"
        share = format_ratio(region.step_share_ratio) if region else "–"
        label = shortened(row.label, names)
        lines.append(f"{label:<{names}} {items:>6} {share:>8} {_estimated(row):>25} {_verified(row):>21}")
    return [*lines, ""]


def _estimated(row: RegionRow) -> str:
    one = row.estimate
    if one is None:
        return "–"
    low, high = format_ns(one.saved_low_ns), format_ns(one.saved_high_ns)
    low = low.split(" ")[0] if low.split(" ")[-1] == high.split(" ")[-1] else low
    return f"{format_ns(one.saved_ns)} ({low}–{high})"


def _verified(row: RegionRow) -> str:
    best = row.best
    if best is None:
        return "not run"
    if best.outcome == Outcome.VERIFIED and best.timing is not None:
        with_fix = ", with fix" if best.fixes else ""
        return f"{format_speedup(best.timing.speedup_ratio)}{with_fix}"
    return best.outcome.value.replace("_", " ")


def _detail(content: RunContent, wanted: str, width: int) -> list[str]:
    rows = [row for row in content.region_rows if _is_wanted(row, wanted)]
    if not rows:
        return [_field("Region", f"{wanted}: no such region"), ""]
    lines: list[str] = []
    for row in rows[:2]:
        lines += _wrapped("Region", row.label, width, 1)
        if row.region is not None:
            lines += _region_lines(row.region)
        if row.estimate is not None:
            lines.append(_field("", f"a graph saves {_estimated(row)} a step, {row.estimate.kind.value}:"))
            terms = sorted(row.estimate.terms, key=lambda term: -abs(term.ns))
            lines += [_field("", f"  {format_ns(term.ns):>9}  {term.label}") for term in terms[:6]]
        lines += [line for attempt in row.attempts for line in _wrapped("", _attempt(attempt), width, 2)]
    if len(rows) > 2:
        lines.append(_field("", f"and {len(rows) - 2} more regions match {wanted}"))
    return [*lines, ""]


def _is_wanted(row: RegionRow, wanted: str) -> bool:
    return wanted == row.label or fnmatch(row.label, wanted) or (row.region is not None and row.region.id == wanted)


def _region_lines(region: Region) -> Iterable[str]:
    times = format_count(region.occurrences_per_step)
    yield _field(
        "", f"{region.kind.value}, {format_count(region.occurrence_count)} times ({times} a step); {region.how}"
    )
    yield _field(
        "",
        f"{format_count(region.item_count)} items, {format_count(region.launch_count)} launches, "
        f"{format_count(region.sync_count)} synchronisations; the same sequence in "
        f"{format_ratio(region.signature_match_ratio)} of its occurrences",
    )
    causes = region.idle.by_cause()
    idle = ", ".join(f"{cause.value} {format_ns(causes[cause])}" for cause in CAUSE_ORDER if causes[cause])
    yield _field("", f"busy {format_ns(region.busy_ns)}; idle: {idle or 'none'} (profiled)")


def _attempt(attempt: Attempt) -> str:
    fixes = f" with the change: {fix_words(attempt.fixes)}" if attempt.fixes else " as written"
    pool = f"; pool {format_bytes(attempt.pool_bytes)}" if attempt.pool_bytes else ""
    return f"{attempt.outcome.value.replace('_', ' ')}{fixes}: {without_packages(attempt.message)}{pool}"


def _stoppers(content: RunContent, width: int) -> list[str]:
    found: Sequence[tuple[str, str, str]] = [
        *(
            ("Blocker", one.location.label if one.location else "", f"{one.title}; {one.fix}")
            for one in content.analysis.blockers
        ),
        *(
            ("Hazard", one.location.label if one.location else "", f"{one.title}; {one.fix}")
            for one in content.analysis.hazards
        ),
    ]
    lines = []
    for kind, place, text in found[:4]:
        lines.append(_field(kind, shortened(f"{place}  {text}".strip(), width - _LABEL_WIDTH - 1)))
    if len(found) > 4:
        lines.append(_field("", f"and {len(found) - 4} more in the report"))
    return lines
