"""`gate --run`: sides measured in turns, a slow-down confirmed in fresh processes; with a profiler that only writes files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from gate_runs import MS, analysis, attempt, clock, noisy, snapshot, step_region, verification

from advisor.bundle import Bundle
from advisor.commands.gate_run import Profiler, judge_script, real_profiler
from advisor.commands.gate_sides import Options
from advisor.config import Budget, Config, GateConfig
from advisor.errors import UsageError
from advisor.gate import GateVerdict, Status
from advisor.gate.baseline import save
from advisor.model import Analysis


@dataclass
class Machine:
    """Plays the GPU machine: `level(script name, number of the process)` is the step time it gives."""

    level: Callable[[str, int], float]
    findings: Callable[[str], Analysis] = lambda name: analysis()
    order: list[str] = field(default_factory=list)
    verified: list[bool] = field(default_factory=list)

    def profiler(self) -> Profiler:
        def full(script: Path, argv: tuple[str, ...], folder: Path, verify: bool) -> None:
            self.verified.append(verify)
            Bundle.create(folder).save(self.findings(script.name))
            if verify:
                Bundle.create(folder).save(verification(attempt()))

        def clocked(script: Path, argv: tuple[str, ...], folder: Path) -> tuple[int, ...]:
            self.order.append(script.name)
            number = len(self.order)
            return noisy(number, self.level(script.name, number), 40, 0.02)

        return Profiler(full, clocked)


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("head.py", "base.py"):
        (tmp_path / name).write_text("pass\n")
    return tmp_path


def gate(
    machine: Machine, baseline: str | None = "base.py", rounds: int = 5, config: Config | None = None
) -> GateVerdict:
    options = Options(None, Path(baseline) if baseline else None, script=Path("head.py"), rounds=rounds)
    return judge_script(options, config or Config(), machine.profiler())


def test_base_and_head_take_turns_and_swap_places(scripts: Path) -> None:
    machine = Machine(lambda name, number: 3 * MS)
    found = gate(machine)
    assert found.status == Status.PASS
    assert machine.order == ["base.py", "head.py", "head.py", "base.py"] * 2 + ["base.py", "head.py"]


def test_heat_that_hits_both_sides_passes(scripts: Path) -> None:
    assert gate(Machine(lambda name, number: 3 * MS * (1 + 0.03 * number))).status == Status.PASS


def test_a_true_slow_down_is_measured_twice_and_fails(scripts: Path) -> None:
    machine = Machine(lambda name, number: 3 * MS * (1.1 if name == "head.py" else 1.0))
    found = gate(machine)
    assert found.exit_code == 1
    assert "confirmed by a second measurement" in found.of(Status.FAIL)[0].detail
    assert len(machine.order) == 20


def test_a_slow_down_that_does_not_repeat_only_warns(scripts: Path) -> None:
    machine = Machine(lambda name, number: 3 * MS * (1.2 if name == "head.py" and number <= 10 else 1.0))
    found = gate(machine)
    assert (found.status, found.exit_code) == (Status.WARN, 0)
    assert "did not confirm it" in found.of(Status.WARN)[0].message


def test_a_second_measurement_too_noisy_to_tell_does_not_pass(scripts: Path) -> None:
    def level(name: str, number: int) -> float:
        if number <= 10:
            return 3 * MS * (1.2 if name == "head.py" else 1.0)
        return 3 * MS * (1.0, 1.9, 1.0, 2.1, 1.5)[number % 5]

    found = gate(Machine(level))
    assert (found.status, found.exit_code) == (Status.INCONCLUSIVE, 5)
    assert "did not confirm it" in found.of(Status.INCONCLUSIVE)[0].message


def test_counts_that_fail_are_not_measured_again(scripts: Path) -> None:
    def findings(name: str) -> Analysis:
        return analysis(step_region(launch_count=200.0 if name == "head.py" else 100.0))

    machine = Machine(lambda name, number: 3 * MS, findings)
    assert gate(machine).exit_code == 1
    assert len(machine.order) == 10


def test_a_stored_baseline_with_a_verification_is_verified_again(scripts: Path) -> None:
    base = snapshot(clock=clock(*noisy(1, 3 * MS, 40, 0.02)), verification=verification(attempt()))
    save(base, scripts / "base.json")
    machine = Machine(lambda name, number: 3 * MS)
    found = gate(machine, "base.json", rounds=3)
    assert found.status == Status.PASS and machine.verified == [True]
    assert machine.order == ["head.py"] * 3


def test_budgets_alone_need_no_baseline(scripts: Path) -> None:
    config = Config(gate=GateConfig(budget=(Budget(metric="launches_per_step", max=99),)))
    assert gate(Machine(lambda name, number: MS), None, 1, config).exit_code == 1


def test_what_is_not_there_is_refused_before_anything_runs(scripts: Path) -> None:
    machine = Machine(lambda name, number: MS)
    with pytest.raises(UsageError, match=r"none\.py: no such script"):
        gate(machine, "none.py")
    with pytest.raises(UsageError, match="nothing to judge by"):
        gate(machine, None)
    assert not machine.order


def test_the_real_profiler_clocks_and_traces_a_script(scripts: Path) -> None:
    pytest.importorskip("torch", reason="runs a script with torch's CPU build")
    body = "import torch\nx = torch.randn(64, 64)\nfor _ in range(400):\n    y = x @ x\n    y = y.relu()\n"
    (scripts / "head.py").write_text(body)
    (scripts / "base.py").write_text(body)
    options = Options(None, Path("base.py"), script=Path("head.py"), rounds=1)
    found = judge_script(options, Config(gate=GateConfig(inconclusive="pass")), real_profiler("cpu"))
    time = next(check for check in found.checks if check.id == "time:step_ns")
    assert time.comparison is not None and time.comparison.head_count == 40
