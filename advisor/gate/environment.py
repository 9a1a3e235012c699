"""May these two sides be compared at all? Every difference is named.

Another GPU, torch, CUDA or command line changes what is launched, and counts per step of another step count something
else, so these rule out every comparison. Another driver,
clock, host or Python changes only how long it takes, so it rules out the times.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from advisor.gate.snapshot import Environment
from advisor.gate.verdict import GateCheck, Group, Status

_COUNT_FIELDS: Final = {
    "gpu_names": "GPU",
    "torch_version": "torch",
    "cuda_version": "CUDA",
    "arguments": "script arguments",
    "source": "kind of trace",
}
_TIME_FIELDS: Final = {
    "driver_version": "driver",
    "gpu_clock_mhz": "GPU clock",
    "cpu_count": "CPU count",
    "python_version": "Python",
}
FIELDS: Final = {**_COUNT_FIELDS, **_TIME_FIELDS}
STEP: Final = "step"
ALLOWABLE: Final = (*FIELDS, STEP)
_LINES: Final = re.compile(r":\d+(-\d+)?")
_CLOCK_RATIO: Final = 0.02  # a clock that differs by less is the same setting read twice


def differences(base: Environment, head: Environment, allowed: Collection[str] = ()) -> dict[str, str]:
    """Field -> "GPU: NVIDIA H100 -> NVIDIA H200" for each known field that differs and is not allowed to."""
    found = {}
    for field, title in FIELDS.items():
        before, after = getattr(base, field), getattr(head, field)
        if _known(before) and _known(after) and not _same(field, before, after) and field not in allowed:
            found[field] = f"{title}: {_text(before)} -> {_text(after)}"
    return found


def step_difference(before: str, after: str) -> str:
    """ "step: train.py:12-30 -> calls of module Net"; nothing when a side has none, or when only line numbers moved."""
    if not before or not after or _LINES.sub("", before) == _LINES.sub("", after):
        return ""
    return f"step: {before} -> {after}"


def checks(found: dict[str, str]) -> tuple[GateCheck, ...]:
    """One check per difference; one that passes when there is none."""
    if not found:
        return (_check("environment", Status.PASS, "the two sides ran in comparable environments"),)
    return tuple(
        _check(f"environment:{field}", Status.NOT_COMPARABLE, f"{text}; {_scope(field)}", field)
        for field, text in found.items()
    )


def forbids_counts(found: dict[str, str]) -> bool:
    return any(_rules_out_counts(field) for field in found)


def _rules_out_counts(field: str) -> bool:
    return field in _COUNT_FIELDS or field == STEP


def _check(identity: str, status: Status, message: str, field: str = "") -> GateCheck:
    fix = (
        ""
        if status == Status.PASS
        else (f'save a new baseline in this environment, or allow it: allow_different = ["{field}"]')
    )
    return GateCheck(id=identity, group=Group.ENVIRONMENT, status=status, title="environment", message=message, fix=fix)


def _scope(field: str) -> str:
    return "no comparison holds" if _rules_out_counts(field) else "times are not compared, counts are"


def _known(value: object) -> bool:
    # No arguments at all is known to be none; every other empty value means that nobody recorded it.
    return value is not None and (value == () or bool(value)) and value != "" and value != 0


def _same(field: str, before: object, after: object) -> bool:
    if field == "gpu_names" and (not before or not after):
        return True
    if field == "gpu_clock_mhz" and isinstance(before, int) and isinstance(after, int):
        return abs(after - before) <= _CLOCK_RATIO * before
    return before == after


def _text(value: object) -> str:
    return " ".join(str(part) for part in value) or "none" if isinstance(value, tuple) else str(value)
