"""`cgadvisor profile` on real workloads: both passes see the same steps, the trace is sound, the main job is quick enough."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from advisor import load
from advisor.bundle import NSYS_NAME, TRACE_NAME, Bundle
from advisor.errors import UsageError
from advisor.model import Analysis, Calibration, Clock, Manifest, Outcome, Predictions, Verification
from advisor.runner import find_nsys
from advisor.units import format_ns

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
WORKLOADS = {
    "mlp_train": (),
    "gpt_train": (),
    "resnet_infer": ("--batch", "1"),
    "resnet_infer --batch 256": ("--batch", "256"),
    "decode_static": (),
    "generate_dynamic": (),
    "lstm_cell": (),
    "adamw_foreach_false": (),
    "gnn": (),
    "input_bound": (),
}


@dataclass(frozen=True)
class Profiled:
    done: subprocess.CompletedProcess[str]
    folder: Path
    seconds: float

    def load(self, kind: type) -> object:
        return Bundle.open(self.folder).load(kind)


def command(*words: str, cwd: Path) -> Profiled:
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    full = [sys.executable, "-c", "from advisor.cli import main; main()", *words]
    began = time.monotonic()
    done = subprocess.run(
        full, cwd=cwd, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    return Profiled(done, cwd / "run", time.monotonic() - began)


def profiled(folder: Path, name: str, *options: str, argv: tuple[str, ...] = ()) -> Profiled:
    folder.mkdir()
    script = ROOT / "samples" / f"{name.split()[0]}.py"
    return command("profile", "--out", "run", *options, str(script), *argv, cwd=folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Profiled]:
    """Every workload, clocked and traced; measurements take turns, starting and analysing needs none."""
    folder = tmp_path_factory.mktemp("profiles")

    def one(name: str) -> Profiled:
        return profiled(folder / re.sub(r"\W+", "-", name), name, "--no-verify", argv=WORKLOADS[name])

    with ThreadPoolExecutor(4) as pool:
        return dict(zip(WORKLOADS, pool.map(one, WORKLOADS), strict=True))


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_whole_profile(runs: dict[str, Profiled], name: str) -> None:
    run = runs[name]
    assert run.done.returncode == 0, run.done.stderr
    clock, analysis, manifest = run.load(Clock), run.load(Analysis), run.load(Manifest)
    assert isinstance(clock, Clock) and isinstance(analysis, Analysis) and isinstance(manifest, Manifest)
    assert analysis.step is not None and analysis.step.label == clock.step_label
    assert len(clock.host_step.samples_ns) == 30
    assert clock.device_step is not None
    # The device's clock and the host's see the same steps.
    host, device = (sum(one.samples_ns) for one in (clock.host_step, clock.device_step))
    assert 0.8 < device / host < 1.25
    assert (run.folder / "report.html").stat().st_size > 100_000
    assert manifest.gpu_clock_mhz is not None and manifest.gpu_names
    assert isinstance(run.load(Calibration), Calibration)
    assert clock.step_label in run.done.stdout


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_profilers_inflation_is_measured(runs: dict[str, Profiled], name: str) -> None:
    analysis = runs[name].load(Analysis)
    assert isinstance(analysis, Analysis) and analysis.step is not None
    assert analysis.step.inflation_ratio is not None and 0.9 < analysis.step.inflation_ratio < 6


@pytest.mark.parametrize("name", WORKLOADS)
def test_busy_is_the_traces_own(runs: dict[str, Profiled], name: str) -> None:
    """The union of the items' intervals, made here by a plain sweep."""
    folder = runs[name].folder
    analysis = runs[name].load(Analysis)
    assert isinstance(analysis, Analysis)
    items = load(folder / TRACE_NAME).items.sort_values("start_ns")
    busy, reached = 0, 0
    for start, end in zip(items["start_ns"].tolist(), items["end_ns"].tolist(), strict=True):
        busy += max(0, end - max(start, reached))
        reached = max(reached, end)
    assert sum(device.busy_ns for device in analysis.devices) == busy


def test_the_main_job_ends_in_time_with_a_verified_gain_and_its_prediction(tmp_path: Path) -> None:
    run = profiled(tmp_path / "whole", "mlp_train")
    assert run.done.returncode == 0, run.done.stderr
    found, predicted = run.load(Verification), run.load(Predictions)
    assert isinstance(found, Verification) and isinstance(predicted, Predictions)
    best = next(one for one in found.attempts if one.outcome is Outcome.VERIFIED)
    assert best.timing is not None and best.timing.speedup_ratio > 3
    estimate = predicted.of(best)
    assert estimate is not None and estimate.speedup_ratio > 2
    assert run.seconds < 90
    middle = statistics.median(best.timing.graph.samples_ns)
    print(f"predicted {format_ns(estimate.after_ns)}, measured {format_ns(middle)}, whole job {run.seconds:.0f} s")


def test_both_tracers_see_the_same_items(runs: dict[str, Profiled], tmp_path: Path) -> None:
    try:
        find_nsys()
    except UsageError as error:
        pytest.skip(f"no Nsight Systems: {error}")
    run = profiled(tmp_path / "nsys", "lstm_cell", "--no-verify", "--tracer", "nsys")
    if run.done.returncode and "nsys" in run.done.stderr:
        pytest.skip(f"Nsight Systems does not start here: {run.done.stderr.strip()[-200:]}")
    assert run.done.returncode == 0, run.done.stderr
    assert (run.folder / NSYS_NAME).exists()
    one, two = runs["lstm_cell"].load(Analysis), run.load(Analysis)
    assert isinstance(one, Analysis) and isinstance(two, Analysis)
    torch_step, nsys_step = one.region("step"), two.region("step")
    assert nsys_step.item_count == torch_step.item_count
    assert abs(nsys_step.busy_ns / torch_step.busy_ns - 1) < 0.02
