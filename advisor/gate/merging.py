"""What several runs of the same code have in common: their regions, lines and verifications as one baseline's.

Where the runs differ, the worst of them is kept: a later run no worse than one of them is no regression.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from advisor.gate.matching import match_places, match_regions
from advisor.gate.metrics import METRICS
from advisor.gate.snapshot import Place, RegionFigures, Snapshot, Verified
from advisor.model import Outcome


def merged_regions(snapshots: Sequence[Snapshot]) -> tuple[RegionFigures, ...]:
    """The regions that every run has. One that comes and goes between runs of the same code is no loss when it goes."""
    found = snapshots[0].regions
    for other in snapshots[1:]:
        pairs = match_regions(found, other.regions)
        found = tuple(_worst(region, pairs[region.key]) for region in found if region.key in pairs)
    return found


def merged_blockers(snapshots: Sequence[Snapshot]) -> tuple[Place, ...]:
    """The lines of every run, each as often as in the run where it came most often."""
    found = list(snapshots[0].blockers)
    for other in snapshots[1:]:
        pairs = match_places(found, other.blockers)
        found = [max(_present(pair), key=lambda place: place.count_per_step) for pair in pairs]
    return tuple(found)


def merged_verified(snapshots: Sequence[Snapshot]) -> tuple[Verified, ...]:
    """Each region that any run tried, in its least outcome; not every run need verify."""
    tries: dict[str, list[Verified]] = defaultdict(list)
    for one in snapshots:
        for attempt in one.verified:
            tries[attempt.label].append(attempt)
    return tuple(
        min(made, key=lambda attempt: (attempt.outcome == Outcome.VERIFIED, attempt.speedup_ratio or 0.0))
        for made in tries.values()
    )


def _worst(one: RegionFigures, other: RegionFigures) -> RegionFigures:
    names = [name for name in one.metrics if name in other.metrics]
    worst = {name: _worse(name, one.metrics[name], other.metrics[name]) for name in names}
    return msgspec.structs.replace(one, metrics=worst, share_ratio=max(one.share_ratio, other.share_ratio))


def _worse(name: str, one: float, other: float) -> float:
    larger_is_better = name in METRICS and METRICS[name].worse < 0
    return min(one, other) if larger_is_better else max(one, other)


def _present(pair: tuple[Place | None, Place | None]) -> list[Place]:
    return [place for place in pair if place is not None]
