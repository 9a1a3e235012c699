"""The record of GPU runs: a part of the folder never counts as the whole."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "gpu"


@pytest.fixture(scope="module")
def conftest():
    spec = importlib.util.spec_from_file_location("gpu_conftest", FOLDER / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("args", "keyword", "markexpr", "whole"),
    [
        ([str(FOLDER)], "", "", "all"),
        ([str(FOLDER.parent)], "", "gpu", "all"),
        ([str(FOLDER)], "fifty", "", []),
        ([str(FOLDER)], "", "not gpu", []),
        ([str(FOLDER / "test_faults.py")], "", "", ["test_faults.py"]),
        ([f"{FOLDER / 'test_faults.py'}::test_x"], "", "", []),
    ],
)
def test_only_whole_files_count(conftest, args, keyword, markexpr, whole):
    every = sorted(path.name for path in FOLDER.glob("test_*.py"))
    assert conftest.whole_files(args, keyword, markexpr) == (every if whole == "all" else whole)


ABOUT = {"sources_sha256": "a1", "torch": "2.11.0", "device": "H200"}


def run(*files, failed=()):
    return {"files": list(files), "counts": {"passed": 3, "failed": len(failed)}, "failures": list(failed)}


def test_runs_of_all_files_add_up(conftest):
    every = sorted(path.name for path in FOLDER.glob("test_*.py"))
    part = conftest.merged({}, ABOUT, run(*every[:-1], failed=["x"]))
    assert not part["complete"] and part["missing"] == every[-1:]
    whole = conftest.merged(part, ABOUT, run(every[-1]))
    assert whole["complete"] and whole["counts"] == {"passed": 6, "failed": 1} and whole["failures"] == ["x"]
    again = conftest.merged(whole, ABOUT, run(*every))  # a file that ran again replaces its earlier result
    assert again["failures"] == [] and again["counts"]["passed"] == 3


def test_a_run_on_other_sources_starts_anew(conftest):
    every = sorted(path.name for path in FOLDER.glob("test_*.py"))
    part = conftest.merged({}, ABOUT, run(*every[:-1]))
    for other in ({"sources_sha256": "b2"}, {"torch": "2.12.0"}, {"device": "L4"}):
        assert not conftest.merged(part, ABOUT | other, run(every[-1]))["complete"]


def test_a_complete_record_is_of_these_sources(conftest):
    record = json.loads((FOLDER / "last_run.json").read_text(encoding="utf-8"))
    if record["complete"]:
        assert record["sources_sha256"] == conftest.sources_hash()
        assert record["failures"] == []
    else:
        assert record.get("why") or record["missing"]
