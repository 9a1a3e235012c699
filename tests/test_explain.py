"""`cgadvisor explain` in a subprocess: every term is there, they add up by hand, and a wrong region gets one line."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from math import hypot
from pathlib import Path

import msgspec
import pytest
import report_builder as build
from loops import US, Loop

from advisor.advise import Evidence, analyze
from advisor.bundle import Bundle
from advisor.errors import EXIT_BAD_INPUT, EXIT_OK, EXIT_USAGE
from advisor.model import Analysis, Clock, Measurement, NumberKind, Term
from advisor.units import format_ns

ROOT = Path(__file__).parents[1]
REAL = ROOT / "reports" / "mlp_train"
UNITS_NS = {"ns": 1, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def explain(*argv):
    return subprocess.run(
        [sys.executable, "-c", "from advisor.cli import main; main()", "explain", *map(str, argv)],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"},
    )


def printed(*argv):
    done = explain(*argv)
    assert (done.returncode, done.stderr) == (EXIT_OK, "")
    return done.stdout


def refused(*argv):
    """(exit code, the one line said)."""
    done = explain(*argv)
    assert done.stdout == ""
    assert done.stderr.startswith("cgadvisor: ") and done.stderr.count("\n") == 1, done.stderr
    return done.returncode, done.stderr


def saved_in(folder, **other):
    """A run folder with the builder's findings, some of them replaced."""
    bundle = Bundle.create(folder / "run")
    bundle.save(build.analysis(**other))
    return bundle.folder


def with_estimate(folder, **other):
    """A run folder whose only estimate is one of the step."""
    return saved_in(folder, estimates=(build.estimate(**other),))


# --- reading the print, as a person with a ruler would ----------------------------------------------------------------


@dataclass
class Row:
    """One figure: its value in ns, and how much the rounding may have taken off it."""

    label: str
    ns: float
    rounding_ns: float
    note: str

    @classmethod
    def of(cls, line):
        number, unit = line[58:70].split()
        decimals = len(number.partition(".")[2])
        size = UNITS_NS[unit]
        return cls(
            line[:58].strip(), float(number.replace(",", "")) * size, 0.5 * size * 10.0**-decimals, line[70:].strip()
        )


@dataclass
class Print:
    """One estimate as printed."""

    title: str
    before: Row
    terms: list[Row]
    after: Row
    between: Row
    widths: list[Row]
    rest: list[str]

    @classmethod
    def of(cls, text):
        title, now, *lines = text.splitlines()
        until = next(i for i, line in enumerate(lines) if line.startswith("  step with the graph"))
        more = next((i for i, line in enumerate(lines) if i > until + 1 and not line.startswith("    ± ")), len(lines))
        rows = [Row.of(line) for line in lines[:more]]
        return cls(title, Row.of(now), rows[:until], rows[until], rows[until + 1], rows[until + 2 :], lines[more:])

    def misses_by(self):
        """(before with all terms taken in - after, what rounding allows)."""
        parts = [self.before, *self.terms, self.after]
        return sum(row.ns for row in parts[:-1]) - self.after.ns, sum(row.rounding_ns for row in parts)


def blocks(text):
    return [Print.of(one) for one in text.split("\n\n")]


# --- the terms -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """Run folders of a recorded loop with a synchronisation, by the constants and the clock behind the estimate."""
    loop = Loop(items=12, inner=(2, 9), sync_at=5)
    clock = Clock(step_label="step", step_how="test", host_step=Measurement(samples_ns=(80 * US, 82 * US, 84 * US) * 3))
    evidence = {
        "traced": Evidence(),
        "calibrated": Evidence(calibration=build.calibration()),
        "clocked": Evidence(calibration=build.calibration(), clock=clock),
    }
    made = {}
    for name, one in evidence.items():
        bundle = Bundle.create(tmp_path_factory.mktemp(name))
        bundle.save(analyze(loop.build(), evidence=one))
        made[name] = bundle.folder
    return made


@pytest.fixture(params=["traced", "calibrated", "clocked", "built", "reports/mlp_train"])
def run(request, simulated, tmp_path):
    """Run folders of every origin: simulated here, written by the builder, recorded on a GPU."""
    if request.param in simulated:
        return simulated[request.param]
    return saved_in(tmp_path) if request.param == "built" else REAL


def test_every_term_is_printed_and_before_with_the_terms_is_after(run):
    estimates = Bundle.open(run).load(Analysis).estimates
    shown = blocks(printed(run, "--region", "*"))
    assert len(shown) == len(estimates) > 1
    for one, estimate in zip(shown, estimates, strict=True):
        assert sum(term.ns for term in estimate.terms) == estimate.before_ns - estimate.after_ns
        assert [row.label for row in one.terms] == [term.label for term in estimate.terms]
        assert [row.note for row in one.terms] == [term.note for term in estimate.terms]
        for row, term in zip(one.terms, estimate.terms, strict=True):
            assert row.ns == pytest.approx(-term.ns, abs=row.rounding_ns * 1.001), (
                term.label
            )  # what it does to the step
        assert one.before.ns == pytest.approx(estimate.before_ns, abs=one.before.rounding_ns * 1.001)
        assert one.after.ns == pytest.approx(estimate.after_ns, abs=one.after.rounding_ns * 1.001)
        off, allowed = one.misses_by()
        assert abs(off) <= allowed * 1.001


def test_the_bounds_and_what_each_source_adds_to_them_are_printed(run):
    for one, estimate in zip(
        blocks(printed(run, "--region", "*")), Bundle.open(run).load(Analysis).estimates, strict=True
    ):
        low, high = estimate.before_ns - estimate.saved_high_ns, estimate.before_ns - estimate.saved_low_ns
        assert one.between.ns == pytest.approx(low, abs=one.between.rounding_ns * 1.001)
        assert one.between.note == f"and {format_ns(high)}"
        assert low <= estimate.after_ns <= high
        assert [row.label for row in one.widths] == [f"± {width.label}" for width in estimate.interval]
        for row, width in zip(one.widths, estimate.interval, strict=True):
            assert row.ns == pytest.approx(width.ns, abs=row.rounding_ns * 1.001)
        if one.widths:  # joined as independent errors, and cut at what is possible: never wider than that
            joined = hypot(*(row.ns + row.rounding_ns for row in one.widths))
            assert max(estimate.after_ns - low, high - estimate.after_ns) <= joined + 2


def test_the_assumptions_are_printed_word_for_word(run):
    for one, estimate in zip(
        blocks(printed(run, "--region", "*")), Bundle.open(run).load(Analysis).estimates, strict=True
    ):
        assert estimate.assumptions
        at = one.rest.index("  assuming that")
        assert one.rest[at + 1 :] == [f"    - {words}" for words in estimate.assumptions]


def test_the_constants_and_the_clock_it_rests_on_are_said(simulated):
    traced, calibrated, clocked = (printed(simulated[name]) for name in ("traced", "calibrated", "clocked"))
    assert "as traced, profiler included" in traced and "`cgadvisor calibrate` measures" in traced
    assert "as traced, profiler included" in calibrated and "as measured on this machine" in calibrated
    assert "clocked without a profiler" in clocked and "deflated to the unprofiled clock" in clocked
    assert Print.of(clocked).before.ns == 82 * US


def test_a_step_with_synchronisations_inside_says_what_it_would_be_without(simulated):
    estimate = Bundle.open(simulated["traced"]).load(Analysis).estimates[0]
    row = next(
        Row.of(line) for line in Print.of(printed(simulated["traced"])).rest if "synchronisations inside" in line
    )
    assert row.ns == pytest.approx(estimate.without_syncs_ns, abs=row.rounding_ns * 1.001)
    assert row.ns < estimate.after_ns


# --- one estimate written by hand ------------------------------------------------------------------------------------


def test_the_whole_print(tmp_path):
    widths = (
        Term(id="constants", label="range of the graph's constants", ns=93_300),
        Term(id="spread", label="spread of the steps", ns=4_410),
    )
    assert printed(with_estimate(tmp_path, interval=widths)) == (
        "train.py:8-13 (step, 114 items, 1 a step)\n"
        "  step now                                                     3.19 ms  clocked without a profiler\n"
        "    launch-bound idle time removed                            -2.79 ms\n"
        "    gap between nodes, 114 × 0.31 µs                          +35.0 µs\n"
        "    one graph launch                                          +8.00 µs  from the calibration\n"
        "    staging 16.0 KiB of inputs                                +2.00 µs\n"
        "  step with the graph                                           443 µs  7.2×, estimated\n"
        "  between                                                       333 µs  and 608 µs\n"
        "    ± range of the graph's constants                           93.3 µs\n"
        "    ± spread of the steps                                      4.41 µs\n"
        "  then limited by                                         the CPU\n"
        "  once: warm-up, capture, instantiate                          96.0 ms  earned back after 35 replays\n"
        "  memory pool                                                 34.0 MiB\n"
        "  saved                                                         86.1 %  of the step\n"
        "  assuming that\n"
        "    - the sequence of items is the same in every step\n"
        "    - idle time scales with the unprofiled clock\n"
    )


def test_what_is_not_known_is_not_printed(tmp_path):
    text = printed(
        with_estimate(tmp_path, pool_bytes=None, break_even_replays=None, binds_next="", assumptions=(), terms=())
    )
    for absent in ("memory pool", "earned back", "limited by", "assuming", "±", "synchronisations", "None"):
        assert absent not in text
    assert Print.of(text).terms == []


@pytest.mark.parametrize(
    ("binds", "words"),
    [("gpu", "the GPU's own work"), ("cpu", "the CPU"), ("sync", "synchronisations"), ("input", "waiting for input")],
)
def test_what_limits_the_step_next_is_in_words(tmp_path, binds, words):
    line = next(
        line for line in printed(with_estimate(tmp_path, binds_next=binds)).splitlines() if "limited by" in line
    )
    assert line.split("limited by")[1].strip() == words


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (NumberKind.CALIBRATED, "clocked without a profiler"),
        (NumberKind.PROFILED, "as traced, profiler included"),
        (NumberKind.ESTIMATED, "estimated"),
    ],
)
def test_the_step_now_says_how_it_was_clocked(tmp_path, kind, words):
    assert Print.of(printed(with_estimate(tmp_path, kind=kind))).before.note == words


def test_a_graph_that_costs_time_saves_nothing(tmp_path):
    lost = (Term(id="graph", label="one graph launch", ns=-100 * US),)
    run = with_estimate(tmp_path, saved_us=-100, saved_low_ns=-150 * US, saved_high_ns=-50 * US, terms=lost)
    one = Print.of(printed(run))
    assert (one.after.ns, one.after.note) == (3_290 * US, "0.97×, estimated")
    assert one.terms[0].ns == 100 * US
    assert any(line.split() == ["saved", "0.0", "%", "of", "the", "step"] for line in one.rest)


# --- which region ----------------------------------------------------------------------------------------------------


def titles(run, *argv):
    return [one.title.partition(" (")[0] for one in blocks(printed(run, *argv))]


@pytest.mark.parametrize(
    ("argv", "labels"),
    [
        ((), ["train.py:8-13"]),
        (("--region", ""), ["train.py:8-13"]),
        (("--region", "step"), ["train.py:8-13"]),
        (("--region", "stmt:12"), ["train.py:12"]),
        (("--region", "train.py:12"), ["train.py:12"]),
        (("--region", "train.py:1[03]"), ["train.py:10", "train.py:13"]),
        (("--region", "*"), ["train.py:8-13", "train.py:10", "train.py:12", "train.py:13"]),
    ],
    ids=str,
)
def test_a_region_is_named_by_id_label_or_glob(tmp_path, argv, labels):
    assert titles(saved_in(tmp_path), *argv) == labels


def test_a_label_that_two_regions_share_names_both(tmp_path):
    regions = tuple(
        msgspec.structs.replace(one, label="Adam.step") if one.id in ("stmt:12", "stmt:13") else one
        for one in build.analysis().regions
    )
    assert titles(saved_in(tmp_path, regions=regions), "--region", "Adam.step") == ["Adam.step", "Adam.step"]


def test_a_label_is_taken_for_itself_before_it_is_a_glob(tmp_path):
    names = {"stmt:12": "layers[0]", "stmt:13": "layers0"}
    regions = tuple(
        msgspec.structs.replace(one, label=names.get(one.id, one.label)) for one in build.analysis().regions
    )
    assert titles(saved_in(tmp_path, regions=regions), "--region", "layers[0]") == ["layers[0]"]


@pytest.mark.parametrize(
    ("wanted", "nearest"), [("train.py:14", "train.py:1"), ("stp", "step"), ("stmt:112", "stmt:12"), ("steps", "step")]
)
def test_an_unknown_region_gets_the_nearest_name(tmp_path, wanted, nearest):
    code, said = refused(saved_in(tmp_path), "--region", wanted)
    assert code == EXIT_USAGE
    assert f"--region {wanted}: no such region; there are {nearest}" in said


def test_a_name_like_no_other_gets_those_there_are(tmp_path):
    code, said = refused(saved_in(tmp_path), "--region", "encoder.*.attention")
    assert code == EXIT_USAGE
    assert said.endswith("there are train.py:8-13, train.py:10, train.py:12, train.py:13\n")


def test_a_region_without_an_estimate_is_not_called_unknown(tmp_path):
    regions = tuple(
        msgspec.structs.replace(one, occurrences_per_step=0.0) if one.id == "stmt:12" else one
        for one in build.analysis().regions
    )
    estimates = tuple(one for one in build.analysis().estimates if one.region_id != "stmt:12")
    code, said = refused(saved_in(tmp_path, regions=regions, estimates=estimates), "--region", "train.py:12")
    assert code == EXIT_USAGE
    assert "--region train.py:12: no estimate of it: it does not run inside the steps" in said


def test_an_unknown_region_of_a_real_run(tmp_path):
    code, said = refused(REAL, "--region", "Sequentia")
    assert code == EXIT_USAGE
    assert "no such region; there are Sequential" in said


# --- no estimate -----------------------------------------------------------------------------------------------------


def test_a_recording_that_supports_no_estimate_says_why(tmp_path):
    notes = (
        build.QualityNote(id="other", severity=build.Severity.INFO, count=1, message="3 flushes", forbids=()),
        build.QualityNote(
            id="orphans",
            severity=build.Severity.ERROR,
            count=9,
            message="9 items have no launch",
            forbids=("estimate",),
        ),
    )
    run = saved_in(tmp_path, estimates=(), quality=notes)
    for argv in ((), ("--region", "stmt:12"), ("--region", "nonsense")):
        code, said = refused(run, *argv)
        assert code == EXIT_BAD_INPUT
        assert str(run) in said
        assert said.endswith("no estimates in this run: 9 items have no launch\n")


def test_without_a_step_there_is_nothing_to_save_of(tmp_path):
    code, said = refused(saved_in(tmp_path, estimates=(), step=None, regions=()), "--region", "step")
    assert code == EXIT_BAD_INPUT
    assert "no estimates in this run: no step was found" in said


def test_a_step_without_launches_is_said_to_have_none(tmp_path):
    code, said = refused(saved_in(tmp_path, estimates=(), quality=()))
    assert code == EXIT_BAD_INPUT
    assert said.endswith("no estimates in this run: the step has no launches on record\n")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no such file"),
        (b"{", "not readable as JSON"),
        (b'{"format": 99}', "newer than this cgadvisor reads"),
        (b'{"format": 1}', "not a valid findings.json"),
    ],
)
def test_findings_that_cannot_be_read_are_bad_input(tmp_path, content, said):
    bundle = Bundle.create(tmp_path / "run")
    bundle.save(build.manifest())
    if content is not None:
        bundle.path("findings.json").write_bytes(content)
    code, line = refused(bundle.folder)
    assert code == EXIT_BAD_INPUT
    assert "findings.json" in line and said in line


@pytest.mark.parametrize(("name", "said"), [("none", "no such run folder"), ("", "not a run folder")])
def test_what_is_no_run_folder_is_bad_input(tmp_path, name, said):
    code, line = refused(tmp_path / name)
    assert code == EXIT_BAD_INPUT
    assert said in line


def test_without_a_run_it_is_usage():
    done = explain()
    assert done.returncode == EXIT_USAGE
    assert "Traceback" not in done.stderr
