"""`cgadvisor lines RUN`: the hot loop's lines with what each launched, per step."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from advisor.bundle import Bundle
from advisor.errors import EXIT_OK, BundleError
from advisor.model import Analysis, Cause, LineRow
from advisor.units import format_count, format_ns, format_ratio

_COLUMNS: Final = ("line", "share", "launches", "busy", "launch", "sync", "input", "other", "syncs", "source")


def run(folder: Path) -> int:
    """Print the table. Raises BundleError when the run holds no per-line figures."""
    analysis = Bundle.open(folder).load(Analysis)
    if not analysis.lines:
        raise BundleError(
            f"{folder}: no per-line figures; they need statement ranges, which `cgadvisor profile script.py` records"
        )
    print(render(analysis))
    return EXIT_OK


def render(analysis: Analysis) -> str:
    """The table as text: idle time split by cause; a line's figures include the lines nested in it."""
    rows = [_COLUMNS, *(_cells(row) for row in analysis.lines)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_COLUMNS) - 1)]
    body = ["  ".join([*(_padded(row, at, widths) for at in range(len(widths))), row[-1]]).rstrip() for row in rows]
    step = analysis.step
    head = f"{step.label}: {step.count} steps; per step, as traced" if step else "as traced"
    return "\n".join([head, *body])


def _padded(row: tuple[str, ...], at: int, widths: list[int]) -> str:
    return row[at].ljust(widths[at]) if at == 0 else row[at].rjust(widths[at])


def _cells(row: LineRow) -> tuple[str, ...]:
    idle = row.idle.by_cause()
    other = row.idle.total_ns - idle[Cause.LAUNCH] - idle[Cause.SYNC] - idle[Cause.INPUT]
    return (
        "  " * row.depth + row.location.label,
        format_ratio(row.step_share_ratio),
        format_count(row.launch_count),
        _time(row.busy_ns),
        _time(idle[Cause.LAUNCH]),
        _time(idle[Cause.SYNC]),
        _time(idle[Cause.INPUT]),
        _time(other),
        format_count(row.sync_count) if row.sync_count else "",
        row.text[:60],
    )


def _time(ns: int) -> str:
    return format_ns(ns) if ns else ""
