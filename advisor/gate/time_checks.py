"""Checks on times: raw samples of both sides, a test, an A/A band, a minimum effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from advisor.compare import Change, Comparison, Rule, is_different
from advisor.config import GateConfig
from advisor.gate.snapshot import Snapshot
from advisor.gate.verdict import GateCheck, Group, Status
from advisor.model import NumberKind
from advisor.units import format_ns, format_ratio

_STATUS: Final = {
    Change.SAME: Status.PASS,
    Change.FASTER: Status.PASS,
    Change.BELOW_FLOOR: Status.PASS,
    Change.SLOWER: Status.FAIL,
    Change.DRIFTING: Status.INCONCLUSIVE,
    Change.TOO_FEW: Status.INCONCLUSIVE,
    Change.TOO_NOISY: Status.INCONCLUSIVE,
}
_WORDS: Final = {
    Change.SAME: "no slower",
    Change.FASTER: "faster",
    Change.BELOW_FLOOR: "a difference below the floor",
    Change.SLOWER: "slower",
    Change.DRIFTING: "the clock drifted by as much as the difference",
    Change.TOO_FEW: "looks different, too few samples or processes to tell",
    Change.TOO_NOISY: "too noisy to rule out a large slow-down",
}


def time_checks(
    base: Snapshot, head: Snapshot, config: GateConfig, differences: dict[str, str], paired: bool = False
) -> Iterator[GateCheck]:
    """One check per quantity both sides timed."""
    rule = rule_of(config, base, head, paired)
    for name, before in base.times.items():
        after = head.times.get(name)
        if after is None or not before.processes_ns or not after.processes_ns:
            continue
        profiled = NumberKind.PROFILED in (before.kind, after.kind)
        judged = config.profiled_times if profiled else config.times
        comparison = is_different(before.processes_ns, after.processes_ns, rule)
        if differences and judged:
            why = "; ".join(differences.values())
            yield _check(name, Status.NOT_COMPARABLE, f"{name}: times are not comparable ({why})", comparison, profiled)
        elif judged:
            yield _check(name, _STATUS[comparison.change], words(name, comparison), comparison, profiled)
        else:
            why = "under a profiler" if profiled else "times = false"
            yield _check(
                name, Status.SKIPPED, f"{words(name, comparison)} ({why}: shown, not judged)", comparison, profiled
            )


def rule_of(config: GateConfig, base: Snapshot, head: Snapshot, paired: bool = False) -> Rule:
    """The rule of a comparison: the configuration, widened by the larger A/A noise of the two sides."""
    return Rule(
        min_effect_ratio=config.min_effect_ratio,
        min_effect_ns=config.min_effect_ns,
        alpha=config.alpha,
        process_alpha=config.process_alpha,
        max_unseen_ratio=config.max_unseen_ratio,
        noise_ratio=max(base.noise_ratio, head.noise_ratio),
        paired=paired,
    )


def words(name: str, found: Comparison) -> str:
    """ "step_ns: slower, 1.00 ms -> 1.10 ms (+10.1 %, 95 % interval +8.2 % to +12.0 %; counts from 5.0 %)" """
    within = "" if found.mode_ratio is None else f"{_signed(found.mode_ratio - 1)} within its two modes; medians "
    return (
        f"{name}: {_WORDS[found.change]}, {format_ns(found.base_median)} -> {format_ns(found.head_median)} "
        f"({within}{_signed(found.ratio - 1)}, 95 % interval {_signed(found.ratio_low - 1)} to {_signed(found.ratio_high - 1)}; "
        f"counts from {format_ratio(found.required_ratio)})"
    )


def evidence(found: Comparison) -> str:
    """ "n 30 and 30, processes 1 and 1, p 0.0004; drift: ..." """
    samples = f"n {found.base_count} and {found.head_count}"
    processes = f"processes {found.base_process_count} and {found.head_process_count}"
    return "; ".join((f"{samples}, {processes}, p {found.p_value:.2g}", *found.notes))


def _signed(ratio: float) -> str:
    return f"{ratio:+.1%}".replace("%", " %")


def _check(name: str, status: Status, message: str, comparison: Comparison, profiled: bool) -> GateCheck:
    return GateCheck(
        id=f"time:{name}",
        group=Group.TIME,
        status=status,
        title="time per step" + (" under the profiler" if profiled else ""),
        message=message,
        metric=name,
        base=format_ns(comparison.base_median),
        head=format_ns(comparison.head_median),
        limit=f"+{format_ratio(comparison.required_ratio)}",
        detail=evidence(comparison),
        rule="slower",
        comparison=comparison,
    )
