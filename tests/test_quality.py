"""What a trace cannot support: each fault planted in a small timeline, and what it forbids."""

from __future__ import annotations

import dataclasses

from timelines import call, kernel, rng, timeline

from advisor.quality import assess, forbidden


def notes(*rows, **changes):
    made = timeline(*rows)
    return {note.id: note for note in assess(dataclasses.replace(made, **changes))}


def healthy(count=30):
    items = [kernel(100 * i + 40, 100 * i + 90, i + 1) for i in range(count)]
    calls = [call(100 * i, 100 * i + 20, i + 1) for i in range(count)]
    return items, calls, [rng(0, 100 * count, "aten::add")]


def test_a_healthy_trace_has_no_notes():
    assert notes(*healthy()) == {}


def test_launches_but_no_items_is_not_an_idle_gpu():
    _, calls, ranges = healthy()
    note = notes([], calls, ranges)["no-gpu-items"]
    assert note.count == 30
    assert "not an idle GPU" in note.message
    assert {"busy", "idle", "estimate"} <= set(note.forbids)


def test_items_without_any_call_forbid_causes_not_busy():
    items, _, _ = healthy()
    note = notes(items, [], [])["no-launches"]
    assert "causes" in note.forbids
    assert "busy" not in note.forbids


def test_items_without_launch_are_counted():
    items, calls, ranges = healthy()
    note = notes(items, calls[3:], ranges)["items-without-launch"]
    assert (note.count, note.ratio) == (3, 0.1)
    assert note.forbids == ()
    assert "causes" in notes(items, calls[20:], ranges)["items-without-launch"].forbids


def test_orphan_launches_forbid_by_share():
    items, calls, ranges = healthy(200)
    assert notes(items[1:], calls, ranges)["launches-without-items"].forbids == ()
    assert notes(items[5:], calls, ranges)["launches-without-items"].forbids == ("estimate",)
    assert "busy" in notes(items[60:], calls, ranges)["launches-without-items"].forbids


def test_graph_launches_without_kernels_forbid_busy():
    items, calls, ranges = healthy(200)
    calls.append(call(50, 60, 999, "cudaGraphLaunch"))
    note = notes(items, calls, ranges)["launches-without-items"]
    assert "busy" in note.forbids
    assert "graph launches whose kernels were not recorded" in note.message


def test_launches_inside_a_stream_capture_run_nothing_and_are_no_fault():
    items, calls, ranges = healthy()
    calls += [call(3100 + 10 * i, 3105 + 10 * i, 800 + i) for i in range(5)]
    calls += [call(3090, 3095, None, "cudaStreamBeginCapture"), call(3200, 3205, None, "cudaStreamEndCapture")]
    assert "launches-without-items" not in notes(items, calls, ranges)


def test_a_gpu_side_that_stops_early_is_truncated():
    items, calls, ranges = healthy(100)
    assert "estimate" in notes(items[:90], calls, ranges)["truncated-gpu"].forbids


def test_clock_skew_is_reported_with_its_size():
    items, calls, ranges = healthy()
    for item in items:
        item["start_ns"] -= 49  # 9 ns before the call instead of 40 after
        item["end_ns"] -= 49
    note = notes(items, calls, ranges)["negative-latency"]
    assert note.count == 30
    assert "9 ns" in note.message
    assert "causes" in note.forbids


def test_opaque_graphs_forbid_only_what_is_inside():
    items, calls, ranges = healthy()
    items.append(kernel(5000, 6000, 777, kind="graph"))
    calls.append(call(4900, 4910, 777, "cudaGraphLaunch"))
    assert notes(items, calls, ranges)["opaque-graphs"].forbids == ("sub_graph",)


def test_replays_of_one_graph_must_have_equal_counts():
    items = [kernel(1000 * r + 10 * i, 1000 * r + 10 * i + 5, r + 1, graph_id=3) for r in range(4) for i in range(6)]
    calls = [call(1000 * r - 50, 1000 * r - 40, r + 1, "cudaGraphLaunch") for r in range(4)]
    assert "uneven-replays" not in notes(items, calls)
    note = notes(items[:-1], calls)["uneven-replays"]
    assert (note.count, note.ratio) == (1, 0.25)
    assert "idle" in note.forbids


def test_a_coarse_clock_forbids_sub_microsecond_claims_only():
    assert notes(*healthy(), coarse_ns=1000)["coarse-clock"].forbids == ("sub_us",)


def test_zero_durations_and_profiler_overhead_are_notes():
    items, calls, ranges = healthy()
    items[4]["end_ns"] = items[4]["start_ns"]
    ranges.append(rng(200, 260, "Buffer Flush", "overhead", tid=0))
    made = notes(items, calls, ranges)
    assert made["zero-duration"].count == 1
    assert made["profiler-overhead"].count == 1
    assert forbidden(tuple(made.values())) == frozenset()


def test_without_ops_the_layers_are_blurred():
    items, calls, _ = healthy()
    assert notes(items, calls)["no-framework-ops"].forbids == ("framework_layer",)
