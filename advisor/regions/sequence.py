"""The period of an unannotated trace: which run of kernel names repeats.

Names are mapped to random signs and the sequence's autocorrelation is read off its spectrum; the smallest lag that
matches nearly as well as the best one is the period. The cut between repetitions is put where the device idles longest
on average, since that is where a program waits between steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

MIN_PERIOD: Final = 4
MIN_REPEATS: Final = 3
MIN_MATCH: Final = 0.7  # of the items must equal the item one period later
_LIMIT: Final = 1 << 18  # items looked at; a period shows long before


@dataclass(frozen=True)
class Period:
    """`length` items; `match_ratio` of them recur one period later; `bounds` int64 (k + 1,) are the cut positions."""

    length: int
    match_ratio: float
    bounds: Ints


def find_period(names: Ints, gap_before_ns: Ints) -> Period | None:
    """The period of a sequence of name codes int64 (m,), or None. `gap_before_ns` int64 (m,): idle time before each item."""
    codes = names[:_LIMIT]
    if len(codes) < MIN_PERIOD * MIN_REPEATS:
        return None
    length = _best_lag(codes)
    if length is None:
        return None
    match = float(np.mean(codes[:-length] == codes[length:]))
    if match < MIN_MATCH:
        return None
    return Period(length, match, _bounds(names, gap_before_ns, length))


def _best_lag(codes: Ints) -> int | None:
    count = len(codes)
    signs = np.random.default_rng(0).choice(np.array([-1.0, 1.0]), size=(int(codes.max()) + 1, 4))
    longest = count // MIN_REPEATS
    score = np.zeros(longest + 1)
    for column in signs.T:
        spectrum = np.fft.rfft(column[codes], 2 * count)
        score += np.fft.irfft(spectrum * np.conj(spectrum), 2 * count)[: longest + 1]
    score /= 4 * (count - np.arange(longest + 1))
    candidates = score[MIN_PERIOD:]
    # A constant sequence correlates at every lag: no lag stands out, so there is no period to speak of.
    if len(candidates) == 0 or candidates.max() - np.median(candidates) < 0.1:
        return None
    return int(np.flatnonzero(candidates >= 0.97 * candidates.max())[0]) + MIN_PERIOD


def _bounds(names: Ints, gap_before_ns: Ints, length: int) -> Ints:
    """Cut positions: the item after the longest mean gap starts a repetition; later cuts follow that item's surroundings."""
    offset = _first_of_repetition(names, gap_before_ns, length)
    # A repetition that is a few items longer or shorter must not shift all later cuts: look for the same names nearby.
    pattern = names[offset : offset + MIN_PERIOD]
    slack = max(1, length // 10)
    cuts = [offset]
    while cuts[-1] + length - slack <= len(names):
        cuts.append(_nearest(names, pattern, cuts[-1] + length, slack))
    return np.array([cut for cut in cuts if cut <= len(names)], dtype=np.int64)


def _nearest(names: Ints, pattern: Ints, expected: int, slack: int) -> int:
    for shift in sorted(range(-slack, slack + 1), key=abs):
        at = expected + shift
        if np.array_equal(names[at : at + len(pattern)], pattern):
            return at
    return expected


def _first_of_repetition(names: Ints, gap_before_ns: Ints, length: int) -> int:
    """Where the first repetition begins: the place with the longest mean gap before it.

    A place is a position within the period, or a name that comes once a repetition. Positions smear when a repetition is an
    item longer or shorter; names do not, but the first item's name may come several times (a fill, a copy).
    """
    whole = len(names) // length * length
    by_position = gap_before_ns[:whole].reshape(-1, length)[1:].mean(axis=0)
    repeats = len(names) / length
    counts = np.bincount(names)
    once = np.flatnonzero(np.abs(counts - repeats) <= 0.2 * repeats)
    by_name = np.bincount(names, gap_before_ns)[once] / counts[once]
    if len(once) and by_name.max() >= by_position.max():
        return int(np.flatnonzero(names == once[np.argmax(by_name)])[0])
    return int(np.argmax(by_position))
