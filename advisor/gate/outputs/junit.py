"""The verdict as JUnit XML: one suite a group, one test case a check."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Final

from advisor.gate.outputs.terminal import place
from advisor.gate.verdict import GateCheck, GateVerdict, Group, Status

# Characters XML 1.0 cannot hold in any spelling (production [2] Char).
_ILLEGAL: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ELEMENTS: Final = {
    Status.FAIL: "failure",
    Status.NOT_COMPARABLE: "error",
    Status.INCONCLUSIVE: "error",
    Status.SKIPPED: "skipped",
}


def render(verdict: GateVerdict) -> str:
    """JUnit XML. Not comparable and inconclusive are `error`: the question could not be answered. A warning passes."""
    root = ET.Element("testsuites", {"name": "cgadvisor gate"} | _totals(verdict.checks))
    for group in Group:
        checks = tuple(check for check in verdict.checks if check.group == group)
        if checks:
            suite = ET.SubElement(root, "testsuite", {"name": f"cgadvisor.{group.value}"} | _totals(checks))
            for check in checks:
                _case(suite, check)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _case(suite: ET.Element, check: GateCheck) -> None:
    case = ET.SubElement(suite, "testcase", name=_text(check.id), classname=f"cgadvisor.{check.group.value}", time="0")
    if check.location is not None:
        case.set("file", _text(check.location.file))
        case.set("line", str(check.location.first_line))
    message = _text(place(check.location) + check.message)
    element = _ELEMENTS.get(check.status)
    if element is None:
        if check.status == Status.WARN:
            ET.SubElement(case, "system-out").text = f"warning: {message}"
        return
    outcome = ET.SubElement(case, element, message=message)
    if element != "skipped":
        outcome.set("type", _text(check.rule or check.status.value))
        outcome.text = _text("\n".join(part for part in (message, check.detail, check.fix) if part))


def _totals(checks: tuple[GateCheck, ...]) -> dict[str, str]:
    kinds = [_ELEMENTS.get(check.status, "") for check in checks]
    names = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    return {"tests": str(len(checks))} | {name: str(kinds.count(kind)) for name, kind in names.items()}


def _text(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)
