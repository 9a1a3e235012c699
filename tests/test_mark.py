"""Marks: what the instrumented code calls, and the ranges an emitter opens and closes for it."""

from __future__ import annotations

import ast
import contextlib
import copy
import inspect
import json
import pickle
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import advisor
from advisor.marks import KINDS, decode
from advisor.runner import child_environment
from advisor.workload import mark
from advisor.workload.imports import SourceFile
from advisor.workload.instrument import Construct, Instrumenter
from advisor.workload.mark import MARKS, METHODS, Emitter, Marks, Range, constant, on_region, user_region

LOOP, INNER, COUNTING, STMT, OTHER = 1, 2, 3, 4, 5
CONSTRUCTS = {
    LOOP: Construct(LOOP, "loop", "t.py:1-9", "t.py", 1, 9, waits=True),
    INNER: Construct(INNER, "loop", "t.py:2-4", "t.py", 2, 4, waits=True),
    COUNTING: Construct(COUNTING, "loop", "t.py:6-8", "t.py", 6, 8),
    STMT: Construct(STMT, "stmt", "t.py:3", "t.py", 3, 3),
    OTHER: Construct(OTHER, "stmt", "t.py:7", "t.py", 7, 7),
}


def short(text: str) -> str:
    """`loop 1` of `t.py:1-9 [cga:loop:1]`."""
    found = decode(text)
    assert found is not None, text
    return f"{found.kind} {found.label if found.kind in ('module', 'optim', 'region') else found.id}"


class Handle:
    """Stands in for a profiler's handle: may be entered again, but not while it is open."""

    def __init__(self, text: str, log: list[str]) -> None:
        self.text, self.log, self.is_open = short(text), log, False

    def __enter__(self) -> None:
        assert not self.is_open, "entered twice"
        self.is_open = True
        self.log.append(f"+{self.text}")

    def __exit__(self, *_exc: object) -> None:
        assert self.is_open, "left twice"
        self.is_open = False
        self.log.append(f"-{self.text}")


class Domain:
    """Stands in for an NVTX domain, whose pops name nothing."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.stack: list[str] = []

    def push_range(self, attributes: str) -> None:
        self.stack.append(attributes)
        self.log.append(f"+{attributes}")

    def pop_range(self) -> None:
        self.log.append(f"-{self.stack.pop()}")


class Recorder:
    """An emitter and what it opened (+) and closed (-), in order; `made` counts the profiler handles."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, wanted: Callable[[Construct, str], bool], *, record: bool, nvtx: bool
    ) -> None:
        self.log: list[str] = []
        self.domain = Domain()
        self.made: list[Handle] = []
        attributes = (self.domain, lambda text, _kind, _identity: short(text))
        monkeypatch.setattr(mark, "_nvtx", lambda: attributes if nvtx else (None, None))
        monkeypatch.setattr(mark, "record_factory", lambda: self.make)
        self.emitter = Emitter(CONSTRUCTS, wanted, record=record)

    def make(self, text: str) -> Handle:
        self.made.append(Handle(text, self.log))
        return self.made[-1]

    def say(self, *marks: str) -> list[str]:
        """What `method id` marks, in order, open and close."""
        handlers, before = self.emitter.handlers(), len(self.log)
        for one in marks:
            method, identity = one.split()
            handlers[method](int(identity))
        return self.log[before:]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(monkeypatch, lambda _construct, _kind: True, record=True, nvtx=False)


@pytest.fixture
def idle() -> Iterator[Marks]:
    """The process's own marks and region factory, given back as they are found: doing nothing."""
    yield MARKS
    MARKS.reset()
    on_region(None)


def in_thread(function: Callable[[], None]) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(timeout=60)
    assert not thread.is_alive() and errors == []


# --- the marks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_mark_calls_its_handler_with_the_id(method: str) -> None:
    marks, seen = Marks(), []
    assert getattr(marks, method)(7) is None
    marks.install({method: seen.append})
    getattr(marks, method)(7)
    assert seen == [7]
    for other in METHODS:
        if other != method:
            getattr(marks, other)(8)
    assert seen == [7]


def test_installing_replaces_some_and_a_reset_all() -> None:
    marks, seen = Marks(), []
    marks.install(
        {"begin": lambda identity: seen.append(("old", identity)), "close": lambda identity: seen.append(identity)}
    )
    marks.install({"begin": lambda identity: seen.append(("new", identity))})
    marks.begin(1)
    marks.close(2)
    assert seen == [("new", 1), 2]
    marks.reset()
    for method in METHODS:
        getattr(marks, method)(3)
    assert seen == [("new", 1), 2]


def test_a_handler_may_replace_the_handlers_while_it_runs() -> None:
    marks, seen = Marks(), []

    def first(identity: int) -> None:
        seen.append(("first", identity))
        marks.install({"item": lambda identity: seen.append(("second", identity))})

    marks.install({"item": first})
    marks.item(1)
    marks.item(2)
    assert seen == [("first", 1), ("second", 2)]


def test_an_error_of_a_handler_reaches_the_caller() -> None:
    marks = Marks()

    def stop(_identity: int) -> None:
        raise KeyboardInterrupt

    marks.install({"item": stop})
    with pytest.raises(KeyboardInterrupt):
        marks.item(1)


def test_marks_have_no_other_functions() -> None:
    with pytest.raises(AttributeError):
        Marks().install({"nosuch": print})
    assert not hasattr(Marks(), "__dict__")


def test_marks_are_copied_and_pickled_as_the_process_s_own() -> None:
    marks = Marks()
    assert copy.deepcopy(marks) is MARKS and copy.copy(marks) is MARKS
    assert pickle.loads(pickle.dumps({"marks": marks}))["marks"] is MARKS


def test_every_handler_is_constant_to_torch_compile() -> None:
    class Pass:
        def begin(self, identity: int) -> None:
            self.seen = identity

    one, marks = Pass(), Marks()
    assert all(getattr(marks, method)._dynamo_marked_constant for method in METHODS)
    marks.install({"begin": one.begin, "close": lambda identity: None})
    assert marks.begin._dynamo_marked_constant and marks.close._dynamo_marked_constant
    marks.begin(5)
    assert one.seen == 5
    assert not hasattr(Pass.begin, "_dynamo_marked_constant")  # only what is installed

    def plain(identity: int) -> None: ...

    assert constant(plain) is plain


def test_a_compiled_function_runs_through_its_marks() -> None:
    torch = pytest.importorskip("torch")
    seen: list[int] = []
    marks = Marks()
    marks.install({"begin": seen.append, "close": seen.append})
    graphs: list[Any] = []

    def backend(graph: Any, _inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    def step(x: Any) -> Any:
        marks.begin(1)
        try:
            y = x + 1
        finally:
            marks.close(1)
        return y * 2

    compiled = torch.compile(step, backend=backend)
    for _ in range(3):
        assert compiled(torch.ones(2)).tolist() == [4.0, 4.0]
    assert len(graphs) == 1  # the marks neither broke the graph nor made it compile again
    assert len(seen) <= 2  # at most what compiling itself called


def test_a_forked_process_stops_listening() -> None:
    text = """
import os, sys
from advisor.workload.mark import MARKS, on_region, user_region
import contextlib
seen = []

@contextlib.contextmanager
def region(name):
    seen.append(name)
    yield

MARKS.install({"begin": seen.append})
on_region(region)

def use():
    MARKS.begin(1)
    with user_region("r"):
        pass

child = os.fork()
if child == 0:
    use()
    print("child", seen, flush=True)
    os._exit(0)
os.waitpid(child, 0)
use()
print("parent", seen)
"""
    done = subprocess.run(
        [sys.executable, "-c", text], env=child_environment(), capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "child []\nparent [1, 'r']\n", done.stderr


# --- regions of the user ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def noting(log: list[str], name: str) -> Iterator[None]:
    log.append(f"+{name}")
    try:
        yield
    finally:
        log.append(f"-{name}")


def test_a_region_does_nothing_until_a_pass_listens(idle: Marks) -> None:
    log: list[str] = []
    with user_region("early"):
        pass
    on_region(lambda name: noting(log, name))
    with user_region("outer"), user_region("inner"):
        pass
    on_region(lambda name: noting(log, f"again {name}"))  # another pass takes the place of the first
    with user_region("outer"):
        pass
    on_region(None)
    with user_region("late"):
        pass
    assert log == ["+outer", "+inner", "-inner", "-outer", "+again outer", "-again outer"]


def test_a_region_opened_before_the_pass_ends_is_closed_after_it(idle: Marks) -> None:
    log: list[str] = []
    on_region(lambda name: noting(log, name))
    with user_region("open"):
        on_region(None)
    assert log == ["+open", "-open"]


@pytest.mark.parametrize("watched", ["1", "", None])
def test_the_public_region_listens_only_in_a_watched_script(
    idle: Marks, monkeypatch: pytest.MonkeyPatch, watched: str | None
) -> None:
    log: list[str] = []
    on_region(lambda name: noting(log, name))
    if watched is None:
        monkeypatch.delenv("CGADVISOR", raising=False)
    else:
        monkeypatch.setenv("CGADVISOR", watched)

    @advisor.region("decorated")
    def double(x: int) -> int:
        """Doubles."""
        return 2 * x

    class Model:
        @advisor.region
        def forward(self, x: int) -> int:
            return x + 1

        @staticmethod
        @advisor.region
        def scale(x: int) -> int:
            return 10 * x

    again = advisor.region("block")
    with again:
        assert double(4) == 8
    with again, again:
        assert Model().forward(1) == 2 and Model.scale(2) == 20
    assert inspect.isfunction(Model.forward) and Model.forward.__name__ == "forward"
    with pytest.raises(ZeroDivisionError), advisor.region("broken"):
        _ = 1 / 0
    assert double.__name__ == "double" and double.__doc__ == "Doubles."
    place = f"{Model.__qualname__}."
    expected = [
        *("+block", "+decorated", "-decorated", "-block"),
        *(
            "+block",
            "+block",
            f"+{place}forward",
            f"-{place}forward",
            f"+{place}scale",
            f"-{place}scale",
            "-block",
            "-block",
        ),
        *("+broken", "-broken"),
    ]
    assert log == (expected if watched == "1" else [])


# --- the emitter: statements and loops ----------------------------------------------------------------------------------


def test_a_statement_is_one_range(recorder: Recorder) -> None:
    assert recorder.say(f"begin {STMT}", f"begin {OTHER}", f"close {OTHER}", f"close {STMT}") == [
        *("+stmt 4", "+stmt 5", "-stmt 5", "-stmt 4"),
    ]


def test_a_loop_is_a_range_with_one_for_each_iteration_and_each_wait(recorder: Recorder) -> None:
    assert recorder.say(f"loop {LOOP}") == ["+loop 1", "+iter 1", "+data 1"]
    assert recorder.say(f"item {LOOP}") == ["-data 1"]
    assert recorder.say(f"begin {STMT}", f"close {STMT}") == ["+stmt 4", "-stmt 4"]
    assert recorder.say(f"next {LOOP}") == ["-iter 1", "+iter 1", "+data 1"]
    assert recorder.say(f"end {LOOP}") == ["-data 1", "-iter 1", "-loop 1"]


def test_a_loop_that_only_counts_waits_for_nothing(recorder: Recorder) -> None:
    marks = [f"loop {COUNTING}", f"item {COUNTING}", f"next {COUNTING}", f"item {COUNTING}", f"end {COUNTING}"]
    assert recorder.say(*marks) == ["+loop 3", "+iter 3", "-iter 3", "+iter 3", "-iter 3", "-loop 3"]


def test_the_else_of_a_loop_lies_outside_its_iterations(recorder: Recorder) -> None:
    recorder.say(f"loop {COUNTING}")
    assert recorder.say(f"done {COUNTING}", f"begin {OTHER}", f"close {OTHER}", f"end {COUNTING}") == [
        *("-iter 3", "+stmt 5", "-stmt 5", "-loop 3"),
    ]


def test_done_says_whether_an_iteration_was_open(recorder: Recorder) -> None:
    assert recorder.emitter.done(LOOP) is False
    recorder.say(f"loop {LOOP}")
    assert recorder.emitter.done(LOOP) is True
    assert recorder.emitter.done(LOOP) is False
    assert recorder.say(f"next {LOOP}") == []  # and no new one begins outside an iteration


def test_loops_nest(recorder: Recorder) -> None:
    recorder.say(f"loop {LOOP}", f"item {LOOP}")
    inner = recorder.say(f"loop {INNER}", f"item {INNER}", f"next {INNER}", f"end {INNER}")
    assert inner == [
        "+loop 2",
        "+iter 2",
        "+data 2",
        "-data 2",
        "-iter 2",
        "+iter 2",
        "+data 2",
        "-data 2",
        "-iter 2",
        "-loop 2",
    ]
    assert recorder.say(f"next {LOOP}") == ["-iter 1", "+iter 1", "+data 1"]


def test_work_of_the_iterator_lies_in_the_wait_for_it(recorder: Recorder) -> None:
    recorder.say(f"loop {LOOP}")
    assert recorder.say(f"begin {STMT}", f"close {STMT}", f"item {LOOP}") == ["+stmt 4", "-stmt 4", "-data 1"]


def test_a_wait_is_closed_only_where_it_is_innermost(recorder: Recorder) -> None:
    recorder.say(f"loop {LOOP}", f"begin {STMT}")
    assert recorder.say(f"item {LOOP}") == []  # something is open inside it: it ends with what closes that
    assert recorder.say(f"next {LOOP}") == ["-stmt 4", "-data 1", "-iter 1", "+iter 1", "+data 1"]


# --- the emitter: ranges out of order -----------------------------------------------------------------------------------


def test_closing_a_range_closes_what_was_left_open_inside(recorder: Recorder) -> None:
    recorder.say(f"begin {STMT}", f"loop {COUNTING}", f"begin {OTHER}")
    assert recorder.say(f"close {STMT}") == ["-stmt 5", "-iter 3", "-loop 3", "-stmt 4"]
    assert recorder.say(f"close {OTHER}", f"next {COUNTING}", f"end {COUNTING}") == []  # they are closed already


@pytest.mark.parametrize("method", ["close", "item", "next", "done", "end"])
def test_what_began_before_the_recording_is_not_closed(recorder: Recorder, method: str) -> None:
    recorder.say(f"begin {OTHER}")
    assert recorder.say(f"{method} {STMT if method == 'close' else LOOP}") == []
    assert recorder.say(f"close {OTHER}") == ["-stmt 5"]


def test_recursion_opens_and_closes_one_level_at_a_time(recorder: Recorder) -> None:
    depth = 5
    assert recorder.say(*[f"begin {STMT}"] * depth) == ["+stmt 4"] * depth
    assert recorder.say(*[f"close {STMT}"] * depth) == ["-stmt 4"] * depth
    assert recorder.say(f"close {STMT}") == []
    recorder.say(*[f"begin {STMT}"] * depth, *[f"close {STMT}"] * depth)
    assert len(recorder.made) == depth


def test_handles_are_used_again(recorder: Recorder) -> None:
    recorder.say(*[f"begin {STMT}", f"close {STMT}"] * 50)
    assert len(recorder.made) == 1
    recorder.say(f"loop {COUNTING}", *[f"item {COUNTING}", f"next {COUNTING}"] * 50, f"end {COUNTING}")
    assert len(recorder.made) == 3


def test_closing_all_closes_from_the_inside(recorder: Recorder) -> None:
    recorder.say(f"begin {STMT}", f"loop {LOOP}")
    before = len(recorder.log)
    recorder.emitter.close_all()
    assert recorder.log[before:] == ["-data 1", "-iter 1", "-loop 1", "-stmt 4"]
    recorder.emitter.close_all()
    assert len(recorder.log) == before + 4
    assert recorder.say(f"begin {STMT}") == ["+stmt 4"]  # and it goes on


def test_a_muted_emitter_opens_nothing_but_closes_what_is_open(recorder: Recorder) -> None:
    recorder.say(f"begin {OTHER}")
    recorder.emitter.muted = True
    assert recorder.say(f"begin {STMT}", f"close {STMT}", f"loop {LOOP}", f"next {LOOP}", f"end {LOOP}") == []
    assert recorder.say(f"close {OTHER}") == ["-stmt 5"]
    recorder.say(f"begin {STMT}")
    recorder.emitter.muted = False
    assert recorder.say(f"close {STMT}", f"begin {STMT}") == ["+stmt 4"]


def test_threads_have_ranges_of_their_own(recorder: Recorder) -> None:
    recorder.say(f"begin {STMT}", f"loop {COUNTING}")

    def other() -> None:
        assert recorder.say(f"close {STMT}", f"next {COUNTING}", f"end {COUNTING}") == []
        assert recorder.say(f"begin {STMT}", f"begin {OTHER}") == ["+stmt 4", "+stmt 5"]
        recorder.emitter.close_all()

    in_thread(other)
    assert recorder.log[-4:] == ["+stmt 4", "+stmt 5", "-stmt 5", "-stmt 4"]
    assert recorder.say(f"close {STMT}") == ["-iter 3", "-loop 3", "-stmt 4"]
    assert len({id(handle) for handle in recorder.made if handle.text == "stmt 4"}) == 2  # both were open at once


def test_a_thread_that_leaves_ranges_open_does_not_disturb_another(recorder: Recorder) -> None:
    in_thread(lambda: recorder.emitter.begin(STMT))
    recorder.emitter.close_all()
    assert recorder.log == ["+stmt 4"]
    assert recorder.say(f"begin {STMT}", f"close {STMT}") == ["+stmt 4", "-stmt 4"]


# --- the emitter: what is wanted, and where it goes ---------------------------------------------------------------------


def test_what_is_wanted_is_asked_once_for_each_kind_of_construct(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, str]] = []

    def wanted(construct: Construct, kind: str) -> bool:
        asked.append((construct.id, kind))
        return kind != "stmt"

    recorder = Recorder(monkeypatch, wanted, record=True, nvtx=False)
    for _ in range(3):
        assert recorder.say(f"begin {STMT}", f"close {STMT}") == []
        recorder.say(f"loop {LOOP}", f"item {LOOP}", f"next {LOOP}", f"end {LOOP}")
        recorder.say(f"loop {COUNTING}", f"end {COUNTING}")
    assert sorted(asked) == [(1, "data"), (1, "iter"), (1, "loop"), (3, "iter"), (3, "loop"), (4, "stmt")]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("loop", ["+iter 1", "+data 1", "-data 1", "-iter 1", "+iter 1", "+data 1", "-data 1", "-iter 1"]),
        ("iter", ["+loop 1", "+data 1", "-data 1", "-loop 1"]),
        ("data", ["+loop 1", "+iter 1", "-iter 1", "+iter 1", "-iter 1", "-loop 1"]),
    ],
)
def test_a_loop_without_one_of_its_ranges_keeps_the_others(
    monkeypatch: pytest.MonkeyPatch, kind: str, expected: list[str]
) -> None:
    recorder = Recorder(monkeypatch, lambda _construct, one: one != kind, record=True, nvtx=False)
    marks = [f"loop {LOOP}", f"item {LOOP}", f"next {LOOP}", f"item {LOOP}", f"done {LOOP}", f"end {LOOP}"]
    assert recorder.say(*marks) == expected


def test_constructs_found_later_are_known(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that is imported in the middle of the recording."""
    monkeypatch.setitem(CONSTRUCTS, 9, Construct(9, "stmt", "late.py:1", "late.py", 1, 1))
    assert recorder.say("begin 9", "close 9") == ["+stmt 9", "-stmt 9"]


def test_nvtx_and_the_profiler_get_the_same_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(monkeypatch, lambda _construct, _kind: True, record=True, nvtx=True)
    recorder.say(f"loop {LOOP}", f"item {LOOP}", f"begin {STMT}", f"loop {COUNTING}", f"next {LOOP}", f"end {LOOP}")
    assert recorder.domain.log == recorder.log and recorder.domain.stack == []
    assert len(recorder.log) == 16


def test_nvtx_alone_makes_no_handles(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(monkeypatch, lambda _construct, _kind: True, record=False, nvtx=True)
    recorder.say(f"begin {STMT}", f"begin {STMT}", f"close {STMT}", f"close {STMT}")
    assert recorder.domain.log == ["+stmt 4", "+stmt 4", "-stmt 4", "-stmt 4"]
    assert recorder.made == [] and recorder.log == []


def test_with_no_listener_at_all_ranges_still_balance(monkeypatch: pytest.MonkeyPatch) -> None:
    emitter = Recorder(monkeypatch, lambda _construct, _kind: True, record=False, nvtx=False).emitter
    emitter.loop(LOOP)
    assert emitter.done(LOOP) is True and emitter.done(LOOP) is False


def test_named_ranges_are_made_once_and_tell_kinds_apart(recorder: Recorder) -> None:
    emitter = recorder.emitter
    one = emitter.named("module", "net.0")
    assert emitter.named("module", "net.0") is one and isinstance(one, Range)
    others = [emitter.named("module", "net.1"), emitter.named("region", "net.0")]
    found = [decode(made.text) for made in (one, *others)]
    assert [(made.kind, made.label) for made in found] == [
        ("module", "net.0"),
        ("module", "net.1"),
        ("region", "net.0"),
    ]
    assert len({made.id for made in found}) == 3
    emitter.push(one)
    emitter.push(others[1])
    assert emitter.pop(one) and not emitter.pop(others[1])
    assert recorder.log == ["+module net.0", "+region net.0", "-region net.0", "-module net.0"]


def test_named_ranges_have_the_same_number_in_every_process(recorder: Recorder) -> None:
    text = "from advisor.workload.mark import Emitter\n"
    text += "print(Emitter({}, lambda *_: True, record=False).named('optim', 'Adam.step').text)"
    environ = {**child_environment(), "PYTHONHASHSEED": "1"}
    done = subprocess.run([sys.executable, "-c", text], env=environ, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == recorder.emitter.named("optim", "Adam.step").text, done.stderr


def test_handlers_leave_suspending_loops_to_others(recorder: Recorder) -> None:
    assert set(recorder.emitter.handlers()) == set(METHODS) - {"tick", "untick"}


def test_an_nvtx_domain_that_nobody_listens_to_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    nvtx = pytest.importorskip("nvtx")

    class DummyDomain(Domain):
        pass

    class LiveDomain(Domain):
        def get_event_attributes(self, **what: object) -> dict[str, object]:
            return what

    asked: list[str] = []
    for domain in (DummyDomain(), object()):
        monkeypatch.setattr(nvtx, "get_domain", lambda name, one=domain: one)
        assert mark._nvtx() == (None, None)
    live = LiveDomain()
    monkeypatch.setattr(nvtx, "get_domain", lambda name: asked.append(name) or live)
    domain, attributes = mark._nvtx()
    assert domain is live and asked == ["cgadvisor"]
    made = [attributes(f"x [cga:{kind}:7]", kind, 7) for kind in KINDS]
    assert made[0]["message"] == "x [cga:loop:7]" and made[0]["category"] == "loop" and made[0]["payload"] == 7
    assert len({one["color"] for one in made}) == len(KINDS)


# --- programs -----------------------------------------------------------------------------------------------------------


def trace_of(monkeypatch: pytest.MonkeyPatch, text: str, **names: object) -> list[str]:
    """What an instrumented program opens and closes: kind and first line."""
    marks, constructs = Marks(), {}
    instrumenter = Instrumenter(marks, constructs)
    file = SourceFile(path="t.py", label="t.py", module="__main__", root="/x")
    tree = ast.fix_missing_locations(instrumenter(ast.parse(textwrap.dedent(text)), file))
    log: list[str] = []
    monkeypatch.setattr(mark, "_nvtx", lambda: (None, None))
    monkeypatch.setattr(mark, "record_factory", lambda: lambda text: Handle(text, log))
    emitter = Emitter(constructs, lambda construct, kind: kind != "data", record=True)
    marks.install(emitter.handlers())
    try:
        exec(compile(tree, "t.py", "exec"), {**file.inject, **names})
    except ZeroDivisionError:
        pass
    lines = {str(key): str(one.first_line) for key, one in constructs.items()}
    assert emitter._stack.open == []
    return [" ".join((one.split()[0], lines[one.split()[1]])) for one in log]


def without_empty(log: list[str]) -> list[str]:
    """Without iterations in which nothing happened: one begins with the last `next`, before the loop is known to be over."""
    kept: list[str] = []
    for one in log:
        if kept and one.startswith("-iter") and kept[-1] == f"+{one[1:]}":
            kept.pop()
        else:
            kept.append(one)
    return kept


@pytest.mark.parametrize("leave", ["return", "1 / 0", "raise ZeroDivisionError"])
def test_a_loop_that_is_left_early_closes_its_ranges(monkeypatch: pytest.MonkeyPatch, leave: str) -> None:
    text = f"def f():\n    for i in (1, 2):\n        for j in (1, 2):\n            abs(j)\n            {leave}\nf()\n"
    log = [one for one in without_empty(trace_of(monkeypatch, text)) if not one.endswith("stmt 5")]
    opened = ["stmt 6", "loop 2", "iter 2", "loop 3", "iter 3", "stmt 4"]
    assert log == [f"+{one}" for one in opened] + [f"-{one}" for one in reversed(opened)]


def test_break_and_continue_close_the_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "for i in (1, 2, 3):\n    if i == 1:\n        continue\n    abs(i)\n    break\nabs(0)\n"
    assert without_empty(trace_of(monkeypatch, text)) == [
        "+loop 1",
        *("+iter 1", "+stmt 2", "-stmt 2", "-iter 1"),
        *("+iter 1", "+stmt 2", "-stmt 2", "+stmt 4", "-stmt 4", "-iter 1"),
        "-loop 1",
        *("+stmt 6", "-stmt 6"),
    ]


def test_an_error_that_is_caught_outside_closes_what_it_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "def f():\n    for i in (1,):\n        abs(1 / 0)\ntry:\n    f()\nexcept ZeroDivisionError:\n    abs(2)\n"
    assert without_empty(trace_of(monkeypatch, text)) == [
        *("+stmt 5", "+loop 2", "+iter 2", "+stmt 3"),
        *("-stmt 3", "-iter 2", "-loop 2", "-stmt 5"),
        *("+stmt 7", "-stmt 7"),
    ]


def test_generators_that_take_turns_leave_no_range_open(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
        def items(n):
            for i in range(n):
                x = abs(i)
                yield x
        one, two = items(2), items(2)
        for a in one:
            b = next(two)
        two.close()
    """
    turn = ["+iter 7", "+stmt 4", "-stmt 4"]
    log = [one for one in trace_of(monkeypatch, text) if not one.endswith(("stmt 6", "stmt 9"))]
    assert log == [
        "+loop 7",
        *(*turn, "+stmt 8", "+stmt 4", "-stmt 4", "-stmt 8", "-iter 7") * 2,
        *("+iter 7", "-iter 7"),  # in which the first generator comes to its end
        "-loop 7",
    ]


def test_a_generator_is_cleaned_up_inside_the_statement_that_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
        def items():
            try:
                yield 1
            finally:
                abs(3)
        source = items()
        next(source)
        for i in (1,):
            source.close()
    """
    log = without_empty(trace_of(monkeypatch, text))
    at = log.index("+loop 9")
    assert log[at:] == ["+loop 9", "+iter 9", "+stmt 10", "+stmt 6", "-stmt 6", "-stmt 10", "-iter 9", "-loop 9"]


def test_threads_of_a_program_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
        import threading
        def work():
            for i in (1, 2):
                meet.wait(60)
                abs(i)
        meet = threading.Barrier(2)
        threads = [threading.Thread(target=work) for _ in range(2)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    """
    log = trace_of(monkeypatch, text)
    for one in ("loop 4", "stmt 5", "stmt 6"):
        assert log.count(f"+{one}") == log.count(f"-{one}") == (2 if one == "loop 4" else 4)
    assert log.index("+loop 4") < log.index("-loop 4")
    assert [one for one in log if one.endswith("loop 4")] == ["+loop 4", "+loop 4", "-loop 4", "-loop 4"]


def test_the_profiler_sees_the_ranges_nested(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    emitter = Emitter(CONSTRUCTS, lambda _construct, _kind: True, record=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recording:
        emitter.loop(COUNTING)
        for _ in range(3):
            emitter.item(COUNTING)
            emitter.begin(OTHER)
            torch.ones(4).add(1)
            emitter.close(OTHER)
            emitter.next(COUNTING)
        emitter.begin(STMT)  # left open: the end of the loop closes it
        emitter.end(COUNTING)
    recording.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    found: dict[str, list[tuple[float, float]]] = {}
    for event in events:
        if event.get("ph") == "X" and "[cga:" in event["name"]:
            found.setdefault(short(event["name"]), []).append((event["ts"], event["ts"] + event["dur"]))
    assert {name: len(spans) for name, spans in found.items()} == {"loop 3": 1, "iter 3": 4, "stmt 5": 3, "stmt 4": 1}
    outer = found["loop 3"][0]
    assert all(outer[0] <= start and end <= outer[1] for start, end in found["iter 3"])
    for start, end in found["stmt 5"]:
        assert sum(first <= start and end <= last for first, last in found["iter 3"]) == 1
