"""State outside the loop's frame counts: what a replay leaves out of it is a difference, wherever it lies."""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from verify_harness import dedent, verify

from advisor.model import Outcome
from advisor.workload import namespaces, state, trees

HEAD = """
import torch
torch.manual_seed(0)
data = torch.randn(64, 4, 8)
"""
LOOP = """
def main():
    for i in range(60):
        x = data[i].clone()
        y = x * 2
        note(y.mean())
        z = y + 1
        print(z)
main()
"""
WRITES = {
    "global shadow['w']": """
shadow = {"w": torch.zeros(1)}
def note(v):
    shadow["w"] = 0.9 * shadow["w"] + 0.1 * v
""",
    "global seen[5]": """
seen = []
def note(v):
    seen.append(v)
""",
    "global count": """
count = 0
def note(v):
    global count
    count += 1
""",
    "global note.total": """
def make():
    total = 0
    def note(v):
        nonlocal total
        total += 1
    return note
note = make()
""",
    "global meter.sum": """
class Meter:
    sum = torch.zeros(())
    def update(self, v):
        self.sum = self.sum + v
meter = Meter()
note = meter.update
""",
    "global Meter.sum": """
class Meter:
    sum = torch.zeros(())
def note(v):
    Meter.sum = Meter.sum + v
""",
    "global note.calls": """
def note(v):
    note.calls += 1
note.calls = 0
""",
    "len(global note(0))": """
def note(v, seen=[]):
    seen.append(1)
""",
    "len(global Meter.update(0))": """
class Meter:
    def update(self, v, seen=[]):
        seen.append(1)
note = Meter().update
""",
    "optimizer 0.calls": """
class Optimizer(torch.optim.SGD):
    calls = 0
    def step(self, closure=None):
        self.calls += 1
optimizer = Optimizer([torch.zeros(1)])
optimizer.calls = 0
def note(v):
    optimizer.step()
""",
    "optimizer 0.state['calls']": """
class Optimizer(torch.optim.SGD):
    def step(self, closure=None):
        self.state["calls"] += 1
optimizer = Optimizer([torch.zeros(1)])
optimizer.state["calls"] = 0
def note(v):
    optimizer.step()
""",
    "global kept": """
import numpy
kept = numpy.zeros((64, 4096))
place = iter(range(64))
def note(v):
    kept[next(place)] = 1.0
""",
    "global rng.state": """
import numpy
rng = numpy.random.default_rng(0)
def note(v):
    rng.random()
""",
    "global dice.state": """
import random
dice = random.Random(0)
def note(v):
    dice.random()
""",
    "global noise.state": """
noise = torch.Generator().manual_seed(0)
def note(v):
    torch.rand(1, generator=noise)
""",
    "global calls.next": """
import itertools
calls = itertools.count()
def note(v):
    next(calls)
""",
    "global losses[:]": """
import itertools
losses = [0.0] * 1000
calls = [0]
def note(v):
    place = losses.index(0.0)
    losses[place] = 1.0
""",
    "global root.a.b.c.d.e.n": """
class Node:
    def __init__(self, **names):
        vars(self).update(names)
root = Node(a=Node(b=Node(c=Node(d=Node(e=Node(n=0))))))
def note(v):
    root.a.b.c.d.e.n += 1
""",
    "global seen.calls": """
class Seen(dict):
    def __init__(self):
        self.calls = 0
seen = Seen()
def note(v):
    seen.calls += 1
""",
    "Net[0].calls": """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
    def forward(self, v):
        self.calls += 1
        return v
note = Net()
""",
}


@pytest.mark.parametrize("name", WRITES)
def test_what_a_replay_leaves_out_of_other_state_differs(tmp_path: Path, name: str) -> None:
    found = verify(tmp_path, dedent(HEAD) + dedent(WRITES[name]) + dedent(LOOP), "y = x", "z = y")
    assert found.outcome is Outcome.DIFFERS, found.message
    assert found.equality is not None and found.equality.first_name == name


def test_state_that_the_span_only_reads_or_writes_in_place_does_not_differ(tmp_path: Path) -> None:
    text = """
    total = torch.zeros(())
    scale = {"by": torch.ones(())}
    def note(v):
        total.add_(v * scale["by"])
    """
    found = verify(tmp_path, dedent(HEAD) + dedent(text) + dedent(LOOP), "y = x", "z = y")
    assert found.outcome in (Outcome.VERIFIED, Outcome.NOT_FASTER), found.message


def listed(names: Mapping[str, Any], local: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The leaves of a module `script` that holds these names."""
    state.install()
    script = types.ModuleType("script")
    vars(script).update(names)
    sys.modules["script"] = script
    try:
        found = namespaces.leaves(frozenset({"script"}), vars(script) if local is None else local, lambda _: False)
        return dict(found)
    finally:
        del sys.modules["script"]


def test_names_of_the_loops_own_frame_are_left_to_it() -> None:
    assert "global script.n" not in listed({"n": 1})
    assert listed({"n": 1}, local={})["global script.n"] == 1


def test_modules_functions_and_the_tools_own_names_are_no_state() -> None:
    found = listed({"torch": torch, "f": len, "_cga_step": 1, "__x__": 2}, local={})
    assert {name for name in found if not name.startswith(("global script.torch", "global script.f"))} == set()
    assert all(isinstance(leaf, trees.Opaque) for leaf in found.values())


def test_a_closure_over_the_loops_own_variable_is_not_taken_twice() -> None:
    def loop() -> Mapping[str, Any]:
        loss, other = 1.0, 2.0

        def closure() -> float:
            return loss + other

        return {"closure": closure, "loss": loss}

    local = loop()
    # `loss` is the frame's, and may be dead there; `other` is nobody else's
    assert listed({}, local=local) == {"global closure.other": 2.0}


def test_keys_that_differ_from_process_to_process_are_named_by_position() -> None:
    value = {id(value): 1 for value in (object(),)} | {"a": 2, (1, "b"): 3, torch.float32: 4}
    names = [trees.describe(path) for path in trees.flatten("d", value, lambda _: False)]
    assert names == ["len(d)", "d[#0]", "d['a']", "d[(1, 'b')]", "d[#3]"]


LIBRARY = """
import sys, types
lib = types.ModuleType("average_lib")
exec('''
import torch
class Average:
    def __init__(self, values):
        self.shadow = [torch.zeros_like(v) for v in values]
        self.updates = 0
    def update(self, values):
        self.updates += 1
        decay = min(0.99, (1 + self.updates) / (10 + self.updates))
        for shadow, value in zip(self.shadow, values):
            shadow.mul_(decay).add_(value, alpha=1 - decay)
''', vars(lib))
sys.modules["average_lib"] = lib
average = lib.Average([torch.zeros(())])
def note(v):
    average.update([v])
"""


def test_tensors_that_a_librarys_object_holds_count(tmp_path: Path) -> None:
    """Its decay follows a Python counter, which a replay does not advance."""
    found = verify(tmp_path, dedent(HEAD) + dedent(LIBRARY) + dedent(LOOP), "y = x", "z = y", loop="for i in")
    assert found.outcome is Outcome.DIFFERS, found.message
    assert found.equality is not None and found.equality.first_name == "global average.shadow[0]"


def test_the_search_in_libraries_ends() -> None:
    class Node:
        def __init__(self) -> None:
            self.x = torch.ones(1)
            self.me = self  # a cycle
            self.many = [torch.ones(1) for _ in range(100)]

    Node.__module__ = "some_library"
    held = dict(namespaces.deep_state([("a", Node()), ("model", torch.nn.Linear(2, 2)), ("torch", torch)], frozenset()))
    assert set(held) == {"a.x", *(f"a.many[{i}]" for i in range(100))}
    assert len(dict(namespaces.deep_state([("a", Node())], frozenset(), limit=20))) < 20
