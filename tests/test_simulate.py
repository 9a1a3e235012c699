"""The simulated step against hand-worked answers, and the laws a what-if must keep."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import US, Loop, found

from advisor.estimate.costs import costs_of
from advisor.estimate.replace import FREE, GraphCosts, Spans, with_graphs
from advisor.estimate.simulate import Simulated, simulate
from advisor.estimate.stepmodel import NONE, STREAM_GAP_NS, StepModel, build_model

COSTS = GraphCosts(node_gap=400, replay_cpu=10 * US, replay_cpu_per_node=0, graph_start=2 * US)


def model_of(loop: Loop, index: int = 2) -> tuple[StepModel, Spans]:
    """The model of one step and the span of the whole of it."""
    made = loop.build()
    windows = loop.windows(made)
    model = build_model(made, windows, index, costs_of(None))
    assert model is not None
    return model, Spans(windows.cpu_start_ns[index : index + 1], windows.cpu_end_ns[index : index + 1])


def part_of(loop: Loop, index: int = 2) -> Spans:
    part = next(one for one in found(loop.build()).regions if one.region.id == "range:part")
    here = part.occurrences.step_index == index
    return Spans(part.occurrences.cpu_start_ns[here], part.occurrences.cpu_end_ns[here])


def run(loop: Loop, costs: GraphCosts | None = None, *, keep_syncs: bool = True) -> Simulated:
    model, whole = model_of(loop)
    return simulate(model if costs is None else with_graphs(model, whole, costs, keep_syncs=keep_syncs))


# --- the step as it is -------------------------------------------------------------------------------------------------


def test_a_cpu_bound_step_takes_the_cpus_time() -> None:
    loop = Loop()  # 10 launches, one every 10 µs, kernels of 3 µs
    assert run(loop).step_ns == 100 * US
    assert run(loop).binds == "cpu"
    assert run(loop).launch_idle_ns == 100 * US - 10 * 3 * US


def test_a_gpu_bound_step_takes_the_gpus_time() -> None:
    loop = Loop(issue=4 * US, length=20 * US)  # 10 kernels of 20 µs with 1 µs between them, launched every 4 µs
    assert run(loop).step_ns == 10 * 21 * US
    assert run(loop).binds == "gpu"


def test_a_synchronised_step_pays_for_both_sides() -> None:
    # 100 µs of launching, then the sync: the last kernel starts 3 µs after its call began (1 µs after it ended), runs 3 µs,
    # and the call returns 1 µs later: 5 µs in which nothing is launched.
    assert run(Loop(sync_at=9)).step_ns == 105 * US
    assert run(Loop(sync_at=9)).sync_wait_ns > 0


def test_the_windows_written_by_hand_are_those_found() -> None:
    loop = Loop(inner=(2, 8))
    made = loop.build()
    one, other = loop.windows(made), found(made).windows
    assert other is not None
    for name in ("start_ns", "end_ns", "cpu_start_ns", "cpu_end_ns", "tid"):
        assert (getattr(one, name) == getattr(other, name)).all(), name


@pytest.mark.parametrize("index", [1, 2, 3])
def test_every_step_of_a_steady_loop_gives_the_same(index: int) -> None:
    model, _ = model_of(Loop(sync_at=4), index)
    assert simulate(model).step_ns == 105 * US


def test_a_full_queue_holds_the_cpu_back() -> None:
    # 3000 launches every 4 µs against kernels of 20 µs: the CPU may be a thousand ahead, not more, and the step stays the GPU's.
    model, _ = model_of(Loop(steps=4, items=3000, issue=4 * US, length=20 * US), 1)
    simulated = simulate(model)
    assert simulated.step_ns == pytest.approx(3000 * 21 * US, rel=0.01)
    assert simulated.binds == "gpu"


# --- with a graph in it ------------------------------------------------------------------------------------------------


def test_the_whole_step_as_a_graph_takes_kernels_and_gaps() -> None:
    # 10 kernels of 3 µs, 9 gaps of 0.4 µs, and the stream's own 1 µs before the first.
    assert run(Loop(), COSTS).step_ns == 30 * US + 9 * 400 + US


def test_many_short_kernels_leave_the_replay_call_in_charge() -> None:
    costs = GraphCosts(node_gap=0, replay_cpu=10 * US, replay_cpu_per_node=100, graph_start=0)
    loop = Loop(length=US // 2, gap=0)
    assert run(loop, costs).step_ns == 10 * US + 10 * 100  # the CPU's 11 µs a replay against 6 µs of kernels


def test_part_of_a_step_as_a_graph() -> None:
    loop = Loop(inner=(2, 8))
    model, _ = model_of(loop)
    after = simulate(with_graphs(model, part_of(loop), COSTS))
    assert after.step_ns == 4 * 10 * US + 10 * US  # four launches stay, one replay comes
    assert after.binds == "cpu"


def test_a_synchronisation_inside_moves_to_the_end_and_still_waits() -> None:
    loop = Loop(sync_at=4)
    kept, gone = run(loop, COSTS), run(loop, COSTS, keep_syncs=False)
    graph = 30 * US + 9 * 400
    # replay 10 µs, start 2 µs, the graph, and the call's return 1 µs after it
    assert kept.step_ns == 10 * US + 2 * US + graph + US
    assert gone.step_ns == graph + US


def test_a_synchronisation_outside_is_not_removed() -> None:
    # Sync-bound: one long kernel, waited for; the graph takes the launches before it and nothing of the wait.
    loop = Loop(items=3, issue=5 * US, length=200 * US, sync_at=2, inner=(0, 2))
    model, _ = model_of(loop)
    before = simulate(model)
    after = simulate(with_graphs(model, part_of(loop), FREE))
    assert after.step_ns >= 3 * 200 * US
    assert before.step_ns - after.step_ns <= 2 * 5 * US + 3 * US


def test_a_region_without_items_changes_nothing() -> None:
    model, whole = model_of(Loop())
    nothing = Spans(whole.end_ns + 10, whole.end_ns + 20)
    assert with_graphs(model, nothing, COSTS) is model


def test_spans_inside_another_are_left_out() -> None:
    outer, inner = Spans(np.array([0]), np.array([100])), Spans(np.array([10, 200]), np.array([20, 300]))
    joined = Spans.joined([inner, outer])
    assert joined.start_ns.tolist() == [0, 200]
    assert joined.end_ns.tolist() == [100, 300]


def test_two_regions_together_gain_no_less_than_either() -> None:
    loop = Loop(inner=(2, 5))
    model, _ = model_of(loop)
    first = part_of(loop)
    second = part_of(Loop(inner=(6, 9)))
    alone = [simulate(with_graphs(model, one, COSTS)).step_ns for one in (first, second)]
    assert simulate(with_graphs(model, Spans.joined([first, second]), COSTS)).step_ns == 4 * 10 * US + 2 * 10 * US
    assert alone == [80 * US, 80 * US]


# --- the profiler's cost -----------------------------------------------------------------------------------------------


def test_deflation_takes_the_cost_of_each_event_off_the_cpu_and_leaves_the_gpu() -> None:
    model, _ = model_of(Loop())
    lighter = model.deflated(1_000.0)
    assert lighter.cpu_ns == pytest.approx(model.cpu_ns - 1_000.0 * (model.events.sum() + 0), rel=0.02)
    assert (lighter.length == model.length).all()


def test_deflation_never_takes_all() -> None:
    model, _ = model_of(Loop())
    assert model.deflated(1e9).cpu_ns == pytest.approx(0.2 * model.cpu_ns, rel=0.01)


# --- laws --------------------------------------------------------------------------------------------------------------

loops = st.builds(
    Loop,
    steps=st.just(4),
    items=st.integers(1, 12),
    issue=st.integers(3, 40).map(lambda us: us * US),
    api=st.just(2 * US),
    lead=st.integers(2, 9).map(lambda us: us * US),
    length=st.integers(1, 60).map(lambda us: us * US),
    gap=st.integers(0, 2).map(lambda us: us * US),
    sync_at=st.one_of(st.none(), st.integers(0, 11)),
)
gap_pairs = st.tuples(st.integers(0, 3_000), st.integers(0, 3_000)).map(sorted)


@settings(deadline=None, max_examples=25)
@given(loops)
def test_a_gain_never_exceeds_the_launch_bound_idle_time_and_the_streams_own_gaps(loop: Loop) -> None:
    # A graph also closes the gaps between queued items, so these may be gained on top.
    before, after = run(loop), run(loop, FREE)
    assert before.step_ns - after.step_ns <= before.launch_idle_ns + loop.items * max(loop.gap, STREAM_GAP_NS) + 1


@settings(deadline=None, max_examples=25)
@given(loops, gap_pairs)
def test_wider_gaps_in_the_graph_never_make_a_step_shorter(loop: Loop, gaps: list[int]) -> None:
    narrow, wide = (run(loop, GraphCosts(gap, 5 * US, 0, US)).step_ns for gap in gaps)
    assert narrow <= wide


@settings(deadline=None, max_examples=25)
@given(loops)
def test_without_a_change_there_is_no_gain(loop: Loop) -> None:
    model, whole = model_of(loop)
    empty = Spans(whole.start_ns[:0], whole.end_ns[:0])
    assert simulate(with_graphs(model, empty, COSTS)).step_ns == simulate(model).step_ns


@settings(deadline=None, max_examples=20)
@given(st.integers(2, 12), st.integers(30, 90))
def test_a_gpu_bound_step_gains_almost_nothing(items: int, length_us: int) -> None:
    loop = Loop(items=items, issue=4 * US, length=length_us * US)
    before, after = run(loop), run(loop, FREE)
    assert 0 <= before.step_ns - after.step_ns <= 0.01 * before.step_ns


@settings(deadline=None, max_examples=25)
@given(loops)
def test_the_simulation_reproduces_the_recorded_loop(loop: Loop) -> None:
    windows = loop.windows(loop.build())
    recorded = int(windows.start_ns[2] - windows.start_ns[1])
    if not 0.98 < recorded / (windows.start_ns[3] - windows.start_ns[2]) < 1.02:
        return  # the loop had not found its rhythm yet when the recording ended
    assert run(loop, None).step_ns == pytest.approx(recorded, rel=0.05, abs=3 * US)


@settings(deadline=None, max_examples=25)
@given(loops)
def test_every_item_survives_the_replacement(loop: Loop) -> None:
    model, whole = model_of(loop)
    graphed = with_graphs(model, whole, COSTS)
    assert sorted(graphed.item_ids.tolist()) == sorted(model.item_ids.tolist())
    assert int(graphed.count.sum()) == model.item_count
    assert ((graphed.needs == NONE) | (graphed.needs < model.item_count)).all()
