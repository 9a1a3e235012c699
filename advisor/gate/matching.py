"""Which line or region of head is which of base. Lines move when code is added above them; their text does not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from advisor.gate.snapshot import Place, RegionFigures


def match_places(base: Sequence[Place], head: Sequence[Place]) -> list[tuple[Place | None, Place | None]]:
    """Pairs (base, head); None where one side has no counterpart.

    By id, file and text of the line first; then id and exact line (an edited line is the same place); then, for what has
    no source text, in line order within one id and file, because an insertion above moves all of them alike.
    """
    pairs: list[tuple[Place | None, Place | None]] = []
    left_base, left_head = list(base), list(head)
    for key in (_by_code, _by_line, _by_order):
        left_base, left_head = _pair(left_base, left_head, key, pairs)
    pairs += [(place, None) for place in left_base]
    pairs += [(None, place) for place in left_head]
    return pairs


def match_regions(base: Sequence[RegionFigures], head: Sequence[RegionFigures]) -> dict[str, RegionFigures]:
    """Label in base -> region of head: the same kind and label, else the same kind and text of the first line."""
    by_label = {(region.kind, region.label): region for region in head}
    by_code = {(region.kind, region.code): region for region in head if region.code}
    found: dict[str, RegionFigures] = {}
    for region in base:
        exact = by_label.get((region.kind, region.label))
        moved = by_code.get((region.kind, region.code)) if region.code else None
        # Other text under the same line label is another statement that moved there.
        if exact is not None and (not region.code or not exact.code or exact.code == region.code):
            found[region.label] = exact
        elif moved is not None:
            found[region.label] = moved
    return found


Key = tuple[object, ...] | None


def _by_code(place: Place) -> Key:
    return (place.id, place.location.file, place.code) if place.location and place.code else None


def _by_line(place: Place) -> Key:
    if place.location is None:
        return (place.id, place.evidence)
    return (place.id, place.location)


def _by_order(place: Place) -> Key:
    return (place.id, place.location.file) if place.location and not place.code else None


def _pair(
    base: list[Place], head: list[Place], key: Callable[[Place], Key], pairs: list[tuple[Place | None, Place | None]]
) -> tuple[list[Place], list[Place]]:
    waiting: dict[object, list[Place]] = defaultdict(list)
    for place in sorted(base, key=_line):
        if key(place) is not None:
            waiting[key(place)].append(place)
    rest_head = []
    for place in sorted(head, key=_line):
        found = waiting.get(key(place)) if key(place) is not None else None
        if found:
            pairs.append((found.pop(0), place))
        else:
            rest_head.append(place)
    taken = {id(one) for one, _ in pairs if one is not None}
    return [place for place in base if id(place) not in taken], rest_head


def _line(place: Place) -> int:
    return place.location.first_line if place.location else 0
