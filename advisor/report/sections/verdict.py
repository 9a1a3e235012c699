"""The first screen: the answer in one sentence, the step before and after, what to change, how sure, how good the trace is."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.model import Answer, NumberKind, Severity
from advisor.report.content import RunContent
from advisor.report.evidence import Fact, attempt_facts, estimate_facts, prediction_fact
from advisor.report.figures import CAUSE_WORDS, StepFigures, bars, step_figures
from advisor.report.sections import Body, Section
from advisor.report.snippet import generic_code, graph_code
from advisor.units import format_count, format_ns, format_ratio, format_speedup
from advisor.verdict import speed_words

ANSWER_TITLES = {
    Answer.GRAPH_IT: "Graph it",
    Answer.PROBABLY: "Graph it, probably",
    Answer.NOT_WORTH_IT: "Not worth it",
    Answer.BLOCKED: "Blocked",
    Answer.ALREADY_GRAPHED: "Already graphed",
    Answer.CANNOT_TELL: "Cannot tell",
}
_QUALITY_WORDS = {"error": "limits what can be said", "warning": "usable, with remarks", "info": "good"}
_CLAIM_WORDS = {
    "busy": "busy time", "idle": "idle time", "causes": "causes of idle time", "layers": "overhead layers",
    "launches": "launch statistics", "regions": "regions", "estimate": "estimates", "sub_us": "times below 1 µs",
    "framework_layer": "the framework layer", "sub_graph": "what happens inside a graph",
}  # fmt: skip


@dataclass(frozen=True)
class Big:
    """The one figure of the page. `kind` is its badge."""

    text: str
    caption: str
    kind: str


@dataclass(frozen=True)
class Change:
    """Something to paste or apply. `is_diff` colours added and removed lines."""

    title: str
    code: str = ""
    is_diff: bool = False
    note: str = ""
    place: str = ""


def _build(content: RunContent) -> Body:
    figures = step_figures(content)
    shown = bars(content, figures)
    return Body(
        {
            "verdict": content.verdict,
            "title": ANSWER_TITLES[content.verdict.answer],
            "badge": badge(content),
            "big": _big(content),
            "bars": shown,
            "scale_ns": max((bar.total_ns for bar in shown), default=1),
            "changes": _changes(content),
            "facts": _facts(content),
            "left": _left(figures),
            "reasons": _reasons(content),
            "sure": _sure(content),
            "quality": content.analysis.quality,
            "quality_word": _QUALITY_WORDS[_quality_level(content)],
            "quality_level": _quality_level(content),
            "claims": _CLAIM_WORDS,
            "item_count": sum(device.item_count for device in content.analysis.devices),
        }
    )


def badge(content: RunContent) -> str:
    """The kind of the verdict itself: "verified" when an attempt carries it, else that of its number."""
    return "verified" if content.headline_attempt is not None else content.verdict.kind.value


def _big(content: RunContent) -> Big | None:
    answer, attempt, estimate = content.verdict.answer, content.headline_attempt, content.headline_estimate
    if attempt is not None and attempt.timing is not None:
        caption = "faster with the fix" if attempt.fixes else "faster step"
        return Big(format_speedup(attempt.timing.speedup_ratio), caption, "verified")
    if answer in (Answer.PROBABLY, Answer.BLOCKED) and estimate is not None and estimate.saved_ns > 0:
        caption = "faster once unblocked" if answer == Answer.BLOCKED else "faster step"
        caption += ", by a profiled trace" if estimate.kind == NumberKind.PROFILED else ""
        return Big(speed_words(estimate, content.analysis.regions).replace(" to ", "–"), caption, "estimated")
    figures = step_figures(content)
    if answer == Answer.ALREADY_GRAPHED and content.device is not None:
        return Big(format_ratio(content.device.graphs.item_ratio), "of the work is in graphs", "profiled")
    if answer == Answer.NOT_WORTH_IT and figures is not None:
        region = content.step_region  # the share the sentence quotes: of the typical step as traced
        ratio = region.busy_ns / region.extent_ns if region is not None and region.extent_ns else figures.busy_ratio
        return Big(format_ratio(ratio), "GPU busy already" if ratio > 0.5 else "GPU busy", "profiled")
    return None


# --- what to change --------------------------------------------------------------------------------------------------


def _changes(content: RunContent) -> list[Change]:
    answer, attempt = content.verdict.answer, content.headline_attempt
    found: list[Change] = []
    if attempt is not None:
        found += [Change(fix.title, fix.diff, is_diff=True) if fix.diff else Change(fix.title) for fix in attempt.fixes]
    if answer in (Answer.GRAPH_IT, Answer.PROBABLY) or (
        answer == Answer.BLOCKED and attempt is not None and attempt.fixes
    ):
        found += _code(content)
    if answer == Answer.BLOCKED and attempt is None:
        found += [
            Change(one.title, note=one.fix, place=one.location.label if one.location else one.library_location)
            for one in content.analysis.blockers[:3]
        ]
    if answer in (Answer.NOT_WORTH_IT, Answer.ALREADY_GRAPHED):
        found += [
            Change(one.title, note=one.fix, place=one.location.label if one.location else "")
            for one in content.analysis.findings
            if one.fix
        ][:3]
    return found


def _code(content: RunContent) -> list[Change]:
    """The graph as code: from the script's own lines where the run holds them, else its shape."""
    attempt = content.headline_attempt
    region = next((one for one in content.analysis.regions if one.id == content.verdict.region_id), None)
    location = (attempt.location if attempt else None) or (region.location if region else None)
    label = attempt.region_label if attempt else region.label if region else "the region"
    sources = content.manifest.source_files if content.manifest else {}
    code = graph_code(sources.get(location.file, ""), location) if location else None
    title = "Capture the lines once, replay them afterwards"
    if code is None:
        note = (
            "The shape of it: this run does not hold the lines. `cgadvisor profile script.py` writes it from your own."
        )
        return [Change(title, generic_code(label), note=note, place=label)]
    note = "The hand-written form of what the verification did in place." if attempt else "Not verified yet."
    if attempt is not None and attempt.fixes:
        note += " Needs the change above as well."
    return [Change(title, code, note=note, place=label)]


# --- how sure --------------------------------------------------------------------------------------------------------


def _sure(content: RunContent) -> str:
    attempt, answer = content.headline_attempt, content.verdict.answer
    if attempt is not None and attempt.timing is not None:
        return "Verified: the region was captured in the unmodified script, replayed, timed and compared with the eager run."
    if attempt is not None:
        return "Tried: the verdict rests on a capture in the unmodified script."
    if answer == Answer.CANNOT_TELL:
        return "This recording cannot carry the claim, so none is made."
    if answer == Answer.ALREADY_GRAPHED:
        return "Counted in the recording; nothing was captured by this tool."
    estimate = content.headline_estimate
    if estimate is None:
        return "Read from the recording. No gain is claimed, so there was nothing to capture."
    todo = "Nothing was captured yet: `cgadvisor profile script.py` verifies it on a GPU."
    if estimate.kind == NumberKind.PROFILED:
        return f"Estimated from a profiled recording, whose idle time the profiler may have doubled. {todo}"
    return f"Estimated from the recording, on the unprofiled clock. {todo}"


def _facts(content: RunContent) -> list[Fact]:
    attempt, estimate = content.headline_attempt, content.headline_estimate
    if attempt is not None:
        row = next((row for row in content.region_rows if attempt in row.attempts), None)
        predicted = prediction_fact(attempt, row.estimate if row else None)
        return [*attempt_facts(attempt), *([predicted] if predicted else [])]
    if estimate is None or content.verdict.answer in (Answer.ALREADY_GRAPHED, Answer.CANNOT_TELL):
        return _recording_facts(content)
    return estimate_facts(estimate)


def _recording_facts(content: RunContent) -> list[Fact]:
    device = content.device
    if device is None:
        return []
    facts = [
        Fact("GPU items", format_count(device.item_count), NumberKind.PROFILED.value),
        Fact("Launches", format_count(device.launches.launch_count), NumberKind.PROFILED.value),
    ]
    if device.graphs.launch_count:
        facts.append(Fact("Graph replays", f"{format_count(device.graphs.launch_count)}, holding "
                          f"{format_count(device.graphs.item_count)} items", NumberKind.PROFILED.value))  # fmt: skip
    return facts


def _reasons(content: RunContent) -> list[str]:
    """The verdict's reasons, without those that only repeat a change listed above them."""
    said = {f"{change.title}: {change.note}" for change in _changes(content)}
    return [reason for reason in content.verdict.reasons if reason not in said]


def _left(figures: StepFigures | None) -> str:
    """What idle time is left and its main cause, in a sentence; empty when there is next to none."""
    if figures is None or figures.idle.total_ns < 0.02 * figures.total_ns:
        return ""
    cause, ns = max(figures.idle.by_cause().items(), key=lambda pair: pair[1])
    idle = figures.idle.total_ns
    words = f"{format_ns(idle)} ({format_ratio(idle / figures.total_ns)}) of {figures.label} is idle"
    return f"{words}, {format_ns(ns)} of it {CAUSE_WORDS[cause]}."


def _quality_level(content: RunContent) -> str:
    severities = {note.severity for note in content.analysis.quality}
    worst = next((one for one in (Severity.ERROR, Severity.WARNING) if one in severities), Severity.INFO)
    return worst.value


SECTION = Section("verdict", 10, "Verdict", _build)
