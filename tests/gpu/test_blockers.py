"""Blockers: each is reported at the user's line, and the script without it is verified."""

import pytest
from verify_runs import PROGRAMS, Case, run_cases

from advisor.model import Attempt, EqualityOutcome, Outcome

pytestmark = pytest.mark.gpu
EQUAL = (Outcome.VERIFIED, Outcome.NOT_FASTER)

IDS = {
    "adam": {"optim-not-capturable"},
    "bool": {"sync-bool"},
    "item": {"sync-item"},
    "lazy_init": {"lazy-init", "sync-h2d-pageable"},
    "library_sync": {"sync-item"},
    "list_index": {"sync-index-list"},
    "mask": {"dyn-nonzero"},
    "nonzero": {"dyn-nonzero"},
    "pageable": {"sync-h2d-pageable"},
    "print": {"sync-print"},
    "scaler": {"scaler-step"},
    "side_stream": {"stream-no-join"},
    "synchronize": {"sync-explicit"},
    "tensor_ctor": {"sync-tensor-ctor"},
}
FIXED = sorted(path.stem for path in PROGRAMS.glob("*_fixed.py") if not path.stem.startswith("fault_"))


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Attempt]:
    blocked = [Case(f"{name}_blocked") for name in IDS]
    return run_cases([*blocked, *(Case(name) for name in FIXED)], tmp_path_factory.mktemp("blockers"))


def test_every_program_is_expected_here() -> None:
    assert {path.stem.removesuffix("_blocked") for path in PROGRAMS.glob("*_blocked.py")} == IDS.keys()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", IDS)
def test_blocker_is_named_at_the_users_line(attempts: dict[str, Attempt], name: str) -> None:
    found, case = attempts[f"{name}_blocked"], Case(f"{name}_blocked")
    assert found.outcome is Outcome.BLOCKED, found.message
    assert found.blocker is not None and found.blocker.id in IDS[name], found.blocker
    assert found.blocker.location is not None and found.blocker.location.first_line == case.culprit


def test_a_sync_inside_a_library_names_both_places(attempts: dict[str, Attempt]) -> None:
    blocker = attempts["library_sync_blocked"].blocker
    assert blocker is not None and "batchnorm.py:" in blocker.library_location


@pytest.mark.parametrize("name", FIXED)
def test_the_fixed_twin_is_bit_identical(attempts: dict[str, Attempt], name: str) -> None:
    found = attempts[name]
    assert found.outcome in EQUAL, found.message
    assert found.equality is not None and found.equality.outcome is EqualityOutcome.BITWISE
