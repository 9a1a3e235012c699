"""The verdict as SARIF 2.1.0: every check that is not a pass and has a line becomes a result of a code scanner.

What has no line (a count of the whole run, a time) is a notification of the invocation: code scanners refuse results
without a place.
"""

from __future__ import annotations

import hashlib
from pathlib import PureWindowsPath
from typing import Any, Final
from urllib.parse import quote

import msgspec

from advisor.gate.verdict import GateCheck, GateVerdict, Status
from advisor.model import SourceSpan

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: Final = {
    Status.FAIL: "error",
    Status.NOT_COMPARABLE: "warning",
    Status.INCONCLUSIVE: "warning",
    Status.WARN: "warning",
}


def render(verdict: GateVerdict, root: str = "") -> str:
    """SARIF JSON. `root` is the script's folder as seen from the repository root, put before every path."""
    loud = [check for check in verdict.checks if check.status in _LEVELS]
    placed = [check for check in loud if check.location is not None]
    rules = sorted({_rule(check) for check in placed})
    run = {
        "tool": {
            "driver": {
                "name": "cgadvisor",
                "version": verdict.tool_version,
                "rules": [_describe(rule, placed) for rule in rules],
            }
        },
        "originalUriBaseIds": {"SRCROOT": {"description": {"text": "The root of the repository."}}},
        "invocations": [
            {
                "executionSuccessful": True,
                "exitCode": verdict.exit_code,
                "exitCodeDescription": verdict.sentence,
                "toolExecutionNotifications": [_notification(check) for check in loud if check.location is None],
            }
        ],
        "results": [_result(check, rules, root) for check in placed],
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(log), indent=2).decode() + "\n"


def _describe(rule: str, checks: list[GateCheck]) -> dict[str, Any]:
    first = next(check for check in checks if _rule(check) == rule)
    described: dict[str, Any] = {"id": rule, "shortDescription": {"text": rule.replace("-", " ")}}
    if first.fix:
        described["help"] = {"text": first.fix}
    return described


def _result(check: GateCheck, rules: list[str], root: str) -> dict[str, Any]:
    assert check.location is not None
    text = f"{check.message}. {check.fix}." if check.fix else check.message
    return {
        "ruleId": _rule(check),
        "ruleIndex": rules.index(_rule(check)),
        "level": _LEVELS[check.status],
        "message": {"text": text},
        "locations": [_location(check.location, root)],
        # Without the line: a scanner then follows an alert when code is added above it.
        "partialFingerprints": {"cgadvisor/v1": _fingerprint(check)},
    }


def _location(span: SourceSpan, root: str) -> dict[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": _artifact(path_in(root, span.file)),
            "region": {"startLine": max(1, span.first_line), "endLine": max(1, span.first_line, span.last_line)},
        }
    }


def _artifact(path: str) -> dict[str, str]:
    """An absolute path (of an installed package) is not under the root, and a drive would read as a scheme."""
    if path.startswith("/"):
        return {"uri": f"file://{quote(path)}"}
    if PureWindowsPath(path).drive:
        return {"uri": f"file:///{quote(path, safe='/:')}"}
    return {"uri": quote(path), "uriBaseId": "SRCROOT"}


def path_in(root: str, file: str) -> str:
    """`file` under `root`, with forward slashes; an absolute file stays as it is."""
    file, root = file.replace("\\", "/"), root.replace("\\", "/").strip("/")
    is_absolute = file.startswith("/") or bool(PureWindowsPath(file).drive)
    return file if not root or root == "." or is_absolute else f"{root}/{file}"


def _notification(check: GateCheck) -> dict[str, Any]:
    return {
        "level": _LEVELS[check.status],
        "message": {"text": check.message},
        "descriptor": {"id": _rule(check)},
    }


def _rule(check: GateCheck) -> str:
    return check.rule or check.group.value


def _fingerprint(check: GateCheck) -> str:
    assert check.location is not None
    identity = "\0".join((_rule(check), check.location.file, check.region, check.metric, check.title.split(" at ")[0]))
    return hashlib.sha256(identity.encode()).hexdigest()[:32]
