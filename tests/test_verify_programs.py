"""The GPU tests' programs on the recording double: what holds for its graphs holds before a GPU is asked."""

import json
import sys
from pathlib import Path

import pytest
from verify_harness import run_child

from advisor.model import EqualityOutcome, Outcome
from advisor.verify import combine
from advisor.verify.candidate import Candidate, Sources
from advisor.verify.children import ChildRun
from advisor.verify.combine import Eager
from advisor.workload.verify_job import Schedule, VerifySpec

PROGRAMS = Path(__file__).parent / "gpu" / "programs"
INDEX = {
    entry["file"]: entry for entry in json.loads((PROGRAMS / "INDEX.json").read_text(encoding="utf-8"))["programs"]
}
SCHEDULE = Schedule(warmup=5, checks=8, block=3, blocks=6)
EQUAL = [
    "public_autocast.py",
    "public_branch.py",
    "public_generator_step.py",
    "public_lstm_lm.py",
    "batchnorm_momentum.py",
    "fault_accumulation_fixed.py",
    "fault_attribute_fixed.py",
    "fault_grad_reset_fixed.py",
    "fault_output_list_fixed.py",
]
CAUGHT = [
    "fault_accumulation.py",
    "fault_attribute.py",
    "fault_batchnorm_mode.py",
    "fault_counter.py",
    "fault_cpu_random.py",
    "fault_grad_reset.py",
    "fault_output_list.py",
    "fault_sgd_lr.py",
    "fault_stale_input.py",
]


def attempt(folder: Path, name: str) -> combine.Attempt:
    text = (PROGRAMS / name).read_text(encoding="utf-8")
    entry = INDEX[name]
    loop = max(i for i, line in enumerate(text.split("\n"), 1) if line.startswith("for ") and i < entry["first_line"])
    runs = {}
    for role in ("eager", "graph"):
        spec = VerifySpec(
            role=role,  # type: ignore[arg-type]
            loop_file="prog.py",
            loop_line=loop,
            span_file="prog.py",
            first_line=entry["first_line"],
            last_line=entry["last_line"],
            schedule=SCHEDULE,
        )
        runs[role] = ChildRun(role, folder / role, run_child(folder / role, text, spec), 0, False, 0)
    assert runs["eager"].report is not None and runs["eager"].report.ending == "ran", runs["eager"].report
    candidate = Candidate("prog.py", entry["first_line"], entry["last_line"])
    return combine.attempt("a", candidate, runs["graph"], Eager(runs["eager"]), Sources({"prog.py": text}))


@pytest.fixture(autouse=True)
def plain_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["prog.py"])


@pytest.mark.parametrize("name", EQUAL)
def test_equal(tmp_path: Path, name: str) -> None:
    found = attempt(tmp_path, name)
    assert found.outcome in (Outcome.VERIFIED, Outcome.NOT_FASTER), found.message
    assert found.equality is not None and found.equality.outcome is EqualityOutcome.BITWISE
    assert found.fallback_count == 0


@pytest.mark.parametrize("name", CAUGHT)
def test_caught(tmp_path: Path, name: str) -> None:
    found = attempt(tmp_path, name)
    assert found.outcome in (Outcome.DIFFERS, Outcome.BLOCKED), found.message
    assert found.hazards[0].id in INDEX[name]["ids"], found.message
