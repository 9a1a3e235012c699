"""Planted faults: a capture succeeds and would train or compute something else. None may pass as verified."""

import pytest
from verify_runs import PROGRAMS, Case, run_cases

from advisor.model import Attempt, EqualityOutcome, Outcome

pytestmark = pytest.mark.gpu
EQUAL = (Outcome.VERIFIED, Outcome.NOT_FASTER)

CAUGHT = {
    "fault_accumulation": {"grad-accumulate-twice"},
    "fault_attribute": {"stale-input"},
    "fault_autocast_cache": {"autocast-cache"},
    "fault_batchnorm_mode": {"train-eval-flip"},
    "fault_capture_aware": {"capture-aware-branch"},
    "fault_counter": {"cpu-side-effect"},
    "fault_cpu_random": {"rng-fixed"},
    "fault_generator": {"rng-unregistered"},
    "fault_grad_reset": {"grad-reset-outside", "grad-accumulate-twice"},
    "fault_output_list": {"cpu-side-effect", "output-overwrite"},
    "fault_sgd_lr": {"frozen-lr-sgd"},
    "fault_stale_input": {"stale-input"},
}
# The tool drops autocast's cache before it captures; turned off, the fault must be seen.
OPTIONS = {"fault_autocast_cache": {"clear_autocast": False}}
FIXED = sorted(path.stem for path in PROGRAMS.glob("fault_*_fixed.py"))
BROKEN = [Case("fault_hang", timeout_s=8.0), Case("fault_crash")]


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Attempt]:
    cases = [Case(name, options=OPTIONS.get(name, {})) for name in CAUGHT]
    cases = [*BROKEN, *cases, *(Case(name) for name in FIXED), Case("batchnorm_momentum")]
    return run_cases(cases, tmp_path_factory.mktemp("faults"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CAUGHT)
def test_fault_is_caught_with_its_hazard(attempts: dict[str, Attempt], name: str) -> None:
    found = attempts[name]
    assert found.outcome in (Outcome.DIFFERS, Outcome.BLOCKED), found.message
    identity = found.hazards[0].id if found.hazards else found.blocker.id if found.blocker else ""
    assert identity in CAUGHT[name], found.message


@pytest.mark.parametrize("name", FIXED)
def test_its_fixed_twin_is_bit_identical(attempts: dict[str, Attempt], name: str) -> None:
    found = attempts[name]
    assert found.outcome in EQUAL, found.message
    assert found.equality is not None and found.equality.outcome is EqualityOutcome.BITWISE
    assert found.replay_count > 0


def test_batch_norm_statistics_advance_as_in_eager(attempts: dict[str, Attempt]) -> None:
    assert attempts["batchnorm_momentum"].outcome in EQUAL, attempts["batchnorm_momentum"].message


def test_a_hang_ends_at_the_time_limit(attempts: dict[str, Attempt]) -> None:
    assert attempts["fault_hang"].outcome is Outcome.TIMED_OUT


def test_a_crash_costs_one_row(attempts: dict[str, Attempt]) -> None:
    assert attempts["fault_crash"].outcome is Outcome.CRASHED
    assert "SIGABRT" in attempts["fault_crash"].message
