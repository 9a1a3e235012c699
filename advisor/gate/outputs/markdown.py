"""The verdict as GitHub-flavoured Markdown: a step summary or a pull-request comment."""

from __future__ import annotations

import re
from typing import Final

from advisor.gate.outputs.terminal import environment_text, tally
from advisor.gate.verdict import GateCheck, GateVerdict, Status

_MARKS: Final = {
    Status.FAIL: "❌ fail",
    Status.NOT_COMPARABLE: "🚫 not comparable",
    Status.INCONCLUSIVE: "❔ inconclusive",
    Status.WARN: "⚠️ warn",
    Status.PASS: "✅ pass",
    Status.SKIPPED: "➖ not judged",
}
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|~@])")
# A step summary of more than 1 MiB is refused whole; a name in a trace can be of any length.
_MAX_ROWS: Final = 200
_MAX_TABLE_BYTES: Final = 400 << 10
_MAX_TEXT: Final = 1000


def render(verdict: GateVerdict) -> str:
    """Markdown: the sentence, a table of what is not a pass, the passes folded away."""
    against = f" against {escape(verdict.base_label)}" if verdict.base_label else ""
    loud = [check for check in verdict.checks if check.status != Status.PASS]
    quiet = verdict.of(Status.PASS)
    lines = [f"### cgadvisor gate: {_MARKS[verdict.status]}", "", escape(verdict.sentence), ""]
    lines += [f"{escape(verdict.head_label)}{against}; {tally(verdict)}.", ""]
    if loud:
        lines += [*_table(loud), ""]
    if quiet:
        lines += [
            f"<details><summary>{len(quiet)} checks passed</summary>",
            "",
            *_table(list(quiet)),
            "",
            "</details>",
            "",
        ]
    lines += [f"- {escape(note)}" for note in verdict.notes]
    lines += [f"- environment: {escape(environment_text(verdict))}"]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Text that shows as itself: names in a trace come from anyone, and a comment can mention people or hold HTML."""
    words = " ".join(text.split())
    return _SPECIAL.sub(r"\\\1", words if len(words) <= _MAX_TEXT else f"{words[:_MAX_TEXT]}…")


def _table(checks: list[GateCheck]) -> list[str]:
    rows = [
        "| | where | what | base | this run | limit |",
        "|---|---|---|--:|--:|--:|",
    ]
    size = shown = 0
    for check in checks[:_MAX_ROWS]:
        row = _row(check)
        size += len(row.encode())
        if size > _MAX_TABLE_BYTES:
            break
        rows.append(row)
        shown += 1
    if shown < len(checks):
        rows.append(f"| | | {len(checks) - shown} more | | | |")
    return rows


def _row(check: GateCheck) -> str:
    where = escape(check.location.label) if check.location else escape(check.region) or "run"
    fix = f"<br>{escape(check.fix)}" if check.fix and check.status not in (Status.PASS, Status.SKIPPED) else ""
    detail = f"<br><sub>{escape(check.detail)}</sub>" if check.detail else ""
    cells = [
        _MARKS[check.status],
        where,
        escape(check.message) + detail + fix,
        *map(escape, (check.base, check.head, check.limit)),
    ]
    return f"| {' | '.join(cells)} |"
