"""The values behind the report's pictures, with answers worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import report_builder as build
from hypothesis import given
from hypothesis import strategies as st

from advisor.bundle import Bundle
from advisor.errors import BundleError, UsageError
from advisor.estimate import costs
from advisor.model import Answer, Fix, Lane, Measurement, NumberKind, Outcome, TimelineCut, Verification
from advisor.report import perfetto, predicted
from advisor.report.content import RunContent
from advisor.report.evidence import attempt_facts, fix_words, prediction_fact
from advisor.report.figures import bar_now, bars, step_figures
from advisor.report.samples import strip
from advisor.report.sections import launches, provenance, regions, source, timeline, waterfall
from advisor.report.snippet import generic_code, graph_code
from advisor.report.windows import span_of, windows_by_label


def lane(kind: str, *events: tuple[int, int, int], links: tuple[int, ...] = (), depths: tuple[int, ...] = ()) -> Lane:
    starts, durations, names = zip(*events, strict=True)
    return Lane(
        id=kind,
        label=kind,
        kind=kind,
        start_ns=starts,
        duration_ns=durations,
        name_ids=names,
        links=links,
        depths=depths,
    )


NAMES = ("k", "launch", "sync", "train.py:8 [cga:stmt:1]", "cudaLaunchKernel")


def small_cut(*lanes: Lane) -> TimelineCut:
    return TimelineCut(label="step 1 of 1", start_ns=0, end_ns=10_000, lanes=lanes, names=NAMES)


# --- content ---------------------------------------------------------------------------------------------------------


def test_a_run_folder_loads_with_whatever_is_in_it(tmp_path):
    bundle = Bundle.create(tmp_path / "run")
    bundle.save(build.analysis())
    assert RunContent.load(bundle.folder) == RunContent(build.analysis())
    bundle.save(build.clock())
    bundle.save(build.verification())
    loaded = RunContent.load(bundle.folder)
    assert (loaded.clock, loaded.verification, loaded.manifest) == (build.clock(), build.verification(), None)
    with pytest.raises(BundleError, match="no such run folder"):
        RunContent.load(tmp_path / "other")


def test_an_attempt_finds_its_region_by_id_then_place_then_label():
    by_place = build.verified(id="p", region_id=None, location=build.span(12), region_label="whatever")
    by_label = build.verified(id="l", region_id=None, location=None, region_label="train.py:13")
    stray = build.verified(id="s", region_id=None, location=build.span(40), region_label="model.py:40")
    content = build.full(verification=build.verification(build.verified(), by_place, by_label, stray))
    found = {row.label: [one.id for one in row.attempts] for row in content.region_rows}
    assert found["train.py:8-13"] == ["a1"]
    assert found["train.py:12"] == ["p"]
    assert found["train.py:13"] == ["l"]
    assert found["model.py:40"] == ["s"]
    assert sum(map(len, found.values())) == 4
    assert next(row for row in content.region_rows if row.label == "model.py:40").region is None


def test_the_best_attempt_is_the_fastest_verified_one():
    slow = build.verified(id="slow", timing=build.timing(3188, 1594))
    content = build.full(verification=build.verification(build.blocked(), slow, build.verified(id="fast")))
    assert content.region_rows[0].best.id == "fast"
    only = build.full(verification=build.verification(build.blocked()))
    assert only.region_rows[0].best.outcome == Outcome.BLOCKED


# --- waterfall -------------------------------------------------------------------------------------------------------


def test_the_waterfall_falls_from_the_step_to_what_remains():
    rows = waterfall.SECTION.build(build.full()).values["rows"]
    total, *parts, removed, graphed = rows
    assert [row.id for row in rows] == ["step", "busy", "launch", "sync", "device", "removed", "graphed"]
    assert sum(part.ns for part in parts) == total.ns
    at = 0.0
    for part in parts:
        assert part.start_x == pytest.approx(at)
        at += part.width_x
    assert at == pytest.approx(100)
    assert removed.ns == total.ns - graphed.ns
    assert removed.start_x == pytest.approx(graphed.width_x)
    assert (removed.kind, graphed.kind) == ("verified", "verified")
    assert rows[1].kind == "profiled"  # the GPU's own time is not scaled
    assert rows[2].kind == "calibrated"


def test_a_graph_that_slows_the_step_down_says_so():
    slower = build.verified(timing=build.timing(3188, 3500), outcome=Outcome.VERIFIED)
    rows = waterfall.SECTION.build(build.full(verification=build.verification(slower))).values["rows"]
    assert rows[-2].label == "A graph adds"
    assert rows[-2].start_x + rows[-2].width_x == pytest.approx(100)


def test_layers_are_per_launch_beside_the_typical_range():
    step = msgspec.structs.replace(build.analysis().step, clocked=None, traced=Measurement(samples_ns=(6_477_000,)))
    content = build.full(analysis=build.analysis(step=step), verification=None)
    rows = {row.name: row for row in waterfall.SECTION.build(content).values["layers"]}
    # 1720 µs of language over 114 launches = 15.1 µs, within 10 to 100; 640 of driver = 5.61, within 5 to 15
    assert rows["Language"].per_launch_us == pytest.approx(1720 / 114, rel=0.01)
    assert rows["Driver"].word == "within"
    assert rows["Framework runtime"].per_launch_us == pytest.approx(3310 / 114, rel=0.01)
    assert rows["Framework runtime"].word == "above"
    assert rows["Language"].band_x == 50.0 and rows["Language"].band_width_x == 25.0  # 10 to 100 µs of 0.1 to 1000


@given(
    clocked=st.integers(400_000, 9_000_000),
    idle=st.lists(st.integers(0, 3_000_000), min_size=6, max_size=6),
    busy=st.integers(1, 390_000),
)
def test_the_bar_always_sums_to_the_step(clocked, idle, busy):
    causes = ("launch_ns", "sync_ns", "input_ns", "device_ns", "profiler_ns", "unknown_ns")
    region = build.region(
        idle=build.IdleByCause(**dict(zip(causes, idle, strict=True))), busy_ns=busy, layers=build.Layers()
    )
    step = msgspec.structs.replace(build.analysis().step, clocked=Measurement(samples_ns=(clocked,)))
    figures = step_figures(build.full(analysis=build.analysis(step=step, regions=(region,)), verification=None))
    assert sum(part.ns for part in bar_now(figures).parts) == figures.total_ns
    if figures.kind == NumberKind.MEASURED:
        assert figures.total_ns == pytest.approx(clocked, abs=6)  # six causes, each rounded
        assert figures.idle.profiler_ns == 0


# --- strip plots -----------------------------------------------------------------------------------------------------


def test_a_strip_shows_every_sample_on_one_axis_from_zero():
    made = strip(
        [
            ("eager", "eager", Measurement(samples_ns=(100, 200, 300))),
            ("none", "x", None),
            ("one", "y", Measurement(samples_ns=(50,))),
        ]
    )
    assert [row.label for row in made.rows] == ["eager", "one"]
    assert made.end_ns == pytest.approx(1.15 * 290)  # 95th percentile of 100, 200, 300 is 290
    assert [x for x, _ in made.rows[0].dots] == pytest.approx([100 * v / 333.5 for v in (100, 200, 300)], abs=0.01)
    assert (made.rows[0].median_ns, made.rows[0].count, made.rows[0].outside) == (200, 3, 0)
    assert strip([("none", "x", None)]) is None


def test_a_stall_is_counted_and_does_not_flatten_the_rest():
    made = strip([("eager", "eager", Measurement(samples_ns=(*range(100, 200), 1_000_000)))])
    assert made.end_ns < 300
    assert (made.rows[0].outside, made.rows[0].count, len(made.rows[0].dots)) == (1, 101, 100)


# --- the graphed step ------------------------------------------------------------------------------------------------


def test_predicted_lanes_close_launch_gaps_and_keep_the_others():
    # items at 1000-1100, 2100-2200, 4200-4300; a launch gap of 1000, then a sync gap of 2000
    cut = small_cut(
        lane("stream", (1000, 100, 0), (2100, 100, 0), (4200, 100, 0)),
        lane("gap", (0, 1000, 1), (1100, 1000, 1), (2200, 2000, 2)),
    )
    calibration = msgspec.structs.replace(build.calibration(), node_gap_ns=300.0)
    launch, stream = predicted.predicted_lanes(cut, calibration)
    assert stream.start_ns == (1000, 1400, 3500)  # 1000 closed to 300; the sync gap stays
    assert stream.duration_ns == (100, 100, 100)
    assert launch.start_ns[0] + launch.duration_ns[0] == 1000
    assert predicted.length_ns((launch, stream)) == 2600


def test_predicted_items_that_overlap_still_do():
    cut = small_cut(
        lane("stream", (0, 500, 0), (5000, 500, 0)),
        msgspec.structs.replace(lane("stream", (100, 200, 0), (5100, 200, 0)), id="stream-2"),
        lane("gap", (500, 4500, 1)),
    )
    _, one, two = predicted.predicted_lanes(cut, None)
    gap = predicted.DEFAULT_NODE_GAP_NS
    assert one.start_ns == (0, 500 + gap)
    assert two.start_ns == (100, 600 + gap)


def test_nothing_is_predicted_without_launch_gaps():
    assert predicted.predicted_lanes(small_cut(lane("stream", (0, 5, 0)), lane("gap", (5, 9, 2))), None) == ()
    assert predicted.length_ns(()) == 0


def test_the_default_constants_are_those_of_the_estimate():
    assert predicted.DEFAULT_NODE_GAP_NS == costs.NODE_GAP_NS[1]
    assert predicted.DEFAULT_GRAPH_LAUNCH_NS == costs.REPLAY_CPU_NS[1]


# --- windows, lines, timeline data --------------------------------------------------------------------------------------


def test_windows_are_found_by_label_and_mark():
    cut = small_cut(lane("cpu", (0, 100, 3), (500, 50, 3), (600, 10, 0)))
    assert windows_by_label(cut) == {"train.py:8": [(0, 100), (500, 550)], "k": [(600, 610)]}
    assert span_of([(5, 9), (20, 25)]) == (5, 25)
    assert span_of([]) is None


def test_lines_show_the_source_around_them_and_their_blockers():
    (file,) = source.SECTION.build(build.full()).values["files"]
    assert [line.number for line in file.lines] == list(range(5, 17 - 1))
    by_number = {line.number: line for line in file.lines}
    assert by_number[12].text == "    loss.backward()"
    assert by_number[12].row.launch_count == 55
    assert by_number[12].window is not None
    assert by_number[13].heat_ratio == 1.0
    assert by_number[7].row is None and not by_number[7].inside
    assert [mark.title for mark in by_number[15].marks] == ["a tensor value is read on the host"]


def test_lines_without_the_script_text_still_show_what_is_known():
    (file,) = source.SECTION.build(build.full(manifest=None)).values["files"]
    assert not file.complete
    assert [line.number for line in file.lines] == [8, 9, 10, 11, 12, 13]


def test_timeline_starts_are_differences():
    cut = small_cut(lane("stream", (1000, 100, 0), (2100, 100, 0)), lane("gap", (1100, 1000, 1)))
    data = timeline.SECTION.build(build.full(analysis=build.analysis(timeline=cut))).data
    assert data["lanes"][0]["d"] == [1000, 1100]
    assert data["names"][3] == "train.py:8"
    assert 3 in data["marks"] and 0 not in data["marks"]


# --- regions, launches, provenance --------------------------------------------------------------------------------------


def test_region_terms_are_scaled_to_the_largest():
    view = regions.SECTION.build(build.full()).values["views"][0]
    assert [round(size, 3) for _, size in view.terms] == [
        1.0,
        round(35 / 2790, 3),
        round(8 / 2790, 3),
        round(2 / 2790, 3),
    ]
    assert view.verified_ratio == pytest.approx(3188 / 449)
    assert view.attempts[0].plot.rows[2].label == "graphed"


def test_the_scatter_counts_items_above_the_line():
    body = launches.SECTION.build(build.full())
    plot = body.data["plots"][0]
    above = sum(1 for x, y in zip(plot["x"], plot["y"], strict=True) if y > x)
    assert f"{above} of 400 items" in plot["text"]
    assert len(plot["names"]) == 4


def test_a_zero_or_negative_point_is_left_out_of_a_logarithmic_plot():
    series = msgspec.structs.replace(build.series()[0], x=(0.0, 5.0), y=(3.0, 2.0), names=("a", "b"))
    body = launches.SECTION.build(build.full(analysis=build.analysis(series=(series,))))
    assert body.data["plots"][0]["x"] == [0.005]


def test_everything_not_run_is_listed():
    text = provenance.SECTION.build(build.bare()).values["not_run"]
    assert [line.split(":")[0] for line in text] == ["not clocked", "not calibrated", "not verified"]
    full = provenance.SECTION.build(build.full()).values["not_run"]
    assert full == ["not run: a second GPU was not visible", "not attempted: train.py:9: launches nothing"]


# --- code ------------------------------------------------------------------------------------------------------------


def test_the_code_captures_the_lines_once_and_stages_what_the_iteration_made():
    code = graph_code(build.SOURCE, build.span(8, 13))
    compile(code, "code", "exec")
    assert code.count("loss.backward()") == 2  # warm-up and capture
    assert 'static_x = x = x.to("cuda", copy=True)' in code
    assert "x = static_x.copy_(x, non_blocking=True)" in code
    assert "static_step" not in code and "static_model" not in code  # not read by the lines; not made by the iteration
    assert code.rstrip().endswith("losses.append(loss.item())")


def test_the_code_of_later_lines_keeps_the_earlier_ones_eager():
    code = graph_code(build.SOURCE, build.span(9, 13))
    compile(code, "code", "exec")
    assert code.index("x, y = x.cuda(non_blocking=True)") < code.index("eager_steps < 3")


@pytest.mark.parametrize(("first", "last"), [(1, 3), (8, 99), (14, 14), (7, 13)])
def test_no_code_for_lines_that_are_no_whole_statements_of_a_loop(first, last):
    assert graph_code(build.SOURCE, build.span(first, last)) is None


def test_no_code_for_what_does_not_parse():
    assert graph_code("for x in y:\n  (", build.span(2)) is None
    assert graph_code("", build.span(2)) is None


def test_the_general_shape_is_python_even_for_a_strange_label():
    compile(generic_code("forward\n)('\"` # é"), "code", "exec")


# --- perfetto --------------------------------------------------------------------------------------------------------


def test_the_cut_step_opens_in_perfetto_with_gap_and_region_tracks():
    cut = small_cut(
        lane("cpu", (0, 900, 3)),
        lane("launch", (100, 50, 4), (300, 50, 4)),
        lane("stream", (200, 20, 0), (1234, 21, 0), links=(0, 1)),
        lane("gap", (220, 1014, 1)),
    )
    events = json.loads(perfetto.render(build.full(analysis=build.analysis(timeline=cut))))["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert {(event["name"], event["ts"], event["dur"]) for event in slices if event["cat"] == "stream"} == {
        ("k", 0.2, 0.02),
        ("k", 1.234, 0.021),
    }
    assert [(event["name"], event["dur"]) for event in slices if event["cat"] == "gap"] == [("launch", 1.014)]
    assert [event["name"] for event in slices if event["cat"] == "region"] == ["train.py:8"]
    starts = {event["id"]: event["ts"] for event in events if event["ph"] == "s"}
    ends = {event["id"]: event["ts"] for event in events if event["ph"] == "f"}
    assert sorted((starts[key], ends[key]) for key in starts) == [(0.1, 0.2), (0.3, 1.234)]
    names = {event["args"].get("name") for event in events if event["ph"] == "M"}
    assert {"idle time by cause", "region train.py:8", "CPU", "GPU"} <= names


def test_perfetto_without_a_step_is_refused_in_a_line():
    with pytest.raises(UsageError, match="no step to cut"):
        perfetto.render(build.bare())


def test_a_no_for_other_reasons_shows_no_large_gain_beside_it():
    refused = build.Verdict(
        answer=Answer.NOT_WORTH_IT, sentence="Not worth it yet: the gaps are long.", region_id="step"
    )
    content = build.full(analysis=build.analysis(verdict=refused), verification=None)
    assert content.headline_estimate is None
    assert [row.id for row in waterfall.SECTION.build(content).values["rows"]][-1] == "device"
    assert timeline.SECTION.build(content).data["predicted"] == []
    small = build.analysis(verdict=refused, estimates=(build.estimate(saved_us=50),))
    assert build.full(analysis=small, verification=None).headline_estimate.saved_ns == 50_000


def test_without_a_clock_the_typical_step_is_brought_to_the_median_one():
    step = msgspec.structs.replace(build.analysis().step, clocked=None, traced=Measurement(samples_ns=(12_954_000,)))
    figures = step_figures(build.full(analysis=build.analysis(step=step), verification=None))
    assert figures.traced_ns == 12_954_000
    assert figures.total_ns == pytest.approx(12_954_000, abs=6)  # twice the typical 6477 µs
    assert figures.busy_ns == 324_000  # the GPU's own time stays
    assert figures.idle.launch_ns == round(5_890_000 * (12_954 - 324) / 6153)


def test_inputs_are_staged_in_the_order_the_lines_read_them():
    text = "for i in range(9):\n    b = a[i]\n    c = d[i]\n    out = f(model(c), b)\n    out.backward()\n"
    code = graph_code(text, build.span(4, 5))
    compile(code, "code", "exec")
    assert code.index("static_c") < code.index("static_b")
    assert "static_a" not in code and "static_model" not in code


def test_a_prediction_stands_beside_what_was_measured():
    # predicted 3188 - 2745 = 443 µs, measured 449: 1.3 % under, inside 333 to 608
    fact = prediction_fact(build.verified(), build.estimate())
    assert fact.value == "443 µs a step, -1.3 % off"
    assert fact.hint == "made before the capture; the measured 449 µs lies inside its interval"
    far = prediction_fact(build.verified(timing=build.timing(3188, 900)), build.estimate())
    assert "outside" in far.hint
    assert prediction_fact(build.verified(), build.estimate(kind=NumberKind.PROFILED)) is None  # another clock
    assert prediction_fact(build.blocked(), build.estimate()) is None


def test_every_device_is_listed_when_there_are_several():
    devices = (build.device(), build.device(rank=1, item_count=900))
    body = waterfall.SECTION.build(build.full(analysis=build.analysis(devices=devices)))
    assert [one.rank for one in body.values["devices"]] == [0, 1]
    assert body.values["judged"] == devices[0]
    assert waterfall.SECTION.build(build.full()).values["devices"] == ()


def test_options_are_shown_as_they_were_typed():
    groups = provenance.SECTION.build(build.full()).values["groups"]
    rows = dict(next(group for group in groups if group.title == "Run").rows)
    assert rows["options"] == "steps=120, argv=--epochs 1"


def test_bars_of_two_clocks_are_never_compared():
    # The recording's step has 6.28 ms of busy time, the attempt clocked 3.19 ms: they are not the same step.
    long = build.region(busy_ns=6_280_000, idle=build.IdleByCause(launch_ns=128_000_000))
    content = build.full(analysis=build.analysis(regions=(long,)))
    before, after = bars(content, step_figures(content))
    assert (before.total_ns, after.total_ns) == (3_188_000, 449_000)
    assert [part.id for bar in (before, after) for part in bar.parts] == ["rest", "rest"]
    assert [row.id for row in waterfall.SECTION.build(content).values["rows"]] == ["step", "busy", "launch"]


def test_verified_rows_come_first_then_tried_ones_then_by_saving():
    stray = build.verified(
        id="s", region_id=None, location=build.span(40), region_label="model.py:40", timing=build.timing(3188, 300)
    )
    content = build.full(verification=build.verification(build.verified(), stray, build.differs()))
    assert [row.label for row in content.region_rows][:5] == [
        "model.py:40", "train.py:8-13", "train.py:10-12", "train.py:13", "train.py:12",
    ]  # fmt: skip


def test_inflation_is_traced_over_the_clock_pass_whatever_the_verification_clocked():
    slow = build.verified(timing=build.timing(4000, 500))  # another process, a slower one
    figures = step_figures(build.full(verification=build.verification(slow)))
    assert figures.total_ns == pytest.approx(4_000_000, abs=6)
    assert figures.inflation_ratio == pytest.approx(6477 / 3188)
    labels = [row.label for row in waterfall.SECTION.build(build.full()).values["strip"].rows]
    assert labels == ["unprofiled", "unprofiled, verifying", "under the profiler"]


def test_a_fix_needed_at_several_places_is_said_once():
    other = Fix(id="defer", title="read the value after the span")
    assert fix_words((build.CAPTURABLE, other, other)) == "capturable=True and read the value after the span (2 places)"
    assert fix_words(()) == ""


SAMPLES = Path(__file__).resolve().parent.parent / "reports" / "verification_samples.json"


@pytest.mark.skipif(not SAMPLES.exists(), reason="no recorded verifications in reports/")
def test_every_recorded_attempt_of_a_real_sample_is_shown():
    recorded = json.loads(SAMPLES.read_text())
    assert recorded
    for name, raw in recorded.items():
        found = msgspec.convert(raw, Verification, strict=False)
        views = regions.SECTION.build(build.full(verification=found)).values["views"]
        shown = {one.attempt.id: one for view in views for one in view.attempts}
        assert set(shown) == {attempt.id for attempt in found.attempts}, name
        for attempt in found.attempts:
            labels = [fact.label for fact in shown[attempt.id].facts]
            assert ("Step" in labels) == (attempt.timing is not None and attempt.outcome != Outcome.DIFFERS)
            assert ("Step, wrong results" in labels) == (
                attempt.timing is not None and attempt.outcome == Outcome.DIFFERS
            )


def test_the_constants_of_a_graph_are_named_and_many_are_counted() -> None:
    def shown(*frozen: str) -> str:
        return next(
            (fact.value for fact in attempt_facts(build.verified(frozen=frozen)) if fact.label == "Constants"), ""
        )

    assert shown() == ""
    assert shown("SGD lr = 0.1", "w = 2.0") == "SGD lr = 0.1, w = 2.0"
    assert shown(*(f"w{i} = {i}" for i in range(10))).endswith("w7 = 7 and 2 more")
