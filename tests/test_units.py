"""Numbers as a reader expects them."""

import pytest

from advisor.units import format_bytes, format_count, format_ns, format_number, format_ratio, format_speedup


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"), (736, "736 ns"), (999.7, "1.00 µs"), (12_345, "12.3 µs"), (324_000, "324 µs"), (999_600, "1.00 ms"),
        (3_188_000, "3.19 ms"), (10_217_000, "10.2 ms"), (1_200_000_000, "1.20 s"), (-5_000, "-5.00 µs"),
    ],
)  # fmt: skip
def test_durations(ns, text):
    assert format_ns(ns) == text


@pytest.mark.parametrize(
    ("ratio", "text"), [(0, "0.0 %"), (0.0004, "<0.1 %"), (0.1016, "10.2 %"), (0.9999, ">99.9 %"), (1, "100 %")]
)
def test_a_share_never_rounds_to_none_or_all(ratio, text):
    assert format_ratio(ratio) == text


def test_the_others():
    assert format_bytes(31 * 1024 * 1024) == "31.0 MiB"
    assert format_bytes(12) == "12 B"
    assert format_speedup(7.06) == "7.1×"
    assert format_speedup(1.042) == "1.04×"
    assert format_count(1140) == "1,140"
    assert format_count(2.5) == "2.5"
    assert format_number(0) == "0"
    assert format_number(0.3241) == "0.324"
