"""Which spans of the hot loop to try, heaviest first. Works on source text alone."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from advisor.verify.candidate import Candidate, Sources, unique
from advisor.verify.statements import (
    LOGGING,
    body_of,
    call_name,
    called_names,
    changing_numbers,
    is_unusable,
    reads,
    trim,
)
from advisor.workload import spans, whatif
from advisor.workload.spans import first_line
from advisor.workload.verify_job import FixSpec


def candidates(sources: Sources, file: str, line: int) -> list[Candidate]:
    """Spans of the loop on `file:line` and of functions it calls, heaviest first. Empty when there is no such loop."""
    try:
        _, loop = spans.find_loop(sources.tree(file), line)
    except (spans.SpanError, KeyError):
        return []
    found = of_block(sources, file, loop.body, changing_numbers(loop, sources.tree(file)))
    nested = [inner for candidate in found for inner in of_calls(sources, candidate)]
    if not found:
        nested = of_functions(sources, loop.body)
    return unique([*found, *nested])


@dataclass
class _Run:
    """Consecutive statements that could form a span, and the fixes that let them."""

    statements: list[ast.stmt] = field(default_factory=list)
    fixes: list[FixSpec] = field(default_factory=list)


def of_block(sources: Sources, file: str, block: list[ast.stmt], changing: set[str]) -> list[Candidate]:
    """The spans of one block, heaviest first: runs of statements that may be skipped together and do work."""
    runs = [_Run()]
    for statement in block:
        if is_unusable(statement):
            runs.append(_Run())
        elif not reads(statement, changing):
            runs[-1].statements.append(statement)
        elif _stages(runs[-1], statement, changing):
            runs[-1].statements.append(statement)
            names = ",".join(sorted(changing))
            runs[-1].fixes.append(FixSpec(id="stage", file=file, line=first_line(statement), detail=names))
        else:
            runs.append(_Run())
    found = []
    for run in runs:
        trimmed = trim(run.statements)
        if trimmed and weigh(trimmed, sources) > 0:
            first, last = first_line(trimmed[0]), trimmed[-1].end_lineno or 0
            fixes = tuple(fix for fix in run.fixes if first <= fix.line <= last)
            found.append(Candidate(file, first, last, fixes, weight=weigh(trimmed, sources)))
    return sorted(found, key=lambda candidate: -candidate.weight)


def _stages(run: _Run, statement: ast.stmt, changing: set[str]) -> bool:
    if isinstance(statement, ast.If | ast.For | ast.While) or whatif.host_reads([statement]):
        return False
    return whatif.staged([*run.statements, statement], first_line(statement), changing) is not None


def of_calls(sources: Sources, candidate: Candidate) -> list[Candidate]:
    """When a span is little more than a call of the user's own function, that function's body is worth a try."""
    tree = sources.tree(candidate.file)
    statements = spans.locate(tree, candidate.first, candidate.last).statements
    return of_functions(sources, statements) if len(statements) <= 2 else []


def of_functions(sources: Sources, statements: list[ast.stmt]) -> list[Candidate]:
    """The spans of the bodies of functions of the user that `statements` call, heaviest first."""
    found = []
    for name in called_names(statements):
        for file, function in sources.functions(name):
            changing = changing_numbers(function, sources.tree(file))
            found += of_block(sources, file, body_of(function), changing)
    return sorted(found, key=lambda one: -one.weight)


def weigh(statements: list[ast.stmt], sources: Sources) -> int:
    """How much GPU work statements may launch, by the calls and loops in them; a guess that only orders."""
    total = 0
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and call_name(node) not in LOGGING:
                total += 5 if call_name(node) in ("backward", "step") else 1
                total += 3 * any(True for _ in sources.functions(call_name(node)))
            elif isinstance(node, ast.For | ast.While):
                total += 5
    return total
