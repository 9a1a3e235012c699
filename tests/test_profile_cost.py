"""The reading of times in benchmarks/profile_cost.py; the runs themselves are the benchmark."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def cost():
    path = Path(__file__).parents[1] / "benchmarks" / "profile_cost.py"
    spec = importlib.util.spec_from_file_location("profile_cost", path)
    module = importlib.util.module_from_spec(spec)
    __import__("sys").modules["profile_cost"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_scripts_own_time_is_its_last_word(cost):
    assert cost.own_time_ms("warning\n3.412 ms per step\n") == 3.412
    with pytest.raises(ValueError, match="printed no time"):
        cost.own_time_ms("done")


def test_windows_of_ten_steps(cost):
    slow_last = [1_000_000] * 9 + [11_000_000]  # the step that logs: 2 ms on average
    assert cost.windowed_ms(slow_last * 3 + [1] * 9) == pytest.approx(2.0)
    with pytest.raises(ValueError, match="9 clocked steps"):
        cost.windowed_ms([1] * 9)


def test_bars(cost):
    assert cost.Step("a", (1.0, 2.0, 4.0), (1.02, 2.04, 4.4)).ratio == pytest.approx(1.02)
    assert cost.Step("a", (1.0,), (1.029,)).is_held and not cost.Step("a", (1.0,), (0.96,)).is_held
    assert cost.Wall("a", (5.0,), (20.0,)).is_held and not cost.Wall("a", (5.0,), (20.1,)).is_held
