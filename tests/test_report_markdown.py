"""The report as Markdown: the same verdict and figures, and nothing a name can break."""

from __future__ import annotations

import re

import pytest
import report_builder as build
from test_report_html import HOSTILE, NAMED, hostile

from advisor.report import markdown


def test_it_leads_with_the_verdict_and_shows_the_figures():
    text = markdown.render(build.full())
    assert text.startswith(
        "# One graph over train.py:8-13 makes a step 7.1× faster, 3.19 ms → 449 µs, results bit-identical"
    )
    assert "| step | 3.19 ms | 100 % | measured |" in text
    assert "| step graphed | 449 µs | 14.1 % | verified |" in text
    assert "| train.py:8-13 | 114 | 100 % | 324 µs | 6.15 ms | 2.75 ms (2.58 ms to 2.85 ms) | 7.1× |" in text
    assert "Under the profiler: 6.48 ms, 2.03× as long." in text


def test_a_fix_is_shown_as_a_diff():
    text = markdown.render(NAMED["blocked, with fix"])
    assert "```diff\n--- train.py" in text
    assert "+opt = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True)" in text


@pytest.mark.parametrize("name", NAMED)
def test_every_table_row_has_the_columns_of_its_head(name):
    lines = markdown.render(NAMED[name]).splitlines()
    for head, rule, *rows in (block for block in _tables(lines)):
        width = rule.count("|")
        assert all(_columns(row) == width for row in (head, *rows)), head


def test_hostile_names_open_no_tag_and_no_column():
    text = markdown.render(hostile())
    outside = re.sub(r"(?<!\\)`[^`\n]*`", "", "".join(text.split("```")[::2]))  # code is literal
    assert "<img" not in outside and "</script" not in outside
    for head, rule, *rows in _tables(text.splitlines()):
        assert all(_columns(row) == rule.count("|") for row in (head, *rows))
    assert HOSTILE.split("<")[0] == ""  # the name does start with the tag


def test_a_fence_is_longer_than_any_in_its_text():
    assert markdown.fence("a\n```\nb", "diff") == "````diff\na\n```\nb\n````"
    assert markdown.fence("plain", "py") == "```py\nplain\n```"


def test_backticks_stay_code_and_lone_ones_are_text():
    assert markdown.text("run `cgadvisor verify RUN` now") == "run `cgadvisor verify RUN` now"
    assert markdown.text("a ` b") == "a \\` b"
    assert markdown.cell("a|b\n<c>") == "a\\|b &lt;c&gt;"


def _tables(lines: list[str]) -> list[list[str]]:
    found: list[list[str]] = []
    inside: list[str] = []
    for line in [*lines, ""]:
        if line.startswith("|"):
            inside.append(line)
        elif inside:
            found.append(inside)
            inside = []
    return found


def _columns(row: str) -> int:
    return row.replace("\\|", "").count("|")
