"""What the syntax tree says of statements: may a span hold them, what changes every step, what is only host work."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Final

from advisor.workload import liveness, whatif
from advisor.workload.flow import Flow

_COPIES: Final = frozenset({"to", "cuda", "pin_memory"})
LOGGING: Final = frozenset({"print", "time", "perf_counter", "append", "info", "debug", "warning", "write", "flush"})


def call_name(node: ast.Call) -> str:
    """The name a call ends in: `step` of `optimizer.step()`."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def called_names(statements: Iterable[ast.stmt]) -> list[str]:
    """Names of everything called, once, in order; `__call__` where a plain name is: it may be an object."""
    names = []
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                names.append(call_name(node))
                if isinstance(node.func, ast.Name):
                    names.append("__call__")
    return list(dict.fromkeys(names))


def body_of(function: ast.FunctionDef) -> list[ast.stmt]:
    """The statements of a function without its docstring."""
    body = function.body
    documented = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    return body[1:] if documented else body


def is_unusable(statement: ast.stmt) -> bool:
    """Whether a span must not hold this statement: it leaves the loop, defines things, or fetches the next input."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom | ast.Pass):
        return True
    names = liveness.refusals([statement])
    if any(True for _ in names) and not (isinstance(statement, ast.Return) and statement.value is not None):
        return True
    return any(isinstance(node, ast.Call) and call_name(node) == "next" for node in ast.walk(statement))


def reads(statement: ast.stmt, changing: set[str]) -> bool:
    """Whether a statement reads or binds one of the names in `changing`."""
    flow = Flow()
    flow.block([statement])
    return bool((flow.exposed | flow.may) & changing)


def changing_numbers(owner: ast.For | ast.While | ast.FunctionDef, tree: ast.Module) -> set[str]:
    """Names that hold another Python number in every iteration: loop counters and what is computed from them alone."""
    found: set[str] = set()
    tensors = tensor_names(tree)
    for node in (owner, *ast.walk(owner)):
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
            called = call_name(node.iter)
            if (
                node is owner
                and called in ("range", "trange", "reversed", "count")
                and isinstance(node.target, ast.Name)
            ):
                found.add(node.target.id)
            if node is owner and called == "enumerate" and isinstance(node.target, ast.Tuple):
                inner = node.iter.args[0] if node.iter.args else None
                both = isinstance(inner, ast.Call) and call_name(inner) in ("range", "reversed")
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


def tensor_names(tree: ast.Module) -> set[str]:
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


def trim(run: list[ast.stmt]) -> list[ast.stmt]:
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
    calls = [call_name(node) for node in ast.walk(statement) if isinstance(node, ast.Call)]
    arithmetic = any(isinstance(node, ast.BinOp | ast.AugAssign) for node in ast.walk(statement))
    return all(name in LOGGING or "callback" in name for name in calls) and (bool(calls) or not arithmetic)


def _copies_in(statement: ast.stmt) -> bool:
    calls = [call_name(node) for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return bool(calls) and all(name in _COPIES for name in calls)
