"""Python side effects of a span: what a replay would leave out (syntax tree only, no torch).

A graph replays kernels. Appends, counters, prints, file writes, attribute rebinding, host random numbers and clock reads
happen once, at capture. They are found in the span itself and, one file deep, in the functions and methods it calls.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final, NamedTuple

from advisor.workload.flow import free_names, parameters, path_of

_LOGGERS: Final = frozenset({"logger", "logging", "log", "wandb", "writer", "pbar", "tqdm", "progress", "mlflow"})
_APPENDS: Final = frozenset({"append", "appendleft", "extend", "insert", "setdefault", "put"})
_FILES: Final = frozenset({"open", "save", "dump", "savez", "write", "writelines", "save_image", "savefig"})
_CLOCKS: Final = frozenset({"time", "perf_counter", "monotonic", "process_time", "time_ns", "perf_counter_ns"})
_RANDOM_ROOTS: Final = ("random.", "np.random.", "numpy.random.", "rng.")


class Effect(NamedTuple):
    """One side effect. kind: append, counter, print, log, file, random, time, attribute, generator, capture-aware."""

    line: int
    kind: str
    text: str


def find(tree: ast.Module, statements: list[ast.stmt], depth: int = 3) -> tuple[Effect, ...]:
    """The effects of `statements`, a part of `tree`, sorted by line."""
    found = {effect for statement in statements for effect in _effects(statement)}
    for function in reached(tree, statements, depth):
        found |= {effect for statement in function.body for effect in _effects(statement)}
    return tuple(sorted(found))


def hidden_names(tree: ast.Module, statements: list[ast.stmt], depth: int = 3) -> frozenset[str]:
    """Names that functions called by `statements` read from the module: inputs the statements themselves do not show."""
    found: set[str] = set()
    for function in reached(tree, statements, depth):
        found |= free_names(function.body, parameters(function.args))[0]
    return frozenset(found)


def reached(tree: ast.Module, statements: list[ast.stmt], depth: int) -> list[ast.FunctionDef]:
    """Functions and methods of the file that `statements` may run, by name, `depth` calls deep."""
    functions: dict[str, list[ast.FunctionDef]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            functions.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.ClassDef):
            # Calling a module runs its forward; calling the class only builds it.
            functions.setdefault(f"{node.name}()", []).extend(
                part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "forward"
            )
    found: dict[int, ast.FunctionDef] = {}
    todo = [(statement, 0) for statement in statements]
    while todo:
        node, level = todo.pop()
        for function in _called(node, functions) if level < depth else ():
            if id(function) not in found:
                found[id(function)] = function
                todo.extend((part, level + 1) for part in function.body)
    return list(found.values())


def _called(node: ast.stmt, functions: dict[str, list[ast.FunctionDef]]) -> Iterator[ast.FunctionDef]:
    forwards = [part for name, parts in functions.items() if name.endswith("()") for part in parts]
    for part in ast.walk(node):
        if not isinstance(part, ast.Call):
            continue
        name = part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
        if name in functions:
            yield from functions[name]
        else:
            yield from forwards  # `model(x)`: any forward of this file may run


def _effects(statement: ast.stmt) -> Iterator[Effect]:
    for node in ast.walk(statement):
        kind = _kind(node)
        if kind:
            yield Effect(getattr(node, "lineno", statement.lineno), kind, ast.unparse(node).split("\n")[0][:80])


def _kind(node: ast.AST) -> str:
    if isinstance(node, ast.AugAssign):
        return "counter" if _counts(node) else ""
    if isinstance(node, ast.Assign):
        targets = [part for target in node.targets for part in _flat(target)]
        return "attribute" if any(isinstance(part, ast.Attribute) and path_of(part) for part in targets) else ""
    return _call_kind(node) if isinstance(node, ast.Call) else ""


def _flat(target: ast.expr) -> list[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        return [part for element in target.elts for part in _flat(element)]
    return [target]


def _counts(node: ast.AugAssign) -> bool:
    """`n += 1`, `self.seen += len(x)`, `total += loss.item()`: a Python number is updated in place."""
    value = node.value
    if isinstance(value, ast.Constant):
        return True
    calls = [part for part in ast.walk(value) if isinstance(part, ast.Call)]
    names = {part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "") for part in calls}
    return bool(names & {"item", "len", "size", "float", "int", "numel", "tolist"})


def _call_kind(node: ast.Call) -> str:
    text = ast.unparse(node.func)
    root, name = text.split(".")[0], text.rsplit(".", 1)[-1]
    if text == "print":
        return "print"
    if root in _LOGGERS or name in ("add_scalar", "set_postfix", "set_description"):
        return "log"
    if text.startswith(_RANDOM_ROOTS):
        return "random"
    if root == "time" and name in _CLOCKS:
        return "time"
    if name in _FILES:
        return "file"
    if name in _APPENDS:
        return "append"
    if name == "is_current_stream_capturing":
        return "capture-aware"
    if any(keyword.arg == "generator" for keyword in node.keywords):
        return "generator"
    return ""
