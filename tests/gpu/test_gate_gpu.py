"""The gate on a real GPU: ten runs of an unchanged script pass, planted faults fail, callables are counted exactly."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from advisor.commands.gate_run import judge_script
from advisor.commands.gate_sides import Options
from advisor.config import Config
from advisor.errors import EXIT_INCONCLUSIVE, EXIT_OK
from advisor.gate import GateVerdict, Status
from advisor.pytest_plugin import Judge

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
TRAIN = """\
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(*[layer for _ in range(8) for layer in (torch.nn.Linear(256, 256), torch.nn.ReLU())]).cuda()
optimizer = torch.optim.Adam(model.parameters(){options})
data = torch.randn(64, 256, device="cuda")
for step in range(400):
    optimizer.zero_grad()
    loss = model(data).square().mean()
    loss.backward()
    optimizer.step()
    {last}
"""


def script(path: Path, options: str = "", last: str = "pass") -> Path:
    """`path`/train.py: base and head are the same file in two checkouts."""
    path.mkdir()
    path = path / "train.py"
    path.write_text(TRAIN.replace("{options}", options).replace("{last}", last))
    return path


def gate(head: Path, base: Path, rounds: int = 1) -> GateVerdict:
    return judge_script(Options(None, base, script=head, rounds=rounds), Config())


def test_ten_gates_of_an_unchanged_script_have_no_failure(tmp_path: Path) -> None:
    head, base = script(tmp_path / "head"), script(tmp_path / "base")

    def run(number: int) -> subprocess.CompletedProcess[str]:
        folder = tmp_path / f"gate-{number}"
        folder.mkdir()
        words = ["gate", "--run", str(head), "--baseline", str(base), "--rounds", "2"]
        command = [sys.executable, "-c", "from advisor.cli import main; main()", *words]
        path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
        environ = {**os.environ, "PYTHONPATH": path}
        return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)

    with ThreadPoolExecutor(5) as pool:  # measurements take turns; starting Python and torch needs none
        found = list(pool.map(run, range(10)))
    assert [one.stdout + one.stderr for one in found if one.returncode not in (EXIT_OK, EXIT_INCONCLUSIVE)] == []
    assert [one.returncode for one in found].count(EXIT_OK) >= 8


@pytest.mark.parametrize(
    ("options", "last", "metric"),
    [("", "loss.item()", "syncs_per_step"), (", foreach=False", "pass", "launches_per_step")],
    ids=["item", "optimizer storm"],
)
def test_a_planted_fault_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, last: str, metric: str
) -> None:
    monkeypatch.chdir(tmp_path)
    found = gate(script(tmp_path / "head", options, last), script(tmp_path / "base"))
    failed = found.of(Status.FAIL)
    assert metric in {check.metric for check in failed}
    if last != "pass":
        assert any(check.location and check.location.label == "train.py:12" for check in failed)


def test_a_callable_is_counted_exactly(tmp_path: Path) -> None:
    import torch

    x = torch.randn(1024, device="cuda")
    judge = Judge({"launches_per_step": 3, "kernels_per_step": 3, "syncs_per_step": 0}, lambda: tmp_path)
    judge.check(lambda: x.add(1).mul(2).relu())
    with pytest.raises(pytest.fail.Exception, match="synchronising calls per step"):
        Judge({"syncs_per_step": 0}, lambda: tmp_path).check(lambda: x.sum().item())
