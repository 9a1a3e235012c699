"""Which loop is the step: the chooser told of loops by hand, on a clock that the test moves."""

from __future__ import annotations

import pytest

from advisor.workload import steps
from advisor.workload.instrument import Construct
from advisor.workload.steps import BUDGET_NS, Chooser, Spec

OUTER, INNER = 1, 2
WANTED = 20
LONG_NS = BUDGET_NS // WANTED  # longer than this an iteration of a loop without optimizer may not usually be
MS = 1_000_000


class Program:
    """Two loops, the inner one inside the outer; `chosen` are the labels in the order they were taken."""

    def __init__(self, monkeypatch):
        self.now = 0
        self.chosen: list[str] = []
        monkeypatch.setattr(steps.time, "perf_counter_ns", lambda: self.now)
        constructs = {
            OUTER: Construct(OUTER, "loop", "gen.py:10-20", "gen.py", 10, 20),
            INNER: Construct(INNER, "loop", "gen.py:2-4", "gen.py", 2, 4),
        }
        self.chooser = Chooser(constructs, Spec.parse(""), WANTED, self.take)
        monkeypatch.setattr(self.chooser, "_works", lambda state: True)

    def take(self, source, index):
        self.chosen.append(source.label)
        self.index = index

    def layers(self, count, ns):
        """The inner loop once. As the clock pass does, a choice that ends before enough was recorded is taken back."""
        recorded = 0
        self.chooser.loop(INNER)
        for _ in range(count):
            self.chooser.item(INNER)
            self.now += ns
            recorded += self.chooser.done
            self.chooser.next(INNER)
        if self.chooser.done and self.chosen[-1] == "gen.py:2-4" and recorded < WANTED:
            self.chooser.resume(INNER, self.index + recorded)
        elif not self.chooser.done:
            self.chooser.end(INNER)

    def tokens(self, first_ns, ns, count=12, layers=16):
        self.chooser.loop(OUTER)
        for number in range(count):
            self.chooser.item(OUTER)
            self.layers(layers, (first_ns if number == 0 else ns) // layers)
            if not self.chooser.done:
                self.chooser.next(OUTER)
            if self.chooser.done:
                return


@pytest.fixture
def program(monkeypatch):
    return Program(monkeypatch)


def test_the_outer_of_two_short_loops(program):
    program.tokens(10 * MS, 10 * MS)
    assert program.chosen == ["gen.py:10-20"]


def test_a_slow_first_iteration_does_not_hand_the_step_to_the_layers(program):
    program.tokens(3 * LONG_NS, 10 * MS)
    assert program.chosen == ["gen.py:10-20"]


@pytest.mark.parametrize("times", [7, 12])
def test_a_very_slow_first_iteration_takes_the_layers_for_that_iteration_alone(program, times):
    program.tokens(times * LONG_NS, 10 * MS)
    assert program.chosen == ["gen.py:2-4", "gen.py:10-20"]


def test_layers_that_ran_before_the_loop_are_taken_back(program):
    program.layers(16, 2 * MS)  # the prompt
    program.tokens(2 * LONG_NS, 10 * MS)
    assert program.chosen == ["gen.py:2-4", "gen.py:10-20"]


def test_an_outer_loop_of_long_iterations_is_not_the_step(program):
    """Epochs of an evaluation: batches are the step, however long it takes to know."""
    program.tokens(3 * LONG_NS, 3 * LONG_NS, layers=40)
    assert program.chooser.done
    assert set(program.chosen) == {"gen.py:2-4"}
