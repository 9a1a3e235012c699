"""Steps, regions and blockers found in inline timelines; figures worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from timelines import BACKWARD, MAIN, call, copy, kernel, rng, timeline

from advisor.advise import with_gaps
from advisor.model import RegionKind
from advisor.regions import find
from advisor.regions.blockers import find_blockers
from advisor.regions.sequence import find_period


def training(steps: int = 5, *, name: str = "step{}", kind: str = "user", backward_tid: int = BACKWARD):
    """`steps` steps of 1000 ns: forward launches at +100, backward at +400 (other thread), Adam at +700.

    Each kernel runs 50 ns and starts 40 ns after its call begins (call 20 ns): per step busy 150.
    """
    items, calls, ranges = [], [], []
    for step in range(steps):
        base = 1000 * step
        ranges.append(rng(base, base + 990, name.format(step), kind))
        ranges.append(rng(base + 90, base + 200, "forward", "user"))
        ranges.append(rng(base + 380, base + 500, "autograd::engine::evaluate_function: Mul", "op", backward_tid))
        ranges.append(rng(base + 690, base + 800, "Optimizer.step#Adam.step", "user"))
        for part, (offset, tid) in enumerate(((100, MAIN), (400, backward_tid), (700, MAIN))):
            correlation = 10 * step + part + 1
            calls.append(call(base + offset, base + offset + 20, correlation, tid=tid))
            items.append(kernel(base + offset + 40, base + offset + 90, correlation, name=f"k{part}"))
    return items, calls, ranges


def found_in(*rows, **options):
    made = with_gaps(timeline(*rows))
    return made, find(made, 0, 0, **options)


def test_numbered_user_ranges_are_the_step_and_backward_belongs_to_it():
    _, found = found_in(*training())
    assert found.step is not None
    assert found.step.label == "step"
    assert found.step.count == 5
    # First items start at +140 of each step; the last window has no successor and is left out of the samples.
    assert found.step.traced.samples_ns == (1000, 1000, 1000, 1000)
    region = found.regions[0].region
    assert (region.id, region.item_count, region.launch_count) == ("step", 3.0, 3.0)
    assert region.busy_ns == 150
    # Gaps ended by the step's items: +190 of the step before -> +140 (950 - 600...): 140-(-210)=350, then 250, then 250.
    assert region.idle.launch_ns == 850
    assert region.extent_ns == 1000
    assert region.signature_match_ratio == 1.0


def test_inner_regions_take_their_own_items_and_share():
    _, found = found_in(*training())
    regions = {one.region.label: one.region for one in found.regions}
    assert regions["forward"].item_count == 1.0
    assert regions["forward"].occurrences_per_step == 1.0
    assert regions["Adam.step"].kind == RegionKind.OPTIMIZER
    # Adam's kernel ends a gap of 250 (from +490 to +740) and runs 50: 300 of 1000.
    assert regions["Adam.step"].extent_ns == 300
    assert regions["Adam.step"].step_share_ratio == pytest.approx(0.3, abs=0.02)
    assert regions["Adam.step"].parent_id == "step"


def test_profiler_steps_win_over_inner_ranges():
    _, found = found_in(*training(name="ProfilerStep#{}", kind="step"))
    assert found.step.how == "ProfilerStep ranges"
    assert found.regions[0].region.item_count == 3.0


def test_optimizer_spans_are_the_step_when_nothing_else_repeats():
    items, calls, ranges = training(steps=6)
    kept = [row for row in ranges if row["name"].startswith(("Optimizer", "autograd"))]
    _, found = found_in(items, calls, kept)
    assert found.step.label == "between Adam.step calls"
    assert found.step.count == 5
    assert found.regions[0].region.item_count == 3.0


def test_marks_choose_the_outermost_hot_loop():
    items, calls, ranges = training(name="train.py:12-17 [cga:iter:3]", kind="mark")
    _, found = found_in(items, calls, ranges)
    assert found.step.label == "train.py:12-17"
    assert found.step.location.first_line == 12
    assert "hot loop" in found.step.how


def test_a_loop_and_its_iterations_share_a_label_and_the_iterations_are_the_step():
    items, calls, ranges = training(name="train.py:12-17 [cga:iter:3]", kind="mark")
    ranges.append(rng(-5, 5500, "train.py:12-17 [cga:loop:3]", "mark"))
    _, found = found_in(items, calls, ranges, step_label="train.py:12-17")
    assert found.step.count == 5
    assert found.regions[0].region.item_count == 3.0


def test_a_wanted_label_overrides():
    _, found = found_in(*training(), step_label="forward")
    assert found.step.label == "forward"
    assert found.regions[0].region.item_count == 1.0


def test_unannotated_kernels_show_their_period():
    items, calls, _ = training(steps=8)
    _, found = found_in(items * 1, calls, [])
    # Three names recur every three items, below the shortest period looked for; twice that is found.
    assert found.step is None or "repeated kernel sequence" in found.step.how


def test_layers_inside_one_graph_replay_are_not_the_step():
    names = ["a", "b", "c", "d", "e"] * 10

    def made(api):
        items = [kernel(100 * n, 100 * n + 90, 1, name=name) for n, name in enumerate(names)]
        return found_in(items, [call(-50, -10, 1, api=api)], [])[1]

    assert made("cudaGraphLaunch").step is None
    assert made("cudaLaunchKernel").step.label == "sequence of 5 items"


def test_period_of_a_sequence_with_an_irregular_repetition():
    once = [0, 1, 2, 3, 4, 5, 6]
    names = np.array(once * 6 + [9] + once * 6, dtype=np.int64)
    gap = np.where(names == 0, 500, 1).astype(np.int64)
    period = find_period(names, gap)
    assert period is not None
    assert period.length == 7
    # Cuts fall on the item after the long gap, also after the odd item in the middle shifted everything by one.
    assert (names[period.bounds[:-1]] == 0).all()


@pytest.mark.parametrize("names", [[3] * 60, list(range(60))])
def test_no_period_where_nothing_or_everything_repeats(names):
    assert find_period(np.array(names, dtype=np.int64), np.ones(len(names), np.int64)) is None


def test_idle_time_between_steps_that_lie_apart_is_in_no_step():
    """Steps of 990 ns that begin every 5000 ns: 650 ns from first to last item, 150 of them busy, and 4350 to the next step."""
    items, calls, ranges = training(steps=5)
    for rows in (items, calls, ranges):
        for row in rows:
            shift = 4000 * (row["start_ns"] // 1000)
            row["start_ns"], row["end_ns"] = row["start_ns"] + shift, row["end_ns"] + shift
    _, found = found_in(items, calls, ranges)
    region = found.regions[0].region
    assert (region.extent_ns, region.busy_ns, region.idle.total_ns) == (650, 150, 500)
    assert set(found.step.traced.samples_ns) == {650}


def test_signature_counts_differing_steps():
    items, calls, ranges = training(steps=6)
    items[3]["name"] = "other"
    _, found = found_in(items, calls, ranges)
    region = found.regions[0].region
    assert region.signature_count == 2
    assert region.signature_match_ratio == pytest.approx(5 / 6)


def test_what_a_data_loader_does_to_each_image_is_no_shape_of_the_step():
    items, calls, ranges = training(steps=6)
    ranges += [rng(1000 * n + 210, 1000 * n + 300, "enumerate(DataLoader)#x.__next__", "user") for n in range(6)]
    ranges += [rng(1000 * n + 220, 1000 * n + 230, "aten::resize") | {"shapes": f"[[{n}]]"} for n in range(6)]
    ranges += [rng(1000 * n + 110, 1000 * n + 140, "aten::add") | {"shapes": "[[8]]"} for n in range(6)]
    ranges += [rng(1000 * n + 10, 1000 * n + 980, f"ProfilerStep#{n}") | {"shapes": "[]"} for n in range(6)]
    assert found_in(items, calls, ranges)[1].regions[0].region.shape_signature_count == 1
    ranges += [rng(1000 * n + 150, 1000 * n + 160, "aten::add") | {"shapes": f"[[{n}]]"} for n in range(6)]
    assert found_in(items, calls, ranges)[1].regions[0].region.shape_signature_count == 6


def test_item_read_is_a_blocker_with_its_line_once():
    items, calls, ranges = training()
    for step in range(5):
        base = 1000 * step
        ranges.append(rng(base + 805, base + 905, "train.py:47 [cga:stmt:9]", "mark"))
        ranges.append(rng(base + 810, base + 900, "aten::item"))
        ranges.append(rng(base + 811, base + 899, "aten::_local_scalar_dense"))
        calls.append(call(base + 812, base + 820, 500 + step, "cudaMemcpyAsync"))
        calls.append(call(base + 821, base + 890, None, "cudaStreamSynchronize"))
        items.append(copy(base + 830, base + 840, 500 + step, "d2h"))
    made, found = found_in(items, calls, ranges)
    blockers = find_blockers(made, found.windows)
    assert [(one.id, one.location.label, one.count_per_step) for one in blockers] == [("sync-item", "train.py:47", 1.0)]
    assert found.regions[0].region.sync_count == 1.0
    assert found.regions[0].region.d2h_count == 1.0


def test_an_explicit_synchronise_and_a_pageable_copy():
    items, calls, ranges = training()
    for step in range(5):
        base = 1000 * step
        calls.append(call(base + 820, base + 890, None, "cudaDeviceSynchronize"))
        calls.append(call(base + 10, base + 40, 700 + step, "cudaMemcpyAsync"))
        items.append(copy(base + 30, base + 50, 700 + step, "h2d"))
    made, found = found_in(items, calls, ranges)
    assert {one.id for one in find_blockers(made, found.windows)} == {"sync-explicit", "sync-h2d-pageable"}


def test_pinned_copies_do_not_block():
    items, calls, ranges = training()
    for step in range(5):
        base = 1000 * step
        calls.append(call(base + 10, base + 20, 700 + step, "cudaMemcpyAsync"))
        items.append(copy(base + 30, base + 50, 700 + step, "h2d", "pinned"))
    made, found = found_in(items, calls, ranges)
    assert find_blockers(made, found.windows) == ()
