"""The estimate on real recordings whose answer was measured, and the rules it must keep on small timelines."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
import report_builder
from test_regions import training
from timelines import MAIN, rng, timeline

import advisor
from advisor.advise import Evidence, analyze, with_gaps
from advisor.estimate.costs import costs_of
from advisor.model import Clock, Estimate, Measurement, NumberKind

TRACES = Path(__file__).parents[1].parent / "shared" / "traces"
DATA = Path(__file__).parents[1] / "advisor" / "data"
US = 1_000


def step_estimate(found) -> Estimate:
    return next(one for one in found.estimates if one.region_id == "step")


def small(clocked_ns: int | None = None):
    """Steps of 100 µs: three kernels of 5 µs each, launched one by one."""
    items, calls, ranges = training(steps=8)
    for rows in (items, calls, ranges):
        for row in rows:
            row["start_ns"], row["end_ns"] = 100 * row["start_ns"], 100 * row["end_ns"]
    clock = None
    if clocked_ns is not None:
        clock = Clock(step_label="step", step_how="test", host_step=Measurement(samples_ns=(clocked_ns,) * 8))
    return analyze(with_gaps(timeline(items, calls, ranges)), evidence=Evidence(clock=clock))


@pytest.mark.parametrize("clocked_ns", [None, 60 * US])
def test_terms_add_up_and_a_graph_never_beats_the_gpus_own_work(clocked_ns):
    found = small(clocked_ns)
    busy = found.region("step").busy_ns
    for estimate in found.estimates:
        assert sum(term.ns for term in estimate.terms) == estimate.saved_ns
        assert estimate.saved_low_ns <= estimate.saved_ns <= estimate.saved_high_ns
        assert estimate.after_ns >= busy


def test_the_kind_says_which_clock_the_step_is_on():
    profiled, clocked = step_estimate(small()), step_estimate(small(60 * US))
    assert profiled.kind == NumberKind.PROFILED
    assert any("profiler may have inflated" in text for text in profiled.assumptions)
    assert profiled.before_ns == 100 * US
    assert clocked.kind == NumberKind.CALIBRATED
    assert clocked.before_ns == 60 * US
    assert clocked.saved_ns < profiled.saved_ns


def test_a_graph_over_the_whole_step_still_waits_for_its_data():
    """Steps of 100 µs with 15 µs of kernels. 9 + 25 + 25 µs of a step pass in the DataLoader, which no graph holds."""

    def saved_ns(*waits):
        items, calls, ranges = training(steps=8, backward_tid=MAIN)
        name = "enumerate(DataLoader)#Iter.__next__"
        ranges += [rng(1000 * step + low, 1000 * step + high, name) for step in range(8) for low, high in waits]
        for rows in (items, calls, ranges):
            for row in rows:
                row["start_ns"], row["end_ns"] = 100 * row["start_ns"], 100 * row["end_ns"]
        return step_estimate(analyze(with_gaps(timeline(items, calls, ranges)))).saved_ns

    assert saved_ns() > 60 * US
    assert saved_ns((5, 95), (125, 375), (430, 680)) <= (100 - 59) * US


@pytest.mark.parametrize(
    ("name", "graph_us", "within"),
    # Measured on an H200 as one graph: 355 µs, and 814 µs with 293 nodes where 245 kernels were traced.
    [("h200_mlp_adam_train", 355, 0.10), ("h200_gpt2_fwd", 814, 0.15)],
)
def test_the_graphed_step_comes_out_as_measured(name, graph_us, within):
    estimate = step_estimate(advisor.analyze(advisor.load(DATA / f"{name}.json.gz")))
    assert estimate.after_ns == pytest.approx(graph_us * US, rel=within)


def test_a_replayed_step_has_nothing_left_to_save():
    found = advisor.analyze(advisor.load(DATA / "h200_mlp_graph_replay.json.gz"))
    estimate = step_estimate(found)
    assert estimate.saved_ns < 0.05 * estimate.before_ns


@pytest.mark.skipif(not TRACES.is_dir(), reason=f"the real traces are not at {TRACES}")
def test_the_eager_recording_predicts_the_manual_graph():
    folder = TRACES / "leimao-cudagraph"
    eager = advisor.analyze(advisor.load(folder / "rtx5080_train_eager_a.json.gz"))
    graphed = advisor.analyze(advisor.load(folder / "rtx5080_train_manual_graph_a.json.gz"))
    measured = float(np.median(graphed.step.traced.samples_ns))
    assert step_estimate(eager).after_ns == pytest.approx(measured, rel=0.05)


@pytest.mark.skipif(not TRACES.is_dir(), reason=f"the real traces are not at {TRACES}")
@pytest.mark.parametrize(
    "name", ["deepview/rtx3060ti_train_run1.json.gz", "nsys/a100_gpt27b_eager_cudaprofilerapi.sqlite"]
)
def test_a_busy_gpu_gains_nothing(name):
    found = advisor.analyze(advisor.load(TRACES / name))
    for estimate in found.estimates:
        assert estimate.saved_ns <= 0.02 * estimate.before_ns


def test_a_replay_costs_what_the_verifier_pays_where_that_was_measured():
    recorded = report_builder.calibration()
    assert costs_of(recorded).replay_cpu.expected == 31_000.0  # the launch alone: 7.9 µs
    older = msgspec.structs.replace(recorded, replay_span_ns=0.0)
    assert costs_of(older).replay_cpu.expected == 7_900.0
