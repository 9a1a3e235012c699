"""The verdict as plain text: what is wrong first, then what was judged, then what it was judged against."""

from __future__ import annotations

from typing import Final

from advisor.gate.environment import FIELDS
from advisor.gate.verdict import GateCheck, GateVerdict, Status
from advisor.model import SourceSpan

_MARKS: Final = {
    Status.FAIL: "FAIL",
    Status.NOT_COMPARABLE: "N/C ",
    Status.INCONCLUSIVE: "????",
    Status.WARN: "WARN",
    Status.PASS: "ok  ",
    Status.SKIPPED: "-   ",
}


def render(verdict: GateVerdict, verbose: bool = False) -> str:
    """Text for a terminal. Checks that passed are counted, and listed when `verbose`."""
    against = f" against {verdict.base_label}" if verdict.base_label else ""
    lines = [f"gate: {verdict.head_label}{against}", verdict.sentence, ""]
    quiet = () if verbose else (Status.PASS,)
    for check in verdict.checks:
        if check.status not in quiet:
            lines += _lines(check)
    lines += ["", f"judged: {tally(verdict)}"]
    lines += [f"note: {note}" for note in verdict.notes]
    lines += [f"environment: {environment_text(verdict)}"]
    return "".join(f"{_one_line(line)}\n" for line in lines)


def _one_line(text: str) -> str:
    """Names in a trace come from anyone: a line break in one could begin a workflow command, an escape could hide text."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def tally(verdict: GateVerdict) -> str:
    """ "1 fail, 2 warn, 14 pass, 1 skipped" """
    return ", ".join(f"{count} {Status(name).words}" for name, count in verdict.counts.items()) or "nothing"


def environment_text(verdict: GateVerdict) -> str:
    """What is known about where head ran, in one line."""
    environment = verdict.head_environment
    known = []
    for field, title in FIELDS.items():
        value = getattr(environment, field)
        if value:
            known.append(f"{title} {' '.join(map(str, value)) if isinstance(value, tuple) else value}")
    return ", ".join(known) or "not recorded"


def place(location: SourceSpan | None) -> str:
    return f"{location.label}: " if location else ""


def _lines(check: GateCheck) -> list[str]:
    lines = [f"{_MARKS[check.status]}  {place(check.location)}{check.message}"]
    if check.detail:
        lines.append(f"      {check.detail}")
    if check.fix and check.status not in (Status.PASS, Status.SKIPPED):
        lines.append(f"      {check.fix}")
    return lines
