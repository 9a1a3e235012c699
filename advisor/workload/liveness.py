"""Which names a run of statements reads, writes and leaves behind: data flow on the syntax tree alone (no torch).

A *span* is a contiguous run of statements of one block. To skip it and replay a graph instead, a caller must know

* `live_in`: names the span may read before it has surely written them itself;
* `live_out`: names the span may write and that may be read after it (loop-carried reads included);
* `dead`: names it may write that nobody reads afterwards;
* attribute and constant-key paths (`self.loss`, `state["h"]`) it reads and writes;
* why it cannot be skipped at all (`refusals`: a `return` inside it, say).

Where a path through the program is uncertain the answer errs to the safe side: more live-ins, more live-outs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from advisor.workload.flow import Flow, Path, free_names, parameters

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOOPS: Final = (ast.For, ast.AsyncFor, ast.While)


class Refusal(NamedTuple):
    """Why a span cannot be replaced by a replay, and the line that says so."""

    line: int
    reason: str


@dataclass(frozen=True)
class SpanNames:
    """The data flow of one span. All tuples are sorted and free of repeats."""

    live_in: tuple[str, ...] = ()
    live_out: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    receivers: tuple[str, ...] = ()  # live-ins only ever used as `name.append(...)` and the like
    items_only: tuple[str, ...] = ()  # live-ins only ever used as `name[constant]`
    path_reads: tuple[Path, ...] = ()
    path_writes: tuple[Path, ...] = ()
    item_writes: tuple[Path, ...] = ()  # containers that the span writes items of under computed keys
    refusals: tuple[Refusal, ...] = ()


def analyse(scope: Scope, block: list[ast.stmt], first: int, last: int, tree: ast.Module) -> SpanNames:
    """The data flow of `block[first:last + 1]`, a block somewhere in `scope` of the file `tree`.

    `scope` is the innermost function around the block, or the module itself. Raises ValueError when the block is not
    part of `scope` or the range is empty.
    """
    if not 0 <= first <= last < len(block):
        raise ValueError(f"no statements {first}..{last} in a block of {len(block)}")
    chain = _chain(scope, block)
    span = block[first : last + 1]
    flow = Flow()
    flow.block(span)
    after = _read_after(chain, last)
    written = flow.may
    outside = _read_elsewhere(scope, tree)
    live_out = written if outside is None else {name for name in written if name in after or name in outside}
    itemised = (flow.itemised - flow.read_as_value) & flow.exposed
    pure_receivers = flow.receivers - flow.read_as_value - itemised
    owner = _class_around(scope, tree)
    return SpanNames(
        live_in=tuple(sorted(flow.exposed)),
        live_out=tuple(sorted(live_out)),
        dead=tuple(sorted(written - live_out)),
        deleted=tuple(sorted(flow.deleted)),
        receivers=tuple(sorted(pure_receivers & flow.exposed)),
        items_only=tuple(sorted(itemised)),
        path_reads=tuple(sorted(_mangled(path, owner) for path in flow.path_reads)),
        path_writes=tuple(sorted(_mangled(path, owner) for path in flow.path_writes if path.root not in written)),
        item_writes=tuple(sorted(_mangled(path, owner) for path in flow.item_writes if path.root not in written)),
        refusals=(*refusals(span), *_private(flow.exposed | written, owner, span[0].lineno)),
    )


# --- private names of a class ---------------------------------------------------------------------------------------


def _class_around(scope: ast.AST, tree: ast.AST) -> str:
    """The innermost class around `scope`, without leading underscores; empty when there is none."""
    todo: list[tuple[ast.AST, str]] = [(tree, "")]
    while todo:
        node, owner = todo.pop()
        if node is scope:
            return owner.lstrip("_")
        inner = node.name if isinstance(node, ast.ClassDef) else owner
        todo.extend((child, inner) for child in ast.iter_child_nodes(node))
    return ""


def _is_private(name: str, owner: str) -> bool:
    return bool(owner) and name.startswith("__") and not name.endswith("__")


def _mangled(path: Path, owner: str) -> Path:
    """The path with private attributes by the names they are stored under: `self.__h` in `Net` is `self._Net__h`."""
    steps = (f"._{owner}{step[1:]}" if _is_private(step[1:], owner) else step for step in path.steps)
    return Path(path.root, tuple(steps))


def _private(names: set[str], owner: str, line: int) -> Iterator[Refusal]:
    for name in sorted(names):
        if _is_private(name, owner):
            yield Refusal(line, f"`{name}` goes by another name within its class")


# --- what is read after the span -------------------------------------------------------------------------------------


class _Level(NamedTuple):
    """A block, the statement that owns it (None for the scope's own body), and the position of the next level in it."""

    block: list[ast.stmt]
    owner: ast.AST | None
    position: int


def blocks_of(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The statement lists directly in `node`: bodies, orelse, handlers' and cases' bodies, finalbody."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
            yield block
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


def _chain(scope: Scope, block: list[ast.stmt]) -> list[_Level]:
    """The levels from `scope`'s body down to `block`."""

    def descend(owner: ast.AST) -> list[_Level] | None:
        for inner in blocks_of(owner):
            if inner is block:
                return [_Level(inner, owner, -1)]
            for index, statement in enumerate(inner):
                if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)) and statement is not scope:
                    continue
                deeper = descend(statement)
                if deeper is not None:
                    return [_Level(inner, owner, index), *deeper]
        return None

    found = descend(scope)
    if found is None:
        raise ValueError("the block is not part of the scope")
    return found


def _read_after(chain: list[_Level], last: int) -> set[str]:
    """Names that may be read on a path that starts behind statement `last` of the innermost block."""
    flow = Flow()
    index = last
    for depth in range(len(chain) - 1, -1, -1):
        level = chain[depth]
        rest = level.block[index + 1 :]
        flow.block(rest)
        if any(_leaves(statement) for statement in rest):
            flow.must.clear()  # `continue`, `break`, `return`: the rest may not run to its end
        owner = level.owner
        if isinstance(owner, _LOOPS):
            _back_edge(flow, owner)
        elif isinstance(owner, ast.Try):
            flow.must.clear()
            flow.branch([*owner.orelse, *owner.finalbody, *(s for handler in owner.handlers for s in handler.body)])
        if depth:
            index = chain[depth - 1].position
    return flow.exposed


def _back_edge(flow: Flow, loop: ast.AST) -> None:
    """The next iteration from its top, then the way out of the loop."""
    once = set(flow.must)
    if isinstance(loop, ast.While):
        flow.visit(loop.test)
    elif isinstance(loop, ast.For | ast.AsyncFor):
        flow.visit(loop.target)
    flow.branch(loop.body)  # type: ignore[attr-defined]
    flow.must = once
    flow.branch(loop.orelse)  # type: ignore[attr-defined]


def _leaves(statement: ast.stmt) -> bool:
    return any(isinstance(part, ast.Continue | ast.Break | ast.Return | ast.Raise) for part in ast.walk(statement))


def _read_elsewhere(scope: Scope, tree: ast.Module) -> set[str] | None:
    """Names other scopes may read at any time: closures of this one, functions of the module. None means every name."""
    for part in ast.walk(scope):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name):
            if part.func.id in ("locals", "vars", "eval", "exec", "dir"):
                return None
    found: set[str] = set()
    for part in ast.walk(scope if not isinstance(scope, ast.Module) else tree):
        if isinstance(part, (*_FUNCTIONS, ast.Lambda)) and part is not scope:
            body = part.body if isinstance(part.body, list) else [part.body]
            found |= free_names(body, parameters(part.args))[0]
        elif isinstance(part, ast.Global | ast.Nonlocal):
            found |= set(part.names)
    return found


# --- what forbids skipping -------------------------------------------------------------------------------------------


def refusals(span: list[ast.stmt]) -> Iterator[Refusal]:
    for statement in span:
        yield from _refuse(statement, in_loop=False)


def _refuse(node: ast.AST, in_loop: bool) -> Iterator[Refusal]:
    if isinstance(node, (*_FUNCTIONS, ast.Lambda, ast.ClassDef)):
        return
    reason = _reason(node, in_loop)
    if reason:
        yield Refusal(getattr(node, "lineno", 0), reason)
    if isinstance(node, _LOOPS):
        for statement in node.body:
            yield from _refuse(statement, True)
        heads: list[ast.AST] = [node.test] if isinstance(node, ast.While) else [node.iter]
        for part in (*heads, *node.orelse):
            yield from _refuse(part, in_loop)
        return
    for part in ast.iter_child_nodes(node):
        yield from _refuse(part, in_loop)


def _reason(node: ast.AST, in_loop: bool) -> str:
    if isinstance(node, ast.Return):
        return "`return` leaves the function from inside the span"
    if isinstance(node, ast.Break | ast.Continue) and not in_loop:
        word = "break" if isinstance(node, ast.Break) else "continue"
        return f"`{word}` leaves the span"
    if isinstance(node, ast.Yield | ast.YieldFrom):
        return "`yield` suspends inside the span"
    if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
        return "`await` suspends inside the span"
    if isinstance(node, ast.Global | ast.Nonlocal):
        return "a `global` or `nonlocal` declaration lies inside the span"
    return ""
