"""A comparison of two runs as text: for the terminal and as Markdown."""

from __future__ import annotations

from textwrap import wrap
from typing import Final

from advisor.diffing import Row, RunDiff, Trend
from advisor.report.markdown import cell
from advisor.report.terminal import shortened
from advisor.units import format_count, format_ns, format_ratio, format_speedup

_SIGNS: Final[dict[Trend, str]] = {
    Trend.BETTER: "+ better",
    Trend.WORSE: "- worse",
    Trend.SAME: "  same",
    Trend.CHANGED: "  changed",
    Trend.UNCLEAR: "? unclear",
    Trend.ONLY_A: "  only in A",
    Trend.ONLY_B: "  only in B",
}
_MAX_ROWS: Final = 12


def terminal(diff: RunDiff, width: int = 100) -> str:
    """The comparison in columns; a group shows its first 12 rows, worse ones first among regions."""
    lines = []
    for letter, name, verdict in (("A", diff.a, diff.verdict_a), ("B", diff.b, diff.verdict_b)):
        lines += [f"{letter}  {name}", *(f"   {line}" for line in wrap(verdict, width - 3, break_on_hyphens=False))]
    lines += [f"!  {warning}" for warning in diff.warnings]
    name_width = width - 62
    for group in diff.groups:
        lines += ["", f"{shortened(group.title, name_width):<{name_width}} {'A':>11} {'B':>11} {'B / A':>8}  verdict"]
        for row in group.rows[:_MAX_ROWS]:
            name = shortened(row.label, name_width)
            lines.append(
                f"{name:<{name_width}} {_value(row, row.a):>11} {_value(row, row.b):>11} {_change(row):>8}  "
                f"{_SIGNS[row.trend]} ({row.kind.value})"
            )
            if row.note and row.trend not in (Trend.SAME,):
                lines.append(f"  {row.note}")
        if len(group.rows) > _MAX_ROWS:
            lines.append(f"  and {len(group.rows) - _MAX_ROWS} more (--format md or json shows all)")
    lines += ["", summary(diff)]
    return "\n".join(shortened(line, width) for line in lines)


def summary(diff: RunDiff) -> str:
    """One line: how many figures moved which way."""
    counts = [f"{diff.count(trend)} {trend.value}" for trend in Trend if diff.count(trend)]
    return ", ".join(counts) if counts else "nothing to compare"


def markdown(diff: RunDiff) -> str:
    """The comparison as Markdown tables, every row."""
    parts = [
        "# Comparison of two runs",
        f"- **A** `{cell(diff.a)}`: {cell(diff.verdict_a)}\n- **B** `{cell(diff.b)}`: {cell(diff.verdict_b)}",
    ]
    if diff.warnings:
        parts.append("\n".join(f"- **Not the same conditions:** {cell(warning)}" for warning in diff.warnings))
    for group in diff.groups:
        rows = [f"## {group.title}", "", "| | A | B | B / A | | kind |", "|---|---:|---:|---:|---|---|"]
        rows += [
            f"| {cell(row.label)}{f' ({cell(row.note)})' if row.note else ''} | {_value(row, row.a)} | {_value(row, row.b)} | "
            f"{_change(row)} | {row.trend.value} | {row.kind.value} |"
            for row in group.rows
        ]
        parts.append("\n".join(rows))
    parts.append(f"{summary(diff)}.")
    return "\n\n".join(parts) + "\n"


def _value(row: Row, value: float | None) -> str:
    if value is None:
        return "–"
    if row.unit == "ns":
        return format_ns(value)
    if row.unit == "speedup":
        return format_speedup(value)
    return format_count(value) if row.unit == "count" else f"{value:.3g}" if value > 1 else format_ratio(value)


def _change(row: Row) -> str:
    if row.a is None or row.b is None:
        return ""
    if not row.a:
        return "" if not row.b else "new"
    return f"{row.b / row.a:.2f}"
