"""Mechanical fixes tried on the user's behalf: what changes in the source, and which fix fits which finding (no torch).

A source fix is a list of edits. The child applies them to the syntax tree (line numbers stay the user's); the report shows
the same edits as a unified diff of the user's text. Run-time fixes (an optimizer's flags, the capture mode) touch no tree;
their diff shows the line that would ask for them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from advisor.workload.flow import Flow, path_of
from advisor.workload.liveness import blocks_of
from advisor.workload.spans import Located, first_line
from advisor.workload.verify_job import FixSpec

TITLES: Final[dict[str, str]] = {
    "capturable": "construct the optimizer with capturable=True",
    "lr-tensor": "keep the learning rate in a GPU tensor",
    "fused": "construct the optimizer with fused=True",
    "stage": "prepare the input before the span",
    "defer": "read the value after the span instead of inside it",
    "zero-grad": "zero the gradients in place: zero_grad(set_to_none=False)",
    "generator": "register the generator with the graph",
    "error-mode": 'capture with capture_error_mode="relaxed"',
}
RUNTIME: Final = frozenset({"capturable", "lr-tensor", "fused", "generator", "error-mode"})
_HOST_READS: Final = frozenset({"item", "tolist", "cpu", "numpy"})
_ARGUMENTS: Final = {"capturable": "capturable=True", "fused": "fused=True"}


class Edit(NamedTuple):
    """Replace lines first..last by `text` (no lines: delete them).

    `after` goes behind the span, whose last line is `behind`; `front` goes before the span, whose first line is `ahead`.
    """

    first: int
    last: int
    text: tuple[str, ...]
    behind: int = 0
    after: tuple[str, ...] = ()
    ahead: int = 0
    front: tuple[str, ...] = ()


# --- deferring a host read ------------------------------------------------------------------------------------------------


def deferred(span: list[ast.stmt], line: int) -> Edit | None:
    """How the statement on `line`, one of `span`, can wait until the span is over; None when it must not.

    A statement that reads nothing the rest of the span changes, and whose results the rest does not use, moves behind
    the span as it is. Otherwise the GPU side of its host read stays where it is, under a new name, and only the read moves.
    """
    position = next((i for i, s in enumerate(span) if first_line(s) <= line <= (s.end_lineno or 0)), None)
    if position is None:
        return None
    statement, rest = span[position], span[position + 1 :]
    end = span[-1].end_lineno or 0
    own, later = Flow(), Flow()
    own.block([statement])
    later.block(rest)
    if own.may & (later.exposed | later.may) or _leaves(statement):
        return None
    first, last = first_line(statement), statement.end_lineno or 0
    text = tuple(ast.unparse(statement).split("\n"))
    if not own.exposed & later.may and not _changes_tensors(rest, own.exposed):
        return Edit(first, last, (), end, text)
    return _split_read(statement, later, end)


def _split_read(statement: ast.stmt, later: Flow, end: int) -> Edit | None:
    splitter = _Splitter(first_line(statement))
    moved = splitter.visit(ast.parse(ast.unparse(statement)).body[0])
    if not splitter.kept:
        return None
    read = Flow()
    read.block([moved])
    if (read.exposed - {name for name, _ in splitter.kept}) & later.may:
        return None
    kept = tuple(f"{name} = {text}" for name, text in splitter.kept)
    return Edit(first_line(statement), statement.end_lineno or 0, kept, end, tuple(ast.unparse(moved).split("\n")))


class _Splitter(ast.NodeTransformer):
    """Takes the tensor out of `<tensor>.item()` and `float(<tensor>)` and leaves a name in its place."""

    def __init__(self, line: int) -> None:
        self.kept: list[tuple[str, str]] = []
        self._line = line

    def visit_Call(self, node: ast.Call) -> ast.AST:
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in _HOST_READS:
            function.value = self._keep(function.value)
            return node
        if isinstance(function, ast.Name) and function.id in ("float", "int", "bool") and len(node.args) == 1:
            node.args = [self._keep(node.args[0])]
            return node
        return self.generic_visit(node)

    def _keep(self, tensor: ast.expr) -> ast.expr:
        name = _fresh("kept", self._line, len(self.kept))
        text = ast.unparse(tensor)
        # A bare name may be written in place later on; the result of an operation is the span's own.
        plain = isinstance(tensor, ast.Name | ast.Attribute | ast.Subscript)
        self.kept.append((name, f"{text}.detach().clone()" if plain else text))
        return ast.Name(id=name, ctx=ast.Load())


def writes_learning_rate(tree: ast.Module) -> bool:
    """Whether the source stores into `...["lr"]`, as a hand-written schedule does."""
    return any(
        isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.slice, ast.Constant)
        and node.slice.value == "lr"
        for node in ast.walk(tree)
    )


def _changes_tensors(rest: list[ast.stmt], names: set[str]) -> bool:
    """Whether a statement of `rest` may change, in place, a value the moved statement reads.

    In-place methods end in `_`, subscript and attribute stores and augmented assignments name their target; the step of an
    optimizer changes parameters, which a moved read reaches only through a call.
    """
    for node in (node for statement in rest for node in ast.walk(statement)):
        target: ast.expr | None = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr.endswith("_") and not node.func.attr.endswith("__"):
                target = node.func.value
        elif isinstance(node, ast.AugAssign):
            target = node.target
        elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            target = node
        if target is not None and _root(target) in names:
            return True
    return False


def _fresh(what: str, line: int, index: int) -> str:
    return f"{what}_{line}" if index == 0 else f"{what}_{line}_{index}"


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _leaves(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Return | ast.Break | ast.Continue | ast.Yield) for node in ast.walk(statement))


# --- preparing an input --------------------------------------------------------------------------------------------------


def staged(span: list[ast.stmt], line: int, changing: set[str]) -> Edit | None:
    """How the statement on `line`, one of `span`, gets along without the Python numbers `changing`; None when it cannot.

    What it reads with their help (`images[i % 8]`) is read before the span, or the statement as a whole runs before it.
    """
    position = next((i for i, s in enumerate(span) if first_line(s) <= line <= (s.end_lineno or 0)), None)
    if position is None:
        return None
    statement = span[position]
    earlier = Flow()
    earlier.block(span[:position])
    start, first, last = first_line(span[0]), first_line(statement), statement.end_lineno or 0
    taker = _Taker(changing, first)
    kept = taker.visit(ast.parse(ast.unparse(statement)).body[0])
    rest, read = Flow(), Flow()
    rest.block([kept])
    read.block(ast.parse("\n".join(text for _, text in taker.taken)).body)
    calls = any(isinstance(node, ast.Call) for node in ast.walk(kept))
    if taker.taken and calls and not rest.exposed & changing and not read.exposed & earlier.may:
        front = tuple(f"{name} = {text}" for name, text in taker.taken)
        return Edit(first, last, tuple(ast.unparse(kept).split("\n")), ahead=start, front=front)
    whole = Flow()
    whole.block([statement])
    clashes = whole.exposed & earlier.may or whole.may & (earlier.exposed | earlier.may)
    if position and not clashes and not _leaves(statement) and not _changes_tensors(span[:position], whole.exposed):
        return Edit(first, last, (), ahead=start, front=tuple(ast.unparse(statement).split("\n")))
    return None


class _Taker(ast.NodeTransformer):
    """Takes out subscripts that read one of the changing numbers and leaves a name in their place."""

    def __init__(self, changing: set[str], line: int) -> None:
        self.taken: list[tuple[str, str]] = []
        self._changing = changing
        self._line = line

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        if not names & self._changing or not isinstance(node.ctx, ast.Load):
            return self.generic_visit(node)
        name = _fresh("staged", self._line, len(self.taken))
        self.taken.append((name, ast.unparse(node)))
        return ast.Name(id=name, ctx=ast.Load())


# --- edits of a fix ---------------------------------------------------------------------------------------------------------


def edits(fix: FixSpec, tree: ast.Module, span: list[ast.stmt]) -> list[Edit]:
    """The edits of a source fix in the file it names; nothing for a run-time fix or one that does not apply."""
    if fix.id == "defer":
        found = deferred(span, fix.line)
        return [found] if found else []
    if fix.id == "stage":
        found = staged(span, fix.line, set(fix.detail.split(",")))
        return [found] if found else []
    if fix.id == "zero-grad":
        return [edit for node in ast.walk(tree) if isinstance(node, ast.Expr) for edit in _zero_grad(node, fix.line)]
    return []


def _zero_grad(node: ast.Expr, line: int) -> Iterable[Edit]:
    call = node.value
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "zero_grad":
        if line in (0, node.lineno):
            text = f"{ast.unparse(call.func)}(set_to_none=False)"
            yield Edit(node.lineno, node.end_lineno or node.lineno, (text,))


def apply(tree: ast.Module, located: Located, changes: Iterable[Edit]) -> Located:
    """Apply edits to the tree; returns where the span lies afterwards. Moved statements end up behind or before the span."""
    inside = {id(statement) for statement in located.statements}
    behind: list[ast.stmt] = []
    ahead: list[ast.stmt] = []
    for edit in changes:
        block, index = _find(tree, edit)
        fresh = _parse(edit.text, edit.first)
        if id(block[index]) in inside:
            inside |= {id(statement) for statement in fresh}
        block[index : index + 1] = fresh
        if not block:
            block.append(_parse(("pass",), edit.first)[0])
        behind += _parse(edit.after, edit.first)
        ahead += _parse(edit.front, edit.first)
    positions = [i for i, statement in enumerate(located.block) if id(statement) in inside]
    if not positions:
        raise ValueError("the fixes leave nothing of the span")
    located.block[positions[-1] + 1 : positions[-1] + 1] = behind
    located.block[positions[0] : positions[0]] = ahead
    return Located(located.scope, located.block, positions[0] + len(ahead), positions[-1] + len(ahead))


def _find(tree: ast.Module, edit: Edit) -> tuple[list[ast.stmt], int]:
    for owner in ast.walk(tree):
        for block in blocks_of(owner):
            for index, statement in enumerate(block):
                if first_line(statement) == edit.first and statement.end_lineno == edit.last:
                    return block, index
    raise ValueError(f"no statement on lines {edit.first}-{edit.last}")


def _parse(lines: tuple[str, ...], line: int) -> list[ast.stmt]:
    tree = ast.parse("\n".join(lines))
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt | ast.expr | ast.excepthandler | ast.keyword):
            node.lineno = node.end_lineno = line
    return tree.body


# --- diffs ---------------------------------------------------------------------------------------------------------------------


def diff(file: str, source: str, changes: Iterable[Edit]) -> str:
    """A unified diff of the user's lines for some edits, one line of context around each."""
    rows = list(_rows(source.splitlines(), list(changes)))
    changed = [i for i, (mark, _) in enumerate(rows) if mark != " "]
    if not changed:
        return ""
    out = [f"--- {file}", f"+++ {file}"]
    hunks: list[list[int]] = []
    for position in changed:
        if hunks and position - hunks[-1][1] <= 3:
            hunks[-1][1] = position
        else:
            hunks.append([position, position])
    for first, last in hunks:
        begin, end = max(0, first - 1), min(len(rows), last + 2)
        old = sum(mark != "+" for mark, _ in rows[:begin])
        new = sum(mark != "-" for mark, _ in rows[:begin])
        part = rows[begin:end]
        sizes = sum(mark != "+" for mark, _ in part), sum(mark != "-" for mark, _ in part)
        out.append(f"@@ -{old + 1},{sizes[0]} +{new + 1},{sizes[1]} @@")
        out += [mark + text for mark, text in part]
    return "\n".join(out)


def _rows(old: list[str], changes: list[Edit]) -> Iterator[tuple[str, str]]:
    """Every line with its mark: a moved statement is shown as removed where it was and added where it goes."""
    removed = {number for edit in changes for number in range(edit.first, edit.last + 1)}
    for number, text in enumerate(old, start=1):
        for edit in changes:
            if edit.front and edit.ahead == number:
                yield from (("+", _indent(old[edit.first - 1]) + line) for line in edit.front)
        yield ("-" if number in removed else " "), text
        edit_here = next((edit for edit in changes if edit.last == number), None)
        if edit_here is not None:
            yield from (("+", _indent(old[edit_here.first - 1]) + line) for line in edit_here.text)
        for edit in changes:
            if edit.after and edit.behind == number:
                yield from (("+", _indent(old[edit.first - 1]) + line) for line in edit.after)


def _indent(text: str) -> str:
    return text[: len(text) - len(text.lstrip())]


def constructor_edit(fix: str, tree: ast.Module, line: int) -> Edit | None:
    """The edit that asks for a run-time fix where the optimizer on `line` is constructed."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return):
            continue
        if not node.lineno <= line <= (node.end_lineno or node.lineno):
            continue
        calls = [part for part in ast.walk(node) if isinstance(part, ast.Call) and part.lineno == line]
        if calls:
            call = next((part for part in calls if _is_constructor(part)), calls[0])
            _with_argument(call, fix)
            return Edit(node.lineno, node.end_lineno or node.lineno, tuple(ast.unparse(node).split("\n")))
    return None


def _is_constructor(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name[:1].isupper()


def _with_argument(call: ast.Call, fix: str) -> None:
    if fix in _ARGUMENTS:
        name = fix
        call.keywords = [keyword for keyword in call.keywords if keyword.arg != name]
        call.keywords.append(ast.keyword(arg=name, value=ast.Constant(True)))
    elif fix == "lr-tensor":
        given = next((keyword for keyword in call.keywords if keyword.arg == "lr"), None)
        rate = given.value if given else call.args[1] if len(call.args) > 1 else ast.Constant(1e-3)
        tensor = ast.parse(f'torch.tensor({ast.unparse(rate)}, device="cuda")', mode="eval").body
        if given is None and len(call.args) > 1:
            call.args[1] = tensor
        else:
            call.keywords = [keyword for keyword in call.keywords if keyword.arg != "lr"]
            call.keywords.append(ast.keyword(arg="lr", value=tensor))


def host_reads(span: list[ast.stmt]) -> list[int]:
    """Lines of statements of the span that read a value on the host: what a capture would trip over."""
    found = []
    for statement in span:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and _reads_host(node):
                found.append(first_line(statement))
                break
    return found


def _reads_host(node: ast.Call) -> bool:
    function = node.func
    if isinstance(function, ast.Attribute):
        if function.attr == "synchronize":
            return True
        return function.attr in _HOST_READS and not node.args and path_of(function) != ("torch", (".numpy",))
    return isinstance(function, ast.Name) and function.id == "print"
