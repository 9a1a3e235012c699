"""GitHub Actions workflow commands: annotations on the lines of a pull request, and the outputs of a step."""

from __future__ import annotations

from typing import Final

from advisor.gate.outputs.sarif import path_in
from advisor.gate.verdict import GateCheck, GateVerdict, Status

_COMMANDS: Final = {
    Status.FAIL: "error",
    Status.NOT_COMPARABLE: "warning",
    Status.INCONCLUSIVE: "warning",
    Status.WARN: "warning",
}
_MAX_TITLE: Final = 255
_MAX_TEXT: Final = 4_000  # of a message: the service cuts longer ones, or drops them
_MAX: Final = 10  # of one level per step: the service drops the rest silently


def render(verdict: GateVerdict, root: str = "") -> str:
    """Workflow commands, one a line; at most ten of a level, the last saying how many there were."""
    lines: list[str] = []
    for command in ("error", "warning"):
        checks = [check for check in verdict.checks if _COMMANDS.get(check.status) == command]
        shown = checks if len(checks) <= _MAX else checks[: _MAX - 1]
        lines += [_annotation(command, check, root) for check in shown]
        if len(shown) < len(checks):
            lines.append(f"::{command} title=cgadvisor::{len(checks) - len(shown)} more; see the step summary")
    return "".join(f"{line}\n" for line in lines)


def outputs(verdict: GateVerdict) -> str:
    """Lines for $GITHUB_OUTPUT: status, exit code, sentence."""
    sentence = " ".join(verdict.sentence.split())
    return f"status={verdict.status.value}\nexit-code={verdict.exit_code}\nsentence={sentence}\n"


def _annotation(command: str, check: GateCheck, root: str) -> str:
    properties = [f"title={_property(f'cgadvisor: {check.title}'[:_MAX_TITLE])}"]
    if check.location is not None:
        properties.insert(0, f"file={_property(path_in(root, check.location.file))}")
        properties.insert(1, f"line={check.location.first_line},endLine={check.location.last_line}")
    message = f"{check.message}\n{check.fix}" if check.fix else check.message
    return f"::{command} {','.join(properties)}::{_data(message[:_MAX_TEXT])}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
