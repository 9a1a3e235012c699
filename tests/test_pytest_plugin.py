"""The pytest plugin, run in pytest's own sandbox, on a recorded run and on callables."""

from __future__ import annotations

from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import pytest
from gate_runs import analysis, snapshot, step_region, sync

from advisor.bundle import Bundle
from advisor.errors import UsageError
from advisor.gate.baseline import save
from advisor.pytest_plugin import budgets

pytest_plugins = ["pytester"]
ROOT = str(Path(__file__).resolve().parents[1])


@pytest.fixture
def sandbox(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with a run of 100 launches and no synchronisation in it, and no GPU."""
    monkeypatch.setenv("PYTHONPATH", ROOT)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    Bundle.create(pytester.path / "run").save(analysis())
    Bundle.create(pytester.path / "worse").save(analysis(step_region(sync_count=1.0), syncs=(sync(20),)))
    save(snapshot(), pytester.path / "base.json")
    return pytester


def outcomes(sandbox: pytest.Pytester, body: str) -> tuple[dict[str, int], str]:
    sandbox.makepyfile(f"import pytest\n\n{body}")
    # Installed, the entry point has loaded the plugin already, and pytest refuses to load it twice.
    installed = any(point.value == "advisor.pytest_plugin" for point in entry_points(group="pytest11"))
    loaded = () if installed else ("-p", "advisor.pytest_plugin")
    result = sandbox.runpytest_subprocess(*loaded, "-p", "no:cacheprovider", "--strict-markers", "-rs")
    return result.parseoutcomes(), result.stdout.str()


def test_what_passes(sandbox: pytest.Pytester) -> None:
    counts, _ = outcomes(
        sandbox,
        """
import sys

def test_the_plugin_is_light():
    assert not {"torch", "pandas", "numpy"} & set(sys.modules)

@pytest.mark.cgadvisor(max_launches_per_step=100, syncs_per_step=0)
def test_limits_that_hold(cgadvisor):
    verdict = cgadvisor.check("run", baseline="base.json")
    assert verdict.status == "pass"

def test_without_the_marker(tmp_path):
    assert tmp_path.exists()
""",
    )
    assert counts == {"passed": 3}


def test_what_fails_and_what_it_says(sandbox: pytest.Pytester) -> None:
    counts, text = outcomes(
        sandbox,
        """
@pytest.mark.cgadvisor(max_launches_per_step=40)
def test_broken_limit(cgadvisor):
    cgadvisor.check("run")

@pytest.mark.cgadvisor(max_launches_per_step=200)
def test_worse_than_baseline(cgadvisor):
    cgadvisor.check("worse", baseline="base.json")

@pytest.mark.cgadvisor(max_launches_per_step=40)
def test_judged_nothing(cgadvisor):
    pass

@pytest.mark.cgadvisor(max_launchs_per_step=40)
def test_unknown_metric(cgadvisor):
    cgadvisor.check("run")

@pytest.mark.cgadvisor(graph_coverage="high")
def test_no_number(cgadvisor):
    cgadvisor.check("run")

@pytest.mark.cgadvisor()
def test_no_limit(cgadvisor):
    cgadvisor.check("run")

@pytest.mark.cgadvisor(max_launches_per_step=40)
def test_no_such_run(cgadvisor):
    cgadvisor.check("none")

@pytest.mark.cgadvisor(max_launches_per_step=40)
def test_too_few_steps(cgadvisor):
    cgadvisor.check(lambda: None, steps=2)
""",
    )
    assert counts == {"failed": 8}
    for words in (
        "launches per step 100, over max 40",
        "train.py:20: new",
        "judged nothing",
        "did you mean launches_per_step",
        "a limit is a number",
        "nothing to judge by",
        "none: no such run folder",
        "cgadvisor.check(steps=2): fewer than three",
    ):
        assert words in text


def test_a_callable_is_skipped_with_the_reason_without_a_gpu(sandbox: pytest.Pytester) -> None:
    if find_spec("torch") is None:  # not imported here: the sandbox forgets modules, and torch cannot load twice
        pytest.skip("the reason names torch's build")
    counts, text = outcomes(
        sandbox,
        """
@pytest.mark.cgadvisor(max_launches_per_step=40)
def test_fixture(cgadvisor):
    cgadvisor.check(lambda: None)

@pytest.mark.cgadvisor(max_launches_per_step=40)
def test_body():
    raise RuntimeError("never run without a GPU")
""",
    )
    assert counts == {"skipped": 2}
    assert "CUDA" in text


def test_keywords_become_budgets_on_the_side_that_is_worse() -> None:
    made = budgets({"max_launches_per_step": 40, "graph_coverage": 0.9, "syncs_per_step": 0, "min_verified_speedup": 2})
    assert [(one.metric, one.max, one.min) for one in made] == [
        ("launches_per_step", 40, None),
        ("graph_coverage", None, 0.9),
        ("syncs_per_step", 0, None),
        ("verified_speedup", None, 2),
    ]
    with pytest.raises(UsageError, match="a limit is a number"):
        budgets({"syncs_per_step": True})


def test_a_marked_test_of_another_kind_does_not_pass_unjudged(sandbox: pytest.Pytester) -> None:
    counts, text = outcomes(
        sandbox,
        """
import unittest

class TestOld(unittest.TestCase):
    @pytest.mark.cgadvisor(max_launches_per_step=1)
    def test_method(self):
        pass

@pytest.mark.cgadvisor(max_launches_per_step=1)
async def test_async():
    pass

@pytest.mark.cgadvisor(max_launches_per_step=float("nan"))
def test_nan(cgadvisor):
    cgadvisor.check("run")

@pytest.mark.xfail(strict=True)
@pytest.mark.cgadvisor(max_launches_per_step=40)
@pytest.mark.parametrize("run", ["run", "worse"])
def test_each(cgadvisor, run):
    cgadvisor.check(run)
""",
    )
    assert counts == {"failed": 3, "xfailed": 2}, text
    assert "judged nothing" in text and "and async" in text and "a limit is a number" in text
