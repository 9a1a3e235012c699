"""Checks on lines that synchronise or block a capture, and on regions that were verified."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from advisor.gate.matching import match_places
from advisor.gate.snapshot import Place, Snapshot, Verified
from advisor.gate.verdict import GateCheck, Group, Status
from advisor.model import EqualityOutcome, Outcome
from advisor.units import format_count, format_speedup

_OFTEN: Final = 0.5  # per step: a rarer call is logging or a first step, which does not stand in every step's way
_NOISE: Final = 0.9  # of the old speed-up: a verified gain that keeps this much is kept


def line_checks(base: Snapshot, head: Snapshot) -> Iterator[GateCheck]:
    """One check per line of head that synchronises; those the baseline does not have fail, naming the line."""
    pairs = match_places(base.blockers, head.blockers)
    gone = [before for before, after in pairs if before is not None and after is None]
    for before, after in pairs:
        if after is None:
            assert before is not None
            yield _line(before, Status.PASS, f"{before.title} is gone ({_times(before.count_per_step)} before)", before)
        elif before is None:
            yield _new(after, replaced=_take(gone, after))
        else:
            yield _known(before, after)


def _take(gone: list[Place], new: Place) -> bool:
    """Whether a line that is gone came as often as this new one, which then replaces it; each replaces one."""
    for place in gone:
        if place.id == new.id and new.count_per_step - place.count_per_step < _OFTEN:
            gone.remove(place)
            return True
    return False


def _new(place: Place, replaced: bool) -> GateCheck:
    often = place.count_per_step >= _OFTEN
    status = Status.FAIL if often and not replaced else Status.WARN
    why = "" if status == Status.FAIL else ", in place of one that is gone" if replaced else ", rarely"
    return _line(place, status, f"new: {place.title}, {_times(place.count_per_step)}{why} ({place.evidence})", None)


def _known(before: Place, after: Place) -> GateCheck:
    more = after.count_per_step - before.count_per_step
    status = Status.FAIL if more >= _OFTEN else Status.PASS
    change = (
        f"{_times(after.count_per_step)}, {format_count(before.count_per_step)} before"
        if status == Status.FAIL
        else (f"{_times(after.count_per_step)}, as before")
    )
    return _line(after, status, f"{after.title}: {change}", before)


def _line(place: Place, status: Status, message: str, before: Place | None) -> GateCheck:
    return GateCheck(
        id=f"line:{place.id}@{place.label}",
        group=Group.LINE,
        status=status,
        title=f"{place.id} at {place.label}",
        message=message,
        location=place.location,
        base=format_count(before.count_per_step) if before else "none",
        head=format_count(place.count_per_step),
        fix=place.fix,
        rule=place.id,
    )


def _times(count: float) -> str:
    return f"{format_count(count)} a step" if count >= 1 or not count else f"once in {1 / count:.0f} steps"


def verified_checks(base: Snapshot, head: Snapshot) -> Iterator[GateCheck]:
    """Regions that the baseline verified must still verify, as fast, with the same results."""
    by_label = {one.label: one for one in head.verified}
    by_code = {one.code: one for one in head.verified if one.code}
    for before in base.verified:
        after = by_label.get(before.label) or (by_code.get(before.code) if before.code else None)
        if after is None or before.outcome != Outcome.VERIFIED:
            continue  # what is missing is a matter of coverage
        yield _still_verified(before, after)
        # A capture that failed left nothing to compare; that it failed is said above.
        if after.outcome in (Outcome.VERIFIED, Outcome.NOT_FASTER, Outcome.DIFFERS):
            yield _equality(before, after)


def _still_verified(before: Verified, after: Verified) -> GateCheck:
    gain = format_speedup(before.speedup_ratio) if before.speedup_ratio else "verified"
    status, message = Status.PASS, f"{after.label} still captures and replays"
    place = after.blocked_by
    if after.outcome == Outcome.TIMED_OUT:
        status, message = Status.INCONCLUSIVE, f"{after.label} was verified ({gain}); the attempt ran out of time now"
    elif after.outcome == Outcome.NOT_FASTER:
        status, message = Status.FAIL, f"{after.label} was verified ({gain}) and is not faster now"
    elif after.outcome != Outcome.VERIFIED:
        why = f": {place.title} at {place.label}" if place else f": {after.message}" if after.message else ""
        words = after.outcome.value.replace("_", " ")
        status, message = Status.FAIL, f"{after.label} was verified ({gain}); it is {words} now{why}"
    elif before.speedup_ratio and after.speedup_ratio and after.speedup_ratio < _NOISE * before.speedup_ratio:
        status = Status.WARN
        message = f"{after.label} still captures; its gain fell from {gain} to {format_speedup(after.speedup_ratio)}"
    return GateCheck(
        id=f"verified@{before.label}",
        group=Group.REGION,
        status=status,
        title=f"{before.label} stays captured",
        message=message,
        region=after.label,
        location=(place.location if place else None) or after.location,
        base=gain,
        head=format_speedup(after.speedup_ratio) if after.speedup_ratio else after.outcome.value,
        fix=place.fix if place else "",
        rule=place.id if place else "lost-capture",
    )


def _equality(before: Verified, after: Verified) -> GateCheck:
    order = [
        EqualityOutcome.BITWISE,
        EqualityOutcome.WITHIN_NOISE,
        EqualityOutcome.NOT_CHECKED,
        EqualityOutcome.DIFFERS,
    ]
    worse = order.index(after.equality) > order.index(before.equality)
    status = Status.PASS
    if after.equality == EqualityOutcome.DIFFERS:
        status = Status.FAIL
    elif worse:
        status = Status.WARN if after.equality == EqualityOutcome.WITHIN_NOISE else Status.INCONCLUSIVE
    words = {
        EqualityOutcome.BITWISE: "bit-identical to eager",
        EqualityOutcome.WITHIN_NOISE: "within the difference of two eager runs",
        EqualityOutcome.NOT_CHECKED: "not compared with eager",
        EqualityOutcome.DIFFERS: "different from eager",
    }
    return GateCheck(
        id=f"equality@{before.label}",
        group=Group.EQUALITY,
        status=status,
        title=f"results of {before.label}",
        message=f"results of {after.label} are {words[after.equality]}"
        + (f"; they were {words[before.equality]}" if after.equality != before.equality else ""),
        region=after.label,
        location=after.location,
        base=before.equality.value,
        head=after.equality.value,
        rule="results-differ",
    )
