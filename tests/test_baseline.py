"""Baseline files: small, reviewable, upgraded, and refused in one line when they are broken or hostile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gate_runs import (
    MS,
    analysis,
    attempt,
    clock,
    manifest,
    module,
    noisy,
    snapshot,
    statement,
    step_region,
    sync,
    verification,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.commands import baseline as command
from advisor.config import GateConfig
from advisor.errors import BundleError, UsageError
from advisor.gate import Status, baseline, judge
from advisor.gate.snapshot import Snapshot
from advisor.model import QualityNote, Severity


def full() -> Snapshot:
    made = analysis(step_region(), statement(12, 17), module(), syncs=(sync(20),))
    return snapshot(
        made,
        manifest=manifest("\n" * 19 + "loss.item()\n"),
        clock=clock(*noisy(1)),
        verification=verification(attempt()),
    )


def test_a_baseline_reads_back_as_it_was(tmp_path: Path) -> None:
    path = baseline.save(full(), tmp_path / "b.json")
    assert baseline.load(path) == full()
    assert judge(full(), baseline.load(path), GateConfig()).status == Status.PASS


def test_a_baseline_is_small_and_says_what_it_is(tmp_path: Path) -> None:
    path = baseline.save(full(), tmp_path / "b.json")
    lines = path.read_text().splitlines()
    assert lines[1:3] == [' "kind": "cgadvisor-baseline",', ' "format": 1,']
    assert path.stat().st_size < 6_000 and len(lines) < 160
    samples = next(line for line in lines if str(noisy(1)[0]) in line)
    assert str(noisy(1)[-1]) in samples  # one process, one line


def test_nothing_of_the_environment_but_versions_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    text = baseline.save(full(), tmp_path / "b.json").read_text()
    assert "hunter2" not in text and str(tmp_path) not in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not readable as a baseline"),
        ("{", "not readable as a baseline"),
        ("[1, 2]", "not a cgadvisor baseline"),
        ('{"format": 1}', "not a cgadvisor baseline"),
        ('{"kind": "cgadvisor-baseline"}', "format None is not a format number"),
        ('{"kind": "cgadvisor-baseline", "format": true}', "is not a format number"),
        ('{"kind": "cgadvisor-baseline", "format": 99}', "baseline format 99 is newer than this cgadvisor reads"),
        (
            '{"kind": "cgadvisor-baseline", "format": 1, "metrics": {"launches_per_step": "many"}}',
            "not a valid baseline",
        ),
        ('{"kind": "cgadvisor-baseline", "format": 1, "regions": [{}]}', "not a valid baseline"),
        ('{"kind": "cgadvisor-baseline", "format": 1, "metrics": {"x": 1e999}}', "readable|not a valid"),
        (
            '{"kind": "cgadvisor-baseline", "format": 1, "times": {"step_ns": {"kind": "measured", "processes_ns": [[0]]}}}',
            "a time sample is not positive",
        ),
        (
            '{"kind": "cgadvisor-baseline", "format": 1, "times": {"step_ns": {"kind": "measured", "processes_ns": [[]]}}}',
            "a process without a time sample",
        ),
        ('{"kind": "cgadvisor-baseline", "format": 1, "metrics": {"launches_per_step": -5}}', "a count is not"),
        (
            '{"kind": "cgadvisor-baseline", "format": 1, "blockers": [{"id": "a", "title": "b", "count_per_step": -3}]}',
            "a count is not",
        ),
        ("[" * 100_000, "not readable as a baseline"),
        ('{"kind": "cgadvisor-baseline", "format": 1, "note": "\\ud800"}', "not readable|valid"),
    ],
    ids=range(16),
)
def test_a_broken_or_hostile_file_is_refused_in_one_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "b.json"
    path.write_text(content)
    with pytest.raises(BundleError, match=message) as caught:
        baseline.load(path)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def test_a_missing_or_huge_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no such baseline"):
        baseline.load(tmp_path / "none.json")
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate((16 << 20) + 1)
    with pytest.raises(BundleError, match="is no baseline"):
        baseline.load(huge)


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    )
)
def test_any_json_is_a_baseline_or_one_error(raw: Any) -> None:  # fmt: skip
    candidates = [raw, {"kind": "cgadvisor-baseline", "format": 1, "metrics": raw, "times": raw}]
    for candidate in candidates:
        try:
            assert isinstance(baseline.convert(candidate, "b.json"), Snapshot)
        except BundleError as error:
            assert str(error).startswith("b.json: ")


def test_a_field_of_a_later_minor_version_is_ignored() -> None:
    raw = {"kind": "cgadvisor-baseline", "format": 1, "invented_later": [1], "metrics": {"launches_per_step": 4}}
    assert baseline.convert(raw, "b.json").metrics == {"launches_per_step": 4}


def test_an_old_format_is_upgraded_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chain, exercised with two formats that renamed a field each."""
    monkeypatch.setattr(baseline, "FORMAT", 3)
    monkeypatch.setitem(baseline._UPGRADES, 1, lambda raw: {**raw, "counts": raw.pop("figures")})
    monkeypatch.setitem(baseline._UPGRADES, 2, lambda raw: {**raw, "metrics": raw.pop("counts")})
    raw = {"kind": "cgadvisor-baseline", "format": 1, "figures": {"launches_per_step": 4.0}}
    assert baseline.convert(raw, "b.json").metrics == {"launches_per_step": 4.0}
    assert raw["figures"] == {"launches_per_step": 4.0}  # the caller's object is left alone


def test_several_runs_keep_their_processes_and_the_spread_of_their_counts() -> None:
    runs = [
        snapshot(analysis(step_region(launch_count=launches)), clock=clock(*noisy(seed)))
        for seed, launches in enumerate((100.0, 104.0, 101.0))
    ]
    merged = baseline.merge(runs, "2026-01-01T00:00:00Z", "why")
    assert merged.run_count == 3 and len(merged.times["step_ns"].processes_ns) == 3
    assert merged.metrics["launches_per_step"] == 101
    assert (merged.metric_lows["launches_per_step"], merged.metric_highs["launches_per_step"]) == (100, 104)
    at_the_worst = snapshot(analysis(step_region(launch_count=104.0)), clock=clock(*noisy(9)))
    assert judge(at_the_worst, merged, GateConfig()).status == Status.PASS


def test_a_run_of_the_baseline_passes_it_whichever_came_first() -> None:
    calm = snapshot(analysis(step_region(), module()))
    busy = snapshot(analysis(step_region(), module(sync_count=1.0), syncs=(sync(20),)))
    for runs in ([calm, busy], [busy, calm]):
        merged = baseline.merge(runs, "")
        assert [judge(run, merged, GateConfig()).status for run in runs] == [Status.PASS, Status.PASS]


def test_a_region_only_some_runs_have_is_not_missed_later() -> None:
    with_it, without = snapshot(analysis(step_region(), module())), snapshot()
    assert judge(without, baseline.merge([with_it, without], ""), GateConfig()).status == Status.PASS


def test_what_only_a_later_run_holds_is_kept() -> None:
    note = QualityNote(id="no-launches", severity=Severity.ERROR, count=1, message="no launches", forbids=("launches",))
    timed = snapshot(analysis(quality=(note,)), clock=clock(*noisy(1)), verification=verification(attempt()))
    merged = baseline.merge([snapshot(), timed], "")
    assert "step_ns" in merged.times and [one.label for one in merged.verified] == ["train.py:12-17"]
    assert merged.unusable == ("no launches",)


def test_a_run_without_a_step_makes_no_baseline_with_one_that_has_it() -> None:
    with pytest.raises(UsageError, match="only one of them has a step"):
        baseline.merge([snapshot(), msgspec.structs.replace(snapshot(), step_count=0)], "")


def test_runs_of_two_gpus_make_no_baseline() -> None:
    other = snapshot(manifest=manifest(gpu_names=("NVIDIA L4",)), label="l4")
    with pytest.raises(UsageError, match="l4 and run are not runs of one kind: GPU"):
        baseline.merge([snapshot(manifest=manifest()), other], "")


def test_long_series_are_thinned_in_order() -> None:
    ramp = tuple(range(MS, MS + 5_000))
    kept = baseline.merge([snapshot(clock=clock(*ramp))], "").times["step_ns"].processes_ns[0]
    assert len(kept) == 200 and kept[0] == ramp[0] and kept[-1] == ramp[-1] and list(kept) == sorted(kept)


def run_file(folder: Path, name: str, *args: Any, **other: Any) -> Path:
    path = folder / name
    path.write_bytes(msgspec.json.encode(analysis(*args, **other)))
    return path


def test_save_show_and_update(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = run_file(tmp_path, "a.json"), run_file(tmp_path, "b.json", step_region(launch_count=120.0))
    out = tmp_path / "base.json"
    assert command.save([first], out, "the first") == 0
    with pytest.raises(UsageError, match="--force overwrites"):
        command.save([first], out)
    assert command.show(out) == 0
    shown = capsys.readouterr().out
    assert "launches per step: 100" in shown and "note: the first" in shown

    before = out.read_bytes()
    assert command.update([second], out, dry_run=True) == 0
    assert out.read_bytes() == before
    assert "launches per step rose from 100 to 120" in capsys.readouterr().out
    assert command.update([second], out) == 0
    assert json.loads(out.read_text())["metrics"]["launches_per_step"] == 120
    assert baseline.load(out).note == "the first"
