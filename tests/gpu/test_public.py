"""Programs written as people write them, verified as they are."""

from dataclasses import replace

import pytest
from verify_runs import FORESEEN, INDEX, Case, run_cases

from advisor.model import Attempt, EqualityOutcome, Outcome

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]
EQUAL = {Outcome.VERIFIED, Outcome.NOT_FASTER}  # several run at once: their verdicts count here, not their times
ENTRIES = {file.removesuffix(".py"): entry for file, entry in INDEX.items() if entry["category"] == "public"}
EXPECTED_EQUAL = sorted(name for name, entry in ENTRIES.items() if "verified" in entry["expected"])


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Attempt]:
    folder = tmp_path_factory.mktemp("public")
    written = [Case(name, deterministic=True) for name in ENTRIES]
    fixed = [replace(case, fixes=(FORESEEN,)) for case in written if "fix" in ENTRIES[case.name]]
    found = run_cases(written, folder / "written")
    return {**found, **{f"{name} fixed": one for name, one in run_cases(fixed, folder / "fixed").items()}}


@pytest.mark.parametrize("name", EXPECTED_EQUAL)
def test_bit_identical_as_written(attempts: dict[str, Attempt], name: str) -> None:
    found = attempts[name]
    assert found.outcome in EQUAL, found.message
    assert found.equality is not None and found.equality.outcome is EqualityOutcome.BITWISE
    assert found.replay_count > 10 and found.fallback_count == 0


def test_host_reads_between_backward_passes_block_and_are_deferred(attempts: dict[str, Attempt]) -> None:
    written, fixed = attempts["public_gan"], attempts["public_gan fixed"]
    assert written.outcome is Outcome.BLOCKED and written.blocker is not None and written.blocker.id == "sync-item"
    assert written.blocker.location is not None
    assert written.blocker.location.first_line == INDEX["public_gan.py"]["culprit_line"]
    assert fixed.outcome in EQUAL, fixed.message
    assert [fix.id for fix in fixed.fixes] == ["defer"] * 3
    assert fixed.equality is not None and fixed.equality.outcome is EqualityOutcome.BITWISE


def test_a_growing_context_never_replays(attempts: dict[str, Attempt]) -> None:
    found = attempts["public_growing"]
    assert found.outcome is Outcome.NO_REPLAY, found.message
    assert found.signature_count == found.fallback_count > 10


def test_a_busy_gpu_gains_nothing(attempts: dict[str, Attempt]) -> None:
    found = attempts["public_gpu_bound"]
    assert found.equality is not None and found.equality.outcome is EqualityOutcome.BITWISE
    assert found.timing is not None and found.timing.speedup_ratio < 1.1, found.message
