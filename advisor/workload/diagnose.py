"""From what a capture raised to a blocker: which call, at which line of the user's, and what to do (no torch).

The error text names the symptom (`operation not permitted when stream is capturing`), not the cause. The cause is read
from the frames the error passed through and from the syntax of the user's line.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple


class Kind(NamedTuple):
    """One row of docs/blockers.md."""

    title: str
    fix: str


KINDS: Final[dict[str, Kind]] = {
    "sync-item": Kind("reads a GPU value on the host", "keep it on the GPU, or read it after the replay"),
    "sync-bool": Kind("branches on a GPU value", "use torch.where, or split the graph at the branch"),
    "sync-print": Kind("prints a GPU tensor", "print after the replay, every n steps"),
    "sync-d2h": Kind("copies from the GPU to the host", "copy after the replay, pinned and non_blocking"),
    "sync-h2d-pageable": Kind("copies from pageable host memory", "stage it into a static GPU tensor before the span"),
    "sync-tensor-ctor": Kind(
        "makes a GPU tensor from Python values", "torch.full(..., device=) or make it once, outside"
    ),
    "sync-index-list": Kind("indexes with a Python list or a CPU tensor", "build the index tensor on the GPU, once"),
    "sync-slice-tensor": Kind("slices with bounds that live on the GPU", "use fixed bounds or a mask"),
    "sync-explicit": Kind("waits for the GPU explicitly", "remove it, or move it behind the span"),
    "event-query": Kind("queries a stream or an event", "move it out of the span"),
    "dyn-nonzero": Kind(
        "needs the number of true elements on the host", "torch.where, multiply by the mask, masked_fill"
    ),
    "dyn-unique": Kind("has an output of data-dependent size", "compute it before the span"),
    "dyn-repeat-interleave": Kind("needs the output size on the host", "pass output_size="),
    "optim-not-capturable": Kind("the optimizer is not capturable", "construct it with capturable=True"),
    "optim-lr-tensor": Kind("a tensor learning rate needs capturable=True", "construct it with capturable=True"),
    "scaler-step": Kind("GradScaler.step reads found_inf on the host", "step outside the span, or a fused optimizer"),
    "clip-grad-sync": Kind("gradient clipping checks for non-finite values", "error_if_nonfinite=False"),
    "rng-unregistered": Kind("uses a generator the graph does not know", "graph.register_generator_state(generator)"),
    "rng-get-state": Kind("reads the random state", "preserve_rng_state=False, or graphsafe_get_state"),
    "rng-set-state": Kind("sets the random state", "graphsafe_set_state"),
    "stream-no-join": Kind("a side stream is not joined", "current_stream().wait_stream(side) before the span ends"),
    "stream-no-fork": Kind("a side stream does not start from the captured one", "side.wait_stream(current_stream())"),
    "stream-external-dep": Kind("waits for work submitted before the capture", "wait before the span"),
    "default-stream-autograd": Kind("work was tied to the default stream", "build the model on a side stream"),
    "capture-merge": Kind("another capture is under way", "one capture at a time"),
    "graph-reuse": Kind("the script captures graphs itself", "nothing to do: it is graphed already"),
    "compile-in-capture": Kind("a function is compiled during the capture", "call it once before"),
    "lazy-init": Kind("something initialises itself on its first call", "run it once before the capture"),
    "pinned-alloc": Kind("allocates pinned memory", "allocate it before the span"),
    "raw-cudamalloc": Kind("allocates or frees GPU memory directly", "use PyTorch's allocator, or allocate before"),
    "dist-barrier": Kind("waits for other processes", "move it out of the span"),
    "autograd-cut": Kind("the backward pass crosses the edge of the span", "take forward and backward into one span"),
    "capture-unsupported": Kind("an operation the stream cannot capture", "move it out of the span"),
    "out-of-memory": Kind("the graph's own pool does not fit", "a smaller batch, or a smaller span"),
}
# Frames of torch itself that say more than the message: (end of file name, function or "", blocker).
_FRAMES: Final = (
    ("amp/grad_scaler.py", "", "scaler-step"),
    ("_tensor_str.py", "", "sync-print"),
    ("torch/_tensor.py", "__repr__", "sync-print"),
    ("torch/_tensor.py", "__format__", "sync-print"),
    ("torch/_tensor.py", "__contains__", "sync-bool"),
    ("torch/_tensor.py", "unique", "dyn-unique"),
    ("torch/functional.py", "_unique_impl", "dyn-unique"),
    ("torch/functional.py", "_return_output", "dyn-unique"),
    ("torch/cuda/__init__.py", "synchronize", "sync-explicit"),
    ("torch/cuda/streams.py", "synchronize", "sync-explicit"),
    ("torch/cuda/streams.py", "query", "event-query"),
    ("torch/cuda/streams.py", "elapsed_time", "event-query"),
    ("torch/cuda/random.py", "get_rng_state", "rng-get-state"),
    ("torch/cuda/random.py", "set_rng_state", "rng-set-state"),
    ("utils/clip_grad.py", "", "clip-grad-sync"),
    ("distributed_c10d.py", "barrier", "dist-barrier"),
)
_MESSAGES: Final = (
    ("capturable is False", "optim-not-capturable"),
    ("capturable=False is not supported", "optim-not-capturable"),
    ("lr as a Tensor is not supported", "optim-lr-tensor"),
    ("increase offset for a CUDA generator not in capture mode", "rng-unregistered"),
    ("Offset increment outside graph capture", "rng-unregistered"),
    ("CUDAGeneratorImpl::current_seed", "rng-get-state"),
    ("CUDAGeneratorImpl::set_state_index", "rng-set-state"),
    ("unjoined work", "stream-no-join"),
    ("dependency created on uncaptured work", "stream-external-dep"),
    ("legacy stream depend on a capturing", "default-stream-autograd"),
    ("merge of separate capture sequences", "capture-merge"),
    ("already owns a captured graph", "graph-reuse"),
    ("event last recorded in a capturing stream", "event-query"),
    ("InternalTorchDynamoError", "compile-in-capture"),
    ("CUBLAS_STATUS_NOT_INITIALIZED", "lazy-init"),
    ("CUDNN_STATUS_NOT_INITIALIZED", "lazy-init"),
    ("CUDNN_STATUS_EXECUTION_FAILED", "lazy-init"),
    ("out of memory", "out-of-memory"),
    ("does not require grad and does not have a grad_fn", "autograd-cut"),
    ("backward through the graph a second time", "autograd-cut"),
)
UNPINNED: Final = "unless the CPU tensor is pinned"
_READS: Final = frozenset({"item", "tolist", "float", "int", "bool", "__float__", "__int__"})
_TO_HOST: Final = frozenset({"cpu", "numpy"})
_CONSTRUCTORS: Final = frozenset({"tensor", "as_tensor", "FloatTensor", "LongTensor", "BoolTensor", "from_numpy"})
_BY_CALL: Final[dict[str, str]] = {
    "nonzero": "dyn-nonzero",
    "masked_select": "dyn-nonzero",
    "argwhere": "dyn-nonzero",
    "unique": "dyn-unique",
    "unique_consecutive": "dyn-unique",
    "bincount": "dyn-unique",
    "repeat_interleave": "dyn-repeat-interleave",
    "synchronize": "sync-explicit",
    "query": "event-query",
    "elapsed_time": "event-query",
    "print": "sync-print",
    "barrier": "dist-barrier",
    "pin_memory": "pinned-alloc",
    "get_rng_state": "rng-get-state",
    "set_rng_state": "rng-set-state",
    "get_scale": "scaler-step",
    "cuda": "sync-h2d-pageable",
    "copy_": "sync-h2d-pageable",
    "to": "sync-h2d-pageable",
}


class Frame(NamedTuple):
    """One frame an error passed through, outermost first in a list of them."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class Failure:
    """What a capture raised. `messages` holds the error and what it was raised from, the first cause first."""

    error_type: str
    messages: tuple[str, ...]
    frames: tuple[Frame, ...]

    @property
    def message(self) -> str:
        return self.messages[0] if self.messages else ""


@dataclass(frozen=True)
class Diagnosis:
    """The blocker and where it is. `user` is the innermost frame in the user's files."""

    blocker: str
    user: Frame | None
    library: Frame | None
    evidence: str


def failure_of(error: BaseException) -> Failure:
    """The failure an exception describes: messages along `__cause__`/`__context__`, frames of the first cause."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or current.__context__
    chain.reverse()
    first = chain[0]
    texts = tuple(str(item).strip().split("\n")[0][:400] for item in chain)
    frames = tuple(frame for item in chain for frame in _frames(item.__traceback__))
    return Failure(type(first).__name__, texts, frames if frames else tuple(_frames(error.__traceback__)))


def _frames(traceback: TracebackType | None) -> Iterable[Frame]:
    while traceback is not None:
        code = traceback.tb_frame.f_code
        yield Frame(code.co_filename, traceback.tb_lineno, code.co_name)
        traceback = traceback.tb_next


def diagnose(failure: Failure, user_files: Iterable[str], sources: dict[str, str]) -> Diagnosis:
    """The blocker behind a failure. `sources` maps a user file to its text."""
    users = set(user_files)
    user = next((frame for frame in reversed(failure.frames) if frame.file in users), None)
    inner = failure.frames[-1] if failure.frames else None
    library = inner if inner is not None and user is not None and inner.file not in users else None
    blocker = _by_message(failure)
    if blocker is None:
        blocker = _by_frames(failure.frames)
    unpinned = UNPINNED in " ".join(failure.messages)
    if blocker is None and library is not None:
        blocker = by_syntax(statement_at("".join(linecache.getlines(library.file)), library.line), unpinned)
    if blocker is None and user is not None:
        blocker = by_syntax(statement_at(sources.get(user.file, ""), user.line), unpinned)
    if blocker is None:
        blocker = "sync-h2d-pageable" if unpinned else "capture-unsupported"
    return Diagnosis(blocker, user, library, f"{failure.error_type}: {failure.message}"[:300])


def _by_message(failure: Failure) -> str | None:
    text = " ".join((failure.error_type, *failure.messages))
    return next((blocker for phrase, blocker in _MESSAGES if phrase in text), None)


def _by_frames(frames: tuple[Frame, ...]) -> str | None:
    for frame in reversed(frames):
        path = frame.file.replace("\\", "/")
        for suffix, function, blocker in _FRAMES:
            if path.endswith(suffix) and function in ("", frame.function):
                return blocker
    return None


def statement_at(source: str, line: int) -> ast.stmt | None:
    """The innermost statement that covers a line. Of a compound one only the header counts."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    found: ast.stmt | None = None
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            if found is None or node.lineno > found.lineno:
                found = node
    return found


def by_syntax(statement: ast.stmt | None, unpinned: bool = False) -> str | None:
    """What on a statement's line forces a synchronisation, or None when nothing on it is known to."""
    if statement is None:
        return None
    parts = _own_expressions(statement)
    calls = [_name(node) for part in parts for node in ast.walk(part) if isinstance(node, ast.Call)]
    if "print" in calls or any(isinstance(node, ast.JoinedStr) for part in parts for node in ast.walk(part)):
        return "sync-print" if not _READS.intersection(calls) else "sync-item"
    if any(name in _CONSTRUCTORS for name in calls):
        return "sync-tensor-ctor"
    for rules in (_READS, _TO_HOST):
        if rules.intersection(calls):
            return "sync-item" if rules is _READS else "sync-d2h"
    known = next((_BY_CALL[name] for name in calls if name in _BY_CALL and (unpinned or _BY_CALL[name] != _H2D)), None)
    if known:
        return known
    if isinstance(statement, ast.If | ast.While | ast.Assert):
        return "sync-bool"
    return _by_subscript(parts, unpinned)


_H2D: Final = "sync-h2d-pageable"


def _by_subscript(parts: list[ast.expr], unpinned: bool) -> str | None:
    for node in (node for part in parts for node in ast.walk(part)):
        if not isinstance(node, ast.Subscript):
            continue
        index = node.slice
        pieces = index.elts if isinstance(index, ast.Tuple) else [index]
        if unpinned or any(isinstance(piece, ast.List) for piece in pieces):
            return "sync-index-list"
        if any(isinstance(piece, ast.Slice) for piece in pieces):
            return "sync-slice-tensor"
        if any(isinstance(piece, ast.Name | ast.Compare | ast.UnaryOp | ast.BinOp | ast.Attribute) for piece in pieces):
            return "dyn-nonzero"
    return None


def side_stream_line(statements: Iterable[ast.stmt]) -> int | None:
    """The line of the first `with torch.cuda.stream(...)` among `statements`: what may not have been joined."""
    for node in (node for statement in statements for node in ast.walk(statement)):
        if isinstance(node, ast.With):
            calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
            if any(_name(call) == "stream" for call in calls):
                return node.lineno
    return None


def _own_expressions(statement: ast.stmt) -> list[ast.expr]:
    """The expressions of a statement, without those of its blocks."""
    if isinstance(statement, ast.If | ast.While | ast.Assert):
        return [statement.test]
    if isinstance(statement, ast.For):
        return [statement.iter]
    if isinstance(statement, ast.With):
        return [item.context_expr for item in statement.items]
    return [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.expr)]


def _name(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
