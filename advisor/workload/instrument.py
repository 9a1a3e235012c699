"""Turns loops and statements that can launch work into ranges, through the syntax tree (no torch).

    for batch in loader:              _cga.loop(7)
        step(batch)                   try:
                                          for batch in loader:
                                              _cga.item(7)
                                              try:
                                                  _cga.begin(9)
                                                  try:
                                                      step(batch)
                                                  finally:
                                                      _cga.close(9)
                                              finally:
                                                  _cga.next(7)
                                      finally:
                                          _cga.end(7)

`try`/`finally` costs nothing on the way in (Python 3.11), and closes ranges on break, continue, return and exceptions.
The iterator stays the user's own object: what lies between `next` and `item` is the wait for its next item, so no frame
of the tool shows up in a traceback. A statement that suspends (yield, await) is left alone, since other code runs
before it is over; a loop around one only ticks. Names are module globals that do not begin with `__`, so they are not
mangled inside classes.
"""

from __future__ import annotations

import ast
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from advisor.marks import encode, span_label
from advisor.workload.imports import SourceFile

NAME: Final = "_cga"
# CPython refuses more than 20 nested blocks; two are kept for what the compiler adds itself.
_MAX_BLOCKS: Final = 18
_SUSPENDS: Final = (ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith)
_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_LOOPS: Final = (ast.For, ast.While)
_SIMPLE: Final = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Assert, ast.Raise, ast.Delete)
_WORKING: Final = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.AugAssign, ast.Subscript)
# Functions whose source or bytecode something else compiles: ranges inside would not run, or not compile.
_COMPILERS: Final = frozenset(
    "jit njit pjit vectorize guvectorize cfunc stencil kernel compile script script_method trace overload func".split()
)


@dataclass(frozen=True)
class Construct:
    """One loop or statement of the user's source. `id` is the same in every pass: it hashes place and kind.

    `waits`: between two iterations of this `for` loop lies a call of the user's iterator (not for a literal range).
    """

    id: int
    kind: str  # "loop" | "stmt"
    label: str
    file: str
    first_line: int
    last_line: int
    waits: bool = False

    def text(self, kind: str | None = None) -> str:
        """The mark's text, for a loop also as "iter" or "data"."""
        return encode(self.label, kind or self.kind, self.id)


@dataclass
class Instrumenter:
    """A `Transform`: instruments files and remembers what it found in them."""

    marks: Any  # advisor.workload.mark.Marks
    constructs: dict[int, Construct] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)  # label -> text of the instrumented files

    def __call__(self, tree: ast.Module, file: SourceFile) -> ast.Module:
        """Instrument one file's tree in place."""
        name = free_name(tree)
        file.inject[name] = self.marks
        self.sources[file.label] = file.text
        _FileInstrumenter(file.label, name, self.constructs, compiled_names(tree)).module(tree)
        return tree


def free_name(tree: ast.Module) -> str:
    """A global name that occurs nowhere in the file."""
    used = {
        value
        for node in ast.walk(tree)
        for part in ("id", "name", "arg", "asname", "attr")
        if isinstance(value := getattr(node, part, None), str)
    }
    used |= {name for node in ast.walk(tree) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    name, count = NAME, 0
    while name in used:
        count += 1
        name = f"{NAME}{count}"
    return name


def compiled_names(tree: ast.Module) -> frozenset[str]:
    """Names of functions handed to a compiler by a call: `fast = numba.njit(slow)`."""
    return frozenset(
        argument.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _last_name(node.func) in _COMPILERS
        for argument in node.args[:1]
        if isinstance(argument, ast.Name)
    )


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return _last_name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """`node` and what runs as part of it: nested functions, lambdas and classes run elsewhere or later."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _SCOPES):
            yield from own_nodes(child)


def suspends(node: ast.AST) -> bool:
    """Whether running `node` can hand control to other code before it is over."""
    return any(
        isinstance(part, _SUSPENDS) or (isinstance(part, ast.comprehension) and part.is_async)
        for part in own_nodes(node)
    )


def can_launch(node: ast.AST | None) -> bool:
    """Whether evaluating `node` can run a tensor operation: calls, operators, comparisons, indexing."""
    return node is not None and any(isinstance(part, _WORKING) for part in own_nodes(node))


def _blocks_below(node: ast.AST) -> int:
    """How deep the user's own blocks nest inside `node`, itself included."""
    own = 2 if isinstance(node, ast.Try | ast.TryStar) else 1 if isinstance(node, (*_LOOPS, ast.With)) else 0
    own = 1 if isinstance(node, ast.AsyncFor | ast.AsyncWith) else own
    children = (child for child in ast.iter_child_nodes(node) if not isinstance(child, _SCOPES))
    return own + max((_blocks_below(child) for child in children), default=0)


class _FileInstrumenter:
    def __init__(self, label: str, name: str, constructs: dict[int, Construct], compiled: frozenset[str]) -> None:
        self._label = label
        self._name = name
        self._constructs = constructs
        self._compiled = compiled

    def module(self, tree: ast.Module) -> None:
        tree.body = self._block(tree.body, 0)

    def _block(self, body: Sequence[ast.stmt], depth: int) -> list[ast.stmt]:
        return [made for statement in body for made in self._statement(statement, depth)]

    def _statement(self, node: ast.stmt, depth: int) -> list[ast.stmt]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return [self._function(node)]
        if isinstance(node, ast.ClassDef):
            self._members(node.body)
            return [node]
        if isinstance(node, _LOOPS):
            return self._loop(node, depth)
        if isinstance(node, ast.AsyncFor):
            return self._ticking(node, depth)
        ranged = self._wants_range(node) and depth + 1 + _blocks_below(node) <= _MAX_BLOCKS
        inner = depth + ranged + (1 if isinstance(node, ast.With | ast.AsyncWith) else 0)
        self._inside(node, inner)
        return self._ranged(node) if ranged else [node]

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.stmt:
        compiled = node.name in self._compiled or any(_last_name(one) in _COMPILERS for one in node.decorator_list)
        if not compiled:
            node.body = self._block(node.body, 0)
        return node

    def _members(self, body: list[ast.stmt]) -> None:
        """A class body runs once; only the functions in it are instrumented."""
        for member in body:
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                self._function(member)
            elif isinstance(member, ast.ClassDef):
                self._members(member.body)

    def _inside(self, node: ast.stmt, depth: int) -> None:
        """Instrument the blocks of a compound statement."""
        if isinstance(node, ast.Try | ast.TryStar):
            depth += 2
            for handler in node.handlers:
                handler.body = self._block(handler.body, depth)
            node.finalbody = self._block(node.finalbody, depth)
        if isinstance(node, ast.Match):
            for case in node.cases:
                case.body = self._block(case.body, depth)
        if isinstance(node, ast.If | ast.With | ast.AsyncWith | ast.Try | ast.TryStar):
            node.body = self._block(node.body, depth)
        if isinstance(node, ast.If | ast.Try | ast.TryStar):
            node.orelse = self._block(node.orelse, depth)

    def _wants_range(self, node: ast.stmt) -> bool:
        if suspends(node):
            return False
        if isinstance(node, _SIMPLE):
            return can_launch(node)
        if isinstance(node, ast.If):
            return can_launch(node.test) and not _is_main_guard(node.test)
        if isinstance(node, ast.Match):
            return can_launch(node.subject)
        return isinstance(node, ast.With)

    def _ranged(self, node: ast.stmt) -> list[ast.stmt]:
        made = self._construct(node, "stmt")
        guarded = ast.Try(body=[node], handlers=[], orelse=[], finalbody=[self._call("close", made.id, node)])
        return [self._call("begin", made.id, node), ast.copy_location(guarded, node)]

    def _loop(self, node: ast.For | ast.While, depth: int) -> list[ast.stmt]:
        if suspends(node):
            return self._ticking(node, depth)
        if depth + 3 + _blocks_below(node) > _MAX_BLOCKS or not any(can_launch(part) for part in node.body):
            self._loop_inside(node, depth + 1)
            return [node]
        made = self._construct(node, "loop", waits=isinstance(node, ast.For) and not _is_counting(node.iter))
        self._loop_inside(node, depth + 3)
        turn = ast.Try(body=node.body, handlers=[], orelse=[], finalbody=[self._call("next", made.id, node)])
        node.body = [self._call("item", made.id, node), ast.copy_location(turn, node)]
        if node.orelse:
            node.orelse = [self._call("done", made.id, node), *node.orelse]
        whole = ast.Try(body=[node], handlers=[], orelse=[], finalbody=[self._call("end", made.id, node)])
        return [self._call("loop", made.id, node), ast.copy_location(whole, node)]

    def _ticking(self, node: ast.For | ast.While | ast.AsyncFor, depth: int) -> list[ast.stmt]:
        """A loop that suspends: its iterations are counted, but no range stays open across the suspension."""
        if depth + 2 + _blocks_below(node) > _MAX_BLOCKS:
            self._loop_inside(node, depth + 1)
            return [node]
        made = self._construct(node, "loop")
        self._loop_inside(node, depth + 2)
        node.body = [self._call("tick", made.id, node), *node.body]
        whole = ast.Try(body=[node], handlers=[], orelse=[], finalbody=[self._call("untick", made.id, node)])
        return [ast.copy_location(whole, node)]

    def _loop_inside(self, node: ast.For | ast.While | ast.AsyncFor, depth: int) -> None:
        node.body = self._block(node.body, depth)
        node.orelse = self._block(node.orelse, depth)

    def _construct(self, node: ast.stmt, kind: str, *, waits: bool = False) -> Construct:
        first, last = node.lineno, node.end_lineno or node.lineno
        label = span_label(self._label, first, last)
        identity = zlib.crc32(f"{label}:{node.col_offset}:{kind}".encode())
        made = Construct(identity, kind, label, self._label, first, last, waits)
        self._constructs[identity] = made
        return made

    def _call(self, method: str, identity: int, at: ast.stmt) -> ast.stmt:
        function = ast.Attribute(value=ast.Name(id=self._name, ctx=ast.Load()), attr=method, ctx=ast.Load())
        call = ast.Expr(value=ast.Call(function, args=[ast.Constant(identity)], keywords=[]))
        for part in ast.walk(call):
            if isinstance(part, ast.stmt | ast.expr):
                part.lineno, part.col_offset = at.lineno, at.col_offset
                part.end_lineno, part.end_col_offset = at.lineno, at.col_offset
        return call


def _is_main_guard(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def _is_counting(iterable: ast.expr) -> bool:
    """Whether a `for` loop only counts or walks a literal: nothing to wait for."""
    if isinstance(iterable, ast.Tuple | ast.List | ast.Constant):
        return True
    return isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) and iterable.func.id == "range"
