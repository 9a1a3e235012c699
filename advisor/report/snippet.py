"""Code to paste: the lines of a region as one CUDA graph, written from the user's own source.

It is the hand-written form of what a verification does in place: a side stream, eager warm-up steps, one capture, then
copies into static inputs and replays. Inputs are made static *on the GPU*: a `.cuda()` or `.to(device)` among the captured lines
then finds its tensor already there and copies nothing, so no host memory is read by a replay.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from textwrap import dedent, indent

from advisor.model import SourceSpan

_WARMUP_STEPS = 3


def generic_code(label: str) -> str:
    """The shape of a capture, for a region whose lines are not known."""
    return "\n".join(
        [
            "# Once, after three eager steps on `stream`:",
            "stream = torch.cuda.Stream()",
            "graph = torch.cuda.CUDAGraph()",
            "static_batch = batch.clone()",
            "with torch.cuda.graph(graph, stream=stream):",
            f"    output = run(static_batch)  # the code of: {' '.join(label.split())}",
            "",
            "# In every step afterwards, instead of that code:",
            "static_batch.copy_(batch)",
            "graph.replay()  # the results are in `output`",
            "",
        ]
    )


def graph_code(source: str, span: SourceSpan) -> str | None:
    """The loop around `span` rewritten to capture and replay it; None when the lines are no whole statements of a loop."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    found = _loop_and_body(tree, span)
    if found is None:
        return None
    loop, body = found
    lines = source.splitlines()
    inputs = _inputs(loop, body)
    captured = _text(lines, body)
    before = [node for node in loop.body if (node.end_lineno or 0) < body[0].lineno]
    after = [node for node in loop.body if node.lineno > (body[-1].end_lineno or 0)]
    header = dedent("\n".join(lines[loop.lineno - 1 : loop.body[0].lineno - 1])).strip()
    return "\n".join(
        [
            "# Before the loop, and before the model is built:",
            "# autograd's nodes then live on this stream too.",
            "stream = torch.cuda.Stream()",
            "torch.cuda.set_stream(stream)",
            "graph, eager_steps = None, 0",
            "",
            header,
            *([indent(_text(lines, before), "    ")] if before else []),
            f"    if eager_steps < {_WARMUP_STEPS}:  # warm-up, eager",
            indent(captured, " " * 8),
            "        eager_steps += 1",
            "    else:",
            *_copies(inputs),
            "        graph.replay()",
            *([indent(_text(lines, after), "    ")] if after else []),
            "",
        ]
    ).replace("@CAPTURED@", indent(captured, " " * 16))


def _copies(inputs: list[str]) -> Iterable[str]:
    yield "        if graph is None:"
    for name in inputs:
        yield f'            static_{name} = {name} = {name}.to("cuda", copy=True)'
    yield "            graph = torch.cuda.CUDAGraph()"
    yield '            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):'
    yield "@CAPTURED@"
    if inputs:
        yield "        else:"
        yield from (f"            {name} = static_{name}.copy_({name}, non_blocking=True)" for name in inputs)


def _loop_and_body(tree: ast.Module, span: SourceSpan) -> tuple[ast.For | ast.While, list[ast.stmt]] | None:
    """The innermost loop holding `span` and the whole statements of its body that are exactly the span's lines."""
    best = None
    for node in ast.walk(tree):
        if not isinstance(node, ast.For | ast.While):
            continue
        body = [one for one in node.body if span.first_line <= one.lineno and (one.end_lineno or 0) <= span.last_line]
        if body and body[0].lineno == span.first_line and body[-1].end_lineno == span.last_line:
            best = (node, body)
    return best


def _inputs(loop: ast.For | ast.While, body: list[ast.stmt]) -> list[str]:
    """Names the lines read that this iteration made before them: the loop's targets and earlier assignments."""
    made: set[str] = set()
    if isinstance(loop, ast.For):
        made |= _stored(loop.target)
    for node in loop.body:
        if node.lineno >= body[0].lineno:
            break
        made |= _stored(node)
    names = [node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Name)]
    names.sort(key=lambda name: (name.lineno, name.col_offset))
    return list(dict.fromkeys(name.id for name in names if isinstance(name.ctx, ast.Load) and name.id in made))


def _stored(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def _text(lines: list[str], nodes: list[ast.stmt]) -> str:
    return dedent("\n".join(lines[nodes[0].lineno - 1 : nodes[-1].end_lineno]))
