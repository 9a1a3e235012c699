"""The verdict in the forms its readers take, read back by their parsers; and the action's own shell steps."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from gate_runs import MS, analysis, attempt, clock, module, noisy, snapshot, step_region, sync, verification
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.bundle import Bundle
from advisor.commands.gate import publish, run
from advisor.commands.gate_sides import Options
from advisor.config import GateConfig
from advisor.errors import BundleError, UsageError
from advisor.gate import GateVerdict, Status, judge
from advisor.gate.baseline import save
from advisor.gate.outputs import github, junit, markdown, sarif, terminal
from advisor.gate.verdict import GateCheck, Group, status_counts
from advisor.model import Outcome, SourceSpan

ROOT = Path(__file__).resolve().parents[1]
# The schema as published on schemastore.org, taken from the npm package @microsoft/jest-sarif 1.0.0-beta.0 (MIT).
SCHEMA = json.loads((Path(__file__).parent / "data" / "sarif-2.1.0-rtm.5.json").read_text())


def failing() -> GateVerdict:
    """A new line, a lost capture, slower times, a missing region, a warning, and plenty that passes."""
    base = snapshot(analysis(step_region(), module()), clock=clock(*noisy(1)), verification=verification(attempt()))
    head = snapshot(
        analysis(step_region(launch_count=101.0), syncs=(sync(20),)),
        label="head",
        clock=clock(*noisy(2, 1.2 * MS)),
        verification=verification(attempt(Outcome.BLOCKED, blocker=sync(14))),
    )
    return judge(head, base, GateConfig())


def passing() -> GateVerdict:
    return judge(snapshot(), snapshot(), GateConfig())


def hostile(text: str) -> GateVerdict:
    """A verdict in which every free text is `text`."""
    check = GateCheck(
        id=text, group=Group.LINE, status=Status.FAIL, title=text, message=text, fix=text, detail=text, base=text, head=text,
        location=SourceSpan(file=text or "f", first_line=1, last_line=2), region=text, rule=text,
    )  # fmt: skip
    checks = (check, msgspec.structs.replace(check, location=None, status=Status.WARN))
    return GateVerdict(
        tool_version="0", status=Status.FAIL, sentence=text, exit_code=1, head_label=text, base_label=text, checks=checks,
        counts=status_counts(checks), notes=(text,),
    )  # fmt: skip


anything = st.text(st.characters(codec="utf-8"), max_size=40)


# --- SARIF -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [failing(), passing()], ids=["failing", "passing"])
def test_sarif_is_valid(made: GateVerdict) -> None:
    jsonschema.validate(json.loads(sarif.render(made)), SCHEMA)


@settings(deadline=None, max_examples=30)  # the schema has 52 definitions and Python walks them
@given(anything)
def test_sarif_of_any_text_is_valid(text: str) -> None:
    jsonschema.validate(json.loads(sarif.render(hostile(text))), SCHEMA)


def test_the_schema_refuses_what_is_wrong() -> None:
    wrong = json.loads(sarif.render(failing()))
    wrong["runs"][0]["results"][0]["level"] = "catastrophe"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, SCHEMA)


def test_sarif_results_have_lines_and_the_rest_are_notifications() -> None:
    run = json.loads(sarif.render(failing(), "examples/mlp"))["runs"][0]
    found = {result["ruleId"]: result for result in run["results"]}
    place = found["sync-item"]["locations"][0]["physicalLocation"]
    lines = {result["locations"][0]["physicalLocation"]["region"]["startLine"] for result in run["results"]}
    assert place["artifactLocation"]["uri"] == "examples/mlp/train.py"
    assert lines == {14, 20}
    assert all(run["tool"]["driver"]["rules"][one["ruleIndex"]]["id"] == one["ruleId"] for one in run["results"])
    notes = run["invocations"][0]["toolExecutionNotifications"]
    assert any("slower" in note["message"]["text"] for note in notes)
    assert run["invocations"][0]["exitCode"] == 1


@pytest.mark.parametrize(
    ("file", "location"),
    [
        ("sub\\a b.py", {"uri": "examples/sub/a%20b.py", "uriBaseId": "SRCROOT"}),
        ("C:\\lib\\a b.py", {"uri": "file:///C:/lib/a%20b.py"}),
        ("/usr/lib/a.py", {"uri": "file:///usr/lib/a.py"}),
    ],
)
def test_only_a_file_under_the_root_is_relative_to_it(file: str, location: dict[str, str]) -> None:
    made = hostile(file)
    log = json.loads(sarif.render(made, "examples"))
    jsonschema.validate(log, SCHEMA)
    assert log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"] == location


def test_a_fingerprint_does_not_change_when_the_line_moves() -> None:
    def fingerprint(line: int) -> str:
        head = snapshot(analysis(syncs=(sync(line),)))
        log = json.loads(sarif.render(judge(head, snapshot(), GateConfig())))
        return log["runs"][0]["results"][0]["partialFingerprints"]["cgadvisor/v1"]

    assert fingerprint(20) == fingerprint(33)


# --- JUnit -----------------------------------------------------------------------------------------------------------


def test_junit_is_read_back_by_a_parser() -> None:
    made = failing()
    root = ET.fromstring(junit.render(made))
    cases = root.findall("./testsuite/testcase")
    assert len(cases) == len(made.checks) == int(root.get("tests", ""))
    failures = root.findall(".//failure")
    assert len(failures) == made.counts["fail"] == int(root.get("failures", ""))
    line = next(case for case in cases if case.get("name") == "line:sync-item@train.py:20")
    assert (line.get("file"), line.get("line"), line.find("failure").get("type")) == ("train.py", "20", "sync-item")
    sums = [sum(int(suite.get(name, "0")) for suite in root) for name in ("tests", "failures", "errors", "skipped")]
    assert sums == [int(root.get(name, "")) for name in ("tests", "failures", "errors", "skipped")]


def test_junit_says_error_when_the_question_could_not_be_answered() -> None:
    head = snapshot(clock=clock(*((2 * MS,) * 3)))
    made = judge(head, snapshot(clock=clock(*((MS,) * 3))), GateConfig())
    assert made.status == Status.INCONCLUSIVE
    assert len(ET.fromstring(junit.render(made)).findall(".//error")) == 1


@settings(deadline=None)
@given(anything)
def test_junit_of_any_text_parses(text: str) -> None:
    ET.fromstring(junit.render(hostile(text)))


# --- Markdown, terminal, GitHub --------------------------------------------------------------------------------------


def test_markdown_shows_what_is_wrong_and_folds_what_is_not() -> None:
    text = markdown.render(failing())
    assert text.startswith("### cgadvisor gate: ❌ fail")
    before, _, after = text.partition("<details>")
    assert "train.py:20" in before and "✅" not in before and "✅" in after


@settings(deadline=None)
@given(anything)
def test_markdown_of_any_text_keeps_its_table(text: str) -> None:
    rows = [line for line in markdown.render(hostile(text)).split("\n") if line.startswith("|")]
    assert len(rows) == 4
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {7}
    body = "\n".join(rows).replace("<br>", "").replace("<sub>", "").replace("</sub>", "")
    assert not re.search(r"(?<!\\)[<@]", body)


def test_a_name_in_the_trace_is_no_workflow_command_and_no_escape() -> None:
    text = terminal.render(hostile("a\n::stop-commands::x\r\u2028::error::y\x1b[31m"), verbose=True)
    assert not any(line.startswith("::") for line in text.splitlines()) and "\x1b" not in text


def test_names_of_any_length_leave_a_summary_that_is_accepted() -> None:
    one = hostile("漢 <|" * 50_000)
    many = msgspec.structs.replace(one, checks=one.checks * 300)
    for made in (one, many):
        assert len(markdown.render(made).encode()) < 1 << 20
        assert all(len(line) < 20_000 for line in github.render(made).splitlines() if "file=" not in line)
    assert re.search(r"\| \d+ more \|", markdown.render(many)) and markdown.render(one).count("❌") > 1


def test_the_terminal_lists_passes_only_when_asked() -> None:
    made = failing()
    assert "ok  " not in terminal.render(made)
    assert terminal.render(made, verbose=True).count("\nok  ") == made.counts["pass"]
    assert "judged: " in terminal.render(passing())


def test_annotations_name_file_and_line_and_are_escaped() -> None:
    lines = github.render(failing(), "examples").splitlines()
    assert any(
        line.startswith("::error file=examples/train.py,line=20,endLine=20,title=cgadvisor%3A ") for line in lines
    )
    odd = github.render(hostile("50%,\nx:y::error::z"))
    assert odd.count("\n") == 2
    assert "file=50%25%2C%0Ax%3Ay%3A%3Aerror%3A%3Az,line=1" in odd


def test_more_than_ten_annotations_end_with_how_many_there_are() -> None:
    head = snapshot(analysis(syncs=tuple(sync(line) for line in range(1, 31))))
    lines = github.render(judge(head, snapshot(), GateConfig())).splitlines()
    assert len(lines) == 10 and "21 more" in lines[-1]


def test_published_files_summary_and_outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = failing()
    environ = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
    }
    files = {kind: tmp_path / kind for kind in ("junit", "sarif", "md", "json")}
    publish(made, Options(None, None, format="json", files=files), environ)
    shown = capsys.readouterr()
    assert msgspec.json.decode(shown.out, type=GateVerdict) == made  # stdout stays one JSON document
    assert "::error file=train.py" in shown.err
    assert (tmp_path / "summary.md").read_text() == markdown.render(made) == files["md"].read_text()
    assert "status=fail\nexit-code=1\n" in (tmp_path / "output").read_text()
    ET.fromstring(files["junit"].read_text())
    jsonschema.validate(json.loads(files["sarif"].read_text()), SCHEMA)


def test_nothing_is_told_to_github_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(failing(), Options(None, None), {})
    assert "::error" not in "".join(capsys.readouterr())


def test_a_summary_that_cannot_be_written_changes_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Bundle.create(tmp_path / "run").save(analysis())
    none = str(tmp_path / "none" / "file")
    for name, value in {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": none, "GITHUB_OUTPUT": none}.items():
        monkeypatch.setenv(name, value)
    assert run(Options(tmp_path / "run", tmp_path / "run")) == 0
    assert "cannot write" in capsys.readouterr().err


def test_a_file_that_has_no_folder_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no such folder"):
        run(Options(None, None, files={"sarif": tmp_path / "none" / "x.sarif"}, script=tmp_path / "none.py"))


def test_a_second_run_is_refused_and_not_ignored(tmp_path: Path) -> None:
    Bundle.create(tmp_path / "run").save(analysis())
    with pytest.raises(UsageError, match="'worse' is one more"):
        run(Options(tmp_path / "run", tmp_path / "run", script_args=("worse",)))


# --- the action ------------------------------------------------------------------------------------------------------


def action() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml", reason="reads action.yml")
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
    return loaded


def dry_run(folder: Path, **inputs: str) -> tuple[int, dict[str, str], str]:
    """Run the gate step of action.yml as a runner would, with these inputs: (exit code, outputs, log)."""
    loaded = action()
    step = next(one for one in loaded["runs"]["steps"] if one.get("id") == "gate")
    values = {name: spec.get("default", "") for name, spec in loaded["inputs"].items()} | inputs
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    tool = tools / "cgadvisor"
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from advisor.cli import main; main()" "$@"\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    environ = {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: values[found[1]], text)
        for name, text in step["env"].items()
    }
    files = {name: folder / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    for path in files.values():
        path.write_text("")
    # The runner's own call for `shell: bash`.
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=folder,
        env={
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "GITHUB_ACTIONS": "true",
            **{name: str(path) for name, path in files.items()},
            **environ,
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
    return done.returncode, outputs, done.stdout + done.stderr


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    if shutil.which("bash") is None:
        pytest.skip("the action's steps are bash")
    Bundle.create(tmp_path / "good").save(analysis())
    Bundle.create(tmp_path / "bad").save(analysis(syncs=(sync(20),)))
    save(snapshot(), tmp_path / "cgadvisor-baseline.json")
    return tmp_path


def test_the_action_passes_and_fails_as_the_gate_does(workspace: Path) -> None:
    code, outputs, log = dry_run(workspace, run="good")
    assert code == 0, log
    assert outputs["status"] == "pass" and outputs["exit-code"] == "0"

    code, outputs, log = dry_run(workspace, run="bad", **{"source-root": "examples"})
    assert code == 1
    assert outputs["status"] == "fail" and "train.py:20" in outputs["sentence"]
    assert "::error file=examples/train.py,line=20" in log
    assert "❌ fail" in (workspace / "GITHUB_STEP_SUMMARY").read_text()
    jsonschema.validate(json.loads((workspace / outputs["sarif"]).read_text()), SCHEMA)
    ET.fromstring((workspace / outputs["junit"]).read_text())


def test_the_action_lets_inconclusive_pass_only_when_told(workspace: Path) -> None:
    other = snapshot(analysis(trace=msgspec.structs.replace(analysis().trace, gpu_names=("NVIDIA L4",))))
    save(other, workspace / "l4.json")
    assert dry_run(workspace, run="good", baseline="l4.json")[0] == 5
    code, outputs, _ = dry_run(workspace, run="good", baseline="l4.json", inconclusive="pass")
    assert code == 0 and outputs["status"] == "not_comparable"


def test_inputs_of_the_action_are_words_and_never_code(workspace: Path) -> None:
    code, _, log = dry_run(workspace, run='good"; touch broken; $(touch broken) `touch broken`')
    assert code == 3 and not (workspace / "broken").exists()
    assert "no such run folder" in log
    text = (ROOT / "action.yml").read_text()
    for script in (step["run"] for step in action()["runs"]["steps"]):
        assert "${{" not in script
    assert text.count("shell: bash") == 2


def test_the_action_allows_what_is_listed(workspace: Path) -> None:
    save(snapshot(analysis(step_region(), module())), workspace / "more.json")
    assert dry_run(workspace, run="good", baseline="more.json")[0] == 1
    listed = {"allow-missing": "verification\nregion:encoder\n"}
    assert dry_run(workspace, run="good", baseline="more.json", **listed)[0] == 0


def test_without_a_verdict_the_action_names_no_files_of_an_earlier_run(workspace: Path) -> None:
    code, outputs, _ = dry_run(workspace, run="good")
    assert code == 0 and {"sarif", "junit"} <= set(outputs)
    code, outputs, _ = dry_run(workspace, run="none")
    assert code == 3 and outputs == {}
    assert not list((workspace / "cgadvisor-gate").iterdir())


@pytest.mark.parametrize(
    "inputs", [{"run": "good", "script": "train.py"}, {"run": "good", "inconclusive": "passs"}], ids=["both", "typo"]
)
def test_inputs_of_the_action_that_make_no_sense_are_refused(workspace: Path, inputs: dict[str, str]) -> None:
    code, _, log = dry_run(workspace, **inputs)
    assert code == 2 and "::error title=cgadvisor::" in log


def test_a_folder_of_the_action_may_have_spaces_and_quotes(workspace: Path) -> None:
    code, outputs, log = dry_run(workspace, run="good", **{"report-folder": "-my \"out\" $(x)/gate's"})
    assert code == 0, log
    assert (workspace / outputs["sarif"]).is_file()
