"""Two runs side by side: better, worse, unclear, and not comparable."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
import report_builder as build

from advisor.bundle import Bundle
from advisor.commands import diff as command
from advisor.diffing import Row, Side, Trend, compare_runs, match_regions
from advisor.errors import BundleError, UsageError
from advisor.model import Clock, IdleByCause, Layers, Measurement
from advisor.report import diff as render
from advisor.report.markdown import cell


def side(name: str = "A", clocked_us: float | None = 3188, **other: Any) -> Side:
    clock = msgspec.structs.replace(build.clock(), host_step=build.samples(clocked_us, 101, 2)) if clocked_us else None
    step = build.analysis().step if clocked_us else msgspec.structs.replace(build.analysis().step, clocked=None)
    analysis = build.analysis(**{"step": step, **other.pop("analysis", {})})
    return Side(name, analysis, clock, other.pop("verification", None))


def rows(a: Side, b: Side) -> dict[str, Row]:
    return {row.label: row for group in compare_runs(a, b).groups for row in group.rows}


def test_the_same_run_twice_differs_in_nothing():
    both = Side("A", build.analysis(), build.clock(), build.verification())
    found = compare_runs(both, both)
    assert {row.trend for group in found.groups for row in group.rows} == {Trend.SAME}
    assert found.warnings == ()
    assert found.count(Trend.WORSE) == 0


def test_a_faster_step_is_judged_on_its_samples():
    row = rows(side(), side(clocked_us=1500))["step time"]
    assert (row.trend, row.kind.value) == (Trend.BETTER, "measured")
    assert (row.a, row.b) == (3_188_000, 1_500_000)
    assert rows(side(clocked_us=1500), side())["step time"].trend == Trend.WORSE


def test_a_small_difference_is_the_same_and_few_samples_are_unclear():
    assert rows(side(), side(clocked_us=3220))["step time"].trend == Trend.SAME  # 1 %, below the 5 % that counts
    few = msgspec.structs.replace(build.clock(), host_step=Measurement(samples_ns=(3_000_000, 3_100_000)))
    more = msgspec.structs.replace(build.clock(), host_step=Measurement(samples_ns=(5_000_000, 5_100_000)))
    row = rows(Side("A", build.analysis(), few), Side("B", build.analysis(), more))["step time"]
    assert row.trend == Trend.UNCLEAR


def test_without_a_clock_on_both_sides_the_trace_is_compared_and_says_so():
    row = rows(side(), side(clocked_us=None))["step time"]
    assert row.kind.value == "profiled"
    assert row.a == row.b == 6_477_000


def test_idle_time_by_cause_moves_both_ways():
    changed = build.region(
        idle=IdleByCause(launch_ns=2_000_000, sync_ns=600_000, device_ns=23_000, profiler_ns=60_000),
        layers=Layers(language_ns=2_000_000),
    )
    found = rows(side(), side(analysis={"regions": (changed,)}))
    assert found["idle, launch"].trend == Trend.BETTER  # 5890 -> 2000 µs
    assert found["idle, sync"].trend == Trend.WORSE  # 180 -> 600 µs
    assert found["idle, device"].trend == Trend.SAME
    assert found["launch, framework"].trend == Trend.BETTER
    assert found["launch, language"].trend == Trend.WORSE  # 1720 -> 2000


def test_a_change_below_one_percent_of_the_step_is_no_change():
    changed = build.region(idle=IdleByCause(launch_ns=5_890_000, sync_ns=180_000, device_ns=60_000, profiler_ns=23_000))
    found = rows(side(), side(analysis={"regions": (changed,)}))
    assert found["idle, device"].trend == Trend.SAME  # 23 -> 60 µs is much of itself, little of 6476 µs


def test_counts_are_exact():
    found = rows(side(), side(analysis={"regions": (build.region(launch_count=115.0, sync_count=1.0),)}))
    assert found["launches a step"].trend == Trend.WORSE
    assert found["synchronisations a step"].trend == Trend.WORSE
    assert found["GPU items"].trend == Trend.SAME


def test_regions_match_by_label_then_by_what_they_launch():
    one, two = build.part(12, 0.3, 55, signature="aa"), build.part(13, 0.3, 30, signature="bb")
    moved, new = build.part(15, 0.3, 30, signature="bb"), build.part(20, 0.1, 5, signature="cc")
    pairs = match_regions([one, two], [build.part(12, 0.3, 50, signature="zz"), moved, new])
    assert [(a and a.label, b and b.label) for a, b in pairs] == [
        ("train.py:12", "train.py:12"), ("train.py:13", "train.py:15"), (None, "train.py:20"),
    ]  # fmt: skip
    gone = match_regions([one], [])
    assert gone == [(one, None)]


def test_a_moved_region_says_where_it_was():
    a = side(analysis={"regions": (build.region(), build.part(13, 0.34, 30, signature="bb"))})
    b = side(analysis={"regions": (build.region(), build.part(15, 0.34, 12, signature="bb"))})
    row = rows(a, b)["train.py:15"]
    assert row.note == "was train.py:13, launches 30 → 12"


def test_verified_gains_are_compared_by_region_and_fix():
    a = side(verification=build.verification(build.verified(timing=build.timing(3188, 449))))
    b = side(verification=build.verification(build.verified(timing=build.timing(3188, 900)), build.with_fix()))
    found = {
        row.label: row
        for group in compare_runs(a, b).groups
        if group.title.startswith("Verified")
        for row in group.rows
    }
    assert found["train.py:8-13"].trend == Trend.WORSE
    assert found["train.py:8-13 with capturable=True"].trend == Trend.ONLY_B


def test_other_machines_are_called_what_they_are():
    trace = msgspec.structs.replace(build.analysis().trace, gpu_names=("NVIDIA A100",), torch_version="2.9.0")
    found = compare_runs(side(), side(analysis={"trace": trace}))
    assert found.warnings == (
        "different GPU: NVIDIA H200 against NVIDIA A100",
        "different torch: 2.11.0+cu130 against 2.9.0",
    )


def test_a_run_without_a_step_compares_what_there_is():
    bare = Side("B", build.bare().analysis)
    found = compare_runs(side(), bare)
    assert [group.title for group in found.groups] == ["Launches", "Regions, device time per occurrence"]
    nothing = compare_runs(Side("A", build.nothing().analysis), Side("B", build.nothing().analysis))
    assert nothing.groups == ()
    assert render.summary(nothing) == "nothing to compare"


def test_the_terminal_text_fits_and_the_markdown_has_every_row():
    found = compare_runs(side(), side("B", clocked_us=1500, analysis={"regions": (build.region(label="x" * 200),)}))
    text = render.terminal(found)
    assert max(map(len, text.splitlines())) <= 100
    assert "step time" in text and "+ better (measured)" in text
    made = render.markdown(found)
    for group in found.groups:
        for row in group.rows:
            assert f"| {cell(row.label)}" in made


@pytest.fixture
def folders(tmp_path):
    paths = []
    for name, micro in (("a", 3188), ("b", 1500)):
        bundle = Bundle.create(tmp_path / name)
        bundle.save(build.analysis())
        bundle.save(msgspec.structs.replace(build.clock(), host_step=build.samples(micro, 101, 2)))
        paths.append(bundle.folder)
    return paths


def test_the_command_prints_or_writes_every_format(folders, tmp_path, capsys):
    assert command.run(*folders, "terminal", None) == 0
    assert "step time" in capsys.readouterr().out
    assert command.run(*folders, "json", None) == 0
    parsed = json.loads(capsys.readouterr().out)
    assert parsed["groups"][0]["rows"][0]["trend"] == "better"
    out = tmp_path / "diff.md"
    assert command.run(*folders, "md", out) == 0
    assert out.read_text().startswith("# Comparison of two runs")


def test_the_command_refuses_in_one_line(folders, tmp_path):
    with pytest.raises(UsageError, match="--format xml: one of terminal, md, json"):
        command.run(*folders, "xml", None)
    with pytest.raises(BundleError, match="no such run folder"):
        command.run(folders[0], tmp_path / "none", "terminal", None)


def test_the_clock_is_the_source_of_step_samples():
    assert isinstance(side().clock, Clock)
    assert side().clocked is side().clock.host_step or side().clocked == side().clock.host_step
