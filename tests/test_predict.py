"""Predictions of spans: statements in a row as one region, what a fix adds, written down before the attempt."""

from __future__ import annotations

import pytest
from timelines import BACKWARD, MAIN, call, kernel, rng, timeline

from advisor.advise import Evidence, study
from advisor.bundle import Bundle
from advisor.commands.predict import Predictor
from advisor.estimate import extra_kernels
from advisor.marks import encode
from advisor.model import (
    Attempt,
    Clock,
    Measurement,
    OptimizerFacts,
    Outcome,
    Predictions,
    SourceSpan,
    Verification,
)
from advisor.regions import span_region
from advisor.verify.candidate import Candidate
from advisor.workload.verify_job import FixSpec

US = 1_000
ADAM = OptimizerFacts(kind="Adam", implementation="foreach", capturable=False, parameter_count=16)
STATEMENTS = ((2, 10, MAIN), (3, 40, BACKWARD), (4, 70, MAIN))  # line, offset in µs, thread that launches


def recording(steps=6):
    """Steps of 100 µs in a loop over lines 1-4: each statement has a range of 20 µs and launches one kernel of 5 µs."""
    items, calls, ranges = [], [], []
    for step in range(steps):
        base = 100 * US * step
        ranges.append(rng(base, base + 99 * US, encode("t.py:1-4", "iter", 9), "mark"))
        for line, offset, tid in STATEMENTS:
            at, correlation = base + offset * US, 10 * step + line
            ranges.append(rng(at - 2 * US, at + 18 * US, encode(f"t.py:{line}", "stmt", line), "mark"))
            if tid == BACKWARD:
                ranges.append(rng(at, at + 9 * US, "autograd::engine::evaluate_function: Mul", "op", tid))
            calls.append(call(at, at + 2 * US, correlation, tid=tid))
            items.append(kernel(at + 4 * US, at + 9 * US, correlation))
    return timeline(items, calls, ranges)


@pytest.fixture(scope="module")
def made():
    clock = Clock(
        step_label="t.py:1-4", step_how="test", host_step=Measurement(samples_ns=(100 * US,) * 6), optimizers=(ADAM,)
    )
    return study(recording(), Evidence(clock=clock, step_label="t.py:1-4"))


def span(first, last, file="t.py"):
    return SourceSpan(file=file, first_line=first, last_line=last)


@pytest.mark.parametrize(
    ("first", "last", "items", "cpu_us"), [(2, 4, 3, 80), (2, 3, 2, 50), (3, 4, 2, 50), (4, 4, 1, 20)]
)
def test_statements_in_a_row_are_one_region_once_a_step(made, first, last, items, cpu_us):
    found = span_region(made.timeline, made.found, span(first, last))
    assert found.region.item_count == items
    assert found.region.busy_ns == 5 * US * items
    assert found.region.occurrences_per_step == 1
    assert found.region.cpu_ns == cpu_us * US  # from 2 µs before the first launch to 18 µs after the last
    assert found.occurrences.count == 6


@pytest.mark.parametrize("other", [span(5, 9), span(2, 4, "other.py")])
def test_a_span_that_launched_nothing_is_no_region(made, other):
    assert span_region(made.timeline, made.found, other) is None
    assert made.predict(other) is None


def test_more_statements_save_more_and_never_the_gpus_own_work(made):
    whole, part = made.predict(span(2, 4)), made.predict(span(2, 3))
    assert 15 * US <= whole.after_ns < part.after_ns < 100 * US
    assert sum(term.ns for term in whole.terms) == whole.saved_ns


def test_capturable_adds_its_kernels_to_the_graph(made):
    plain, fixed = made.predict(span(2, 4)), made.predict(span(2, 4), ["capturable"])
    assert "fix_kernels" not in {term.id for term in plain.terms}
    assert {term.id: term.ns for term in fixed.terms}["fix_kernels"] < 0
    # The GPU decides: 3 kernels of 5 µs, 2 x 16 + 8 more of 5 µs (the shortest here) with a gap of 0.4 µs each, two gaps of
    # 0.4 µs between the first three, an input copy of 3 µs.
    assert fixed.binds_next == "gpu"
    assert fixed.after_ns == pytest.approx((15 + 40 * 5.4 + 0.8 + 3) * US, rel=0.01)
    assert sum(term.ns for term in fixed.terms) == fixed.saved_ns


@pytest.mark.parametrize(
    ("kind", "implementation", "capturable", "count"),
    [
        ("AdamW", "foreach", False, 2 * 16 + 8),
        ("Adam", "single", False, 12 * 16),
        ("Adam", "fused", False, 0),
        ("Adam", "foreach", True, 0),
        ("RMSprop", "foreach", False, 1),
        ("RMSprop", "single", False, 16),
    ],
)
def test_kernels_that_capturable_adds(kind, implementation, capturable, count):
    one = OptimizerFacts(kind=kind, implementation=implementation, capturable=capturable, parameter_count=16)
    assert (
        extra_kernels(Clock(step_label="", step_how="", host_step=Measurement(samples_ns=()), optimizers=(one,)))
        == count
    )
    assert extra_kernels(None) == 0


def test_each_candidate_is_written_down_when_it_is_named(made, tmp_path):
    bundle = Bundle.create(tmp_path / "run")
    predictor = Predictor(bundle, made)
    for number, fixes in enumerate([(), (FixSpec(id="capturable"),)], start=1):
        predictor(Candidate("t.py", 2, 4, fixes))
        kept = bundle.load(Predictions).predictions
        assert len(kept) == number
        assert kept[-1].region_label == "t.py:2-4" and kept[-1].fixes == tuple(fix.id for fix in fixes)
    assert kept[0].estimate.after_ns < kept[1].estimate.after_ns


def test_without_the_recording_there_is_no_estimate(tmp_path):
    bundle = Bundle.create(tmp_path / "run")
    Predictor(bundle)(Candidate("t.py", 2, 4))
    assert bundle.load(Predictions).predictions[0].estimate is None


def test_attempts_get_the_items_that_were_traced_of_their_span(made, tmp_path):
    bundle = Bundle.create(tmp_path / "run")

    def attempt(first, last, file="t.py"):
        place = span(first, last, file)
        return Attempt(id="a", region_label=place.label, outcome=Outcome.VERIFIED, message="", location=place)

    module = Attempt(id="m", region_label="module net", outcome=Outcome.VERIFIED, message="")
    found = Verification(attempts=(attempt(2, 4), attempt(4, 4), attempt(2, 4, "other.py"), module))
    counted = Predictor(bundle, made).with_traced_items(found)
    assert [one.traced_item_count for one in counted.attempts] == [3, 1, None, None]
    assert bundle.load(Verification) == counted
    assert Predictor(bundle).with_traced_items(found) == found  # without the recording
