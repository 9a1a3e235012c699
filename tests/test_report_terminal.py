"""The one-screen summary: what must be on it, and that it fits."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import report_builder as build

from advisor.model import NumberKind, QualityNote, Severity
from advisor.report import terminal
from advisor.report.figures import bar_graphed, bar_now, step_figures

REPORT = Path("cgadvisor-runs/mlp/report.html")
CONTENTS = {
    "full": build.full(),
    "estimated": build.full(verification=None),
    "with fix": build.full(verification=build.verification(build.blocked(), build.with_fix())),
    "bare": build.bare(),
    "nothing": build.nothing(),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_fits_one_screen_and_ends_with_the_report(name):
    lines = terminal.render(CONTENTS[name], report=REPORT).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    assert lines[-1].endswith(str(REPORT))


def test_fits_even_when_everything_is_long():
    notes = tuple(
        QualityNote(id=f"n{i}", severity=Severity.WARNING, count=1, message="an event was mended " * 20)
        for i in range(30)
    )
    regions = tuple(build.region(id=f"r{i}", label=f"a/very/long/path/{'x' * 150}.py:{i}") for i in range(60))
    estimates = tuple(build.estimate(region.id, 100 + i) for i, region in enumerate(regions))
    made = build.analysis(
        quality=notes, regions=(build.region(), *regions), estimates=estimates, blockers=(build.SYNC,) * 40
    )
    lines = terminal.render(build.full(analysis=made), report=REPORT, region="r*").splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    assert lines[-1].endswith(str(REPORT))


def test_says_which_clock_and_what_was_verified():
    text = terminal.render(build.full())
    assert "GRAPH IT (VERIFIED)" in text
    assert "7.1× faster, 3.19 ms → 449 µs" in text
    assert "3.19 ms unprofiled (median of 61); 6.48 ms under the profiler, 2.03× as long" in text
    for word in ("launch", "sync", "device", "language", "framework", "driver", "submission"):
        assert f" {word} " in text


def test_without_a_clock_every_time_is_called_profiled():
    step = msgspec.structs.replace(build.analysis().step, clocked=None, inflation_ratio=None)
    text = terminal.render(build.full(analysis=build.analysis(step=step), verification=None, clock=None))
    assert "6.48 ms (of 9), in the trace; the profiler may have inflated it" in text
    assert "by cause (profiled)" in text


def test_the_bar_is_the_clocked_step_and_idle_shares_are_the_traces():
    figures = step_figures(build.full(verification=None))
    # clocked 3188 = busy 324 + idle 2864; of the traced 6153 µs idle, 60 were the profiler's: 2864 / 6093 = 0.47005
    assert figures.total_ns == pytest.approx(3_188_000, abs=5)
    assert figures.busy_ns == 324_000
    assert figures.idle.profiler_ns == 0
    assert figures.idle.launch_ns == pytest.approx(5_890_000 * 2864 / 6093, abs=1)
    assert figures.layers.total_ns == pytest.approx(figures.idle.launch_ns, abs=3)
    assert (figures.kind, figures.parts_kind) == (NumberKind.MEASURED, NumberKind.CALIBRATED)
    assert sum(part.ns for part in bar_now(figures).parts) == figures.total_ns


def test_the_graphed_bar_is_measured_when_an_attempt_carries_it():
    content = build.full()
    bar = bar_graphed(content, step_figures(content))
    assert (bar.total_ns, bar.kind) == (449_000, NumberKind.MEASURED)
    assert [part.id for part in bar.parts] == ["busy", "rest"]
    estimated = build.full(verification=None)
    bar = bar_graphed(estimated, step_figures(estimated))
    assert bar.kind == NumberKind.ESTIMATED
    assert bar.total_ns == pytest.approx(443_000, rel=0.01)


def test_a_region_in_detail_shows_terms_and_attempts():
    text = terminal.render(build.full(), region="step")
    assert "gap between nodes, 114 × 0.31 µs" in text
    assert "verified as written" in text
    assert "pool 34.0 MiB" in text
