"""The verdict: counts, lines, regions, coverage, environment, budgets and times; and real pairs of traces."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from gate_runs import (
    MS,
    analysis,
    attempt,
    clock,
    manifest,
    module,
    noisy,
    snapshot,
    statement,
    step_region,
    sync,
    verification,
)

from advisor.config import Budget, GateConfig
from advisor.errors import UsageError
from advisor.gate import GateVerdict, Status, judge
from advisor.gate.baseline import merge
from advisor.gate.snapshot import Snapshot
from advisor.model import Equality, EqualityOutcome, Outcome, QualityNote, RegionKind, Severity, SourceSpan


def verdict(head: Snapshot, base: Snapshot | None = None, **config: Any) -> GateVerdict:
    return judge(head, base, GateConfig(**config))


def check(found: GateVerdict, identity: str) -> Any:
    return next(one for one in found.checks if one.id == identity)


def failed(found: GateVerdict) -> list[str]:
    return [one.id for one in found.of(Status.FAIL)]


# --- counts ----------------------------------------------------------------------------------------------------------


def test_the_same_run_twice_passes() -> None:
    found = verdict(snapshot(), snapshot())
    assert (found.status, found.exit_code) == (Status.PASS, 0)
    assert found.counts["pass"] > 8 and "fail" not in found.counts


def test_counts_per_step_of_another_step_are_not_compared() -> None:
    base = snapshot()
    moved = msgspec.structs.replace(base, step_label=base.step_label.replace(":10", ":12-40"))
    assert verdict(moved, base).status == Status.PASS
    other = msgspec.structs.replace(base, step_label="between cudaEventRecord calls")
    found = verdict(other, base)
    assert (found.status, found.exit_code) == (Status.NOT_COMPARABLE, 5)
    assert check(found, "environment:step").message.startswith("step: train.py:10 -> between cudaEventRecord calls; no")
    assert verdict(other, base, allow_different=("step",)).status == Status.PASS
    with pytest.raises(UsageError, match=r"step: train\.py:10 -> between"):
        merge([base, other], "")


@pytest.mark.parametrize(
    ("field", "value", "metric"),
    [
        ("launch_count", 110.0, "launches_per_step"),
        ("kernel_count", 110.0, "kernels_per_step"),
        ("sync_count", 1.0, "syncs_per_step"),
        ("h2d_count", 3.0, "h2d_copies_per_step"),
        ("d2h_count", 1.0, "d2h_copies_per_step"),
        ("graph_launch_count", 1.0, "graph_launches_per_step"),
        ("item_count", 120.0, "items_outside_graphs_per_step"),
    ],
)
def test_each_count_that_rises_fails(field: str, value: float, metric: str) -> None:
    worse = snapshot(analysis(step_region(**{field: value})))
    found = verdict(worse, snapshot())
    assert failed(found) == [metric] and found.exit_code == 1
    assert verdict(snapshot(), worse).status == Status.PASS  # fewer is better


def test_a_launch_more_among_hundreds_warns() -> None:
    found = verdict(snapshot(analysis(step_region(launch_count=101.0))), snapshot())
    assert (found.status, found.exit_code) == (Status.WARN, 0)
    assert check(found, "launches_per_step").message == "launches per step rose from 100 to 101"


def test_lost_graph_coverage_fails() -> None:
    base = snapshot(analysis(step_region(graphed_item_ratio=0.9)))
    found = verdict(snapshot(analysis(step_region(graphed_item_ratio=0.4))), base)
    assert "graph_coverage" in failed(found)


def test_gaining_a_graph_is_no_regression_and_splitting_one_is() -> None:
    graphed = {"launch_count": 3.0, "graph_launch_count": 1.0, "graphed_item_ratio": 0.9}
    one = snapshot(analysis(step_region(**graphed)))
    assert verdict(one, snapshot()).status == Status.PASS
    split = snapshot(analysis(step_region(**(graphed | {"graph_launch_count": 4.0}))))
    assert failed(verdict(split, one)) == ["graph_launches_per_step"]


def test_totals_are_judged_only_without_a_step() -> None:
    without = analysis(step_region(), step=None)
    found = verdict(snapshot(without), snapshot(without))
    ids = [one.id for one in found.checks]
    assert "launches" in ids and "launches_per_step" not in ids
    assert "totals over the recording" in found.notes[0]


def test_a_run_without_the_baselines_step_fails() -> None:
    found = verdict(snapshot(analysis(step_region(), step=None)), snapshot())
    assert "missing:step" in failed(found)


# --- lines -----------------------------------------------------------------------------------------------------------


def test_a_new_synchronising_line_fails_and_is_named() -> None:
    found = verdict(snapshot(analysis(syncs=(sync(20),))), snapshot())
    assert failed(found) == ["line:sync-item@train.py:20"]
    assert found.sentence.startswith("Fail: train.py:20: new: a tensor value is read on the host, 1 a step")


def test_a_line_that_moved_is_the_same_line() -> None:
    before = "a\n" * 19 + "loss_value = loss.item()\n"
    after = "a\n" * 24 + "loss_value = loss.item()\n"
    base = snapshot(analysis(syncs=(sync(20),)), manifest=manifest(before))
    head = snapshot(analysis(syncs=(sync(25),)), manifest=manifest(after))
    assert verdict(head, base).status == Status.PASS


def test_a_second_item_at_the_old_place_of_a_moved_one_is_found() -> None:
    before = "a\n" * 19 + "x = loss.item()\n"
    after = "a\n" * 19 + "y = norm.item()\nx = loss.item()\n"
    base = snapshot(analysis(syncs=(sync(20),)), manifest=manifest(before))
    head = snapshot(analysis(syncs=(sync(20), sync(21))), manifest=manifest(after))
    assert failed(verdict(head, base)) == ["line:sync-item@train.py:20"]


def test_lines_without_source_move_together() -> None:
    base = snapshot(analysis(syncs=(sync(20), sync(30))))
    assert verdict(snapshot(analysis(syncs=(sync(23), sync(33)))), base).status == Status.PASS
    extra = snapshot(analysis(syncs=(sync(23), sync(33), sync(40))))
    assert failed(verdict(extra, base)) == ["line:sync-item@train.py:40"]


def test_a_line_that_synchronises_rarely_warns_and_one_that_became_frequent_fails() -> None:
    rare = snapshot(analysis(syncs=(sync(20, per_step=0.1),)))
    assert verdict(rare, snapshot()).status == Status.WARN
    assert failed(verdict(snapshot(analysis(syncs=(sync(20, per_step=2.0),))), rare)) == ["line:sync-item@train.py:20"]


@pytest.mark.parametrize(("per_step", "statuses"), [(0.1, {Status.FAIL}), (1.0, {Status.WARN, Status.FAIL})])
def test_a_line_that_is_gone_stands_for_one_new_line_that_comes_as_often(per_step: float, statuses: set[Status]) -> None:
    other = manifest("\n" * 19 + "a.item()\nb.item()\n")
    base = snapshot(analysis(syncs=(sync(5, per_step),)), manifest=manifest("\n" * 4 + "c.item()\n"))
    found = verdict(snapshot(analysis(syncs=(sync(20), sync(21))), manifest=other), base)
    assert {check(found, f"line:sync-item@train.py:{line}").status for line in (20, 21)} == statuses


def test_a_removed_synchronisation_passes() -> None:
    found = verdict(snapshot(), snapshot(analysis(syncs=(sync(20),))))
    assert found.status == Status.PASS
    assert "is gone" in check(found, "line:sync-item@train.py:20").message


# --- regions ---------------------------------------------------------------------------------------------------------


def test_the_region_that_gained_launches_is_named_before_the_regions_around_it() -> None:
    base = snapshot(analysis(step_region(), module("outer"), module("inner", launch_count=10.0)))
    head = analysis(
        step_region(launch_count=130.0), module("outer", launch_count=80.0), module("inner", launch_count=40.0)
    )
    found = verdict(snapshot(head), base)
    assert failed(found) == ["launches_per_step@inner", "launches_per_step@outer", "launches_per_step"]


def test_a_region_that_lost_its_graph_is_named() -> None:
    base = snapshot(analysis(step_region(), statement(12, 17, graphed_item_ratio=1.0)))
    found = verdict(snapshot(analysis(step_region(), statement(12, 17))), base)
    assert failed(found) == ["graph_coverage@train.py:12-17"]
    assert found.sentence.startswith("Fail: train.py:12-17: ")


def repeated(first: int, *launches: float) -> Snapshot:
    """`x = layer(x)` on every second line from `first`, with these launches each."""
    lines = range(first, first + 2 * len(launches), 2)
    found = [
        statement(line, line, launch_count=count, kernel_count=count)
        for line, count in zip(lines, launches, strict=True)
    ]
    source = "\n" * (first - 1) + "x = layer(x)\n\n" * len(launches)
    return snapshot(analysis(step_region(), *found), manifest=manifest(source))


@pytest.mark.parametrize("first", [12, 13, 14])
def test_lines_of_one_text_are_told_apart_when_they_move(first: int) -> None:
    base = repeated(12, 4.0, 40.0)
    assert verdict(repeated(first, 4.0, 40.0), base).status == Status.PASS
    assert failed(verdict(repeated(first, 8.0, 40.0), base)) == [f"launches_per_step@train.py:{first}-{first}"]
    assert failed(verdict(repeated(first, 4.0, 80.0), base)) == [f"launches_per_step@train.py:{first + 2}-{first + 2}"]


def test_a_module_and_a_range_of_one_label_are_two_regions() -> None:
    both = module(), module(id="range:encoder", kind=RegionKind.RANGE, launch_count=90.0)
    base = snapshot(analysis(step_region(), *both))
    assert verdict(base, base).status == Status.PASS
    assert failed(verdict(snapshot(analysis(step_region(), both[1])), base)) == ["missing:region:encoder"]


def test_a_verified_region_that_is_blocked_now_fails_with_the_line_that_blocks() -> None:
    base = snapshot(verification=verification(attempt()))
    blocked = attempt(Outcome.BLOCKED, blocker=sync(14), message="operation not permitted")
    found = verdict(snapshot(verification=verification(blocked)), base)
    assert failed(found) == ["verified@train.py:12-17"]
    broken = check(found, "verified@train.py:12-17")
    assert broken.location == SourceSpan(file="train.py", first_line=14, last_line=14)
    assert "was verified (7.1×); it is blocked now: a tensor value is read on the host at train.py:14" in broken.message


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome.VERIFIED, Status.PASS),
        (Outcome.NOT_FASTER, Status.FAIL),
        (Outcome.DIFFERS, Status.FAIL),
        (Outcome.NO_REPLAY, Status.FAIL),
        (Outcome.CRASHED, Status.FAIL),
        (Outcome.TIMED_OUT, Status.INCONCLUSIVE),
    ],
)
def test_what_became_of_a_verified_region(outcome: Outcome, status: Status) -> None:
    found = verdict(
        snapshot(verification=verification(attempt(outcome))), snapshot(verification=verification(attempt()))
    )
    assert check(found, "verified@train.py:12-17").status == status


def test_results_that_differ_fail_even_when_the_region_still_captures() -> None:
    wrong = attempt(equality=Equality(outcome=EqualityOutcome.DIFFERS, first_name="weight"))
    found = verdict(snapshot(verification=verification(wrong)), snapshot(verification=verification(attempt())))
    assert failed(found) == ["equality@train.py:12-17"]


def test_a_region_one_of_two_strategies_verified_counts_as_verified() -> None:
    head = snapshot(verification=verification(attempt(Outcome.CRASHED), attempt()))
    assert verdict(head, snapshot(verification=verification(attempt()))).status == Status.PASS


# --- coverage --------------------------------------------------------------------------------------------------------


def test_what_the_run_lacks_fails_unless_allowed() -> None:
    base = snapshot(analysis(step_region(), module()), clock=clock(*noisy(1)), verification=verification(attempt()))
    found = verdict(snapshot(), base)
    assert set(failed(found)) == {"missing:times:step_ns", "missing:region:encoder", "missing:verification"}
    allowed = verdict(snapshot(), base, allow_missing=("times:*", "region:enc*", "verification"))
    assert allowed.status == Status.PASS and allowed.counts["skipped"] >= 3


def test_what_the_verdict_suggests_to_allow_is_allowed() -> None:
    base = snapshot(analysis(step_region(), module("layers[0]")))
    fix = check(verdict(snapshot(), base), "missing:region:layers[0]").fix
    assert fix.endswith('allow_missing = ["region:layers[0]"]')
    assert verdict(snapshot(), base, allow_missing=("region:layers[0]",)).status == Status.PASS


def test_a_region_that_was_not_tried_again_fails() -> None:
    other = attempt(region_label="train.py:30-31", location=None)
    found = verdict(snapshot(verification=verification(other)), snapshot(verification=verification(attempt())))
    assert "missing:verification:train.py:12-17" in failed(found)


def test_a_recorded_metric_that_is_gone_fails() -> None:
    base = snapshot(analysis(step_region(shape_signature_count=1)))
    assert failed(verdict(snapshot(), base)) == ["missing:metric:shape_signatures"]


def test_an_edited_statement_is_no_lost_coverage_unless_it_was_graphed() -> None:
    plain = snapshot(analysis(step_region(), statement(12, 17)))
    assert verdict(snapshot(), plain).status == Status.WARN
    graphed = snapshot(analysis(step_region(), statement(12, 17, graphed_item_ratio=1.0)))
    assert failed(verdict(snapshot(), graphed)) == ["missing:region:train.py:12-17"]


def test_a_recording_that_cannot_carry_counts_is_inconclusive() -> None:
    note = QualityNote(id="no-launches", severity=Severity.ERROR, count=1, message="no launches", forbids=("launches",))
    found = verdict(snapshot(analysis(quality=(note,))), snapshot())
    assert (found.status, found.exit_code) == (Status.INCONCLUSIVE, 5)


def test_a_baseline_without_counts_is_no_pass() -> None:
    found = verdict(snapshot(), Snapshot())
    assert found.status == Status.INCONCLUSIVE and "the baseline has no count" in found.sentence


def test_nothing_to_judge_by_is_an_error() -> None:
    with pytest.raises(UsageError, match="--baseline"):
        verdict(snapshot())


# --- environment -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("gpu_names", ("NVIDIA H100",), "GPU: NVIDIA H200 -> NVIDIA H100"),
        ("torch_version", "2.12.0", "torch: 2.11.0 -> 2.12.0"),
        ("cuda_version", "12.8", "CUDA: 13.0 -> 12.8"),
        ("command", ("train.py", "--lr", "1"), "script arguments: --lr 3e-4 -> --lr 1"),
    ],
)
def test_another_environment_rules_out_every_comparison(field: str, value: Any, words: str) -> None:
    worse = analysis(step_region(launch_count=500.0))
    found = verdict(snapshot(worse, manifest=manifest(**{field: value})), snapshot(manifest=manifest()))
    assert (found.status, found.exit_code) == (Status.NOT_COMPARABLE, 5)
    assert words in found.sentence and not failed(found)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [("driver_version", "590.1", "driver: 580.1 -> 590.1"), ("gpu_clock_mhz", 1500, "GPU clock: 1980 -> 1500"),
     ("cpu_count", 8, "CPU count: 16 -> 8"), ("python_version", "3.11.9", "Python: 3.12 -> 3.11")],
)  # fmt: skip
def test_another_driver_or_host_rules_out_times_only(field: str, value: Any, words: str) -> None:
    samples = clock(*noisy(1))
    base = snapshot(manifest=manifest(), clock=samples)
    head = snapshot(manifest=manifest(**{field: value}), clock=clock(*noisy(2, 2 * MS)))
    found = verdict(head, base)
    assert found.status == Status.NOT_COMPARABLE and words in found.sentence
    assert check(found, "time:step_ns").status == Status.NOT_COMPARABLE
    assert check(found, "launches_per_step").status == Status.PASS
    worse = snapshot(analysis(step_region(launch_count=500.0)), manifest=manifest(**{field: value}), clock=samples)
    assert verdict(worse, base).exit_code == 1  # counts still fail


def test_unknown_is_compared_with_nothing_and_a_difference_can_be_allowed() -> None:
    assert verdict(snapshot(), snapshot(manifest=manifest())).status == Status.PASS
    other = snapshot(manifest=manifest(driver_version="590"))
    assert verdict(other, snapshot(manifest=manifest()), allow_different=("driver_version",)).status == Status.PASS
    with pytest.raises(UsageError, match="did you mean driver_version"):
        verdict(other, snapshot(manifest=manifest()), allow_different=("driver",))


def test_a_checkout_elsewhere_is_the_same_script() -> None:
    base = snapshot(manifest=manifest(command=("base/train.py", "--lr", "3e-4"), script="base/train.py"))
    assert verdict(snapshot(manifest=manifest()), base).status == Status.PASS


# --- budgets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "status"),
    [
        (Budget(metric="launches_per_step", max=100), Status.PASS),
        (Budget(metric="launches_per_step", max=99), Status.FAIL),
        (Budget(metric="launches_per_step", max=120, warn=99), Status.WARN),
        (Budget(metric="graph_coverage", min=0.5), Status.FAIL),
        (Budget(metric="launches_per_step", region="train.py:12-17", max=40), Status.PASS),
        (Budget(metric="launches_per_step", region="train.py:12-17", max=39), Status.FAIL),
        (Budget(metric="verified_speedup", min=2), Status.FAIL),  # not measured: the limit cannot hold
    ],
)
def test_absolute_budgets_need_no_baseline(budget: Budget, status: Status) -> None:
    head = snapshot(analysis(step_region(), statement(12, 17)))
    assert verdict(head, budget=(budget,)).status == status


@pytest.mark.parametrize(
    ("increase", "warn", "launches", "status"),
    [("2%", None, 102.0, Status.PASS), ("2%", None, 103.0, Status.FAIL), (5, None, 105.0, Status.PASS),
     (5, None, 106.0, Status.FAIL), ("10%", "1%", 102.0, Status.WARN)],
)  # fmt: skip
def test_increase_budgets(increase: str | float, warn: str | None, launches: float, status: Status) -> None:
    budget = Budget(metric="launches_per_step", max_increase=increase, warn=warn)
    found = verdict(snapshot(analysis(step_region(launch_count=launches))), snapshot(), budget=(budget,))
    assert check(found, "budget:launches_per_step:baseline").status == status


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (Budget(metric="launch_per_step", max=1), "did you mean launches_per_step"),
        (Budget(metric="launches_per_step", region="train.py:12-18", max=1), "did you mean train.py:12-17"),
        (Budget(metric="step_ns", region="train.py:12-17", max=1), "of the whole run, not of a region"),
        (Budget(metric="graph_coverage", max_increase="2%"), "less of it is worse"),
        (Budget(metric="launches_per_step"), "needs max, min or max_increase"),
        (Budget(metric="launches_per_step", max_increase="2%"), "needs a baseline"),
        (Budget(metric="launches_per_step", max=10, warn=20), "could never warn"),
        (Budget(metric="launches_per_step", max=10, min=1, warn=5), "exactly one"),
    ],
)
def test_a_budget_that_names_nothing_is_an_error(budget: Budget, message: str) -> None:
    head = snapshot(analysis(step_region(), statement(12, 17)))
    with pytest.raises(UsageError, match=message):
        verdict(head, budget=(budget,))


@pytest.mark.parametrize("text", ["lots", "-2%", "nan", "inf%"])
def test_an_increase_that_is_no_number_is_an_error(text: str) -> None:
    with pytest.raises(UsageError):
        verdict(snapshot(), snapshot(), budget=(Budget(metric="launches_per_step", max_increase=text),))


def test_a_baseline_that_is_not_comparable_sets_no_limit() -> None:
    base = snapshot(manifest=manifest(gpu_names=("NVIDIA L4",)))
    head = snapshot(analysis(step_region(launch_count=150.0)), manifest=manifest())
    relative = Budget(metric="launches_per_step", max_increase="2%")
    found = verdict(head, base, budget=(relative,))
    assert (found.status, found.exit_code) == (Status.NOT_COMPARABLE, 5)
    absolute = Budget(metric="launches_per_step", max=120)
    assert failed(verdict(head, base, budget=(relative, absolute))) == ["budget:launches_per_step:max"]
    allowed = verdict(head, base, budget=(relative,), allow_different=("gpu_names",))
    assert "budget:launches_per_step:baseline" in failed(allowed)


def test_another_driver_bars_an_increase_of_time_and_not_of_counts() -> None:
    base = snapshot(manifest=manifest(driver_version="1"), clock=clock(*noisy(1)))
    head = snapshot(manifest=manifest(), clock=clock(*noisy(2, 2 * MS)))
    budget = (Budget(metric="step_ns", max_increase="2%"), Budget(metric="launches_per_step", max_increase=0))
    found = verdict(head, base, budget=budget)
    assert check(found, "budget:step_ns:baseline").status == Status.NOT_COMPARABLE
    assert check(found, "budget:launches_per_step:baseline").status == Status.PASS


def test_a_region_the_run_lost_breaks_its_budget() -> None:
    base = snapshot(analysis(step_region(), module()))
    budget = Budget(metric="launches_per_step", region="encoder", max=60)
    assert "budget:launches_per_step@encoder:missing" in failed(verdict(snapshot(), base, budget=(budget,)))


def test_a_time_budget_is_broken_only_beyond_its_noise() -> None:
    head = snapshot(clock=clock(*noisy(1)))
    middle = float(np.median(noisy(1)))
    assert verdict(head, budget=(Budget(metric="step_ns", max=0.9 * MS),)).status == Status.FAIL
    assert verdict(head, budget=(Budget(metric="step_ns", max=middle - 100),)).status == Status.WARN
    assert verdict(head, budget=(Budget(metric="step_ns", max=1.1 * MS),)).status == Status.PASS


# --- times -----------------------------------------------------------------------------------------------------------


def timed(*processes: tuple[int, ...]) -> Snapshot:
    return merge([snapshot(clock=clock(*samples)) for samples in processes], "2026-01-01T00:00:00Z")


def test_a_slow_down_fails_and_noise_does_not() -> None:
    assert verdict(timed(noisy(2)), timed(noisy(1))).status == Status.PASS
    found = verdict(timed(noisy(2, 1.1 * MS)), timed(noisy(1)))
    assert failed(found) == ["time:step_ns"]
    assert "slower" in found.sentence and "95 % interval" in found.sentence


def test_times_under_a_profiler_are_shown_and_judged_only_on_request() -> None:
    assert check(verdict(snapshot(), snapshot()), "time:traced_step_ns").status == Status.SKIPPED
    found = verdict(snapshot(), snapshot(), profiled_times=True)
    assert check(found, "time:traced_step_ns").status == Status.PASS


@pytest.mark.parametrize(("setting", "code"), [("report", 5), ("fail", 1), ("pass", 0)])
def test_what_inconclusive_does_to_the_exit_code_is_a_choice(setting: str, code: int) -> None:
    found = verdict(timed((2 * MS,) * 3), timed((MS,) * 3), inconclusive=setting)
    assert (found.status, found.exit_code) == (Status.INCONCLUSIVE, code)


def test_the_noise_of_a_verification_widens_the_band() -> None:
    noisy_attempt = attempt()
    timing = noisy_attempt.timing
    assert timing is not None
    import msgspec

    loud = msgspec.structs.replace(noisy_attempt, timing=msgspec.structs.replace(timing, noise_ratio=0.08))
    base = snapshot(clock=clock(*noisy(1, cv=0.01)), verification=verification(loud))
    head = snapshot(clock=clock(*noisy(2, 1.1 * MS, cv=0.01)), verification=verification(loud))
    found = check(verdict(head, base), "time:step_ns")
    assert found.status == Status.PASS and found.comparison.required_ratio == 0.16
