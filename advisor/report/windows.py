"""Where a region or a line lies in the drawn step: the ranges of the cut whose name is its label."""

from __future__ import annotations

from advisor.marks import decode
from advisor.model import TimelineCut

_MAX_WINDOWS = 200


def windows_by_label(cut: TimelineCut) -> dict[str, list[tuple[int, int]]]:
    """Label -> [(start, end)] relative to the cut, for every mark and plain range name on a CPU lane, in order of time."""
    found: dict[str, list[tuple[int, int]]] = {}
    labels = [_label(name) for name in cut.names]
    for lane in cut.lanes:
        if lane.kind not in ("cpu", "range"):
            continue
        for start, duration, name in zip(lane.start_ns, lane.duration_ns, lane.name_ids, strict=True):
            rows = found.setdefault(labels[name], [])
            if len(rows) < _MAX_WINDOWS:
                rows.append((start, start + duration))
    return found


def _label(name: str) -> str:
    mark = decode(name)
    return mark.label if mark is not None else name


def span_of(windows: list[tuple[int, int]]) -> tuple[int, int] | None:
    """The stretch from the first window's start to the last one's end; None without windows."""
    return (min(start for start, _ in windows), max(end for _, end in windows)) if windows else None
