"""The join: hand-worked links, threads, subsets, and laws that hold for any trace."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timelines import BACKWARD, MAIN, call, copy, kernel, rng, timeline

from advisor.errors import UsageError
from advisor.marks import encode
from advisor.model import TraceInfo
from advisor.nesting import innermost_at, nest
from advisor.tables import CALLS, ITEMS, RANGES
from advisor.timeline import RawTrace, build, concat


def links(column: pd.Series) -> list[int | None]:
    return [None if pd.isna(value) else int(value) for value in column]


def test_items_find_their_launch_whatever_the_order_of_rows():
    made = timeline(
        [kernel(50, 60, 2), kernel(10, 20, 1), kernel(70, 80, None), kernel(90, 95, 9)],
        [call(30, 35, 2), call(1, 5, 1), call(36, 37, 3, api="cudaStreamSynchronize")],
    )
    assert list(made.items["start_ns"]) == [10, 50, 70, 90]
    assert links(made.items["launch_id"]) == [0, 1, None, None]
    assert list(made.calls["item_count"]) == [1, 1, 0]
    assert list(made.launches.index) == [0, 1]


def test_one_graph_launch_has_many_items():
    made = timeline(
        [kernel(at, at + 5, 7) for at in (100, 110, 120)] + [kernel(10, 20, 1)],
        [call(1, 5, 1), call(60, 65, 7, api="cudaGraphLaunch")],
    )
    assert links(made.items["launch_id"]) == [0, 1, 1, 1]
    assert list(made.calls["item_count"]) == [1, 3]


def test_of_calls_that_share_a_correlation_the_outermost_submitting_one_wins():
    nested = timeline([kernel(50, 60, 1)], [call(12, 18, 1, api="cuLaunchKernel"), call(10, 20, 1)])
    assert made_by(nested) == "cudaLaunchKernel"
    wrapped = timeline([kernel(50, 60, 1)], [call(5, 25, 1, api="cudaStreamIsCapturing"), call(10, 20, 1)])
    assert made_by(wrapped) == "cudaLaunchKernel"
    only = timeline([kernel(50, 60, 1)], [call(5, 25, 1, api="cuSomethingNew")])
    assert made_by(only) == "cuSomethingNew"


def made_by(made) -> str:
    return made.calls["api"][int(made.items["launch_id"][0])]


def test_a_known_process_keeps_equal_correlations_apart():
    calls = [{**call(1, 5, 1), "pid": 11}, {**call(2, 6, 1), "pid": 22}]
    made = timeline([kernel(10, 20, 1, pid=22), kernel(30, 40, 1, pid=11), kernel(50, 60, 1, pid=33)], calls)
    assert [None if row is None else int(made.calls["pid"][row]) for row in links(made.items["launch_id"])] == [
        22,
        11,
        None,
    ]


def test_ranks_with_equal_ids_stay_apart():
    def rank(number: int) -> RawTrace:
        one = timeline([kernel(10 + number, 20, 1)], [call(1, 5, 1)], [rng(0, 9, "step", "user")])
        frames = (frame.assign(rank=number) for frame in (one.items, one.calls, one.ranges))
        return RawTrace(*frames, info=TraceInfo(source="inline", files=()), device_names={(number, 0): f"gpu{number}"})

    both = build(concat([rank(0), rank(1)], TraceInfo(source="inline", files=())))
    assert links(both.items["launch_id"]) == [0, 1]
    assert list(both.calls["rank"]) == [0, 1] == list(both.items["rank"])
    assert links(both.calls["range_id"]) == [0, 1]
    assert both.device_names == {(0, 0): "gpu0", (1, 0): "gpu1"}
    items, owner = both.items_of_ranges(np.array([1, 0]))
    assert (items.tolist(), owner.tolist()) == ([0, 1], [1, 0])


def test_ranges_nest_and_calls_find_the_innermost():
    made = timeline(
        [],
        [call(12, 13), call(31, 32), call(25, 26), call(40, 41), call(100, 101)],
        [rng(20, 30, "b"), rng(0, 40, "a"), rng(10, 20, "c"), rng(12, 15, "d"), rng(0, 99, "e", "overhead")],
    )
    named = dict(zip(made.ranges["name"], made.ranges.index, strict=True))
    parents = {name: made.ranges["parent_id"][row] for name, row in named.items()}
    assert pd.isna(parents["a"]) and parents["b"] == named["a"] and parents["c"] == named["a"]
    assert parents["d"] == named["c"]
    assert pd.isna(parents["e"]) and made.ranges["depth"][named["d"]] == 2
    inside = {int(s): r for s, r in zip(made.calls["start_ns"], links(made.calls["range_id"]), strict=True)}
    # 40 is the end of `a`, so no longer inside it; overhead is no program structure.
    assert inside == {12: named["d"], 25: named["b"], 31: named["a"], 40: None, 100: None}


def test_partly_overlapping_ranges_are_no_parents_of_each_other():
    made = timeline([], [call(8, 9), call(12, 13)], [rng(0, 10, "x"), rng(5, 15, "y"), rng(6, 7, "z")])
    assert links(made.ranges["parent_id"]) == [None, None, 1]
    assert links(made.calls["range_id"]) == [1, 1]


def test_a_coarse_clock_lets_a_child_end_one_tick_late():
    raw = timeline([], [], [rng(0, 10_000, "op"), rng(4_000, 11_000, "child")])
    fine = RawTrace(raw.items, raw.calls, raw.ranges, raw.info)
    coarse = RawTrace(raw.items, raw.calls, raw.ranges, raw.info, coarse_ns=1_001)
    assert links(build(fine).ranges["parent_id"]) == [None, None]
    assert links(build(coarse).ranges["parent_id"]) == [None, 0]


def training_step(backward_ranges=()):
    """A step whose backward kernel is launched by another thread while the main thread waits in `backward`."""
    return timeline(
        [kernel(100, 110, 1), kernel(120, 130, 2), kernel(140, 150, 3), kernel(500, 510, 4)],
        [call(10, 12, 1), call(25, 28, 2, tid=BACKWARD), call(50, 52, 3), call(90, 95, 4, tid=BACKWARD)],
        [rng(0, 80, "step", "user"), rng(20, 40, "backward", "user"), rng(45, 60, "optim", "user"), *backward_ranges],
    )


def test_autograd_launches_belong_to_the_range_the_main_thread_waits_in():
    made = training_step()
    step, backward, optim = 0, 1, 2
    items, owner = made.items_of_ranges(np.array([optim, backward, step]))
    found = {number: sorted(items[owner == number].tolist()) for number in range(3)}
    assert found == {0: [2], 1: [1], 2: [0, 1, 2]}
    assert links(made.launch_ranges(["user"])) == [step, backward, optim, None]
    assert made.launch_ranges(["user"]).index.tolist() == made.launches.index.tolist()


def test_a_range_inside_backward_keeps_its_own_launches_and_its_parents_too():
    made = training_step([rng(24, 30, "post_backward", "user", tid=BACKWARD)])
    rows = {name: row for row, name in enumerate(made.ranges["name"])}
    items, owner = made.items_of_ranges(np.array([rows["post_backward"], rows["step"]]))
    assert items[owner == 0].tolist() == [1] and sorted(items[owner == 1].tolist()) == [0, 1, 2]
    assert links(made.launch_ranges(["user"]))[1] == rows["post_backward"]
    assert links(made.launch_ranges(["step"])) == [None] * 4


@pytest.mark.parametrize(
    "own",
    [
        rng(85, 100, "serve", "user", tid=BACKWARD),  # opens ranges while the main thread is in none
        rng(24, 30, "ProfilerStep#3", "step", tid=BACKWARD),
        rng(24, 30, encode("serve.py:3", "iter", 1), "mark", tid=BACKWARD),
    ],
)
def test_a_thread_with_steps_or_ranges_of_its_own_is_no_helper(own):
    made = training_step([own])
    row = list(made.ranges["name"]).index("step")
    if own["kind"] in ("step", "mark"):  # that thread is now the main one of the process
        assert links(made.launch_ranges([own["kind"]]))[1] is not None
    items, _ = made.items_of_ranges(np.array([row]))
    assert sorted(items.tolist()) == [0, 2]


def test_autograd_nodes_make_a_helper_even_with_ranges_that_stick_out():
    made = training_step(
        [
            rng(24, 300, "hook", "user", tid=BACKWARD),
            rng(25, 26, "autograd::engine::evaluate_function: MulBackward0", "op", tid=BACKWARD),
        ]
    )
    items, _ = made.items_of_ranges(np.array([list(made.ranges["name"]).index("step")]))
    assert sorted(items.tolist()) == [0, 1, 2]


def test_no_range_asked_for_gives_no_items():
    items, owner = training_step().items_of_ranges(np.zeros(0, dtype=np.int64))
    assert items.dtype == owner.dtype == np.int64 and len(items) == len(owner) == 0


def two_devices():
    return timeline(
        [kernel(10, 20, 1), kernel(12, 22, 2, device=1), kernel(30, 40, 3, device=1)],
        [call(1, 2, 1), call(3, 4, 2), call(5, 6, 3)],
        [rng(0, 9, "step", "user")],
    )


def test_only_device_keeps_what_explains_it():
    one = two_devices().only_device(1)
    assert links(one.items["launch_id"]) == [1, 2] and len(one.calls) == 3
    # The launch for the other device is not a launch without items.
    assert list(one.calls["item_count"]) == [1, 1, 1]
    items, _ = one.items_of_ranges(np.array([0]))
    assert items.tolist() == [0, 1]


def test_a_device_without_items_is_refused_by_name():
    with pytest.raises(UsageError, match=r"device 5: no GPU items .* devices with items: 0, 1"):
        two_devices().only_device(5)


def test_between_keeps_launches_and_their_ranges_from_before_the_window():
    made = timeline(
        [kernel(100, 110, 1), kernel(200, 210, 2), kernel(300, 310, 3)],
        [call(10, 12, 1), call(20, 22, 2), call(205, 207, 3)],
        [rng(0, 60, "step", "user"), rng(15, 30, "line", "user"), rng(1, 9, "gone", "user")],
    )
    cut = made.between(150, 250)
    assert list(cut.items["start_ns"]) == [200]
    assert list(cut.calls["start_ns"]) == [20, 205]
    assert list(cut.ranges["name"]) == ["step", "line"]
    assert links(cut.items["launch_id"]) == [0]
    assert links(cut.calls["range_id"]) == [1, None] and links(cut.ranges["parent_id"]) == [None, 0]
    assert list(cut.calls["item_count"]) == [1, 1]  # its item ran after the window; it was not lost


def test_gaps_are_attached_and_dropped_with_the_rows_they_name():
    made = two_devices()
    gaps = pd.DataFrame({"rank": [0]})
    assert made.with_gaps(gaps).gaps is gaps and len(made.gaps) == 0
    assert len(made.with_gaps(gaps).only_device(0).gaps) == 0


def test_empty_tables_join():
    made = build(RawTrace(ITEMS.empty(), CALLS.empty(), RANGES.empty(), TraceInfo(source="inline", files=())))
    assert len(made.items) == len(made.launches) == len(made.launch_ranges(["user"])) == 0
    assert len(made.between(0, 10).items) == 0


def test_copies_join_like_kernels():
    made = timeline([copy(10, 20, 4, "h2d")], [call(1, 9, 4, api="cudaMemcpyAsync")])
    assert links(made.items["launch_id"]) == [0] and made.launches["kind"].tolist() == ["memcpy"]


spans = st.tuples(st.integers(0, 60), st.integers(1, 30), st.sampled_from([MAIN, BACKWARD]))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 99), st.one_of(st.none(), st.integers(1, 6))), max_size=12),
    st.lists(st.tuples(st.integers(0, 99), st.integers(1, 6), st.sampled_from([MAIN, BACKWARD])), max_size=8),
    st.lists(spans, max_size=8),
)
def test_every_item_is_linked_at_most_once_and_counts_add_up(items, calls, ranges):
    made = timeline(
        [kernel(start, start + 3, correlation) for start, correlation in items],
        [call(start, start + 2, correlation, tid=tid) for start, correlation, tid in calls],
        [rng(start, start + length, "r", "user", tid=tid) for start, length, tid in ranges],
    )
    linked = made.items["launch_id"].dropna()
    assert made.calls["item_count"].sum() == len(linked)
    known = {correlation for _, correlation, _ in calls}
    assert len(linked) == sum(correlation in known for _, correlation in items)
    found, owner = made.items_of_ranges(np.arange(len(made.ranges)))
    assert len({*zip(found.tolist(), owner.tolist(), strict=True)}) == len(found)
    whole = made.between(-10, 10**6)
    pd.testing.assert_frame_equal(whole.items, made.items)
    pd.testing.assert_frame_equal(whole.calls, made.calls)


@settings(max_examples=150, deadline=None)
@given(st.lists(spans, max_size=14), st.lists(st.integers(0, 95), max_size=10))
def test_nesting_equals_the_plain_definition(rows, times):
    """Against quadratic code written from the words: the latest started range that holds the other whole, or the time."""
    rows = sorted(rows, key=lambda row: (row[0], -row[1]))
    frame = RANGES.build(
        {
            "rank": [0] * len(rows),
            "pid": [1] * len(rows),
            "tid": [tid for _, _, tid in rows],
            "kind": ["op"] * len(rows),
            "name": ["r"] * len(rows),
            "start_ns": [start for start, _, _ in rows],
            "end_ns": [start + length for start, length, _ in rows],
        }
    )
    parent, depth = nest(frame)
    for row, (start, length, tid) in enumerate(rows):
        holders = [
            other for other in range(row) if rows[other][2] == tid and rows[other][0] + rows[other][1] >= start + length
        ]
        assert parent[row] == (holders[-1] if holders else -1)
        assert depth[row] == (depth[parent[row]] + 1 if parent[row] >= 0 else 0)
    calls = pd.DataFrame({"rank": 0, "pid": 1, "tid": MAIN, "start_ns": np.array(times, dtype=np.int64)})
    for time, found in zip(times, innermost_at(frame, parent, calls), strict=True):
        open_ = [row for row, (start, length, tid) in enumerate(rows) if tid == MAIN and start <= time < start + length]
        assert found == (open_[-1] if open_ else -1)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 25)), min_size=1, max_size=14))
def test_the_quick_nesting_agrees_with_the_loop_wherever_it_answers(rows):
    from advisor.nesting import _nest_thread, _nest_well_formed

    order = sorted((start, start + length) for start, length in rows)
    order.sort(key=lambda pair: (pair[0], -pair[1]))
    starts, ends = (np.array(column, dtype=np.int64) for column in zip(*order, strict=True))
    quick = _nest_well_formed(starts, ends)
    partly = any(a < c < b < d for a, b in order for c, d in order)
    assert (quick is None) == partly
    if quick is not None:
        slow = _nest_thread(starts, ends, 0)
        assert quick[0].tolist() == slow[0].tolist()
        assert quick[1].tolist() == slow[1].tolist()
