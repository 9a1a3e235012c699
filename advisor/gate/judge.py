"""Two snapshots and a configuration in, a verdict out."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from advisor.config import GateConfig
from advisor.errors import UsageError
from advisor.gate import coverage, environment
from advisor.gate.budgets import budget_checks
from advisor.gate.count_checks import region_checks, run_checks
from advisor.gate.matching import RegionKey, match_regions
from advisor.gate.metrics import METRICS
from advisor.gate.place_checks import line_checks, verified_checks
from advisor.gate.snapshot import RegionFigures, Snapshot
from advisor.gate.time_checks import time_checks
from advisor.gate.verdict import GateCheck, GateVerdict, Group, Status, ordered, overall, sentence, status_counts


def judge(head: Snapshot, base: Snapshot | None, config: GateConfig, *, paired: bool = False) -> GateVerdict:
    """Judge `head` against `base` and the budgets. `paired`: process i of both sides ran next to each other.

    Raises UsageError when there is neither a baseline nor a budget, or when a budget or an allowance names nothing.
    """
    if base is None and not config.budget:
        raise UsageError("nothing to judge by: give --baseline, or write a [[gate.budget]] into cgadvisor.toml")
    _known_fields(config)
    pairs = match_regions(base.regions, head.regions) if base else {}
    differences = _differences(base, head, config.allow_different) if base else {}
    found = [*_usable(base, head), *budget_checks(config.budget, base, head, pairs, differences)]
    if base is not None:
        found += _against(base, head, config, pairs, differences)
        found += time_checks(base, head, config, differences, paired)
    empty = GateVerdict(
        tool_version=head.tool_version,
        status=Status.SKIPPED,
        sentence="",
        exit_code=0,
        head_label=head.label,
        base_label=base.label if base else "",
        checks=(),
        counts={},
        head_environment=head.environment,
        base_environment=base.environment if base else head.environment,
        notes=_notes(base, head),
    )
    return with_checks(empty, tuple(found), config.inconclusive)


def with_checks(verdict: GateVerdict, found: tuple[GateCheck, ...], inconclusive: str) -> GateVerdict:
    """The verdict over these checks: status, sentence, exit code and tally follow from them."""
    checks = ordered(found)
    status, code = overall(checks, inconclusive)
    return msgspec.structs.replace(
        verdict,
        status=status,
        sentence=sentence(status, checks),
        exit_code=code,
        checks=checks,
        counts=status_counts(checks),
    )


def _differences(base: Snapshot, head: Snapshot, allowed: Collection[str]) -> dict[str, str]:
    found = environment.differences(base.environment, head.environment, allowed)
    step = environment.step_difference(base.step_label, head.step_label)
    return found | ({environment.STEP: step} if step and environment.STEP not in allowed else {})


def _against(
    base: Snapshot,
    head: Snapshot,
    config: GateConfig,
    pairs: dict[RegionKey, RegionFigures],
    differences: dict[str, str],
) -> list[GateCheck]:
    found = [*environment.checks(differences)]
    if not environment.forbids_counts(differences):
        found += coverage.checks(base, head, pairs, config.allow_missing)
        if not (base.unusable or head.unusable):
            found += [*run_checks(base, head), *_empty(base)]
            found += line_checks(base, head)
            found += region_checks(base, head, pairs)
        found += verified_checks(base, head)
    return found


def _usable(base: Snapshot | None, head: Snapshot) -> Iterator[GateCheck]:
    """A recording that cannot carry counts is no evidence of anything; least of all of a pass."""
    for name, side in (("run", head), ("baseline", base)):
        for reason in side.unusable if side else ():
            yield GateCheck(
                id=f"quality:{name}",
                group=Group.COVERAGE,
                status=Status.INCONCLUSIVE,
                title=f"recording of the {name}",
                message=f"the recording of the {name} cannot carry counts: {reason}",
                rule="unusable-recording",
            )


def _empty(base: Snapshot) -> Iterator[GateCheck]:
    """A baseline without counts is met by every run: a file of a failed merge, or a recording of nothing."""
    if not any(name in METRICS and METRICS[name].tolerance_ratio is not None for name in base.metrics):
        yield GateCheck(
            id="coverage:counts",
            group=Group.COVERAGE,
            status=Status.INCONCLUSIVE,
            title="counts of the baseline",
            message="the baseline has no count to compare the run with",
            fix="save it again from a run: cgadvisor baseline update RUN",
            rule="empty-baseline",
        )


def _known_fields(config: GateConfig) -> None:
    from difflib import get_close_matches

    for field in config.allow_different:
        if field not in environment.ALLOWABLE:
            near = get_close_matches(field, environment.ALLOWABLE, 1, 0.4)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(environment.ALLOWABLE)}"
            raise UsageError(f"gate.allow_different: no field {field!r}; {hint}")


def _notes(base: Snapshot | None, head: Snapshot) -> tuple[str, ...]:
    notes = []
    if head.step_count:
        notes.append(f"counts per step are medians; recorded steps: {head.step_count} ({head.step_label})")
    else:
        notes.append("no step was found: counts are totals over the recording")
    varying = (
        [name for name in base.metric_highs if name in METRICS and METRICS[name].tolerance_ratio is not None]
        if base
        else []
    )
    if base is not None and varying:
        names = ", ".join(sorted(varying))
        notes.append(
            f"{names} differed between the {base.run_count} runs of the baseline; the worst of them is the limit"
        )
    if base is not None and base.tool_version != head.tool_version:
        notes.append(
            f"the baseline is from cgadvisor {base.tool_version or 'unknown'}, the run from {head.tool_version}"
        )
    return tuple(notes)
