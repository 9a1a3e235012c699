"""`cgadvisor report`: formats, files and refusals, through the real command line."""

from __future__ import annotations

import json

import pytest
import report_builder as build
from typer.testing import CliRunner

from advisor.bundle import Bundle
from advisor.cli import app
from advisor.errors import BundleError, UsageError

runner = CliRunner()


@pytest.fixture
def run(tmp_path):
    bundle = Bundle.create(tmp_path / "run")
    for part in (build.analysis(), build.manifest(), build.clock(), build.verification()):
        bundle.save(part)
    return bundle.folder


def invoke(*arguments: object):
    return runner.invoke(app, ["report", *map(str, arguments)], catch_exceptions=True)


def test_html_goes_into_the_run_folder_and_its_path_is_printed(run):
    result = invoke(run)
    assert result.exit_code == 0
    assert result.stdout.strip() == str(run / "report.html")
    assert (run / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(("name", "start"), [("md", "# One graph over"), ("terminal", "cgadvisor 0.1.0 · train.py")])
def test_text_formats_go_to_the_terminal(run, name, start):
    result = invoke(run, "--format", name)
    assert result.stdout.startswith(start)
    assert not (run / "report.html").exists()


def test_json_holds_every_artefact_and_the_verified_verdict(run):
    parsed = json.loads(invoke(run, "--format", "json").stdout)
    assert set(parsed) == {"verdict", "findings", "manifest", "clock", "verification"}
    assert parsed["verdict"]["answer"] == "graph_it"
    assert parsed["findings"]["verdict"]["answer"] == "probably"


def test_out_and_perfetto_write_where_they_are_told(run, tmp_path):
    result = invoke(run, "--out", tmp_path / "r.html", "--perfetto", tmp_path / "step.json")
    assert result.exit_code == 0
    assert (tmp_path / "r.html").exists()
    assert json.loads((tmp_path / "step.json").read_bytes())["traceEvents"]


def test_refusals(run, tmp_path):
    assert isinstance(invoke(run, "--format", "pdf").exception, UsageError)
    assert isinstance(invoke(run, "--format", "md", "--open").exception, UsageError)
    assert isinstance(invoke(tmp_path / "none").exception, BundleError)
    (run / "findings.json").write_text('{"format": 99}')
    assert "newer" in str(invoke(run).exception)
