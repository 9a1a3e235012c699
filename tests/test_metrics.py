"""Gaps, causes, layers and launch statistics with answers worked out by hand, and the conservation laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timelines import BACKWARD, call, copy, kernel, rng, timeline

from advisor import metrics
from advisor.advise import with_gaps
from advisor.model import Cause


def gaps_of(*rows):
    made = with_gaps(timeline(*rows))
    return made, made.gaps


def causes(found):
    return found["cause"].astype(str).tolist()


def test_launch_bound_gap_and_its_four_layers():
    # Idle 100..200 before item 2. Its launch call is 160-180, inside op 130-190: language 100-130, framework 130-160,
    # driver 160-180, submission 180-200.
    _, found = gaps_of(
        [kernel(50, 100, 1), kernel(200, 250, 2)],
        [call(10, 20, 1), call(160, 180, 2)],
        [rng(5, 25, "aten::add"), rng(130, 190, "aten::mul")],
    )
    assert causes(found) == ["launch"]
    row = found.iloc[0]
    assert (row.start_ns, row.end_ns) == (100, 200)
    assert (row.language_ns, row.framework_ns, row.driver_ns, row.submission_ns) == (30, 30, 20, 20)


def test_queued_in_time_is_the_devices_own_gap():
    _, found = gaps_of([kernel(50, 100, 1), kernel(103, 150, 2)], [call(10, 20, 1), call(30, 40, 2)])
    assert causes(found) == ["device"]
    assert found[["language_ns", "framework_ns", "driver_ns", "submission_ns"]].to_numpy().sum() == 0


def test_no_launch_is_unknown():
    _, found = gaps_of([kernel(50, 100, 1), kernel(200, 250, 9)], [call(10, 20, 1)])
    assert causes(found) == ["unknown"]


def test_a_drained_queue_is_sync_even_though_the_next_launch_is_late():
    # The CPU waits 30-105 for item 1 (ends at 100) and only then launches item 2.
    _, found = gaps_of(
        [kernel(50, 100, 1), kernel(200, 250, 2)],
        [call(10, 20, 1), call(30, 105, None, "cudaStreamSynchronize"), call(160, 180, 2)],
    )
    assert causes(found) == ["sync"]


def test_a_sync_on_an_already_idle_device_explains_nothing():
    # The device ran dry at 100; the synchronise at 120-122 found nothing to wait for. The CPU was late all along.
    _, found = gaps_of(
        [kernel(50, 100, 1), kernel(200, 250, 2)],
        [call(10, 20, 1), call(120, 122, None, "cudaStreamSynchronize"), call(160, 180, 2)],
    )
    assert causes(found) == ["launch"]


def test_waiting_in_a_data_loader_is_input():
    _, found = gaps_of(
        [kernel(50, 100, 1), kernel(200, 250, 2)],
        [call(10, 20, 1), call(170, 180, 2)],
        [rng(100, 165, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user")],
    )
    assert causes(found) == ["input"]


def test_staging_a_pageable_copy_is_input():
    _, found = gaps_of(
        [kernel(50, 100, 1), copy(200, 210, 2, "h2d")], [call(10, 20, 1), call(110, 205, 2, "cudaMemcpyAsync")]
    )
    assert causes(found) == ["input"]


def test_profiler_overhead_owns_the_gap_it_fills():
    _, found = gaps_of(
        [kernel(50, 100, 1), kernel(200, 250, 2)],
        [call(10, 20, 1), call(160, 180, 2)],
        [rng(120, 150, "Buffer Flush", "overhead", tid=0)],
    )
    assert causes(found) == ["profiler"]


def test_backward_launches_from_another_thread_and_ops_there_count():
    _, found = gaps_of(
        [kernel(50, 100, 1), kernel(200, 250, 2)],
        [call(10, 20, 1), call(160, 180, 2, tid=BACKWARD)],
        [rng(140, 190, "autograd::engine::evaluate_function: MulBackward0", tid=BACKWARD)],
    )
    assert found.iloc[0][["language_ns", "framework_ns", "driver_ns", "submission_ns"]].tolist() == [40, 20, 20, 20]


def test_allocation_inside_a_launch_bound_gap_is_measured():
    made, _ = gaps_of(
        [kernel(50, 100, 1), kernel(200, 250, 2)],
        [call(10, 20, 1), call(90, 150, None, "cudaFree"), call(160, 180, 2)],
    )
    summary = metrics.device_summary(made, metrics.launch_table(made), metrics.device_idle(made, 0, 0))
    assert summary.idle.launch_ns == 100
    assert summary.alloc_ns == 50


def test_overlapping_streams_make_one_busy_union():
    # 0-100 on one stream, 50-150 on another, 160-170: busy 160, one gap 150-160.
    made, found = gaps_of(
        [kernel(0, 100, 1), kernel(50, 150, 2, stream=9), kernel(160, 170, 3)],
        [call(-30, -20, 1), call(-20, -10, 2), call(151, 155, 3)],
    )
    assert found[["start_ns", "end_ns"]].to_numpy().tolist() == [[150, 160]]
    idle = metrics.device_idle(made, 0, 0)
    assert idle.busy.total_ns == 160
    assert idle.idle(0, 170).launch_ns == 10


def test_devices_are_apart():
    made, found = gaps_of([kernel(0, 10, 1), kernel(20, 30, 2), kernel(5, 25, 3, device=1)], [call(-9, -5, 1)])
    assert found["device"].tolist() == [0]
    assert metrics.device_idle(made, 0, 1).busy.total_ns == 20


def test_launch_table_by_hand():
    # Call 2 follows call 1 (ends 20) and ends at 180; of the 160 ns between, 75 were blocked in a synchronise.
    made, _ = gaps_of(
        [kernel(50, 100, 1), kernel(200, 250, 2)],
        [call(10, 20, 1), call(30, 105, None, "cudaStreamSynchronize"), call(160, 180, 2)],
    )
    row = metrics.launch_table(made).iloc[1]
    assert (row.api_ns, row.latency_ns, row.queue_ns, row.issue_ns, row.item_ns) == (20, 40, 20, 85, 50)
    assert row.ratio == pytest.approx(85 / 50)


def test_a_graph_launch_shares_its_issue_time_and_counts_as_coverage():
    made, _ = gaps_of(
        [kernel(0, 10, 1), *(kernel(100 + 20 * i, 110 + 20 * i, 2) for i in range(4))],
        [call(-20, -10, 1), call(50, 90, 2, "cudaGraphLaunch")],
    )
    table = metrics.launch_table(made)
    assert table["issue_ns"].tolist() == [0, 25, 25, 25, 25]
    summary = metrics.device_summary(made, table, metrics.device_idle(made, 0, 0))
    assert (summary.graphs.launch_count, summary.graphs.item_count) == (1, 4)
    assert summary.graphs.item_ratio == pytest.approx(0.8)
    assert summary.launches.launch_count == 2
    # Gaps inside the replay were queued in time: the device's own, not the CPU's.
    assert causes(made.gaps) == ["launch", "device", "device", "device"]


def test_negative_latency_is_kept_and_depth_never_negative():
    made, _ = gaps_of([kernel(0, 10, 1), kernel(15, 20, 2)], [call(5, 8, 1), call(10, 12, 2)])
    assert metrics.launch_table(made)["latency_ns"].tolist() == [-5, 5]
    _, depth = metrics.queue_depth(made, 0, 0, (-100, 100))
    assert depth.min() >= 0
    assert depth[-1] == 0


@st.composite
def random_timelines(draw):
    """Kernels on two streams, each with a launch at any time, syncs, ops and overhead anywhere."""
    items, calls = [], []
    for number in range(draw(st.integers(1, 12))):
        start = draw(st.integers(0, 300))
        items.append(kernel(start, start + draw(st.integers(0, 30)), number + 1, stream=draw(st.sampled_from([7, 8]))))
        if draw(st.booleans()):
            at = draw(st.integers(-50, 300))
            calls.append(call(at, at + draw(st.integers(1, 20)), number + 1))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(-50, 300))
        calls.append(call(at, at + draw(st.integers(1, 80)), None, "cudaDeviceSynchronize"))
    ranges = []
    for kind in draw(st.lists(st.sampled_from(["op", "overhead"]), max_size=4)):
        at = draw(st.integers(-50, 300))
        ranges.append(rng(at, at + draw(st.integers(1, 60)), "aten::add", kind, tid=MAIN_OR_NONE[kind]))
    return timeline(items, calls, ranges)


MAIN_OR_NONE = {"op": 100, "overhead": 0}


@settings(max_examples=60, deadline=None)
@given(random_timelines(), st.integers(-10, 340), st.integers(-10, 340))
def test_conservation(made, one, other):
    made = with_gaps(made)
    if not (made.items["end_ns"] > made.items["start_ns"]).any():
        return
    idle = metrics.device_idle(made, 0, 0)
    summary = metrics.device_summary(made, metrics.launch_table(made), idle)
    assert summary.busy_ns + summary.idle.total_ns == summary.end_ns - summary.start_ns
    assert summary.layers.total_ns == summary.idle.launch_ns
    gaps = made.gaps
    late = gaps["cause"] == Cause.LAUNCH.value
    layers = gaps[["language_ns", "framework_ns", "driver_ns", "submission_ns"]]
    assert (layers.to_numpy() >= 0).all()
    assert (layers.sum(axis=1) == np.where(late, gaps["end_ns"] - gaps["start_ns"], 0)).all()
    low, high = sorted((one, other))
    middle = (low + high) // 2
    whole, left, right = idle.idle(low, high), idle.idle(low, middle), idle.idle(middle, high)
    assert whole.by_cause() == {cause: left.by_cause()[cause] + right.by_cause()[cause] for cause in Cause}
    first, second, both = idle.layer_times(low, middle), idle.layer_times(middle, high), idle.layer_times(low, high)
    assert both.total_ns == first.total_ns + second.total_ns
    assert both.total_ns == whole.launch_ns
