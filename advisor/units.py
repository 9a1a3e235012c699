"""The only place where a number becomes text. Inside, times are int64 ns, shares 0..1, sizes bytes."""

from __future__ import annotations

_NS_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))
_BYTE_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def format_number(value: float) -> str:
    """`value` with three significant digits and no exponent: 0.324, 3.19, 31.9, 319, 3188."""
    size = abs(value)  # compared to where rounding adds a digit: 99.96 prints as 100, not as 100.0
    if size >= 99.95:
        return f"{value:,.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    if size >= 0.9995:
        return f"{value:.2f}"
    return f"{value:.3f}".rstrip("0").rstrip(".") if size else "0"


def format_ns(ns: float) -> str:
    """A duration in the unit a reader expects: 324 µs, 3.19 ms, 1.20 s."""
    for scale, unit in _NS_UNITS:
        # Two units of slack below 1000 of the smaller one keep 999.6 µs from printing as "1,000 µs".
        if abs(ns) >= scale * 0.9995:
            return f"{format_number(ns / scale)} {unit}"
    return f"{ns:.0f} ns"


def format_bytes(size: float) -> str:
    """A size in binary units: 31.0 MiB."""
    for scale, unit in _BYTE_UNITS:
        if abs(size) >= scale:
            return f"{format_number(size / scale)} {unit}"
    return f"{size:.0f} B"


def format_ratio(ratio: float) -> str:
    """A share as percent: 0.1016 -> 10.2 %. A non-zero share never prints as 0 %, nor one below 1 as 100 %."""
    percent = ratio * 100
    if 0 < percent < 0.1:
        return "<0.1 %"
    if 99.9 < percent < 100:
        return ">99.9 %"
    return f"{percent:.1f} %" if percent < 99.95 else f"{percent:.0f} %"


def format_speedup(ratio: float) -> str:
    """A speed-up factor: 7.1×, 1.04×."""
    return f"{ratio:.1f}×" if ratio >= 2 else f"{ratio:.2f}×"


def format_count(count: float) -> str:
    """A count with thousands separators; a fractional one (a mean per step) keeps one digit."""
    return f"{count:,.0f}" if float(count).is_integer() else f"{count:,.1f}"


def format_counted(count: float, noun: str) -> str:
    """A count with its noun: 1 graph replay, 10 graph replays."""
    return f"{format_count(count)} {noun}{'' if count == 1 else 's'}"
