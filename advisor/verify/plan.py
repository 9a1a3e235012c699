"""Which spans to try, largest first, and what to try after an attempt that failed. Works on source text alone."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from advisor.workload import effects, liveness, spans, whatif
from advisor.workload.flow import Flow
from advisor.workload.spans import Located, first_line
from advisor.workload.verify_job import ChildReport, FixSpec

_COPIES: Final = frozenset({"to", "cuda", "pin_memory"})
_LOGGING: Final = frozenset({"print", "time", "perf_counter", "append", "info", "debug", "warning", "write", "flush"})
_CAPTURABLE: Final = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Rprop", "ASGD", "Adadelta")


@dataclass(frozen=True)
class Candidate:
    """One span to capture, with the fixes to apply. `module` names an nn.Module instead of lines."""

    file: str
    first: int
    last: int
    fixes: tuple[FixSpec, ...] = ()
    module: str = ""
    weight: int = 0
    note: str = ""

    @property
    def label(self) -> str:
        if self.module:
            return f"module {self.module}"
        lines = f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.file}:{lines}"

    @property
    def key(self) -> tuple[object, ...]:
        return self.file, self.first, self.last, self.module, tuple((fix.id, fix.line) for fix in self.fixes)

    def fixed(self, *fixes: FixSpec) -> Candidate:
        known = {(fix.id, fix.line) for fix in self.fixes}
        return replace(self, fixes=(*self.fixes, *(fix for fix in fixes if (fix.id, fix.line) not in known)))


@dataclass
class Sources:
    """The user's files: label (relative to the script's folder) -> text. Trees are parsed once."""

    texts: dict[str, str]
    _trees: dict[str, ast.Module] = field(default_factory=dict)

    def tree(self, file: str) -> ast.Module:
        """The syntax tree of a file. Raises KeyError for an unknown one."""
        if file not in self._trees:
            self._trees[file] = ast.parse(self.texts[file])
        return self._trees[file]

    def functions(self, name: str) -> Iterator[tuple[str, ast.FunctionDef]]:
        """Functions and methods of this name, in any of the files; of a class its `forward`."""
        for file in self.texts:
            for node in ast.walk(self.tree(file)):
                if isinstance(node, ast.FunctionDef) and node.name == name:
                    yield file, node


# --- candidates of a loop ---------------------------------------------------------------------------------------------------


def candidates(sources: Sources, file: str, line: int) -> list[Candidate]:
    """Spans of the loop on `file:line` and of functions it calls, heaviest first. Empty when there is no such loop."""
    try:
        _, loop = spans.find_loop(sources.tree(file), line)
    except (spans.SpanError, KeyError):
        return []
    found = _of_block(sources, file, loop.body, changing_numbers(loop, sources.tree(file)))
    nested = [inner for candidate in found for inner in _of_calls(sources, candidate)]
    if not found:
        nested = _of_functions(sources, loop.body)
    return _unique([*found, *nested])


@dataclass
class _Run:
    """Consecutive statements that could form a span, and the fixes that let them."""

    statements: list[ast.stmt] = field(default_factory=list)
    fixes: list[FixSpec] = field(default_factory=list)


def _of_block(sources: Sources, file: str, block: list[ast.stmt], changing: set[str]) -> list[Candidate]:
    runs = [_Run()]
    for statement in block:
        if _unusable(statement):
            runs.append(_Run())
        elif not _reads(statement, changing):
            runs[-1].statements.append(statement)
        elif _stages(runs[-1], statement, changing):
            runs[-1].statements.append(statement)
            names = ",".join(sorted(changing))
            runs[-1].fixes.append(FixSpec(id="stage", file=file, line=first_line(statement), detail=names))
        else:
            runs.append(_Run())
    found = []
    for run in runs:
        trimmed = _trim(run.statements)
        if trimmed and _weight(trimmed, sources) > 0:
            first, last = first_line(trimmed[0]), trimmed[-1].end_lineno or 0
            fixes = tuple(fix for fix in run.fixes if first <= fix.line <= last)
            found.append(Candidate(file, first, last, fixes, weight=_weight(trimmed, sources)))
    return sorted(found, key=lambda candidate: -candidate.weight)


def _stages(run: _Run, statement: ast.stmt, changing: set[str]) -> bool:
    if isinstance(statement, ast.If | ast.For | ast.While) or whatif.host_reads([statement]):
        return False
    return whatif.staged([*run.statements, statement], first_line(statement), changing) is not None


def _of_calls(sources: Sources, candidate: Candidate) -> list[Candidate]:
    """When a span is little more than a call of the user's own function, that function's body is worth a try."""
    tree = sources.tree(candidate.file)
    statements = spans.locate(tree, candidate.first, candidate.last).statements
    return _of_functions(sources, statements) if len(statements) <= 2 else []


def _of_functions(sources: Sources, statements: list[ast.stmt]) -> list[Candidate]:
    found = []
    for name in _called_names(statements):
        for file, function in sources.functions(name):
            changing = changing_numbers(function, sources.tree(file))
            found += _of_block(sources, file, _with_return(function), changing)
    return sorted(found, key=lambda one: -one.weight)


def _with_return(function: ast.FunctionDef) -> list[ast.stmt]:
    body = function.body
    documented = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    return body[1:] if documented else body


def _called_names(statements: Iterable[ast.stmt]) -> list[str]:
    names = []
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                names.append(_name(node))
                if isinstance(node.func, ast.Name):
                    names.append("__call__")
    return list(dict.fromkeys(names))


def _unusable(statement: ast.stmt) -> bool:
    """Whether a span must not hold this statement: it leaves the loop, defines things, or fetches the next input."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom | ast.Pass):
        return True
    names = liveness.refusals([statement])
    if any(True for _ in names) and not (isinstance(statement, ast.Return) and statement.value is not None):
        return True
    return any(isinstance(node, ast.Call) and _name(node) == "next" for node in ast.walk(statement))


def _reads(statement: ast.stmt, changing: set[str]) -> bool:
    flow = Flow()
    flow.block([statement])
    return bool((flow.exposed | flow.may) & changing)


def changing_numbers(owner: ast.For | ast.While | ast.FunctionDef, tree: ast.Module) -> set[str]:
    """Names that hold another Python number in every iteration: loop counters and what is computed from them alone."""
    found: set[str] = set()
    tensors = _tensor_names(tree)
    for node in (owner, *ast.walk(owner)):
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
            called = _name(node.iter)
            if (
                node is owner
                and called in ("range", "trange", "reversed", "count")
                and isinstance(node.target, ast.Name)
            ):
                found.add(node.target.id)
            if node is owner and called == "enumerate" and isinstance(node.target, ast.Tuple):
                inner = node.iter.args[0] if node.iter.args else None
                both = isinstance(inner, ast.Call) and _name(inner) in ("range", "reversed")
                counters = node.target.elts if both else node.target.elts[:1]
                found |= {part.id for part in counters if isinstance(part, ast.Name)}
        if (
            isinstance(node, ast.AugAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(node.value, ast.Constant)
        ):
            found |= {node.target.id} - tensors
    for statement in owner.body:
        if isinstance(statement, ast.Assign) and (_reads_clock(statement.value) or _arithmetic(statement.value, found)):
            found |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
    return found


def _tensor_names(tree: ast.Module) -> set[str]:
    """Names that are somewhere bound to what a call of torch's gives: `n += 1` on one of them counts on the GPU."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            if ast.unparse(node.value.func).startswith("torch."):
                found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def _reads_clock(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) in ("time.time", "time.perf_counter", "perf_counter")


def _arithmetic(value: ast.expr, changing: set[str]) -> bool:
    names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    plain = not any(isinstance(node, ast.Call | ast.Subscript) for node in ast.walk(value))
    return plain and bool(names & changing)


def _trim(run: list[ast.stmt]) -> list[ast.stmt]:
    """Without host work and input copies at the front, and host reads and logging at the back."""
    start, stop = 0, len(run)
    while start < stop and (_host_only(run[start]) or _copies_in(run[start])):
        start += 1
    while stop > start and (_host_only(run[stop - 1]) or whatif.host_reads([run[stop - 1]])):
        stop -= 1
    return run[start:stop]


def _host_only(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Return):
        return not any(isinstance(node, ast.Call | ast.BinOp) for node in ast.walk(statement))
    if isinstance(statement, ast.AugAssign) and isinstance(statement.value, ast.Constant):
        return True  # a counter, or else so small that it does not matter
    calls = [_name(node) for node in ast.walk(statement) if isinstance(node, ast.Call)]
    arithmetic = any(isinstance(node, ast.BinOp | ast.AugAssign) for node in ast.walk(statement))
    return all(name in _LOGGING or "callback" in name for name in calls) and (bool(calls) or not arithmetic)


def _copies_in(statement: ast.stmt) -> bool:
    calls = [_name(node) for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return bool(calls) and all(name in _COPIES for name in calls)


def _weight(statements: list[ast.stmt], sources: Sources) -> int:
    total = 0
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and _name(node) not in _LOGGING:
                total += 5 if _name(node) in ("backward", "step") else 1
                total += 3 * any(True for _ in sources.functions(_name(node)))
            elif isinstance(node, ast.For | ast.While):
                total += 5
    return total


def _name(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _unique(found: list[Candidate]) -> list[Candidate]:
    return list({candidate.key: candidate for candidate in found}.values())


# --- what is foreseen, and what follows a failure ---------------------------------------------------------------------------


def foreseen(sources: Sources, candidate: Candidate) -> tuple[FixSpec, ...]:
    """Fixes that reading the source already calls for: they are tried beside the span as written."""
    if candidate.module:
        return ()
    located = _located(sources, candidate)
    if located is None:
        return ()
    fixes = []
    steps = any(
        isinstance(node, ast.Call) and _name(node) == "step" for s in located.statements for node in ast.walk(s)
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
    tensors = _tensor_names(sources.tree(candidate.file))
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
    for text in sources.texts:
        for node in ast.walk(sources.tree(text)):
            if isinstance(node, ast.Call) and _name(node) in _CAPTURABLE:
                if not any(keyword.arg == "capturable" for keyword in node.keywords):
                    return True
    return False


def _has_scheduler(sources: Sources) -> bool:
    return any("lr_scheduler" in text or "LRScheduler" in text for text in sources.texts.values())


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
    return _unique([*_around_in_function(sources, candidate, failed.file, failed.line), *_of_calls(sources, candidate)])


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
        trimmed = _trim(piece)
        weight = _weight(trimmed, sources) if trimmed else 0
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
            body = _with_return(scope)
            whole = replace(candidate, file=file, first=first_line(body[0]), last=body[-1].end_lineno or 0)
            return cut(sources, whole, line)
    return []


def _without_name(candidate: Candidate, located: Located, message: str, sources: Sources) -> list[Candidate]:
    """Pieces of a span that do not read the Python value a refusal names."""
    quoted = message.split("`")
    name = quoted[1].split(".")[0].split("[")[0] if len(quoted) > 2 else ""
    changing = {name} if name else set()
    runs = _of_block(sources, candidate.file, located.statements, changing)
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
    if hazard == "frozen-scalar" and _has_plain_adam(sources):
        return [candidate.fixed(FixSpec(id="capturable"), FixSpec(id="lr-tensor"))]
    return []


def _with_zero_grad(candidate: Candidate, located: Located) -> list[Candidate]:
    """The span grown to the `zero_grad()` that lies right before or behind it."""
    for step, edge in ((-1, located.first), (1, located.last)):
        position = edge + step
        if 0 <= position < len(located.block):
            statement = located.block[position]
            if any(isinstance(node, ast.Call) and _name(node) == "zero_grad" for node in ast.walk(statement)):
                first = min(candidate.first, first_line(statement))
                last = max(candidate.last, statement.end_lineno or 0)
                return [replace(candidate, first=first, last=last, note="grown to the zero_grad")]
    return []
