"""The gate against public bug reports of other gates, real recordings with planted faults, and as a command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gate_runs import (
    MS,
    analysis,
    clock,
    edited,
    noisy,
    snapshot,
    sync,
    trace_path,
)

from advisor.config import GateConfig
from advisor.gate import GateVerdict, Status, judge, load_side
from advisor.gate.baseline import merge
from advisor.gate.snapshot import Snapshot
from advisor.gate.verdict import Group


def verdict(head: Snapshot, base: Snapshot | None = None, **config: Any) -> GateVerdict:
    return judge(head, base, GateConfig(**config))


def check(found: GateVerdict, identity: str) -> Any:
    return next(one for one in found.checks if one.id == identity)


def failed(found: GateVerdict) -> list[str]:
    return [one.id for one in found.of(Status.FAIL)]


def timed(*processes: tuple[int, ...]) -> Snapshot:
    return merge([snapshot(clock=clock(*samples)) for samples in processes], "2026-01-01T00:00:00Z")


# --- what others' gates got wrong (public bug reports) ---------------------------------------------------------------


def lognormal(seed: int, level: float = MS) -> tuple[int, ...]:
    """3 % noise with a 20 % outlier in every twentieth sample."""
    rng = np.random.default_rng(seed)
    values = level * np.exp(rng.normal(0, 0.03, 30)) * np.where(rng.random(30) < 0.05, 1.2, 1.0)
    return tuple(int(value) for value in values)


def test_c01_two_hundred_gates_on_identical_code() -> None:
    alarms = sum(verdict(timed(lognormal(seed)), timed(lognormal(seed + 5000))).exit_code == 1 for seed in range(200))
    caught = sum(
        verdict(timed(lognormal(seed, 1.1 * MS)), timed(lognormal(seed + 5000))).exit_code == 1 for seed in range(200)
    )
    assert alarms <= 1 and caught >= 190


def test_c02_a_few_percent_on_a_sub_millisecond_step_pass_and_the_band_is_shown() -> None:
    found = verdict(timed(noisy(2, 514_000)), timed(noisy(1, 500_000)))
    assert found.status == Status.PASS
    assert "counts from 5.0 %" in check(found, "time:step_ns").message


def test_c03_forty_percent_of_three_microseconds_is_below_the_floor() -> None:
    found = verdict(timed(noisy(2, 4_200)), timed(noisy(1, 3_000)))
    assert found.status == Status.PASS and "below the floor" in check(found, "time:step_ns").message


def test_c05_the_noise_of_repeated_baselines_is_the_band() -> None:
    levels = [1.0, 1.12, 0.95, 1.08, 1.03]
    base = timed(*[noisy(seed, level * MS, cv=0.01) for seed, level in enumerate(levels)])
    found = verdict(timed(noisy(9, 1.115 * MS, cv=0.01)), base)
    assert found.exit_code == 0
    assert check(found, "time:step_ns").comparison.between_process_ratio == pytest.approx(0.18, abs=0.02)


def test_c07_drift_of_both_sides_passes_with_a_note_and_another_gpu_is_refused() -> None:
    heat = np.linspace(1.0, 1.15, 60)
    base, head = (tuple(int(value) for value in np.array(noisy(seed, count=60, cv=0.01)) * heat) for seed in (1, 2))
    found = verdict(timed(head), timed(base))
    assert found.status == Status.PASS
    assert "drift" in check(found, "time:step_ns").detail


def test_c11_the_process_and_not_the_sample_is_the_unit() -> None:
    def side(levels: list[int], seed: int) -> Snapshot:
        return timed(*[noisy(seed + index, level * MS, 200, 0.005) for index, level in enumerate(levels)])

    found = verdict(side([26, 33, 33], 10), side([33, 26, 33], 1))
    assert found.status == Status.PASS
    unlucky = verdict(side([33, 33, 26], 10), side([26, 33, 26], 1))
    assert unlucky.exit_code != 1


# --- real traces -----------------------------------------------------------------------------------------------------


def real(path: Path) -> Snapshot:
    import advisor
    from advisor.gate.counts import RunArtefacts, snapshot_of

    return snapshot_of(RunArtefacts(advisor.analyze(advisor.load(path))), path.name)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("sidnb13/h100_transformer_session1_run1.json.gz", "sidnb13/h100_transformer_session1_run2.json.gz"),
        ("deepview/rtx3060ti_train_run1.json.gz", "deepview/rtx3060ti_train_run2.json.gz"),
    ],
)
def test_two_recordings_of_one_workload_pass_both_ways(one: str, other: str) -> None:
    first, second = real(trace_path(one)), real(trace_path(other))
    for head, base in ((second, first), (first, second)):
        found = verdict(head, base)
        assert found.status == Status.PASS, found.sentence
        assert found.counts["pass"] >= 10


MLP = "h200/mlp_adam_train_10steps.json.gz"


def _steps(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        one
        for one in events
        if one.get("ph") == "X" and one.get("cat") == "user_annotation" and one["name"].startswith("step")
    ]


def planted_item(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`loss.item()` at train.py:42 in the last microseconds of every step: frame, ops, copy, synchronise."""
    device = next(one["args"]["device"] for one in events if one.get("cat") == "kernel")
    stream = next(one["args"]["stream"] for one in events if one.get("cat") == "kernel")
    gpu = next(one for one in events if one.get("cat") == "kernel")
    added = []
    for number, step in enumerate(_steps(events)):
        home = {"ph": "X", "pid": step["pid"], "tid": step["tid"]}
        at = step["ts"] + step["dur"] - 45  # after the optimizer
        correlation = 900_000 + number
        added += [
            home | {"cat": "python_function", "name": "train.py(42): train", "ts": at, "dur": 40,
                    "args": {"Python id": 10_000 + number}},
            home | {"cat": "cpu_op", "name": "aten::item", "ts": at + 1, "dur": 38, "args": {}},
            home | {"cat": "cpu_op", "name": "aten::_local_scalar_dense", "ts": at + 2, "dur": 36, "args": {}},
            home | {"cat": "cuda_runtime", "name": "cudaMemcpyAsync", "ts": at + 3, "dur": 5,
                    "args": {"correlation": correlation}},
            home | {"cat": "cuda_runtime", "name": "cudaStreamSynchronize", "ts": at + 9, "dur": 25,
                    "args": {"correlation": correlation + 500}},
            {"ph": "X", "pid": gpu["pid"], "tid": gpu["tid"], "cat": "gpu_memcpy",
             "name": "Memcpy DtoH (Device -> Pageable)", "ts": at + 20, "dur": 2,
             "args": {"correlation": correlation, "device": device, "stream": stream, "bytes": 4}},
        ]  # fmt: skip
    return events + added


def test_a_planted_item_fails_and_names_the_line(tmp_path: Path) -> None:
    base, head = real(trace_path(MLP)), real(edited(MLP, tmp_path, planted_item))
    found = verdict(head, base)
    assert found.exit_code == 1
    assert found.sentence.startswith("Fail: train.py:42: new: a tensor value")
    assert {"syncs_per_step", "d2h_copies_per_step"} <= set(failed(found))


def planted_storm(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """foreach off: every kernel launched inside the optimizer step becomes eight, one after the other."""
    optimizer = [one for one in events if one.get("ph") == "X" and "Optimizer.step" in str(one.get("name"))
                 and one.get("cat") in ("user_annotation", "cpu_op")]  # fmt: skip
    inside = {}
    for one in events:
        if one.get("name") == "cudaLaunchKernel" and any(
            span["ts"] <= one["ts"] < span["ts"] + span["dur"] and span["tid"] == one["tid"] for span in optimizer
        ):
            inside[one["args"]["correlation"]] = one
    kernels = [one for one in events if one.get("cat") == "kernel" and one["args"].get("correlation") in inside]
    assert kernels
    added = []
    for kernel in kernels:
        launch = inside[kernel["args"]["correlation"]]
        for copy in range(1, 8):
            correlation = 1_000_000 + 10 * kernel["args"]["correlation"] + copy
            added.append(launch | {"ts": launch["ts"] + 0.01 * copy, "dur": 0.01,
                                   "args": launch["args"] | {"correlation": correlation}})  # fmt: skip
            added.append(kernel | {"ts": kernel["ts"] + 0.01 * copy, "dur": 0.01,
                                   "args": kernel["args"] | {"correlation": correlation}})  # fmt: skip
    return events + added


def test_a_planted_optimizer_launch_storm_fails_and_names_the_optimizer(tmp_path: Path) -> None:
    base, head = real(trace_path(MLP)), real(edited(MLP, tmp_path, planted_storm))
    found = verdict(head, base)
    assert found.exit_code == 1
    first = next(one for one in found.of(Status.FAIL) if one.group == Group.REGION)
    assert (first.metric, first.region) == ("launches_per_step", "Adam.step")
    assert {"launches_per_step", "kernels_per_step"} <= set(failed(found))


def test_the_eager_run_of_a_graphed_program_fails_by_coverage(tmp_path: Path) -> None:
    def ungraph(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Every replayed kernel gets a launch of its own, as if the graph had been lost."""
        launches = {one["args"]["correlation"]: one for one in events if "cudaGraphLaunch" in str(one.get("name"))}
        added = []
        for number, one in enumerate(events):
            if one.get("cat") == "kernel" and one["args"].get("correlation") in launches:
                launch = launches[one["args"]["correlation"]]
                correlation = 1_000_000 + number
                one["args"] = {key: value for key, value in one["args"].items() if "graph" not in key}
                one["args"]["correlation"] = correlation
                added.append(launch | {"name": "cudaLaunchKernel", "ts": launch["ts"] + 0.01 * (number % 1000),
                                       "dur": 0.01, "args": launch["args"] | {"correlation": correlation}})  # fmt: skip
        return [one for one in events if "cudaGraphLaunch" not in str(one.get("name"))] + added

    name = "h200/mlp_adam_graph_replay_10x.json.gz"
    found = verdict(real(edited(name, tmp_path, ungraph)), real(trace_path(name)))
    assert found.exit_code == 1
    assert "graph_coverage" in failed(found)


# --- the command -----------------------------------------------------------------------------------------------------


def cgadvisor(*words: str | Path, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).resolve().parents[1]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
    return subprocess.run(
        [sys.executable, "-c", "from advisor.cli import main; main()", *map(str, words)],
        cwd=folder,
        env=clean | {"PYTHONPATH": str(root)} | environ,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )


def findings(folder: Path, name: str, *args: Any, **other: Any) -> Path:
    from advisor.bundle import Bundle

    bundle = Bundle.create(folder / name)
    bundle.save(analysis(*args, **other))
    return folder / name


def test_exit_codes_of_the_command(tmp_path: Path) -> None:
    base = findings(tmp_path, "base")
    worse = findings(tmp_path, "worse", syncs=(sync(20),))
    assert cgadvisor("baseline", "save", base, folder=tmp_path).returncode == 0
    assert cgadvisor("gate", base, folder=tmp_path).returncode == 0  # cgadvisor-baseline.json of this folder
    bad = cgadvisor("gate", worse, folder=tmp_path)
    assert bad.returncode == 1 and "FAIL  train.py:20: new" in bad.stdout
    assert cgadvisor("gate", folder=tmp_path).returncode == 2
    missing = cgadvisor("gate", tmp_path / "none", folder=tmp_path)
    assert missing.returncode == 3 and missing.stderr.count("\n") == 1
    assert cgadvisor("gate", base, "--format", "yaml", folder=tmp_path).returncode == 2
    other = analysis(trace=analysis().trace.__class__(source="kineto", files=(), gpu_names=("NVIDIA L4",)))
    from advisor.bundle import Bundle

    Bundle.create(tmp_path / "l4").save(other)
    assert cgadvisor("gate", tmp_path / "l4", folder=tmp_path).returncode == 5


@pytest.mark.parametrize("form", ["text", "json", "md", "junit", "sarif"])
def test_a_console_or_a_file_name_of_another_encoding_changes_no_verdict(tmp_path: Path, form: str) -> None:
    try:
        run = findings(tmp_path, os.fsdecode(b"r\xff"))
    except OSError:
        pytest.skip("file names are Unicode here")
    summary = tmp_path / "summary.md"
    done = cgadvisor(
        "gate", run, "--baseline", run, "--format", form, folder=tmp_path,
        PYTHONIOENCODING="ascii", PYTHONUTF8="0", GITHUB_STEP_SUMMARY=str(summary),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    if form in ("json", "sarif"):
        json.loads(done.stdout)
    assert "\u2705 pass" in summary.read_text(encoding="utf-8")
    assert cgadvisor("baseline", "save", run, folder=tmp_path).returncode == 0


def test_one_process_a_side_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("pass")
    done = cgadvisor("gate", "--run", "a.py", "--baseline", "a.py", "--rounds", "1", folder=tmp_path)
    assert done.returncode == 2 and "--rounds" in done.stderr and "Traceback" not in done.stderr


def test_budgets_come_from_the_file_of_the_folder(tmp_path: Path) -> None:
    run = findings(tmp_path, "run")
    (tmp_path / "cgadvisor.toml").write_text('[[gate.budget]]\nmetric = "launches_per_step"\nmax = 40\nwarn = 30\n')
    found = cgadvisor("gate", run, folder=tmp_path)
    assert found.returncode == 1 and "launches per step 100, over max 40" in found.stdout
    (tmp_path / "cgadvisor.toml").write_text('[[gate.budget]]\nmetrik = "launches_per_step"\n')
    unknown = cgadvisor("gate", run, folder=tmp_path)
    assert unknown.returncode == 2 and "did you mean gate.budget.metric?" in unknown.stderr


def test_every_input_kind_is_read(tmp_path: Path) -> None:
    folder = findings(tmp_path, "run")
    saved = cgadvisor("baseline", "save", folder, "--out", "b.json", folder=tmp_path)
    assert saved.returncode == 0
    for one in (folder, folder / "findings.json", tmp_path / "b.json"):
        for other in (folder, folder / "findings.json", tmp_path / "b.json"):
            assert judge(load_side(one), load_side(other), GateConfig()).status == Status.PASS


def test_a_trace_is_analysed_on_the_spot_packed_or_not(tmp_path: Path) -> None:
    import gzip

    path = trace_path("sidnb13/h100_transformer_session1_run1.json.gz")
    plain = tmp_path / "plain.json"
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    assert cgadvisor("baseline", "save", path, folder=tmp_path).returncode == 0
    found = cgadvisor("gate", plain, "--verbose", folder=tmp_path)
    assert found.returncode == 0, found.stderr
    assert "launches per step stayed at 16" in found.stdout
    broken = tmp_path / "broken.json"
    broken.write_text('{"schemaVersion": 1, "traceEvents": [')
    assert cgadvisor("gate", broken, folder=tmp_path).returncode in (3, 5)
