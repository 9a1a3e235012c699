"""Interval sets against a brute-force set of nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from advisor.intervals import complement, difference, grouped_union_ns, intersection, union

Pairs = list[tuple[int, int]]
pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda p: (p[0], p[0] + p[1])), max_size=12)


def cells(found: Pairs) -> set[int]:
    return {cell for start, end in found for cell in range(start, end)}


def cover(found: Pairs):
    return union([start for start, _ in found], [end for _, end in found])


def test_union_by_hand():
    # 0-5 and 3-8 overlap, 8-9 touches, 20-20 is empty, 30-31 stands apart: 9 + 1 ns in two pieces.
    made = union([0, 3, 8, 20, 30], [5, 8, 9, 20, 31])
    assert made.starts.tolist() == [0, 30]
    assert made.ends.tolist() == [9, 31]
    assert made.total_ns == 10
    assert made.within([4, 9, 25], [10, 30, 40]).tolist() == [5, 0, 1]


@given(pairs)
def test_union_covers_the_same_cells(found):
    assert cells(list(zip(cover(found).starts.tolist(), cover(found).ends.tolist(), strict=True))) == cells(found)


@given(pairs, st.integers(0, 70), st.integers(0, 70), st.integers(0, 70))
def test_cutting_a_window_changes_no_sum(found, a, b, c):
    low, middle, high = sorted((a, b, c))
    made = cover(found)
    whole = int(made.within(low, high))
    assert whole == int(made.within(low, middle)) + int(made.within(middle, high))
    assert whole == len(cells(found) & set(range(low, high)))


@given(pairs, pairs)
def test_intersection_and_complement(one, other):
    both = intersection(cover(one), cover(other))
    assert cells(list(zip(both.starts.tolist(), both.ends.tolist(), strict=True))) == cells(one) & cells(other)
    assert both.total_ns == len(cells(one) & cells(other))
    rest = difference(cover(one), both)
    assert cells(list(zip(rest.starts.tolist(), rest.ends.tolist(), strict=True))) == cells(one) - cells(other)
    assert (rest.starts[1:] > rest.ends[:-1]).all()
    assert complement(cover(one), 5, 50).total_ns == len(set(range(5, 50)) - cells(one))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(0, 12)), max_size=15))
def test_union_per_group(rows):
    group = np.array([g for g, _, _ in rows], dtype=np.int64)
    start = np.array([s for _, s, _ in rows], dtype=np.int64)
    end = start + np.array([d for _, _, d in rows], dtype=np.int64)
    expected = [len(cells([(s, s + d) for g, s, d in rows if g == number])) for number in range(4)]
    assert grouped_union_ns(group, start, end, 4).tolist() == expected


def test_union_per_group_far_apart():
    # Epoch times and many groups overflow the shifting trick; the slow path must give the same.
    start = np.array([0, 2**61], dtype=np.int64)
    assert grouped_union_ns(np.array([0, 1]), start, start + 7, 3).tolist() == [7, 7, 0]
