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
        ([str(FOLDER)], "", "", True),
        ([str(FOLDER.parent)], "", "gpu", True),
        ([str(FOLDER)], "fifty", "", False),
        ([str(FOLDER)], "", "not gpu", False),
        ([str(FOLDER / "test_faults.py")], "", "", False),
        ([f"{FOLDER / 'test_faults.py'}::test_x"], "", "", False),
    ],
)
def test_only_the_whole_folder_is_complete(conftest, args, keyword, markexpr, whole):
    assert conftest.is_whole(args, keyword, markexpr) == whole


def test_a_complete_record_is_of_these_sources(conftest):
    record = json.loads((FOLDER / "last_run.json").read_text(encoding="utf-8"))
    if record["complete"]:
        assert record["sources_sha256"] == conftest.sources_hash()
        assert record["failures"] == []
    else:
        assert record["why"]
        assert record["never_ran"]
