"""Live-ins and live-outs of spans, worked out by hand."""

import ast
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.workload import liveness
from advisor.workload.flow import Path, path_of
from advisor.workload.liveness import SpanNames


def names_of(text: str, first: int, last: int, function: bool = False) -> SpanNames:
    """The data flow of lines `first`..`last` of a text; every line of the innermost block is one statement."""
    tree = ast.parse(textwrap.dedent(text).strip("\n"))
    for owner in ast.walk(tree):
        for block in liveness.blocks_of(owner):
            inside = [i for i, s in enumerate(block) if first <= s.lineno and (s.end_lineno or 0) <= last]
            if inside and block[inside[0]].lineno == first:
                scope = next((n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)), None) if function else None
                return liveness.analyse(scope or tree, block, inside[0], inside[-1], tree)
    raise AssertionError("no such lines")


def test_plain_training_step() -> None:
    found = names_of(
        """
        for x, y in loader:
            opt.zero_grad()
            out = model(x)
            loss = criterion(out, y)
            loss.backward()
            opt.step()
            print(loss)
        """,
        2,
        6,
    )
    assert found.live_in == ("criterion", "model", "opt", "x", "y")
    assert found.live_out == ("loss",)
    assert found.dead == ("out",)


def test_loop_carried_names_are_both() -> None:
    found = names_of(
        """
        h = start
        for x in data:
            h = cell(x, h)
            y = h * 2
        """,
        3,
        4,
    )
    assert found.live_in == ("cell", "h", "x")
    assert found.live_out == ("h",)
    assert found.dead == ("y",)


def test_a_name_written_on_one_branch_only_is_read_from_before() -> None:
    found = names_of(
        """
        for x in data:
            if flag:
                scale = 2
            out = x * scale
            print(out)
        """,
        2,
        4,
    )
    # `scale` may come from the iteration before: it is needed on the way in and on the way out
    assert found.live_in == ("flag", "scale", "x")
    assert found.live_out == ("out", "scale")


def test_both_branches_write() -> None:
    found = names_of(
        """
        for x in data:
            if flag:
                scale = 2
            else:
                scale = 3
            out = x * scale
            print(out)
        """,
        2,
        6,
    )
    assert "scale" not in found.live_in
    assert found.dead == ("scale",)


def test_augmented_assignment_reads_and_writes() -> None:
    found = names_of("for x in data:\n    total += x.sum()\n    print(total)", 2, 2)
    assert "total" in found.live_in and "total" in found.live_out


def test_comprehension_scopes() -> None:
    found = names_of(
        """
        for batch in data:
            parts = [f(x, k) for x in batch if x is not None]
            print(parts, x)
        """,
        2,
        2,
    )
    # `x` is the comprehension's own: it neither comes in nor goes out
    assert found.live_in == ("batch", "f", "k")
    assert found.live_out == ("parts",)


def test_second_iterable_of_a_comprehension_sees_the_first_target() -> None:
    found = names_of("out = [y for x in rows for y in x]\nprint(out)", 1, 1)
    assert found.live_in == ("rows",)


def test_walrus_in_a_comprehension_binds_outside_it() -> None:
    found = names_of("out = [last := f(x) for x in rows]\nprint(last)", 1, 1)
    assert found.live_out == ("last",)
    assert found.dead == ("out",)


def test_walrus_in_a_condition() -> None:
    found = names_of("if (n := len(x)) > 3:\n    y = n\nprint(n, y)", 1, 2)
    assert found.live_in == ("len", "x")
    assert found.live_out == ("n", "y")


def test_a_short_circuited_walrus_is_not_certain() -> None:
    found = names_of("ok = a and (b := f())\nc = b", 1, 2)
    assert "b" in found.live_in


def test_lambda_parameters_are_its_own() -> None:
    found = names_of("g = lambda x, *rest, scale=s: x * scale * k\nprint(g)", 1, 1)
    assert found.live_in == ("k", "s")


def test_nested_function_reads_count_and_its_locals_do_not() -> None:
    found = names_of(
        """
        def inner(a):
            b = a + outer
            return b
        y = inner(1)
        print(y)
        """,
        1,
        4,
    )
    assert found.live_in == ("outer",)


def test_deleted_names() -> None:
    found = names_of("y = f(x)\ndel y\nz = 1\nprint(z)", 1, 2)
    assert found.deleted == ("y",)


def test_try_may_stop_anywhere() -> None:
    found = names_of(
        """
        try:
            a = f()
            b = g()
        except ValueError as error:
            a = error
        c = a + b
        print(c)
        """,
        1,
        6,
    )
    assert found.live_in == ("ValueError", "b", "f", "g")  # `a` is written on both ways, `b` on one


def test_for_may_run_no_iteration() -> None:
    found = names_of("for i in rows:\n    last = i\nprint(last)", 1, 2)
    assert found.live_out == ("last",)
    assert names_of("for i in rows:\n    last = i\nout = last\nprint(out)", 1, 3).live_in == ("last", "rows")


def test_with_and_unpacking() -> None:
    found = names_of("with open(p) as (a, *b):\n    [c, d.e] = a\nprint(b, c)", 1, 2)
    assert found.live_in == ("d", "open", "p")
    assert found.live_out == ("b", "c")
    assert Path("d", (".e",)) in found.path_writes


def test_attribute_and_item_paths() -> None:
    found = names_of(
        """
        for x in data:
            self.h, y = self.cell(x, self.state["h"])
            self.state["h"] = self.h
            buffer[i] = y
        """,
        2,
        4,
    )
    reads = {path.text for path in found.path_reads}
    writes = {path.text for path in found.path_writes}
    assert {"self.cell", "self.h", "self.state"} <= reads
    assert writes == {"self.h", "self.state['h']"}  # a computed key is no path


def test_paths_below_a_name_the_span_makes_are_its_own() -> None:
    found = names_of("out = Output()\nout.loss = f(x)\nprint(out)", 1, 2)
    assert found.path_writes == ()
    assert found.live_out == ("out",)


def test_receivers_of_appends_are_told_apart() -> None:
    found = names_of("losses.append(loss)\nseen.add(f(seen))\nprint(losses)", 1, 2)
    assert found.receivers == ("losses",)


def test_items_read_one_by_one() -> None:
    found = names_of("x = batch[0].to(d)\ny = pair['a'][1]\nz = both[0] + f(both)\nprint(x, y, z)", 1, 3)
    assert found.items_only == ("batch", "pair")
    assert {path.text for path in found.path_reads} >= {"batch[0]", "pair['a'][1]"}
    assert {"batch", "pair", "both"} <= set(found.live_in)


def test_function_locals_that_nobody_reads_again_are_dead() -> None:
    text = """
    def train(x):
        y = f(x)
        z = y + 1
        return z
    """
    found = names_of(text, 2, 3, function=True)
    assert (found.live_out, found.dead) == (("z",), ("y",))


def test_a_closure_may_read_at_any_time() -> None:
    text = """
    def train(x):
        def report():
            return y
        y = f(x)
        z = report()
        return z
    """
    assert "y" in names_of(text, 4, 4, function=True).live_out


def test_globals_read_by_functions_are_live_out() -> None:
    found = names_of("y = f(x)\ndef later():\n    return y", 1, 1)
    assert found.live_out == ("y",)


def test_locals_call_makes_everything_live() -> None:
    text = """
    def train(x):
        y = f(x)
        return locals()
    """
    assert names_of(text, 2, 2, function=True).live_out == ("y",)


def test_continue_skips_the_rest() -> None:
    text = """
    for x in data:
        y = f(x)
        if y is None:
            continue
        y = 2
    """
    assert names_of(text, 2, 2).live_out == ("y",)


def test_redefined_before_use_on_every_path_is_dead() -> None:
    text = """
    for x in data:
        y = f(x)
        y = g(x)
        print(y)
    """
    assert names_of(text, 2, 2).dead == ("y",)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("return x", "`return`"),
        ("yield x", "`yield`"),
        ("break", "`break`"),
        ("continue", "`continue`"),
        ("global g", "declaration"),
    ],
)
def test_statements_that_cannot_be_skipped(line: str, reason: str) -> None:
    text = f"def f():\n    for x in data:\n        {line}\n"
    found = names_of(text, 3, 3, function=True)
    assert found.refusals[0].line == 3 and reason in found.refusals[0].reason


def test_break_of_an_inner_loop_stays_inside() -> None:
    text = "for x in data:\n    for y in x:\n        break\n    else:\n        z = 1\n"
    assert names_of(text, 2, 5).refusals == ()


def test_return_of_a_nested_function_is_its_own() -> None:
    assert names_of("def f():\n    return 1\ny = f()\nprint(y)", 1, 3).refusals == ()


def test_a_block_of_another_scope_is_an_error() -> None:
    tree = ast.parse("def f():\n    x = 1\ny = 2")
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    with pytest.raises(ValueError, match="not part"):
        liveness.analyse(function, tree.body, 0, 0, tree)
    with pytest.raises(ValueError, match="no statements"):
        liveness.analyse(tree, tree.body, 1, 0, tree)


def test_path_of() -> None:
    def path(text: str) -> Path | None:
        return path_of(ast.parse(text, mode="eval").body)

    assert path("a.b['c'][0].d") == Path("a", (".b", "['c']", "[0]", ".d"))
    assert path("a") is None
    assert path("f().b") is None
    assert path("a[i]") is None


NAMES = st.sampled_from("abcd")
LINES = st.lists(
    st.one_of(
        st.builds("{} = {} + {}".format, NAMES, NAMES, NAMES),
        st.builds("if {}: {} = {}".format, NAMES, NAMES, NAMES),
        st.builds("{} += {}".format, NAMES, NAMES),
    ),
    min_size=3,
    max_size=8,
)


@given(lines=LINES, values=st.tuples(*(st.integers(0, 3) for _ in range(4))), data=st.data())
def test_skipping_with_live_ins_and_live_outs_changes_nothing(
    lines: list[str], values: tuple[int, ...], data: st.DataObject
) -> None:
    """Run a span in a namespace that holds its live-ins only, carry its live-outs over: the end result is the same."""
    first = data.draw(st.integers(0, len(lines) - 2))
    last = data.draw(st.integers(first, len(lines) - 2))
    text = "\n".join([*lines, "end = (a, b, c, d)"])
    tree = ast.parse(text)
    found = liveness.analyse(tree, tree.body, first, last, tree)
    start = dict(zip("abcd", values, strict=True))

    plain: dict[str, object] = dict(start)
    exec(text, plain)

    rest: dict[str, object] = dict(start)
    exec("\n".join(lines[:first]), rest)
    inside = {name: rest[name] for name in found.live_in}
    exec("\n".join(lines[first : last + 1]), inside)
    rest.update({name: inside[name] for name in found.live_out if name in inside})
    exec("\n".join([*lines[last + 1 :], "end = (a, b, c, d)"]), rest)
    assert rest["end"] == plain["end"]


def test_private_attributes_go_by_the_names_they_are_stored_under() -> None:
    found = names_of(
        """
        class _Net:
            def step(self, x):
                self.__h = self.__h + x.__len__()
                print(self.other.__y)
        """,
        3,
        4,
        function=True,
    )
    assert Path("self", ("._Net__h",)) in found.path_reads and found.path_writes == (Path("self", ("._Net__h",)),)
    assert Path("self", (".other", "._Net__y")) in found.path_reads and Path("x", (".__len__",)) in found.path_reads
    assert not found.refusals


def test_private_names_of_variables_are_refused() -> None:
    text = """
    class Net:
        def step(self, x):
            __h = x
            return __h
    """
    assert "`__h`" in names_of(text, 3, 3, function=True).refusals[0].reason
    assert not names_of("__h = x\nprint(__h)", 1, 1).refusals
