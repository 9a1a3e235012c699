"""The frozen values a gate ends with: one check per question asked, one verdict over them.

A failed gate is a value, not an exception; the command turns it into an exit code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from advisor.compare import Comparison
from advisor.errors import EXIT_GATE_FAILED, EXIT_INCONCLUSIVE, EXIT_OK
from advisor.gate.snapshot import Environment
from advisor.model import SourceSpan, Value


class Status(StrEnum):
    """Worst first. `skipped` was shown and not judged; it never decides."""

    FAIL = "fail"
    NOT_COMPARABLE = "not_comparable"
    INCONCLUSIVE = "inconclusive"
    WARN = "warn"
    PASS = "pass"
    SKIPPED = "skipped"

    @property
    def words(self) -> str:
        return self.value.replace("_", " ")


_EXIT_CODES: Final = {
    Status.FAIL: EXIT_GATE_FAILED,
    Status.NOT_COMPARABLE: EXIT_INCONCLUSIVE,
    Status.INCONCLUSIVE: EXIT_INCONCLUSIVE,
}
_RANK: Final = {status: rank for rank, status in enumerate(Status)}


class Group(StrEnum):
    """What a check is about; the order of the output: what names a place comes before the totals it explains."""

    COVERAGE = "coverage"
    ENVIRONMENT = "environment"
    BUDGET = "budget"
    LINE = "line"
    REGION = "region"
    EQUALITY = "equality"
    COUNT = "count"
    TIME = "time"


class GateCheck(Value, frozen=True, kw_only=True):
    """One question and its answer. `id` is stable between runs; `message` is one sentence without the location."""

    id: str
    group: Group
    status: Status
    title: str
    message: str
    metric: str = ""
    region: str = ""
    location: SourceSpan | None = None
    base: str = ""  # as text, in the metric's unit
    head: str = ""
    limit: str = ""
    fix: str = ""
    detail: str = ""  # the evidence behind the message, for those who ask
    rule: str = ""  # the blocker or rule id a code scanner groups by
    comparison: Comparison | None = None


class GateVerdict(Value, frozen=True, kw_only=True):
    """The answer. `counts` is how many checks ended in each status: a gate that compared nothing shows it."""

    format: int = 1
    tool_version: str
    status: Status
    sentence: str
    exit_code: int
    head_label: str
    base_label: str = ""
    checks: tuple[GateCheck, ...]
    counts: dict[str, int]
    head_environment: Environment = Environment()
    base_environment: Environment = Environment()
    notes: tuple[str, ...] = ()

    def of(self, *statuses: Status) -> tuple[GateCheck, ...]:
        """The checks with one of these statuses, in order."""
        return tuple(check for check in self.checks if check.status in statuses)


def worst(statuses: Iterable[Status]) -> Status:
    """The status that decides; SKIPPED when there is none."""
    return min(statuses, key=_RANK.__getitem__, default=Status.SKIPPED)


def ordered(checks: Iterable[GateCheck]) -> tuple[GateCheck, ...]:
    """Worst first, then by group; stable within."""
    groups = list(Group)
    return tuple(sorted(checks, key=lambda check: (_RANK[check.status], groups.index(check.group))))


def overall(checks: tuple[GateCheck, ...], inconclusive: str) -> tuple[Status, int]:
    """The verdict's status and exit code. `inconclusive`: "report" (5), "fail" (1) or "pass" (0)."""
    status = worst(check.status for check in checks)
    if status == Status.SKIPPED:
        status = Status.INCONCLUSIVE  # nothing was judged: that is not a pass
    code = _EXIT_CODES.get(status, EXIT_OK)
    if code == EXIT_INCONCLUSIVE:
        code = {"fail": EXIT_GATE_FAILED, "pass": EXIT_OK}.get(inconclusive, EXIT_INCONCLUSIVE)
    return status, code


def sentence(status: Status, checks: tuple[GateCheck, ...]) -> str:
    """The verdict in one sentence: its weightiest check, and how many more there are."""
    deciding = [check for check in checks if check.status == status]
    judged = sum(check.status != Status.SKIPPED for check in checks)
    if not judged:
        return "Inconclusive: there was nothing to judge."
    if status == Status.PASS:
        return f"Pass: {judged} checks, none worse than the limits."
    more = f" (and {len(deciding) - 1} more)" if len(deciding) > 1 else ""
    first = deciding[0]
    place = f"{first.location.label}: " if first.location else ""
    return f"{status.words.capitalize()}: {place}{first.message}{more}"


def status_counts(checks: Iterable[GateCheck]) -> dict[str, int]:
    """How many checks ended in each status, worst first; statuses without a check are left out."""
    found = Counter(check.status for check in checks)
    return {status.value: found[status] for status in Status if found[status]}
