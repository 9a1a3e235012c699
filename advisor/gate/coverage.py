"""What the baseline has and the run lacks. A benchmark that disappears must not pass by disappearing."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from typing import Final

from advisor.gate.count_checks import JUDGED_SHARE
from advisor.gate.matching import BY_LINE, RegionKey
from advisor.gate.metrics import METRICS
from advisor.gate.snapshot import RegionFigures, Snapshot
from advisor.gate.verdict import GateCheck, Group, Status
from advisor.model import Outcome, SourceSpan

_GRAPHED: Final = 0.5


def checks(
    base: Snapshot, head: Snapshot, pairs: dict[RegionKey, RegionFigures], allowed: Collection[str]
) -> Iterator[GateCheck]:
    """One check per missing thing; one that passes when nothing is missing."""
    found = list(_missing(base, head, pairs, allowed))
    yield from found
    if not any(check.status == Status.FAIL for check in found):
        yield GateCheck(
            id="coverage",
            group=Group.COVERAGE,
            status=Status.PASS,
            title="coverage",
            message="everything the baseline has was measured" if not found else "what is missing is allowed",
        )


def _missing(
    base: Snapshot, head: Snapshot, pairs: dict[RegionKey, RegionFigures], allowed: Collection[str]
) -> Iterator[GateCheck]:
    if base.step_count and not head.step_count:
        yield _check("step", f"the baseline has a step ({base.step_label}), the run has none", allowed)
    else:
        for name in base.metrics:
            if name in METRICS and METRICS[name].tolerance_ratio is not None and name not in head.metrics:
                yield _check(f"metric:{name}", f"the baseline has {METRICS[name].title}, the run does not", allowed)
    for name, times in base.times.items():
        if name not in head.times and times.processes_ns:
            yield _check(f"times:{name}", f"the baseline has {name} samples, the run has none", allowed)
    yield from _missing_regions(base, pairs, allowed)
    yield from _missing_verifications(base, head, allowed)


def _missing_regions(
    base: Snapshot, pairs: dict[RegionKey, RegionFigures], allowed: Collection[str]
) -> Iterator[GateCheck]:
    for region in base.regions:
        if region.key in pairs or region.share_ratio < JUDGED_SHARE:
            continue
        graphed = region.metrics.get("graph_coverage", 0.0) >= _GRAPHED
        # An edited statement is gone under its old name, which is no loss of coverage.
        soft = region.kind in BY_LINE and not graphed
        message = f"region {region.label} ({region.kind}, {region.share_ratio:.0%} of the step) is not in the run"
        yield _check(f"region:{region.label}", message, allowed, Status.WARN if soft else Status.FAIL, region.location)


def _missing_verifications(base: Snapshot, head: Snapshot, allowed: Collection[str]) -> Iterator[GateCheck]:
    wanted = [one for one in base.verified if one.outcome == Outcome.VERIFIED]
    if wanted and not head.verified:
        yield _check("verification", f"the baseline verified {wanted[0].label}; the run verified nothing", allowed)
        return
    labels, codes = {one.label for one in head.verified}, {one.code for one in head.verified if one.code}
    for one in wanted:
        if one.label not in labels and one.code not in codes:
            message = f"the baseline verified {one.label}; the run did not try it"
            yield _check(f"verification:{one.label}", message, allowed, location=one.location)


def _check(
    identity: str,
    message: str,
    allowed: Collection[str],
    status: Status = Status.FAIL,
    location: SourceSpan | None = None,
) -> GateCheck:
    # The name itself, too: `region:layers[0]` as a glob would not match the very name that is suggested below.
    names = (identity, identity.partition(":")[0])
    is_allowed = any(glob in names or any(fnmatchcase(name, glob) for name in names) for glob in allowed)
    return GateCheck(
        id=f"missing:{identity}",
        group=Group.COVERAGE,
        status=Status.SKIPPED if is_allowed else status,
        title=f"{identity} missing",
        message=message + (" (allowed)" if is_allowed else ""),
        location=location,
        fix="" if is_allowed else f'record it again, or allow it: allow_missing = ["{identity}"]',
        rule="missing-coverage",
    )
