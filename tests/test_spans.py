"""Finding spans, wrapping them so that behaviour is unchanged, source fixes and side effects."""

import ast
import textwrap
import traceback

import pytest

from advisor.workload import effects, spans, whatif
from advisor.workload.spans import SPAN_NAME, STEP_NAME, SpanError
from advisor.workload.verify_job import FixSpec


class Runner:
    """A span runtime that always lets the statements run, and hands out what it is told to."""

    def __init__(self, ins: dict[str, object] | None = None, outs: dict[str, object] | None = None) -> None:
        self.ins, self.outs = ins or {}, outs or {}
        self.swaps, self.gives = bool(ins), bool(outs)
        self.unbound: tuple[str, ...] = ()
        self.calls: list[str] = []
        self.skip = False

    def enter(self, local: object, glob: object) -> bool:
        self.calls.append("enter")
        return not self.skip

    def leave(self, local: object, glob: object) -> None:
        self.calls.append("leave")

    def failed(self) -> None:
        self.calls.append("failed")


class Steps:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def tick(self, local: object) -> None:
        self.calls.append("tick")

    def end(self, local: object) -> None:
        self.calls.append("end")


def text_of(text: str) -> str:
    return textwrap.dedent(text).strip("\n") + "\n"


def wrapped(text: str, first: int, last: int, runner: Runner) -> dict[str, object]:
    tree = ast.parse(text)
    found = spans.locate(tree, first, last)
    spans.lift_return(found)
    spans.wrap_span(tree, found, spans.span_names(tree, found))
    names: dict[str, object] = {SPAN_NAME: runner}
    exec(compile(ast.fix_missing_locations(tree), "prog.py", "exec"), names)
    return names


NESTED = text_of("""
def train():
    total = 0
    for i in range(4):
        x = i * 2
        if x > 2:
            y = x
            total += y
        else:
            total -= 1
    return total
result = train()
""")


@pytest.mark.parametrize(("first", "last"), [(3, 9), (4, 9), (4, 4), (5, 9), (6, 7), (9, 9), (2, 9)])
def test_wrapping_changes_nothing(first: int, last: int) -> None:
    runner = Runner()
    plain: dict[str, object] = {}
    exec(NESTED, plain)
    assert wrapped(NESTED, first, last, runner)["result"] == plain["result"] == 8
    assert runner.calls.count("enter") == runner.calls.count("leave") > 0


def test_locate_takes_the_innermost_block() -> None:
    tree = ast.parse(NESTED)
    found = spans.locate(tree, 6, 7)
    assert found.lines == (6, 7) and len(found.statements) == 2
    assert isinstance(found.scope, ast.FunctionDef)
    assert spans.locate(tree, 11, 11).scope is tree


@pytest.mark.parametrize(("first", "last"), [(40, 41), (12, 12)])
def test_lines_without_statements_are_an_error(first: int, last: int) -> None:
    with pytest.raises(SpanError, match="no contiguous run"):
        spans.locate(ast.parse(NESTED), first, last)


def test_skipping_hands_out_the_outputs() -> None:
    text = "x = 1\ny = x + 1\nz = y * 2\nprint_me = z\n"
    runner = Runner(outs={"z": 40})
    runner.skip = True
    names = wrapped(text, 2, 3, runner)
    assert names["print_me"] == 40
    assert "y" not in names  # dead: nobody reads it


def test_inputs_are_swapped_only_where_a_name_may_be_rebound() -> None:
    text = text_of("""
    def f(x):
        y = x + bias
        return y
    bias = 10
    result = f(1)
    """)
    assert wrapped(text, 2, 2, Runner(ins={"x": 5, "bias": 100}))["result"] == 15  # `bias` is no local of f


def test_a_return_is_lifted_out_of_the_span() -> None:
    text = "def f(x):\n    y = x + 1\n    return y * 2\nresult = f(3)\n"
    runner = Runner()
    assert wrapped(text, 2, 3, runner)["result"] == 8
    assert runner.calls == ["enter", "leave"]


def test_an_exception_passes_through_with_the_users_line() -> None:
    text = "x = 0\ny = 1\nz = 1 / x\n"
    runner = Runner()
    with pytest.raises(ZeroDivisionError) as raised:
        wrapped(text, 2, 3, runner)
    assert runner.calls == ["enter", "failed"]
    assert traceback.extract_tb(raised.value.__traceback__)[-1].lineno == 3


def test_private_names_in_classes_and_closures() -> None:
    text = text_of("""
    class A:
        def __init__(self):
            self.__n = 1
        def go(self, k):
            def inner():
                return self.__n + seen
            seen = k
            self.__n = self.__n + seen
            out = inner()
            return out
    result = A().go(2)
    """)
    assert wrapped(text, 7, 9, Runner())["result"] == 5


def test_global_rebinding_by_a_function() -> None:
    text = text_of("""
    count = 0
    def f():
        global count
        count = count + 1
        return count
    f()
    result = f()
    """)
    assert wrapped(text, 4, 4, Runner())["result"] == 2


def test_a_span_that_leaves_its_block_is_refused() -> None:
    tree = ast.parse("for i in range(3):\n    if i:\n        break\n    x = i\n")
    with pytest.raises(SpanError, match="line 3: `break` leaves the span"):
        spans.span_names(tree, spans.locate(tree, 2, 4))


def test_loop_ticks_at_every_iteration_and_behind_the_last() -> None:
    text = "for i in range(3):\n    if i == 1:\n        continue\n    x = i\nelse:\n    x = 9\nend = x\n"
    tree = ast.parse(text)
    spans.wrap_loop(*spans.find_loop(tree, 1))
    steps = Steps()
    names: dict[str, object] = {STEP_NAME: steps}
    exec(compile(ast.fix_missing_locations(tree), "prog.py", "exec"), names)
    assert steps.calls == ["tick"] * 3 + ["end"] and names["end"] == 9


def test_no_loop_on_the_line() -> None:
    with pytest.raises(SpanError, match="no loop starts on line 1"):
        spans.find_loop(ast.parse("x = 1"), 1)


RANGES = text_of("""
import advisor, torch
with advisor.region("decode"):
    a = 1
    b = 2
@advisor.region("step")
def step(x):
    y = x
    return y
torch.cuda.nvtx.range_push("outer")
c = 1
torch.cuda.nvtx.range_push("inner")
d = 2
torch.cuda.nvtx.range_pop()
torch.cuda.nvtx.range_pop()
""")


@pytest.mark.parametrize(
    ("name", "lines"), [("decode", (3, 4)), ("step", (7, 8)), ("outer", (10, 13)), ("inner", (12, 12)), ("none", None)]
)
def test_ranges_of_the_user(name: str, lines: tuple[int, int] | None) -> None:
    assert spans.find_range(ast.parse(RANGES), name) == lines


# --- fixes in the source --------------------------------------------------------------------------------------------------


def edit_of(text: str, line: int) -> whatif.Edit | None:
    return whatif.deferred(ast.parse(text).body, line)


def test_a_read_nobody_needs_moves_as_a_whole() -> None:
    found = edit_of("loss = f(x)\nlog.append(loss.item())\nloss.backward()\n", 2)
    assert found == whatif.Edit(2, 2, (), 3, ("log.append(loss.item())",))


def test_a_read_of_a_name_that_is_rebound_keeps_its_tensor() -> None:
    found = edit_of("out = f(x)\nD_x = out.mean().item()\nout = g(x)\n", 2)
    assert found == whatif.Edit(2, 2, ("kept_2 = out.mean()",), 3, ("D_x = kept_2.item()",))


def test_a_tensor_changed_in_place_afterwards_is_copied() -> None:
    found = edit_of("out = f(x)\nv = out.item()\nout.add_(1)\n", 2)
    assert found == whatif.Edit(2, 2, ("kept_2 = out.detach().clone()",), 3, ("v = kept_2.item()",))


def test_a_read_whose_value_is_used_cannot_wait() -> None:
    assert edit_of("v = out.item()\ny = x * v\n", 1) is None


def test_staging_an_index_and_a_whole_statement() -> None:
    body = ast.parse("net.zero_grad()\nreal = images[i % 8]\nout = net(real)\n").body
    assert whatif.staged(body, 2, {"i"}) == whatif.Edit(2, 2, (), ahead=1, front=("real = images[i % 8]",))
    body = ast.parse("scores = model(images[i % 8], k)\n").body
    expected = whatif.Edit(1, 1, ("scores = model(staged_1, k)",), ahead=1, front=("staged_1 = images[i % 8]",))
    assert whatif.staged(body, 1, {"i"}) == expected


def test_what_depends_on_the_span_cannot_be_staged() -> None:
    body = ast.parse("rows = f(x)\ny = g(rows[i])\n").body
    assert whatif.staged(body, 2, {"i"}) is None


def test_edits_move_statements_out_of_the_span_and_show_as_a_diff() -> None:
    text = "for i in range(3):\n    a = f(i)\n    v = a.item()\n    b = g(a)\n    print(v, b)\n"
    tree = ast.parse(text)
    found = spans.locate(tree, 2, 4)
    changes = whatif.edits(FixSpec(id="defer", file="p.py", line=3), tree, found.statements)
    moved = whatif.apply(tree, found, changes)
    assert [ast.unparse(s) for s in moved.statements] == ["a = f(i)", "b = g(a)"]
    assert ast.unparse(moved.block[moved.last + 1]) == "v = a.item()"
    assert whatif.diff("p.py", text, changes).split("\n")[2:] == [
        "@@ -2,4 +2,4 @@",
        "     a = f(i)",
        "-    v = a.item()",
        "     b = g(a)",
        "+    v = a.item()",
        "     print(v, b)",
    ]


@pytest.mark.parametrize(
    ("fix", "line", "after"),
    [
        ("capturable", "opt = torch.optim.Adam(p, lr=1e-3)", "opt = torch.optim.Adam(p, lr=0.001, capturable=True)"),
        ("lr-tensor", "opt = Adam(p, 0.1)", "opt = Adam(p, torch.tensor(0.1, device='cuda'))"),
        ("lr-tensor", "opt = Adam(p)", "opt = Adam(p, lr=torch.tensor(0.001, device='cuda'))"),
        ("fused", "self.opt = SGD(f(p), lr=r)", "self.opt = SGD(f(p), lr=r, fused=True)"),
    ],
)
def test_the_line_that_would_ask_for_a_run_time_fix(fix: str, line: str, after: str) -> None:
    edit = whatif.constructor_edit(fix, ast.parse(line), 1)
    assert edit is not None and edit.text == (after,)


def test_zero_grad_in_place_everywhere() -> None:
    tree = ast.parse("opt.zero_grad()\nnet.zero_grad(set_to_none=True)\nf()\n")
    found = whatif.edits(FixSpec(id="zero-grad", file="p.py"), tree, [])
    assert [edit.text for edit in found] == [
        ("opt.zero_grad(set_to_none=False)",),
        ("net.zero_grad(set_to_none=False)",),
    ]


# --- side effects ------------------------------------------------------------------------------------------------------------


def test_effects_of_the_span_and_of_what_it_calls() -> None:
    text = text_of("""
    import random, time
    class Net(Module):
        def forward(self, x):
            self.last = x
            self.calls += 1
            return x
    def helper():
        return random.random()
    loss = model(x)
    losses.append(loss)
    total += loss.item()
    scale = helper()
    print(loss)
    y = y + 1
    """)
    tree = ast.parse(text)
    found = effects.find(tree, tree.body[3:])
    assert [(effect.line, effect.kind) for effect in found] == [
        (4, "attribute"),
        (5, "counter"),
        (8, "random"),
        (10, "append"),
        (11, "counter"),
        (13, "print"),
    ]


def test_no_effects() -> None:
    tree = ast.parse("opt.zero_grad()\nloss = model(x)\nloss.backward()\nx += y\n")
    assert effects.find(tree, tree.body) == ()


def test_hidden_names_are_those_of_called_functions() -> None:
    tree = ast.parse("def f(x):\n    return model(x + bank['k'])\ny = f(x)\n")
    assert effects.hidden_names(tree, tree.body[1:]) == {"bank", "model"}
