"""The drawn step and the per-line view, from a timeline whose numbers are known."""

from __future__ import annotations

from test_regions import training
from timelines import kernel, rng, timeline

from advisor.advise import with_gaps
from advisor.cut import MAX_EVENTS, median_step, step_cut, window_cut
from advisor.lines import line_rows
from advisor.regions import find


def cut_of(rows):
    made = with_gaps(timeline(*rows))
    found = find(made, 0, 0)
    return step_cut(made, found.windows, median_step(found.windows), "step")


def lane(cut, kind):
    return [one for one in cut.lanes if one.kind == kind]


def test_a_step_cut_has_threads_launches_streams_and_gaps():
    cut = cut_of(training())
    assert {one.kind for one in cut.lanes} == {"cpu", "launch", "stream", "gap"}
    stream = lane(cut, "stream")[0]
    names = [cut.names[index] for index in stream.name_ids]
    assert names.count("k0") >= 1
    assert all(start >= 0 for one in cut.lanes for start in one.start_ns)
    span = cut.end_ns - cut.start_ns
    assert all(s + d <= span for one in cut.lanes for s, d in zip(one.start_ns, one.duration_ns, strict=True))


def test_links_lead_from_an_item_to_its_launch():
    cut = cut_of(training())
    calls = [(one.start_ns[i], cut.names[one.name_ids[i]]) for one in lane(cut, "launch") for i in range(len(one.start_ns))]
    stream = lane(cut, "stream")[0]
    linked = [(start, link) for start, link in zip(stream.start_ns, stream.links, strict=True) if link >= 0]
    assert linked
    # By construction an item starts 40 ns after its call begins.
    assert all(start - calls[link][0] == 40 for start, link in linked if calls[link][0] > 0)


def test_too_many_events_drop_the_shortest_ranges_and_say_so():
    items = [kernel(0, 10, 1)]
    ranges = [rng(i, i + 1 + i % 7, "aten::add") for i in range(MAX_EVENTS + 100)]
    made = with_gaps(timeline(items, [], ranges))
    cut = window_cut(made, 0, 0, (0, MAX_EVENTS + 200), "all")
    assert cut.truncated_count == 101
    assert sum(len(one.start_ns) for one in cut.lanes) <= MAX_EVENTS


def test_lines_are_per_step_in_source_order_with_their_text():
    items, calls, ranges = training(name="train.py:2-4 [cga:iter:1]", kind="mark")
    for step in range(5):
        base = 1000 * step
        ranges.append(rng(base + 350, base + 520, "train.py:4 [cga:stmt:3]", "mark"))
        ranges.append(rng(base + 80, base + 210, "train.py:3 [cga:stmt:2]", "mark"))
    found = find(with_gaps(timeline(items, calls, ranges)), 0, 0)
    rows = line_rows(found.regions, {"train.py": "for x in data:\n    pass\n    y = model(x)\n    y.backward()\n"})
    assert [(row.location.label, row.text) for row in rows] == [("train.py:3", "y = model(x)"), ("train.py:4", "y.backward()")]
    assert [row.item_count for row in rows] == [1.0, 1.0]
    assert rows[1].busy_ns == 50
