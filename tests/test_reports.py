"""The committed reports are what this version renders from their run folders; `python tests/test_reports.py` renders again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from advisor.bundle import REPORT_NAME
from advisor.model import Answer, Outcome
from advisor.report import html
from advisor.report.content import RunContent

REPORTS = Path(__file__).parents[1] / "reports"
FOLDERS = sorted(path.parent for path in REPORTS.glob("*/findings.json"))
# The plots' library comes from whatever plotly is installed; the report's own text and data must not depend on it.
_LIBRARY = re.compile(r'(<script type="text/plain" id="plotly-deflated">).*?(</script>)', re.DOTALL)


def without_library(page: str) -> str:
    return _LIBRARY.sub(r"\1\2", page)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_committed_report_has_not_drifted(folder):
    committed = (folder / REPORT_NAME).read_text(encoding="utf-8")
    rendered = html.render(RunContent.load(folder))
    assert without_library(committed) == without_library(rendered), "run: python tests/test_reports.py"


def test_the_kinds_of_answer_are_there():
    runs = {folder.name: RunContent.load(folder) for folder in FOLDERS}
    answers = {name: run.verdict.answer for name, run in runs.items()}
    assert answers["lstm_cell"] == Answer.GRAPH_IT
    assert answers["mlp_train"] == Answer.BLOCKED
    assert answers["mlp_16384"] == Answer.NOT_WORTH_IT
    assert answers["leimao_rtx5080_eager"] == Answer.PROBABLY
    fixed = [one for one in runs["mlp_train"].verification.attempts if one.outcome == Outcome.VERIFIED]
    assert [fix.id for fix in fixed[0].fixes] == ["capturable"]


if __name__ == "__main__":
    for each in FOLDERS:
        (each / REPORT_NAME).write_text(html.render(RunContent.load(each)), encoding="utf-8")
        print(each / REPORT_NAME)
