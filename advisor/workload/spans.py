"""Finding a span of statements in a file, and wrapping it so that it can be skipped (syntax tree only, no torch).

The wrapped form, for a span that reads `x` and leaves `loss` behind:

    if _cga_span.enter(locals(), globals()):
        if _cga_span.swaps:                       # only in the iteration that captures
            if "x" in _cga_span.ins: x = _cga_span.ins["x"]
        try:
            <the user's statements, with their own line numbers>
        except BaseException:
            _cga_span.failed()
            raise
        _cga_span.leave(locals(), globals())
    if _cga_span.gives:                           # after a capture or a replay
        if "loss" in _cga_span.outs: loss = _cga_span.outs["loss"]

and the hot loop ticks at the top of every iteration and once behind its last:

    for batch in loader:
        _cga_step.tick(locals())
        ...
    _cga_step.end(locals())
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from advisor.workload import liveness
from advisor.workload.flow import Flow, parameters
from advisor.workload.liveness import Scope, SpanNames, blocks_of

SPAN_NAME: Final = "_cga_span"
STEP_NAME: Final = "_cga_step"
RESULT_NAME: Final = "_cga_result"
_RANGE_CALLS: Final = frozenset({"region", "record_function", "range", "annotate"})
_PUSHES: Final = frozenset({"range_push", "push_range"})
_POPS: Final = frozenset({"range_pop", "pop_range"})


class SpanError(ValueError):
    """The lines name no contiguous run of statements, or one that cannot be skipped. The text says which."""


@dataclass(frozen=True)
class Located:
    """A span within a file's tree. `block[first:last + 1]` are its statements."""

    scope: Scope
    block: list[ast.stmt]
    first: int
    last: int

    @property
    def statements(self) -> list[ast.stmt]:
        return self.block[self.first : self.last + 1]

    @property
    def lines(self) -> tuple[int, int]:
        return first_line(self.block[self.first]), self.block[self.last].end_lineno or 0


def first_line(statement: ast.stmt) -> int:
    """The first line of a statement, decorators included."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(part.lineno for part in decorators)])


def locate(tree: ast.Module, first: int, last: int) -> Located:
    """The statements on lines `first`..`last` (1-based, inclusive). Raises SpanError when there are none."""
    found = _locate_in(tree, tree, first, last)
    if found is None:
        raise SpanError(f"lines {first}-{last} are no contiguous run of statements of one block")
    return found


def _locate_in(node: ast.AST, scope: Scope, first: int, last: int) -> Located | None:
    for block in blocks_of(node):
        touched = [i for i, s in enumerate(block) if first_line(s) <= last and (s.end_lineno or 0) >= first]
        if not touched:
            continue
        inside = [i for i in touched if first_line(block[i]) >= first and (block[i].end_lineno or 0) <= last]
        if inside and (len(inside) == len(touched) or len(touched) > 1):
            return Located(scope, block, inside[0], inside[-1])
        owner = block[touched[0]]
        inner = owner if isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef) else scope
        return _locate_in(owner, inner, first, last)
    return None


def find_loop(tree: ast.Module, line: int) -> tuple[Scope, ast.For | ast.While]:
    """The loop that starts on `line`, with its innermost function. Raises SpanError."""
    for scope, node in walk_scopes(tree):
        if isinstance(node, ast.For | ast.While) and node.lineno == line:
            return scope, node
    raise SpanError(f"no loop starts on line {line}")


def walk_scopes(tree: ast.Module) -> Iterator[tuple[Scope, ast.AST]]:
    """Every node with the innermost function (or module) it belongs to."""
    todo: list[tuple[Scope, ast.AST]] = [(tree, child) for child in ast.iter_child_nodes(tree)]
    while todo:
        scope, node = todo.pop()
        yield scope, node
        inner = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else scope
        todo.extend((inner, child) for child in ast.iter_child_nodes(node))


def find_range(tree: ast.Module, name: str) -> tuple[int, int] | None:
    """The lines a user's range `name` covers: a `with` over it, a push/pop pair, a decorated function's body."""
    for _, node in walk_scopes(tree):
        if isinstance(node, ast.With) and any(_names_range(item.context_expr, name) for item in node.items):
            return first_line(node.body[0]), node.body[-1].end_lineno or 0
        if isinstance(node, ast.FunctionDef) and any(_names_range(part, name) for part in node.decorator_list):
            return first_line(node.body[0]), node.body[-1].end_lineno or 0
        for block in blocks_of(node):
            found = _pushed(block, name)
            if found is not None:
                return found
    return _pushed(tree.body, name)


def _names_range(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and _called(node) in _RANGE_CALLS and _first_text(node) == name


def _called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _first_text(node: ast.Call) -> str | None:
    values = [*node.args, *(keyword.value for keyword in node.keywords)]
    first = values[0] if values else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def _pushed(block: list[ast.stmt], name: str) -> tuple[int, int] | None:
    depth, start = 0, None
    for index, statement in enumerate(block):
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call):
            continue
        if _called(call) in _PUSHES:
            if start is None and _first_text(call) == name:
                start, depth = index, 0
            depth += 1
        elif _called(call) in _POPS and start is not None:
            depth -= 1
            if depth == 0:
                return (first_line(block[start + 1]), block[index - 1].end_lineno or 0) if index > start + 1 else None
    return None


# --- wrapping -------------------------------------------------------------------------------------------------------------


def span_names(tree: ast.Module, found: Located) -> SpanNames:
    """The data flow of a located span. Raises SpanError when it cannot be skipped."""
    names = liveness.analyse(found.scope, found.block, found.first, found.last, tree)
    if names.refusals:
        line, reason = names.refusals[0]
        raise SpanError(f"line {line}: {reason}")
    return names


def lift_return(found: Located) -> None:
    """Let a span that ends in the function's own `return value` keep the value and return it behind the span."""
    last = found.block[found.last]
    if isinstance(last, ast.Return) and last.value is not None and not isinstance(found.scope, ast.Module):
        keep, leave = _parse(f"{RESULT_NAME} = None\nreturn {RESULT_NAME}", last.lineno)
        assert isinstance(keep, ast.Assign)
        keep.value = last.value
        keep.end_lineno = last.end_lineno
        found.block[found.last : found.last + 1] = [keep, leave]


def rebindable(scope: Scope) -> frozenset[str] | None:
    """Names an assignment in `scope` may rebind without changing what they mean. None means any (module scope)."""
    if isinstance(scope, ast.Module):
        return None
    flow = Flow()
    flow.block(scope.body)
    own = {name for part in scope.body if isinstance(part, ast.Global | ast.Nonlocal) for name in part.names}
    nested = {name for part in ast.walk(scope) if isinstance(part, ast.Global) for name in part.names} - own
    return frozenset((flow.may - nested) | parameters(scope.args))


def wrap_span(tree: ast.Module, found: Located, names: SpanNames) -> None:
    """Replace the span in place by its skippable form."""
    allowed = rebindable(found.scope)
    swapped = [name for name in names.live_in if allowed is None or name in allowed]
    start, end = found.lines
    statements = found.statements
    guard = _parse(f"if {SPAN_NAME}.enter(locals(), globals()):\n    pass", start)[0]
    assert isinstance(guard, ast.If)
    body: list[ast.stmt] = _given("swaps", "ins", swapped, (), start)
    attempt = _parse(f"try:\n    pass\nexcept BaseException:\n    {SPAN_NAME}.failed()\n    raise", end)[0]
    assert isinstance(attempt, ast.Try)
    attempt.body = statements
    guard.body = [*body, attempt, *_parse(f"{SPAN_NAME}.leave(locals(), globals())", end)]
    outs = sorted({*names.live_out, *swapped})
    after = _given("gives", "outs", outs, names.deleted, end)
    found.block[found.first : found.last + 1] = [guard, *after]


def _given(flag: str, source: str, names: list[str], deleted: tuple[str, ...], line: int) -> list[ast.stmt]:
    if not names and not deleted:
        return []
    text = [f"if {SPAN_NAME}.{flag}:"]
    text += [f"    if {name!r} in {SPAN_NAME}.{source}: {name} = {SPAN_NAME}.{source}[{name!r}]" for name in names]
    text += [f"    if {name!r} in {SPAN_NAME}.unbound: del {name}" for name in deleted]
    return _parse("\n".join(text), line)


def wrap_loop(scope: Scope, loop: ast.For | ast.While) -> None:
    """Tick at the top of every iteration, and behind the loop."""
    loop.body.insert(0, _parse(f"{STEP_NAME}.tick(locals())", loop.body[0].lineno)[0])
    for owner in ast.walk(scope):
        for block in blocks_of(owner):
            if any(statement is loop for statement in block):
                position = next(i for i, statement in enumerate(block) if statement is loop)
                block.insert(position + 1, _parse(f"{STEP_NAME}.end(locals())", loop.end_lineno or loop.lineno)[0])
                return


def _parse(text: str, line: int) -> list[ast.stmt]:
    """Statements of the tool's own, all on one line of the user's file so that tracebacks stay readable."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt | ast.expr | ast.excepthandler | ast.keyword):
            node.lineno = node.end_lineno = line
            node.col_offset = node.end_col_offset = 0
    return tree.body
