"""What a run of statements reads and writes, in execution order (syntax tree only, no torch).

`Flow` walks statements as Python evaluates them: the value before the target, the first iterable of a comprehension in
the enclosing scope, a walrus outside its comprehension. Where a path is uncertain it errs to the safe side.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

MUTATORS: Final = frozenset(
    {"append", "appendleft", "extend", "insert", "add", "update", "write", "writelines", "put", "setdefault"}
)


class Path(NamedTuple):
    """A chain from a name: `self.loss` is ("self", (".loss",)), `state["h"].x` is ("state", ("['h']", ".x"))."""

    root: str
    steps: tuple[str, ...]

    @property
    def text(self) -> str:
        return self.root + "".join(self.steps)


@dataclass
class Flow(ast.NodeVisitor):
    """Walks statements in execution order. `must` holds the names surely written so far on every path."""

    must: set[str] = field(default_factory=set)
    may: set[str] = field(default_factory=set)
    exposed: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    receivers: set[str] = field(default_factory=set)
    itemised: set[str] = field(default_factory=set)
    read_as_value: set[str] = field(default_factory=set)
    path_reads: set[Path] = field(default_factory=set)
    path_writes: set[Path] = field(default_factory=set)
    item_writes: set[Path] = field(default_factory=set)  # containers of which items are written whose keys are computed

    def block(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            self.visit(statement)

    def branch(self, statements: Iterable[ast.stmt]) -> set[str]:
        """Walk one alternative and return what it surely wrote; `must` is left as it was."""
        before = set(self.must)
        self.block(statements)
        after, self.must = self.must, before
        return after

    def write(self, name: str) -> None:
        self.must.add(name)
        self.may.add(name)
        self.deleted.discard(name)

    # names and paths

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.read_as_value.add(node.id)
            if node.id not in self.must:
                self.exposed.add(node.id)
        elif isinstance(node.ctx, ast.Store):
            self.write(node.id)
        else:
            self.must.discard(node.id)
            self.may.add(node.id)
            self.deleted.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path = path_of(node)
        if path is not None:
            if isinstance(node.ctx, ast.Load):
                if path.root not in self.must:
                    self.path_reads.add(path)
            else:
                self.path_writes.add(path)
        self.visit(node.value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        path = path_of(node)
        if path is not None and not isinstance(node.ctx, ast.Load):
            self.path_writes.add(path)
        elif path is not None and all(step.startswith("[") for step in path.steps):
            self._read_item(path)
            return
        elif path is None and isinstance(node.ctx, ast.Store) and not isinstance(node.slice, ast.Slice | ast.Tuple):
            self._write_item(node.value)
        self.visit(node.value)
        self.visit(node.slice)

    def _write_item(self, container: ast.expr) -> None:
        path = Path(container.id, ()) if isinstance(container, ast.Name) else path_of(container)
        if path is not None and path.root not in self.must:
            self.item_writes.add(path)

    def _read_item(self, path: Path) -> None:
        """`batch[0]` reads one item: what else the container holds is none of the span's business."""
        self.itemised.add(path.root)
        if path.root not in self.must:
            self.exposed.add(path.root)
            self.path_reads.add(path)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in MUTATORS and isinstance(function.value, ast.Name):
            name = function.value.id
            self.receivers.add(name)
            if name not in self.must:
                self.exposed.add(name)
        else:
            self.visit(function)
        for part in (*node.args, *node.keywords):
            self.visit(part)

    # statements whose order of evaluation differs from the order of their fields

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self.visit(target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self.visit(node.target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        target = node.target
        if isinstance(target, ast.Name):
            self.visit(ast.Name(id=target.id, ctx=ast.Load()))
        else:
            loaded = path_of(target)
            if isinstance(target, ast.Attribute) and loaded is not None:
                self.path_reads.add(loaded)
        self.visit(node.value)
        self.visit(target)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self.visit(node.target)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.visit(node.values[0])
        self._maybe(node.values[1:])  # a later operand may never be evaluated

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.visit(node.test)
        self._maybe([node.body])
        self._maybe([node.orelse])

    def _maybe(self, expressions: Iterable[ast.expr]) -> None:
        before = set(self.must)
        for expression in expressions:
            self.visit(expression)
        self.must = before

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self.must = self.branch(node.body) & self.branch(node.orelse)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        before = set(self.must)
        self.visit(node.target)
        self.branch(node.body)
        self.must = before  # the iterable may be empty
        self.branch(node.orelse)

    visit_AsyncFor = visit_For  # type: ignore[assignment]

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self.branch(node.body)
        self.branch(node.orelse)

    def visit_Try(self, node: ast.Try) -> None:
        before = set(self.must)
        ended = self.branch([*node.body, *node.orelse])
        for handler in node.handlers:
            self.must = set(before)
            if handler.type is not None:
                self.visit(handler.type)
            if handler.name:
                self.write(handler.name)
            ended &= self.branch(handler.body)
        self.must = before | ended
        self.block(node.finalbody)

    visit_TryStar = visit_Try  # type: ignore[assignment]

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            self.visit(item.context_expr)
            if item.optional_vars is not None:
                self.visit(item.optional_vars)
        self.block(node.body)

    visit_AsyncWith = visit_With  # type: ignore[assignment]

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        before = set(self.must)
        for case in node.cases:
            for part in ast.walk(case.pattern):
                name = getattr(part, "name", None) or getattr(part, "rest", None)
                if isinstance(name, str):
                    self.write(name)
                elif isinstance(part, ast.expr) and not isinstance(part, ast.Constant):
                    self.visit(part)
            if case.guard is not None:
                self.visit(case.guard)
            self.block(case.body)
            self.must = set(before)

    # scopes of their own

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for default in (*node.args.defaults, *(value for value in node.args.kw_defaults if value is not None)):
            self.visit(default)
        self._inner([node.body], parameters(node.args))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        defaults = (*node.args.defaults, *(value for value in node.args.kw_defaults if value is not None))
        for part in (*node.decorator_list, *defaults):
            self.visit(part)
        self._inner(node.body, parameters(node.args))
        self.write(node.name)

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        self._inner(node.body, set())
        self.write(node.name)

    def _inner(self, body: list[ast.stmt] | list[ast.expr], parameters: set[str]) -> None:
        """A nested scope: what it reads from outside may be read now or at any later call."""
        reads, rebinds = free_names(body, parameters)
        self.read_as_value |= reads
        self.exposed |= reads - self.must
        self.may |= rebinds

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        self.visit(node.generators[0].iter)  # the first iterable belongs to the enclosing scope
        targets: set[str] = set()
        for generator in node.generators:
            targets |= {part.id for part in ast.walk(generator.target) if isinstance(part, ast.Name)}
        results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        conditions = [test for generator in node.generators for test in generator.ifs]
        inner = [*results, *conditions, *(generator.iter for generator in node.generators[1:])]
        before = set(self.must)
        hidden = Flow(must=set(before) | targets)
        for part in inner:
            hidden.visit(part)
        self.exposed |= hidden.exposed
        self.read_as_value |= hidden.read_as_value - targets
        self.itemised |= hidden.itemised - targets
        self.path_reads |= {path for path in hidden.path_reads if path.root not in targets}
        self.may |= hidden.may  # a walrus in a comprehension binds outside it

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name != "*":
                self.write(alias.asname or alias.name.split(".")[0])

    visit_ImportFrom = visit_Import


def path_of(node: ast.expr) -> Path | None:
    """The path an attribute chain or a constant-key subscript spells, or None when it is anything else."""
    steps: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            steps.append(f".{node.attr}")
            node = node.value
        elif isinstance(node, ast.Subscript) and _constant_key(node.slice):
            steps.append(f"[{ast.unparse(node.slice)}]")
            node = node.value
        elif isinstance(node, ast.Name):
            return Path(node.id, tuple(reversed(steps))) if steps else None
        else:
            return None


def _constant_key(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | int)


def free_names(body: list[ast.stmt] | list[ast.expr], parameters: set[str]) -> tuple[set[str], set[str]]:
    """(names a nested scope reads from outside itself, names of outer scopes it rebinds)."""
    inner = Flow(must=set(parameters))
    declared: set[str] = set()
    for node in body:
        inner.visit(node)
        for part in ast.walk(node):
            if isinstance(part, ast.Global | ast.Nonlocal):
                declared |= set(part.names)
    bound = (inner.may - declared) | parameters
    return (inner.exposed - bound) | declared, inner.may & declared


def parameters(arguments: ast.arguments) -> set[str]:
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return {argument.arg for argument in every if argument is not None}
