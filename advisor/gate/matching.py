"""Which line or region of head is which of base. Lines move when code is added above them; their text does not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from advisor.gate.snapshot import Place, RegionFigures
from advisor.model import RegionKind

RegionKey = tuple[str, str]  # RegionFigures.key
# Named by their lines: what is called train.py:14 now may have been train.py:12.
BY_LINE: Final = (RegionKind.STATEMENT, RegionKind.LOOP, RegionKind.SEQUENCE)


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


def match_regions(base: Sequence[RegionFigures], head: Sequence[RegionFigures]) -> dict[RegionKey, RegionFigures]:
    """Kind and label in base -> region of head: the same kind and text of the first line, else the same kind and label.

    Lines of one text (`x = layer(x)` twice) are paired in their order when both sides have as many of them, because an
    insertion above moves all alike; else those still in place first. Each region of head is taken once.
    """
    found: dict[RegionKey, RegionFigures] = {}
    texts = _by_text(head)
    for text, group in _by_text(base).items():
        found |= _same_text(group, texts.get(text, []))
    taken = {region.key for region in found.values()}
    left = {region.key: region for region in head if region.key not in taken}
    for region in base:
        exact = left.get(region.key) if region.key not in found else None
        # Other text under the same line label is another statement that moved there.
        if exact is not None and not (region.code and exact.code):
            found[region.key] = exact
    return found


def _same_text(base: list[RegionFigures], head: list[RegionFigures]) -> dict[RegionKey, RegionFigures]:
    left = {region.key: region for region in head}
    moved_alike = len(base) == len(head) and base[0].kind in BY_LINE
    found = {} if moved_alike else {one.key: left.pop(one.key) for one in base if one.key in left}
    rest = [region for region in base if region.key not in found]
    return found | {one.key: other for one, other in zip(rest, left.values(), strict=False)}


def _by_text(regions: Sequence[RegionFigures]) -> dict[tuple[str, str], list[RegionFigures]]:
    """The regions of each kind and text, in line order; those without text are left out."""
    groups: dict[tuple[str, str], list[RegionFigures]] = defaultdict(list)
    for region in sorted(regions, key=_place):
        if region.code:
            groups[region.kind, region.code].append(region)
    return groups


def _place(region: RegionFigures) -> tuple[str, int]:
    return (region.location.file, region.location.first_line) if region.location else ("", 0)


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
