"""The six answers, each from the facts that call for it."""

from __future__ import annotations

import msgspec
import pytest
from facts import US, estimate, facts, region

from advisor.model import (
    Answer,
    Attempt,
    Blocker,
    Equality,
    EqualityOutcome,
    Fix,
    GraphCoverage,
    IdleByCause,
    Measurement,
    NumberKind,
    Outcome,
    QualityNote,
    Severity,
    SourceSpan,
    Step,
    Timing,
    Verification,
)
from advisor.verdict import decide, with_verification

ITEM = Blocker(
    id="sync-item", title="a tensor value read on the host", evidence="cudaStreamSynchronize in aten::item",
    fix="read it after the replay", location=SourceSpan(file="train.py", first_line=47, last_line=47), count_per_step=1.0,
)  # fmt: skip


def test_probably_names_region_gain_and_interval():
    verdict = decide(facts())
    assert verdict.answer == Answer.PROBABLY
    # 1000 µs before; saved 800 (400 to 810): after 200 µs, between 190 and 600.
    assert "5.0× faster: 1.00 ms → 200 µs (190 µs to 600 µs), estimated, not verified" in verdict.sentence
    assert verdict.region_id == "step"


def test_from_a_profiled_trace_alone_the_factor_is_a_range():
    # 1000 µs as traced; inflated 2.1 times at worst, so the step really takes 476 µs or more, against 200 to 210 after.
    sharp = msgspec.structs.replace(estimate(), kind=NumberKind.PROFILED, saved_low_ns=790 * US)
    assert "would probably make a step 2.3 to 5.0× faster" in decide(facts(estimates={"step": sharp})).sentence


def test_of_the_smallest_factor_long_gaps_may_stay_in_the_step():
    # 10 ms as traced, 4 of them in long gaps; 1.5 ms expected and 1.8 at worst after. At 2.1 times inflation a step takes 4.76 ms
    # and the gaps 1.90: 4.762 / (1.8 + 1.905) = 1.29, where 4.76 / 1.8 = 2.6 took every gap for a launch gap.
    long = msgspec.structs.replace(
        estimate(saved_us=8500, before_us=10_000), kind=NumberKind.PROFILED, saved_low_ns=8200 * US
    )
    step = region(busy_ns=1500 * US, idle=IdleByCause(launch_ns=8500 * US), long_gap_ns=4000 * US)
    verdict = decide(facts(step, estimates={"step": long}))
    assert "make a step 1.29 to 6.7× faster" in verdict.sentence
    assert any(reason.startswith("4.00 ms of a step pass in gaps over 1 ms") for reason in verdict.reasons)


def test_idle_time_the_profiler_may_have_made_is_cannot_tell():
    # 1000 µs as traced, 600 µs of GPU work: at 2.1 times inflation the CPU needs 476 µs, and the GPU never waits.
    region_ = region(busy_ns=590 * US, idle=IdleByCause(launch_ns=410 * US))
    vague = msgspec.structs.replace(estimate(saved_us=400), kind=NumberKind.PROFILED, saved_low_ns=390 * US)
    verdict = decide(facts(region_, estimates={"step": vague}))
    assert verdict.answer == Answer.CANNOT_TELL
    assert "would save 40.0 % of a step, but a profiler can slow the CPU side 2.1×" in verdict.sentence
    clocked = msgspec.structs.replace(vague, kind=NumberKind.CALIBRATED)
    assert decide(facts(region_, estimates={"step": clocked})).answer == Answer.PROBABLY


def test_a_bare_trace_of_a_few_long_gaps_is_not_worth_it_yet():
    verdict = decide(facts(region(long_gap_ns=800 * US)))
    assert verdict.answer == Answer.NOT_WORTH_IT
    assert "88.9 % of the idle time is gaps over 1 ms" in verdict.sentence


def test_long_gaps_of_queued_work_are_not_blamed_on_the_cpu():
    verdict = decide(facts(region(idle=IdleByCause(device_ns=900 * US), long_gap_ns=800 * US)))
    assert "gaps over 1 ms, work that was queued in time and waited on the device" in verdict.sentence
    assert "on the CPU" not in verdict.sentence


def test_an_estimate_from_one_step_says_so():
    one = Step(id="step", label="step", how="test", count=1, traced=Measurement(samples_ns=(1000 * US,)))
    verdict = decide(facts(step=one))
    assert "estimated from a single step, not verified." in verdict.sentence
    assert any("warm-up" in reason for reason in verdict.reasons)


def test_one_kernel_alone_does_not_show_a_busy_gpu():
    busy = region(busy_ns=1000 * US, idle=IdleByCause())
    many = decide(facts(busy, step=None, estimates={}))
    assert many.answer == Answer.NOT_WORTH_IT
    few = decide(facts(busy, step=None, estimates={}, device={"item_count": 1}))
    assert few.answer == Answer.CANNOT_TELL
    assert "(1 GPU item, busy 100 %)" in few.sentence


def test_one_kernel_inside_a_named_step_does_not_show_a_busy_gpu_either():
    made = facts(
        region(busy_ns=1000 * US, idle=IdleByCause()),
        estimates={"step": estimate(saved_us=0)},
        device={"item_count": 1},
    )
    verdict = decide(made)
    assert verdict.answer == Answer.CANNOT_TELL
    assert "too short to judge by (1 GPU item" in verdict.sentence


def test_one_replay_is_singular_and_without_a_step_the_share_is_the_recordings():
    graphs = GraphCoverage(launch_count=1, item_count=1000, item_ratio=1.0)
    verdict = decide(facts(step=None, estimates={}, device={"graphs": graphs}))
    assert "inside 1 graph replay; the GPU is busy 10.0 % of the recording." in verdict.sentence


def test_not_worth_it_says_what_fills_the_time():
    made = facts(
        region(busy_ns=980 * US, idle=IdleByCause(device_ns=20 * US)), estimates={"step": estimate(saved_us=4)}
    )
    verdict = decide(made)
    assert verdict.answer == Answer.NOT_WORTH_IT
    assert "busy 98.0 %" in verdict.sentence
    assert "0.4 % of a step" in verdict.sentence


def test_a_gpu_that_idles_between_its_busy_steps_is_not_sent_to_its_kernels():
    busy = region(busy_ns=980 * US, idle=IdleByCause(device_ns=20 * US))
    made = facts(busy, estimates={"step": estimate(saved_us=4)}, device={"end_ns": 30_000 * US})
    verdict = decide(made)  # ten steps of 0.98 ms busy in 30 ms
    assert "with what lies between the steps the GPU is busy only 32.7 % of the recording." in verdict.sentence
    assert "between the steps" in verdict.next_step


def test_blocked_names_the_line_and_what_it_would_gain():
    verdict = decide(facts(region(sync_count=1.0, d2h_count=1.0), blockers=(ITEM,)))
    assert verdict.answer == Answer.BLOCKED
    assert "train.py:47" in verdict.sentence
    assert "5.0× faster" in verdict.sentence
    assert verdict.next_step == ITEM.fix


def test_a_free_part_that_pays_beats_a_blocked_whole():
    forward = region(id="range:forward", label="forward", item_count=80.0)
    made = facts(
        region(sync_count=1.0), forward,
        estimates={"step": estimate(), "range:forward": estimate("range:forward", 600)}, blockers=(ITEM,),
    )  # fmt: skip
    verdict = decide(made)
    assert (verdict.answer, verdict.region_id) == (Answer.PROBABLY, "range:forward")
    assert any("train.py:47" in reason for reason in verdict.reasons)


@pytest.mark.parametrize(
    ("shapes", "answer"), [(None, "probably"), (2, "probably"), (5, "probably"), (6, "blocked"), (10, "blocked")]
)
def test_shapes_that_keep_changing_block_one_graph_over_the_step(shapes, answer):
    # Ten steps: one odd set of shapes is a last batch; from five odd ones on, half of the steps need another graph.
    verdict = decide(facts(region(shape_signature_count=shapes)))
    assert verdict.answer.value == answer
    if answer == "blocked":
        assert f"Blocked by input shapes that keep changing ({shapes} sets in 10 steps); without it" in verdict.sentence
        assert "bucket" in verdict.next_step


def test_already_graphed():
    made = facts(
        device={"graphs": GraphCoverage(launch_count=10, item_count=1000, item_ratio=1.0)},
        estimates={"step": estimate(saved_us=1)},
    )
    assert decide(made).answer == Answer.ALREADY_GRAPHED


@pytest.mark.parametrize("claim", ["busy", "idle", "causes", "launches"])
def test_cannot_tell_when_the_trace_forbids_the_claim(claim):
    note = QualityNote(
        id="x", severity=Severity.ERROR, count=1, message="246 launches but not one GPU item", forbids=(claim,)
    )
    verdict = decide(facts(quality=(note,), forbidden=frozenset({claim})))
    assert verdict.answer == Answer.CANNOT_TELL
    assert "246 launches" in verdict.sentence


def test_without_an_estimate_an_idle_gpu_is_cannot_tell_and_a_busy_one_still_not_worth_it():
    note = QualityNote(
        id="x", severity=Severity.WARNING, count=5, message="5 of 100 launches have no GPU item", forbids=("estimate",)
    )
    barred = {"estimates": {}, "quality": (note,), "forbidden": frozenset({"estimate"})}
    idle = decide(facts(**barred))
    assert idle.answer == Answer.CANNOT_TELL
    assert "5 of 100 launches" in idle.sentence
    busy = region(busy_ns=980 * US, idle=IdleByCause(device_ns=20 * US))
    assert decide(facts(busy, **barred)).answer == Answer.NOT_WORTH_IT


def test_nothing_repeats_is_cannot_tell_unless_the_gpu_is_busy():
    assert decide(facts(step=None, estimates={}, device={"graphs": GraphCoverage()})).answer == Answer.CANNOT_TELL
    busy = facts(region(busy_ns=990 * US, idle=IdleByCause(device_ns=10 * US)), step=None, estimates={})
    assert decide(busy).answer == Answer.NOT_WORTH_IT


def attempt(outcome: Outcome, speedup: float = 7.1, **other) -> Attempt:
    timing = Timing(
        eager=Measurement(samples_ns=(8_760_000,) * 3),
        graph=Measurement(samples_ns=(1_240_000,) * 3),
        speedup_ratio=speedup,
    )
    equality = Equality(outcome=EqualityOutcome.BITWISE, step_count=105)
    return Attempt(
        id=other.pop("id", "a"), region_label="train.py:12-17", outcome=outcome, message="m", timing=timing,
        equality=equality, **other,
    )  # fmt: skip


def after(*attempts: Attempt):
    return with_verification(decide(facts()), Verification(attempts=attempts))


def test_verified_as_written():
    verdict = after(attempt(Outcome.VERIFIED))
    assert verdict.answer == Answer.GRAPH_IT
    assert verdict.sentence == (
        "One graph over train.py:12-17 makes a step 7.1× faster, 8.76 ms → 1.24 ms, results bit-identical over 105 steps."
    )


def test_verified_only_with_a_fix_stays_blocked_as_written():
    fixed = attempt(Outcome.VERIFIED, fixes=(Fix(id="capturable", title="capturable=True"),), id="b")
    verdict = after(attempt(Outcome.BLOCKED, blocker=ITEM), fixed)
    assert verdict.answer == Answer.BLOCKED
    assert verdict.sentence.startswith(
        "Blocked as written at train.py:47; with one change (capturable=True) one graph over"
    )
    assert verdict.attempt_id == "b"


@pytest.mark.parametrize(
    ("outcome", "answer"),
    [
        (Outcome.DIFFERS, Answer.BLOCKED),
        (Outcome.NOT_FASTER, Answer.NOT_WORTH_IT),
        (Outcome.BLOCKED, Answer.BLOCKED),
        (Outcome.NO_REPLAY, Answer.BLOCKED),
        (Outcome.CRASHED, Answer.CANNOT_TELL),
        (Outcome.TIMED_OUT, Answer.CANNOT_TELL),
    ],
)
def test_failed_attempts_overrule_the_estimate(outcome, answer):
    assert after(attempt(outcome)).answer == answer


def test_an_attempt_that_was_not_made_changes_nothing():
    assert after(attempt(Outcome.NOT_ATTEMPTED)) == decide(facts())


def test_the_same_fix_at_several_places_is_said_once():
    defer = Fix(id="defer", title="defer the read")
    verdict = after(attempt(Outcome.VERIFIED, fixes=(defer, defer, defer)))
    assert "with 3 changes (defer the read (3 places)) one graph" in verdict.sentence
