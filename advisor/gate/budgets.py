"""`[[gate.budget]]`: limits a person wrote down. An unknown metric, region or limit is an error, never a pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

import msgspec

from advisor.compare import bootstrap_median_interval, median
from advisor.config import Budget
from advisor.errors import UsageError
from advisor.gate.environment import forbids_counts
from advisor.gate.matching import RegionKey
from advisor.gate.metrics import Metric, metric
from advisor.gate.snapshot import STEP_TIME, RegionFigures, Snapshot
from advisor.gate.verdict import GateCheck, Group, Status
from advisor.model import SourceSpan

_ROUNDING = 1e-9


@dataclass(frozen=True)
class _Limit:
    """`value` and `warn` bound the metric; `sign` +1: from above, -1: from below."""

    value: float
    warn: float | None
    sign: int
    text: str
    of_base: bool = False


def budget_checks(
    budgets: tuple[Budget, ...],
    base: Snapshot | None,
    head: Snapshot,
    pairs: dict[RegionKey, RegionFigures],
    differences: dict[str, str],
) -> Iterator[GateCheck]:
    """One check per limit of each budget. Raises UsageError, naming the budget and the nearest name.

    `differences` of the environment rule out limits that are set by the baseline, and no others.
    """
    for number, budget in enumerate(budgets, 1):
        where = f"budget {number}"
        found = metric(budget.metric, where, budget.region is not None)
        if budget.max is None and budget.min is None and budget.max_increase is None:
            raise UsageError(f"{where} ({found.id}): needs max, min or max_increase")
        region, before = _regions(budget.region, base, head, pairs, where)
        value = _value(found, head, region)
        if (budget.region is not None and region is None) or value is None:
            yield _missing(found, budget, where)
            continue
        for limit in _limits(budget, found, _base_value(found, base, before, budget), where):
            made = _check(found, budget, limit, value, head, region.location if region else None)
            yield _not_compared(made, differences) if limit.of_base and _barred(found, differences) else made


def _barred(found: Metric, differences: dict[str, str]) -> bool:
    return forbids_counts(differences) or (found.id == STEP_TIME and bool(differences))


def _not_compared(check: GateCheck, differences: dict[str, str]) -> GateCheck:
    message = f"{check.title} {check.head}: the baseline sets the limit, and is not comparable"
    return msgspec.structs.replace(
        check, status=Status.NOT_COMPARABLE, message=f"{message} ({'; '.join(differences.values())})"
    )


def _regions(
    name: str | None, base: Snapshot | None, head: Snapshot, pairs: dict[RegionKey, RegionFigures], where: str
) -> tuple[RegionFigures | None, RegionFigures | None]:
    """The named region in head and in base; None when it is only in the other. Raises UsageError when in neither."""
    if name is None:
        return None, None
    before = base.region(name) if base else None
    after = head.region(name) or (pairs.get(before.key) if before else None)
    if before is None and after is None:
        known = list(dict.fromkeys(region.label for region in (*head.regions, *(base.regions if base else ()))))
        near = get_close_matches(name, known, 1, 0.4)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known[:8]) or 'none in this run'}"
        raise UsageError(f"{where}: no region {name!r}; {hint}")
    return after, before


def _value(found: Metric, side: Snapshot, region: RegionFigures | None) -> float | None:
    if found.id == STEP_TIME:
        times = side.times.get(STEP_TIME)
        return median([median(samples) for samples in times.processes_ns]) if times and times.processes_ns else None
    return (region.metrics if region else side.metrics).get(found.id)


def _base_value(found: Metric, base: Snapshot | None, region: RegionFigures | None, budget: Budget) -> float | None:
    if base is None or (budget.region is not None and region is None):
        return None
    return _value(found, base, region)


def _limits(budget: Budget, found: Metric, base: float | None, where: str) -> Iterator[_Limit]:
    absolute = [limit for limit in (budget.max, budget.min) if limit is not None]
    warn = budget.warn if len(absolute) + (budget.max_increase is not None) == 1 else None
    if budget.warn is not None and warn is None:
        raise UsageError(f"{where} ({found.id}): warn needs exactly one of max, min and max_increase beside it")
    for value, sign, name in ((budget.max, 1, "max"), (budget.min, -1, "min")):
        if value is not None:
            if isinstance(warn, str):
                raise UsageError(f"{where} ({found.id}): warn must be a number beside {name}, not {warn!r}")
            if warn is not None and (warn - value) * sign > 0:
                raise UsageError(
                    f"{where} ({found.id}): warn {warn:g} lies beyond {name} {value:g}; it could never warn"
                )
            yield _Limit(value, warn, sign, f"{name} {found.text(value)}")
    if budget.max_increase is not None:
        if found.worse < 0:
            raise UsageError(f"{where} ({found.id}): less of it is worse, which max_increase never sees; give min")
        if base is None:
            raise UsageError(f"{where} ({found.id}): max_increase needs a baseline that has it; give --baseline")
        value = base + _increase(budget.max_increase, base, where)
        soft = None if warn is None else base + _increase(warn, base, where)
        yield _Limit(value, soft, 1, f"baseline {found.text(base)} + {budget.max_increase}", of_base=True)


def _increase(text: str | float, base: float, where: str) -> float:
    """ "2%" of the base, or a number in the metric's own unit. Raises UsageError."""
    try:
        value = float(text[:-1]) / 100 * abs(base) if isinstance(text, str) and text.endswith("%") else float(text)
    except ValueError:
        raise UsageError(f'{where}: {text!r} is neither a percentage such as "2%" nor a number') from None
    if not 0 <= value < float("inf"):
        raise UsageError(f"{where}: an increase of {text!r} is not zero or more")
    return value


def _check(
    found: Metric, budget: Budget, limit: _Limit, value: float, head: Snapshot, location: SourceSpan | None
) -> GateCheck:
    of = f" of {budget.region}" if budget.region else ""
    status, doubt = _judge(found, limit, value, head)
    relation = "over" if limit.sign > 0 else "under"
    verb = {
        Status.PASS: f"within {limit.text}",
        Status.WARN: doubt or f"near {limit.text}",
        Status.FAIL: f"{relation} {limit.text}",
    }
    return GateCheck(
        id=f"budget:{found.id}{'@' + budget.region if budget.region else ''}:{limit.text.split()[0]}",
        group=Group.BUDGET,
        status=status,
        title=f"budget: {found.title}{of}",
        message=f"{found.title}{of} {found.text(value)}, {verb[status]}",
        metric=found.id,
        region=budget.region or "",
        location=location,
        head=found.text(value),
        limit=limit.text,
        rule=f"budget-{found.id}",
    )


def _judge(found: Metric, limit: _Limit, value: float, head: Snapshot) -> tuple[Status, str]:
    beyond = (value - limit.value) * limit.sign > _ROUNDING
    if beyond and found.id == STEP_TIME:
        # A time is a sample: the limit is broken only when the whole 95 % interval lies beyond it.
        samples = [sample for process in head.times[STEP_TIME].processes_ns for sample in process]
        low, high = bootstrap_median_interval(samples)
        if ((low if limit.sign > 0 else high) - limit.value) * limit.sign <= 0:
            return Status.WARN, f"beyond {limit.text}, within its own noise"
    if beyond:
        return Status.FAIL, ""
    soft = limit.warn is not None and (value - limit.warn) * limit.sign > _ROUNDING
    return (Status.WARN if soft else Status.PASS), ""


def _missing(found: Metric, budget: Budget, where: str) -> GateCheck:
    of = f" of {budget.region}" if budget.region else ""
    return GateCheck(
        id=f"budget:{found.id}{'@' + budget.region if budget.region else ''}:missing",
        group=Group.BUDGET,
        status=Status.FAIL,
        title=f"budget: {found.title}{of}",
        message=f"{where}: {found.title}{of} was not measured in this run, so the limit cannot hold",
        metric=found.id,
        region=budget.region or "",
        rule="missing-coverage",
    )
