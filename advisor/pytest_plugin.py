"""pytest: budgets on what a test launches.

    @pytest.mark.cgadvisor(max_launches_per_step=40, graph_coverage=0.9)
    def test_decode(cgadvisor):
        cgadvisor.check(lambda: model.step(tokens))      # a callable, profiled here; skipped without a GPU

    @pytest.mark.cgadvisor(syncs_per_step=0)
    def test_step():                                     # without the fixture, the body is the callable
        train_step()

    @pytest.mark.cgadvisor(max_kernels_per_step=120)
    def test_recorded(cgadvisor):
        cgadvisor.check("runs/train", baseline="cgadvisor-baseline.json")   # a run folder, findings.json or trace

`max_NAME`, `min_NAME` or a bare NAME, which limits a metric from the side that is worse. A marked test that judged nothing
fails. Importing this module imports neither torch nor pandas.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from advisor.errors import AdvisorError, GpuRequired, UsageError

if TYPE_CHECKING:
    from advisor.config import Budget
    from advisor.gate import GateVerdict, Snapshot

_MARK: Final = "cgadvisor"
_KEY: Final = pytest.StashKey["Judge"]()
_STEPS: Final = 5
Subject = Callable[[], Any] | str | Path


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "cgadvisor(**limits): budgets on launches, synchronisations and graph coverage, "
        "e.g. max_launches_per_step=40, graph_coverage=0.9, syncs_per_step=0.",
    )


@pytest.fixture
def cgadvisor(request: pytest.FixtureRequest) -> Judge:
    """Judges a callable, a trace, a run folder or a findings.json by the limits of the test's marker."""
    return _judge_of(request.node)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[Any]:
    """Profile the body of a marked test that does not ask for the fixture."""
    marked = pyfuncitem.get_closest_marker(_MARK) is not None
    if not marked or "cgadvisor" in pyfuncitem.fixturenames:
        result = yield
    else:
        names = pyfuncitem._fixtureinfo.argnames
        arguments = {name: pyfuncitem.funcargs[name] for name in names}
        body = pyfuncitem.obj
        if inspect.iscoroutinefunction(body):  # calling it would only make a coroutine, which launches nothing
            pytest.fail(
                "marked cgadvisor, and async: ask for the cgadvisor fixture and give it a callable", pytrace=False
            )
        _judge_of(pyfuncitem).check(lambda: body(**arguments))
        # The body ran under the profiler; running it once more would only repeat its side effects.
        pyfuncitem.obj = lambda **_: None
        try:
            result = yield
        finally:
            pyfuncitem.obj = body
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[Any]:
    """Fail a marked test that judged nothing. Here, because a unittest method never comes to the hook above."""
    result = yield
    if item.get_closest_marker(_MARK) is not None and not _judge_of(item).verdicts:
        pytest.fail("marked cgadvisor, but the test judged nothing: call cgadvisor.check(...)", pytrace=False)
    return result


class Judge:
    """What the fixture gives. `verdicts` holds every verdict of the test."""

    def __init__(self, limits: Mapping[str, Any], folder: Callable[[], Path]) -> None:
        self._limits = limits
        self._folder = folder
        self.verdicts: list[GateVerdict] = []

    def check(self, subject: Subject, *, baseline: str | Path | None = None, steps: int = _STEPS) -> GateVerdict:
        """Judge a callable (profiled here and now), a trace, a run folder or a findings.json.

        Fails the test when a limit is broken or the run is worse than `baseline`; skips it, with the reason, when a
        callable cannot be profiled here. Returns the verdict.
        """
        from advisor.config import GateConfig
        from advisor.gate import Status, judge
        from advisor.gate.outputs import terminal

        try:
            if steps < 3:
                raise UsageError(f"cgadvisor.check(steps={steps}): fewer than three steps do not make a median")
            limits = budgets(self._limits)
            base = _snapshot(Path(baseline)) if baseline is not None else None
            head = self._recorded(subject, steps) if callable(subject) else _snapshot(Path(subject))
            verdict = judge(head, base, GateConfig(budget=limits))
        except GpuRequired as error:
            pytest.skip(f"cgadvisor: {error}")
        except AdvisorError as error:
            pytest.fail(f"cgadvisor: {error}", pytrace=False)
        self.verdicts.append(verdict)
        if verdict.status not in (Status.PASS, Status.WARN):
            pytest.fail(terminal.render(verdict), pytrace=False)
        return verdict

    def _recorded(self, function: Callable[[], Any], steps: int) -> Snapshot:
        from advisor import load
        from advisor.advise import Evidence, analyze
        from advisor.gate.counts import RunArtefacts, snapshot_of
        from advisor.workload.callable import STEP_LABEL, record

        trace = record(function, self._folder() / "cgadvisor.json", steps=steps)
        analysis = analyze(load(trace), evidence=Evidence(step_label=STEP_LABEL))
        return snapshot_of(RunArtefacts(analysis), "callable")


def budgets(limits: Mapping[str, Any]) -> tuple[Budget, ...]:
    """The marker's keywords as budgets. Raises UsageError with the nearest name for an unknown metric."""
    from advisor.config import Budget
    from advisor.gate.metrics import METRICS, metric

    made = []
    for keyword, value in limits.items():
        side, _, rest = keyword.partition("_")
        name = rest if side in ("max", "min") and keyword not in METRICS else keyword
        found = metric(name, f"@pytest.mark.cgadvisor({keyword}=...)")
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise UsageError(f"@pytest.mark.cgadvisor({keyword}={value!r}): a limit is a number")
        upper = side == "max" if name != keyword else found.worse > 0
        made.append(Budget(metric=name, max=value) if upper else Budget(metric=name, min=value))
    return tuple(made)


def _snapshot(path: Path) -> Snapshot:
    from advisor.commands.gate_sides import side
    from advisor.config import Config

    return side(path, Config())


def _judge_of(item: pytest.Item) -> Judge:
    """The test's own judge, made on first use from the nearest marker of each keyword."""
    if _KEY not in item.stash:
        limits: dict[str, Any] = {}
        for mark in item.iter_markers(_MARK):
            if mark.args:
                pytest.fail("@pytest.mark.cgadvisor takes keywords, such as max_launches_per_step=40", pytrace=False)
            limits = dict(mark.kwargs) | limits
        item.stash[_KEY] = Judge(limits, lambda: _folder(item))
    return item.stash[_KEY]


def _folder(item: pytest.Item) -> Path:
    factory: pytest.TempPathFactory = item.config._tmp_path_factory  # type: ignore[attr-defined]
    return factory.mktemp("cgadvisor")
