"""The accuracy harness: rows from a run folder, the figures, the bars, the page."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import msgspec
import pytest
import test_predict as recorded

from advisor.advise import Evidence, study
from advisor.bundle import Bundle
from advisor.model import (
    Attempt,
    Clock,
    Fix,
    Manifest,
    Measurement,
    Outcome,
    Prediction,
    Predictions,
    SourceSpan,
    Timing,
    Verification,
)

FOLDER = Path(__file__).parents[1] / "benchmarks"
US = 1_000


@pytest.fixture(scope="module", autouse=True)
def importable():
    sys.path.insert(0, str(FOLDER))
    yield
    sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def rows_module(importable):
    return importlib.import_module("accuracy_rows")


@pytest.fixture(scope="module")
def accuracy(importable):
    return importlib.import_module("accuracy")


def row(module, **other):
    values = {
        "case": "mlp_batch_64", "sample": "mlp", "size": 0, "region": "mlp.py:3-6", "fixes": (), "outcome": "verified",
        "simulated": True, "before_ns": 1000.0 * US, "predicted_ns": 210.0 * US, "low_ns": 180.0 * US, "high_ns": 260.0 * US,
        "eager_ns": 980.0 * US, "measured_ns": 200.0 * US, "region_predicted_ns": 198.0 * US,
        "region_measured_ns": 180.0 * US, "traced_ns": 2000.0 * US, "busy_ns": 150.0 * US, "idle_ns": 1600.0 * US,
        "launch_count": 100.0, "node_count": 100, "traced_item_count": 100,
    }  # fmt: skip
    return module.Row(**{**values, **other})


def test_figures_of_one_row_by_hand(rows_module):
    one = row(rows_module)
    assert one.error_ratio == pytest.approx(0.05) and one.region_error_ratio == pytest.approx(0.10)
    assert one.is_covered and not row(rows_module, low_ns=201.0 * US).is_covered
    # 150 µs busy; 1 ms less 1600 of 2000 µs; 1 ms less 100 launches of 3 µs
    assert one.rivals() == {
        "idle": 150.0 * US,
        "trace": pytest.approx(200.0 * US),
        "launch": pytest.approx(700.0 * US),
    }


@pytest.mark.parametrize(
    ("predicted", "measured", "wrong"),
    [(880, 970, True), (995, 850, True), (880, 880, False), (950, 970, False), (880, 940, False)],
)
def test_a_wrong_call_is_over_ten_against_below_two_percent(rows_module, predicted, measured, wrong):
    one = row(rows_module, predicted_ns=predicted * US, measured_ns=measured * US, eager_ns=980.0 * US)
    assert one.is_wrong_call == wrong


def test_summary_is_over_rows(rows_module):
    rows = [row(rows_module, predicted_ns=ns * US) for ns in (200.0, 210.0, 190.0, 240.0)]
    rows.append(row(rows_module, predicted_ns=300.0 * US, low_ns=290.0 * US))
    found = rows_module.summary(rows)
    assert found["median"] == pytest.approx(0.05) and found["covered"] == pytest.approx(0.8)
    assert found["p90"] == pytest.approx(0.38)  # errors 0, 5, 5, 20, 50 %: 0.6 of the way from the fourth to the fifth
    assert found["launch_median"] == pytest.approx(2.5)


def test_the_crossover_of_a_sweep(rows_module):
    def at(size, predicted, measured):
        return row(
            rows_module, sample="resnet_infer", size=size, predicted_ns=predicted * US, measured_ns=measured * US
        )

    rows = [at(0, 200, 210), at(1, 600, 650), at(2, 920, 800), at(2, 995, 990), at(3, 990, 975)]
    assert rows_module.sweep(rows, "resnet_infer") == (2, 3)
    assert rows_module.sweep(rows[:2], "resnet_infer") == (2, 2)  # helps at every size measured
    assert rows_module.sweep([], "resnet_infer") == (0, 0)


def test_every_case_is_a_sample_and_shards_are_a_partition(rows_module):
    every = rows_module.cases()
    assert all((FOLDER.parent / "samples" / f"{case.sample}.py").is_file() for case in every)
    assert len({case.name for case in every}) == len(every) >= 24
    parts = [case for number in (1, 2, 3) for case in rows_module.cases(shard=f"{number}/3")]
    assert sorted(case.name for case in parts) == sorted(case.name for case in every)
    for sample in rows_module.SWEEPS:
        assert len([case for case in every if case.sample == sample]) == 4


def attempt(outcome=Outcome.VERIFIED, fixes=(), graph_us=60):
    graph = Measurement(samples_ns=(graph_us * US,) * 8)
    timing = Timing(eager=Measurement(samples_ns=(99 * US,) * 8), graph=graph, region_graph=graph)
    place = SourceSpan(file="t.py", first_line=2, last_line=4)
    made = tuple(Fix(id=name, title=name) for name in fixes)
    return Attempt(
        id="a", region_label="t.py:2-4", outcome=outcome, message="", location=place, timing=timing, fixes=made
    )


@pytest.fixture
def run(tmp_path, monkeypatch, rows_module):
    """A run folder that was predicted and verified, and its recording."""
    host = Measurement(samples_ns=(100 * US,) * 6)
    clock = Clock(step_label="t.py:1-4", step_how="test", host_step=host, optimizers=(recorded.ADAM,))
    made = study(recorded.recording(), Evidence(clock=clock, step_label="t.py:1-4"))
    monkeypatch.setattr(rows_module, "study_of", lambda bundle: made)
    bundle = Bundle.create(tmp_path / "mlp_train_batch_64")
    manifest = Manifest(
        tool_version="1", command=(), script="t.py", created_at="2026-12-01T10:00:00", gpu_names=("NVIDIA H200",)
    )
    bundle.save(manifest)
    place = SourceSpan(file="t.py", first_line=2, last_line=4)
    stored = [Prediction(region_label="t.py:2-4", fixes=(), estimate=made.predict(place))]
    stored.append(Prediction(region_label="t.py:2-4", fixes=("capturable",), estimate=None))
    bundle.save(Predictions(predictions=tuple(stored)))
    attempts = (attempt(Outcome.BLOCKED), attempt(), attempt(fixes=("capturable",)))
    bundle.save(Verification(attempts=attempts))
    return bundle, made


def test_rows_are_measured_attempts_with_a_stored_prediction(run, rows_module):
    bundle, made = run
    case = rows_module.Case("mlp_train", 0, ("--batch", "64"))
    (one,) = rows_module.rows_of(bundle, case)  # blocked: nothing measured; capturable: nothing was predicted
    place = SourceSpan(file="t.py", first_line=2, last_line=4)
    assert one.predicted_ns == made.predict(place).after_ns and one.measured_ns == 60 * US
    assert (one.before_ns, one.eager_ns) == (100 * US, 99 * US)
    assert (one.busy_ns, one.launch_count) == (15 * US, 3)  # three kernels of 5 µs
    again = rows_module.rows_of(bundle, case, made)  # predicted anew: now both have one
    assert [len(found.fixes) for found in again] == [0, 1]


def test_the_page_and_the_verdict_on_the_bars(run, rows_module, accuracy, tmp_path, monkeypatch, capsys):
    bundle, _ = run
    monkeypatch.setattr(accuracy, "plot", lambda rows, path: None)
    assert (
        accuracy.table([tmp_path], False, tmp_path / "page.md") == 2 and "run collect first" in capsys.readouterr().err
    )
    rows = [row(rows_module), row(rows_module, case="mlp_batch_512", predicted_ns=300.0 * US, low_ns=290.0 * US)]
    bundle.path("rows.json").write_bytes(msgspec.json.encode(rows))
    assert accuracy.table([tmp_path], False, tmp_path / "page.md") == 1
    assert "bars that do not hold: median, p90, covered" in capsys.readouterr().out
    page = (tmp_path / "page.md").read_text()
    assert "NVIDIA H200" in page and "| mlp_batch_512 | mlp.py:3-6 | none |" in page
    assert "+50.0%" in page and " !" in page


def test_the_plot_shows_every_row(rows_module, accuracy, tmp_path):
    if accuracy.shutil.which("chromium") is None:
        pytest.skip("no Chromium")
    accuracy.plot([row(rows_module), row(rows_module, measured_ns=400.0 * US)], tmp_path / "accuracy.png")
    assert (tmp_path / "accuracy.png").read_bytes()[:4] == b"\x89PNG"
    assert not (tmp_path / "accuracy.html").exists()
