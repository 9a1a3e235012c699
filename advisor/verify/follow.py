"""The fixes that the source already calls for, and what to try after an attempt that failed. Works on source text alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from advisor.verify.candidate import Candidate, Sources, unique
from advisor.verify.plan import of_block, of_calls, weigh
from advisor.verify.statements import body_of, call_name, tensor_names, trim
from advisor.workload import effects, spans, whatif
from advisor.workload.spans import Located, first_line
from advisor.workload.verify_job import ChildReport, FixSpec

_CAPTURABLE: Final = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Rprop", "ASGD", "Adadelta")


def foreseen(sources: Sources, candidate: Candidate) -> tuple[FixSpec, ...]:
    """Fixes that reading the source already calls for: they are tried beside the span as written."""
    if candidate.module:
        return ()
    located = _located(sources, candidate)
    if located is None:
        return ()
    fixes = []
    steps = any(
        isinstance(node, ast.Call) and call_name(node) == "step" for s in located.statements for node in ast.walk(s)
    )
    if steps and _has_plain_adam(sources):
        fixes.append(FixSpec(id="capturable"))
        if _has_scheduler(sources):
            fixes.append(FixSpec(id="lr-tensor"))
    lines = {*whatif.host_reads(located.statements), *_effect_lines(sources, candidate, located)}
    reads = [line for line in sorted(lines) if whatif.deferred(located.statements, line)]
    return (*fixes, *(FixSpec(id="defer", file=candidate.file, line=line) for line in reads))


def _effect_lines(sources: Sources, candidate: Candidate, located: Located) -> list[int]:
    """Lines of the span's own statements that append or count: a replay would leave them out."""
    found = effects.find(sources.tree(candidate.file), located.statements, depth=0)
    tensors = tensor_names(sources.tree(candidate.file))
    lines = {
        effect.line
        for effect in found
        if effect.kind in ("append", "counter", "log", "print") and effect.text.split(" ")[0] not in tensors
    }
    return [
        first_line(statement)
        for statement in located.statements
        if any(first_line(statement) <= line <= (statement.end_lineno or 0) for line in lines)
    ]


def _has_plain_adam(sources: Sources) -> bool:
    return any(all(one.arg != "capturable" for one in call.keywords) for call in _adams(sources))


def _has_adam(sources: Sources) -> bool:
    return any(True for _ in _adams(sources))


def _adams(sources: Sources) -> Iterator[ast.Call]:
    for text in sources.texts:
        for node in ast.walk(sources.tree(text)):
            if isinstance(node, ast.Call) and call_name(node) in _CAPTURABLE:
                yield node


def _has_scheduler(sources: Sources) -> bool:
    return any(
        "lr_scheduler" in text or "LRScheduler" in text or whatif.writes_learning_rate(sources.tree(name))
        for name, text in sources.texts.items()
    )


def _located(sources: Sources, candidate: Candidate) -> Located | None:
    try:
        return spans.locate(sources.tree(candidate.file), candidate.first, candidate.last)
    except (spans.SpanError, KeyError):
        return None


def follow_up(sources: Sources, candidate: Candidate, report: ChildReport, hazard: str) -> list[Candidate]:
    """What to try after an attempt that was blocked, refused, or differed; the most promising first."""
    located = _located(sources, candidate)
    if located is None:
        return []
    if report.ending == "blocked" and report.failed is not None:
        return _after_block(sources, candidate, report)
    if report.ending == "refused":
        return _without_name(candidate, located, report.message, sources)
    return _after_difference(sources, candidate, located, hazard)


def _after_block(sources: Sources, candidate: Candidate, report: ChildReport) -> list[Candidate]:
    failed = report.failed
    assert failed is not None
    located = _located(sources, candidate)
    assert located is not None
    if failed.blocker in ("optim-not-capturable", "optim-lr-tensor"):
        extra = [FixSpec(id="lr-tensor")] if _has_scheduler(sources) else []
        return [candidate.fixed(FixSpec(id="capturable"), *extra)]
    if failed.blocker == "rng-unregistered":
        return [candidate.fixed(FixSpec(id="generator"))]
    if failed.blocker in ("raw-cudamalloc", "pinned-alloc"):
        return [candidate.fixed(FixSpec(id="error-mode"))]
    inside = failed.file == candidate.file and candidate.first <= failed.line <= candidate.last
    if inside:
        edit = whatif.deferred(located.statements, failed.line)
        waits = [candidate.fixed(FixSpec(id="defer", file=candidate.file, line=failed.line))] if edit else []
        return [*waits, *cut(sources, candidate, failed.line)]
    return unique([*_around_in_function(sources, candidate, failed.file, failed.line), *of_calls(sources, candidate)])


def cut(sources: Sources, candidate: Candidate, line: int) -> list[Candidate]:
    """The pieces of a span before and behind the statement on `line`, the heavier first; of a compound one its inside."""
    located = _located(sources, candidate)
    if located is None:
        return []
    pieces: list[list[ast.stmt]] = [[]]
    for statement in located.statements:
        if first_line(statement) <= line <= (statement.end_lineno or 0):
            pieces.append([])
        else:
            pieces[-1].append(statement)
    found = []
    for piece in pieces:
        trimmed = trim(piece)
        weight = weigh(trimmed, sources) if trimmed else 0
        if weight > 0:
            first, last = first_line(trimmed[0]), trimmed[-1].end_lineno or 0
            kept = tuple(fix for fix in candidate.fixes if not fix.line or first <= fix.line <= last)
            found.append(
                replace(candidate, first=first, last=last, weight=weight, fixes=kept, note=f"cut at line {line}")
            )
    return sorted(found, key=lambda piece: -piece.weight)


def _around_in_function(sources: Sources, candidate: Candidate, file: str, line: int) -> list[Candidate]:
    """The blocker lies in a function the span calls: that function's body, cut at the line."""
    if file not in sources.texts:
        return []
    for scope, node in spans.walk_scopes(sources.tree(file)):
        if isinstance(scope, ast.FunctionDef) and isinstance(node, ast.stmt) and node.lineno == line:
            body = body_of(scope)
            whole = replace(candidate, file=file, first=first_line(body[0]), last=body[-1].end_lineno or 0)
            return cut(sources, whole, line)
    return []


def _without_name(candidate: Candidate, located: Located, message: str, sources: Sources) -> list[Candidate]:
    """Pieces of a span that do not read the Python value a refusal names."""
    quoted = message.split("`")
    name = quoted[1].split(".")[0].split("[")[0] if len(quoted) > 2 else ""
    changing = {name} if name else set()
    runs = of_block(sources, candidate.file, located.statements, changing)
    return [replace(run, fixes=candidate.fixes, note=f"without `{name}`") for run in runs if run.key != candidate.key]


def _after_difference(sources: Sources, candidate: Candidate, located: Located, hazard: str) -> list[Candidate]:
    if hazard in ("grad-reset-outside", "grad-accumulate-twice"):
        grown = _with_zero_grad(candidate, located)
        in_place = FixSpec(id="zero-grad", file=candidate.file)
        return [*grown, candidate.fixed(in_place)]
    if hazard in ("cpu-side-effect", "output-overwrite"):
        waits = [
            FixSpec(id="defer", file=candidate.file, line=line)
            for line in _effect_lines(sources, candidate, located)
            if whatif.deferred(located.statements, line) is not None
        ]
        return [candidate.fixed(*waits)] if waits else []
    if hazard == "frozen-lr-sgd":
        return [candidate.fixed(FixSpec(id="fused"), FixSpec(id="lr-tensor"))]
    if hazard == "frozen-scalar" and _has_adam(sources):
        return [candidate.fixed(FixSpec(id="capturable"), FixSpec(id="lr-tensor"))]
    return []


def _with_zero_grad(candidate: Candidate, located: Located) -> list[Candidate]:
    """The span grown to the `zero_grad()` that lies right before or behind it."""
    for step, edge in ((-1, located.first), (1, located.last)):
        position = edge + step
        if 0 <= position < len(located.block):
            statement = located.block[position]
            if any(isinstance(node, ast.Call) and call_name(node) == "zero_grad" for node in ast.walk(statement)):
                first = min(candidate.first, first_line(statement))
                last = max(candidate.last, statement.end_lineno or 0)
                return [replace(candidate, first=first, last=last, note="grown to the zero_grad")]
    return []
