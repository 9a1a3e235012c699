"""Instrumented programs behave as plain ones; the tree has the ranges it should have."""

from __future__ import annotations

import ast
import shutil
import textwrap
from pathlib import Path

import children
import pytest
from children import PROGRAMS

from advisor.workload.imports import SourceFile
from advisor.workload.instrument import Instrumenter, can_launch, free_name, suspends
from advisor.workload.mark import Marks

# (target, is_module, arguments)
CORPUS = [
    ("generators.py", False, ()),
    ("coroutines.py", False, ()),
    ("scopes.py", False, ()),
    ("flow.py", False, ()),
    ("raises.py", False, ()),
    ("raising_iterator.py", False, ()),
    ("exits.py", False, ()),
    ("exits.py", False, ("9",)),
    ("hard_exit.py", False, ()),
    ("classes.py", False, ("--lr", "0.1")),
    ("workers.py", False, ()),
    ("threads.py", False, ()),
    ("swallows.py", False, ()),
    ("training.py", False, ()),
    ("compiled.py", False, ()),
    ("pkg.train", True, ("a", "--b")),
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "programs"
    shutil.copytree(PROGRAMS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    children.write(folder, "broken_import.py", "def f(:\n")
    return folder


@pytest.mark.parametrize(("target", "is_module", "argv"), CORPUS, ids=lambda value: str(value))
def test_program_is_unchanged(
    programs: Path, tmp_path: Path, target: str, is_module: bool, argv: tuple[str, ...]
) -> None:
    words = ("-m", target) if is_module else (target,)
    expected = children.plain(programs, *words, *argv)
    expected_stderr = _without_runpy(expected.stderr)
    # Without a plan the trace pass emits every range of the whole run, once torch is there: a seed brings it in early.
    for mode, seed in (("clock", None), ("trace", 0)):
        got = children.worker(
            programs, tmp_path / mode, mode, target, *argv, is_module=is_module, steps=10**6, seed=seed
        )
        assert got.stdout == expected.stdout, mode
        assert got.stderr == expected_stderr, mode
        assert got.code == expected.code, mode
        assert got.result is not None and got.result.exit_code == expected.code


def _without_runpy(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if "<frozen runpy>" not in line)


# --- the tree ----------------------------------------------------------------------------------------------------------


class Log:
    """Stands in for Marks and writes down what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def __getattr__(self, name: str):
        return lambda identity: self.calls.append((name, identity))


def instrumented(text: str) -> tuple[Instrumenter, str, ast.Module]:
    log = Log()
    instrumenter = Instrumenter(log)
    file = SourceFile(path="train.py", label="train.py", module="__main__", root="/x")
    tree = ast.parse(textwrap.dedent(text))
    name = free_name(tree)
    changed = ast.fix_missing_locations(instrumenter(tree, file))
    assert file.inject == {name: log}
    return instrumenter, name, changed


def execute(text: str, **names: object) -> list[str]:
    """The marks a program makes, as `begin 3` (method and first line)."""
    instrumenter, name, tree = instrumented(text)
    space = {name: instrumenter.marks, **names}
    try:
        exec(compile(tree, "train.py", "exec"), space)
    except ZeroDivisionError:
        pass
    lines = {key: one.first_line for key, one in instrumenter.constructs.items()}
    return [f"{method} {lines[identity]}" for method, identity in instrumenter.marks.calls]


def test_marks_of_a_loop_in_order() -> None:
    assert execute("for i in range(2):\n    abs(i)\n") == [
        "loop 1",
        *("item 1", "begin 2", "close 2", "next 1"),
        *("item 1", "begin 2", "close 2", "next 1"),
        "end 1",
    ]


def test_else_is_outside_the_iterations() -> None:
    text = "for i in [1]:\n    abs(i)\nelse:\n    abs(2)\n"
    assert execute(text)[-5:] == ["next 1", "done 1", "begin 4", "close 4", "end 1"]


@pytest.mark.parametrize(
    "leave", ["break", "continue", "1 / 0", "raise ZeroDivisionError"], ids=["break", "continue", "error", "raise"]
)
def test_ranges_close_however_the_body_is_left(leave: str) -> None:
    marks = execute(f"for i in [1, 2]:\n    if abs(i):\n        {leave}\n")
    opened = {"loop": "end", "item": "next", "begin": "close"}
    stack: list[str] = []
    for mark in marks:
        method, line = mark.split()
        if method in opened:
            stack.append(f"{opened[method]} {line}")
        else:
            assert stack.pop() == mark
    assert stack == []


def test_return_closes_the_statement_and_the_loop() -> None:
    marks = execute("def f():\n    for i in [1]:\n        return abs(i)\nf()\n")
    assert marks == ["begin 4", "loop 2", "item 2", "begin 3", "close 3", "next 2", "end 2", "close 4"]


def test_statement_of_a_nested_loop_lies_in_the_innermost_iteration() -> None:
    marks = execute("for a in [1]:\n    for b in [1]:\n        abs(b)\n    abs(a)\n")
    assert marks == [
        *("loop 1", "item 1", "loop 2", "item 2", "begin 3", "close 3", "next 2", "end 2"),
        *("begin 4", "close 4", "next 1", "end 1"),
    ]


def test_labels_ids_and_waits() -> None:
    text = "for x in loader:\n    f(x,\n      1)\nwhile g():\n    f(2)\nfor i in range(3):\n    f(i)\n"
    one, _, _ = instrumented(text)
    two, _, _ = instrumented(text)
    assert sorted(one.constructs) == sorted(two.constructs)  # the same in every pass
    found = {(made.kind, made.label): made.waits for made in one.constructs.values()}
    assert found[("loop", "train.py:1-3")] is True
    assert found[("loop", "train.py:4-5")] is False
    assert found[("loop", "train.py:6-7")] is False
    assert ("stmt", "train.py:2-3") in found
    text = next(made for made in one.constructs.values() if made.label == "train.py:2-3").text()
    assert text.startswith("train.py:2-3 [cga:stmt:")


def test_docstring_and_future_stay_first() -> None:
    _, _, tree = instrumented('"""Doc."""\nfrom __future__ import annotations\nf()\n')
    assert ast.get_docstring(tree) == "Doc."
    compile(tree, "train.py", "exec")


def test_name_avoids_every_name_of_the_file() -> None:
    assert free_name(ast.parse("x = 1")) == "_cga"
    assert free_name(ast.parse("def _cga(_cga1):\n    global _cga2\n    return o._cga3")) == "_cga4"


def test_suspending_statements_keep_no_range_open() -> None:
    text = "def g():\n    for i in [1, 2]:\n        x = abs(i)\n        yield x\n        f((yield))\nlist(g())\n"
    marks = execute(text, f=lambda value: value)
    assert "begin 4" not in marks and "begin 5" not in marks
    assert marks.count("tick 2") == 2 and marks[-2:] == ["untick 2", "close 6"]
    assert "item 2" not in marks


def test_functions_for_other_compilers_are_left_alone() -> None:
    text = """
        import numba
        @numba.njit(cache=True)
        def fast(x):
            return abs(x)
        @torch.compile
        def fused(x):
            return abs(x)
        def handed(x):
            return abs(x)
        quick = numba.njit(handed)
        def plain(x):
            return abs(x)
    """
    found = {made.first_line for made in instrumented(text)[0].constructs.values()}
    assert found == {11, 13}


def test_deep_nesting_still_compiles() -> None:
    for depth in range(1, 19):
        lines = [f"{'    ' * i}for a{i} in [1]:" for i in range(depth)] + [f"{'    ' * depth}abs(1)"]
        _, _, tree = instrumented("\n".join(lines) + "\n")
        compile(tree, "train.py", "exec")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f(x)", True),
        ("x = a + b", True),
        ("x += 1", True),
        ("x = y[0]", True),
        ("x = -y", True),
        ("x = a < b", True),
        ("x = y", False),
        ("x = 'a'", False),
        ("pass", False),
        ("x = lambda: f()", False),
        ("x = [f(i) for i in y]", True),
    ],
)
def test_what_can_launch(text: str, expected: bool) -> None:
    assert can_launch(ast.parse(text).body[0]) is expected


def test_what_suspends() -> None:
    outer = ast.parse("async def f():\n    g(lambda: (yield))\n    await h()\n    [x async for x in y]\n").body[0]
    assert [suspends(statement) for statement in outer.body] == [False, True, True]


def test_idle_marks_do_nothing_and_pickle_to_the_idle_object() -> None:
    import pickle

    from advisor.workload.mark import MARKS

    marks = Marks()
    assert marks.begin(1) is None
    assert pickle.loads(pickle.dumps(marks)) is MARKS
