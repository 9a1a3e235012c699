"""From what was raised to the blocker and the user's line."""

import pytest

from advisor.workload.diagnose import (
    KINDS,
    Failure,
    Frame,
    by_syntax,
    diagnose,
    failure_of,
    side_stream_line,
    statement_at,
)

CAPTURING = "CUDA error: operation not permitted when stream is capturing"
UNPINNED = "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is pinned."


def blocker_of(line: str, message: str = CAPTURING, *library: Frame) -> str:
    frames = (Frame("train.py", 1, "<module>"), *library)
    return diagnose(Failure("RuntimeError", (message,), frames), ["train.py"], {"train.py": line}).blocker


@pytest.mark.parametrize(
    ("line", "blocker"),
    [
        ("total += loss.item()", "sync-item"),
        ("n = int(mask.sum())", "sync-item"),
        ("rows = x.tolist()", "sync-item"),
        ("if loss > 3: pass", "sync-bool"),
        ("while x.any(): pass", "sync-bool"),
        ("assert (x > 0).all()", "sync-bool"),
        ("print(loss)", "sync-print"),
        ("text = f'{loss}'", "sync-print"),
        ("y = x[mask]", "dyn-nonzero"),
        ("y = x[x > 0]", "dyn-nonzero"),
        ("y = x[~mask]", "dyn-nonzero"),
        ("rows = mask.nonzero()", "dyn-nonzero"),
        ("y = torch.masked_select(x, mask)", "dyn-nonzero"),
        ("u = torch.unique(x)", "dyn-unique"),
        ("y = x.repeat_interleave(n)", "dyn-repeat-interleave"),
        ("y = x[:, [0, 2]]", "sync-index-list"),
        ("y = x[a:b]", "sync-slice-tensor"),
        ("torch.cuda.synchronize()", "sync-explicit"),
        ("done = event.query()", "event-query"),
        ("y = x.cpu()", "sync-d2h"),
        ("y = x.foo()", "capture-unsupported"),
    ],
)
def test_by_the_users_line(line: str, blocker: str) -> None:
    assert blocker_of(line) == blocker


@pytest.mark.parametrize(
    ("line", "blocker"),
    [
        ("x = x.to(device)", "sync-h2d-pageable"),
        ("x = batch.cuda()", "sync-h2d-pageable"),
        ("s = torch.tensor(2.0, device='cuda')", "sync-tensor-ctor"),
        ("y = x[index]", "sync-index-list"),
        ("y = f(x)", "sync-h2d-pageable"),
        ("v = x.cpu()", "sync-d2h"),
    ],
)
def test_unpinned_copies(line: str, blocker: str) -> None:
    assert blocker_of(line, UNPINNED) == blocker


@pytest.mark.parametrize(
    ("message", "blocker"),
    [
        ("capture of step() for an instance of Adam but param_groups' capturable is False.", "optim-not-capturable"),
        ("lr as a Tensor is not supported for capturable=False and foreach=True", "optim-lr-tensor"),
        ("Attempt to increase offset for a CUDA generator not in capture mode.", "rng-unregistered"),
        ("Cannot call CUDAGeneratorImpl::current_seed during CUDA graph capture", "rng-get-state"),
        ("CUDA error: capturing stream has unjoined work", "stream-no-join"),
        ("CUDA error: dependency created on uncaptured work in another stream", "stream-external-dep"),
        ("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling cublasCreate", "lazy-init"),
        ("CUDA out of memory. Tried to allocate 2.00 GiB", "out-of-memory"),
        ("element 0 of tensors does not require grad and does not have a grad_fn", "autograd-cut"),
    ],
)  # fmt: skip
def test_by_message(message: str, blocker: str) -> None:
    assert blocker_of("x = f()", message) == blocker


@pytest.mark.parametrize(
    ("frame", "blocker"),
    [
        (Frame("/site/torch/amp/grad_scaler.py", 380, "step"), "scaler-step"),
        (Frame("/site/torch/_tensor_str.py", 100, "_str"), "sync-print"),
        (Frame("/site/torch/cuda/__init__.py", 1000, "synchronize"), "sync-explicit"),
        (Frame("/site/torch/cuda/streams.py", 100, "query"), "event-query"),
        (Frame("/site/torch/nn/utils/clip_grad.py", 100, "clip_grad_norm_"), "clip-grad-sync"),
    ],
)
def test_by_the_frame_of_the_library(frame: Frame, blocker: str) -> None:
    assert blocker_of("f(x)", CAPTURING, frame) == blocker


def test_user_line_and_library_line_are_kept_apart() -> None:
    frames = (Frame("train.py", 7, "main"), Frame("lib.py", 3, "forward"), Frame("/site/x.py", 9, "inner"))
    found = diagnose(Failure("RuntimeError", (CAPTURING,), frames), ["train.py", "lib.py"], {})
    assert found.user == Frame("lib.py", 3, "forward")
    assert found.library == Frame("/site/x.py", 9, "inner")


def test_the_line_of_a_library_says_what_it_does(tmp_path: object) -> None:
    source = tmp_path / "norm.py"  # type: ignore[operator]
    source.write_text("def f(n):\n    return 1.0 / float(n)\n")
    assert blocker_of("y = norm(x)", CAPTURING, Frame(str(source), 2, "f")) == "sync-item"


def test_the_first_cause_counts() -> None:
    """Ending a broken capture raises 901 while 900 is being handled: 900 is the cause."""
    try:
        try:
            raise RuntimeError(CAPTURING)
        except RuntimeError:
            raise RuntimeError("operation failed due to a previous error during capture") from None
    except RuntimeError as error:
        found = failure_of(error)
    assert found.message == CAPTURING and len(found.messages) == 2
    assert found.frames and found.frames[0].file == __file__


def test_statement_at_takes_the_innermost() -> None:
    text = "if a:\n    x = (1 +\n         2)\n    y = 3\n"
    found = statement_at(text, 3)
    assert found is not None and found.lineno == 2
    assert statement_at("x = (", 1) is None and statement_at(text, 9) is None


def test_only_the_head_of_a_compound_statement_counts() -> None:
    assert by_syntax(statement_at("for i in rows:\n    print(i)\n", 1)) is None
    assert by_syntax(None) is None


def test_side_stream_is_found() -> None:
    import ast

    body = ast.parse("a = 1\nwith torch.no_grad():\n    with torch.cuda.stream(s):\n        b = 2\n").body
    assert side_stream_line(body) == 3 and side_stream_line(body[:1]) is None


def test_every_blocker_has_a_title_and_a_fix() -> None:
    assert all(kind.title and kind.fix for kind in KINDS.values())
