"""The command line in a subprocess: what a user did wrong gets one line and the documented exit code, never a traceback."""

from __future__ import annotations

import gzip
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

DATA = Path(__file__).parents[1] / "advisor" / "data"
RECORDING = DATA / "h200_mlp_adam_train.json.gz"


def cgadvisor(*argv, cwd=None):
    return subprocess.run(
        [sys.executable, "-c", "from advisor.cli import main; main()", *map(str, argv)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
    )


@pytest.fixture
def hostile(tmp_path):
    """Files a user may hand over by mistake."""
    (tmp_path / "empty.json").write_bytes(b"")
    (tmp_path / "text.json").write_text("hello, this is no trace\n")
    (tmp_path / "other.json").write_text('{"answer": 42}')
    (tmp_path / "execution.json").write_text('{"schema": "1.0.1", "pid": 1, "nodes": [{"name": "x", "id": 1}]}')
    (tmp_path / "noise.bin").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(b'{"traceEvents": [')[:-9])
    (tmp_path / "folder").mkdir()
    database = sqlite3.connect(tmp_path / "other.sqlite")
    database.execute("create table t (x)")
    database.close()
    (tmp_path / "broken.sqlite").write_bytes(b"SQLite format 3\0" + b"\1" * 200)
    (tmp_path / "report.nsys-rep").write_bytes(b"NVTX" * 50)
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        "none.json", "empty.json", "text.json", "other.json", "execution.json", "noise.bin", "cut.json.gz", "folder",
        "other.sqlite", "broken.sqlite", "report.nsys-rep",
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_one_line(hostile, name):
    done = cgadvisor("analyze", hostile / name, "--out", hostile / "run")
    assert done.returncode == 3, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("cgadvisor: ")
    assert name in done.stderr
    assert "Traceback" not in done.stderr
    assert not (hostile / "run").exists()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--device", "9"), "devices with items: 0"),
        (("--window", "5"), "expected A:B"),
        (("--window", "2:1"), "ends before it starts"),
        (("--window", "900:901"), "no GPU items in it; the trace spans"),
        (("--window", "a:b"), "is not a time"),
        (("--region", "stepp"), "no such region; there are step"),
        (("--config", "nosuch.toml"), "no such configuration file"),
    ],
)
def test_wrong_options_name_what_is_there(tmp_path, argv, said):
    done = cgadvisor("analyze", RECORDING, "--out", tmp_path / "run", *argv)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_unknown_option_is_usage():
    done = cgadvisor("analyze", "--nosuch")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_analyze_prints_one_screen_and_writes_a_run_folder(tmp_path):
    done = cgadvisor("analyze", RECORDING, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    for word in ("Verdict", "Trace", "Step", "Busy", "language", "submission", "Regions", "Report"):
        assert word in done.stdout
    folder = tmp_path / "cgadvisor-runs" / "h200_mlp_adam_train"
    assert sorted(path.name for path in folder.iterdir()) == ["findings.json", "report.html"]


def test_json_is_the_findings_and_nothing_else(tmp_path):
    done = cgadvisor("analyze", RECORDING, "--out", tmp_path / "run", "--json")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found == json.loads((tmp_path / "run" / "findings.json").read_text())
    assert found["step"]["count"] == 10


def test_window_and_export(tmp_path):
    pandas = pytest.importorskip("pandas")
    done = cgadvisor("analyze", RECORDING, "--out", tmp_path / "run", "--window", "0:20ms", "--export", tmp_path / "frames")
    assert done.returncode == 0, done.stderr
    items = pandas.read_parquet(tmp_path / "frames" / "items.parquet")
    assert 0 < len(items) < 1140
    assert (items["start_ns"].max() - items["start_ns"].min()) <= 20_000_000
    assert {path.name for path in (tmp_path / "frames").iterdir()} == {
        "items.parquet", "launches.parquet", "ranges.parquet", "gaps.parquet",
    }  # fmt: skip


def test_lines_needs_a_profiled_run(tmp_path):
    assert cgadvisor("analyze", RECORDING, "--out", tmp_path / "run").returncode == 0
    done = cgadvisor("lines", tmp_path / "run")
    assert done.returncode == 3
    assert "no per-line figures" in done.stderr
    assert cgadvisor("lines", tmp_path / "none").returncode == 3


def test_a_defect_of_the_tool_is_no_verdict():
    code = "from advisor import cli\ncli.app = lambda **_: 1 / 0\ncli.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 70  # 1 would say that the gate failed
    assert "ZeroDivisionError" in done.stderr and "this is a defect of cgadvisor" in done.stderr
