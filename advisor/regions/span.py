"""A run of consecutive statements as one region: what a capture takes, where a trace only names the statements."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from advisor.marks import decode, parse_span
from advisor.model import RegionKind, SourceSpan
from advisor.regions.figures import Identity, measure
from advisor.regions.find import Found, step_index
from advisor.regions.groups import Group
from advisor.regions.rows import FoundRegion, Occurrences
from advisor.timeline import Timeline

Ints = npt.NDArray[np.int64]
_KINDS = ("stmt", "loop")


def span_region(timeline: Timeline, found: Found, span: SourceSpan) -> FoundRegion | None:
    """The region from the first to the last statement of `span`, once for each time they ran in order.

    None when none of its statements launched work in the recording, or nothing is known of steps.
    """
    inside = [group for group in found.groups if group.mark_kind in _KINDS and _within(group, span)]
    if not inside or found.windows is None:
        return None
    rows = _outermost(timeline.ranges.loc[np.concatenate([group.range_ids for group in inside])])
    steps = step_index(rows["start_ns"].to_numpy(), found.windows)
    lines = np.array([_first_line(name) for name in rows["name"].astype(str)], dtype=np.int64)
    new = np.concatenate(([True], (np.diff(lines) <= 0) | (np.diff(steps) != 0)))
    heads = np.flatnonzero(new)
    tails = np.append(heads[1:], len(rows)) - 1
    item_ids, owner = timeline.items_of_ranges(rows.index.to_numpy(dtype=np.int64))
    here = timeline.items["device"].to_numpy()[item_ids] == found.windows.device
    item_ids, occurrence = item_ids[here], (np.cumsum(new) - 1)[owner[here]]
    order = np.lexsort((timeline.items["start_ns"].to_numpy()[item_ids], occurrence))
    label = f"{span.file}:{span.first_line}-{span.last_line}"
    occurrences = Occurrences(
        region_id=f"span:{label}",
        item_ids=item_ids[order],
        occurrence=occurrence[order].astype(np.int64),
        step_index=steps[heads],
        cpu_start_ns=rows["start_ns"].to_numpy()[heads],
        cpu_end_ns=rows["end_ns"].to_numpy()[tails],
        tid=rows["tid"].to_numpy()[heads],
    )
    identity = Identity(occurrences.region_id, label, RegionKind.STATEMENT, "statements in a row", span)
    return FoundRegion(measure(identity, occurrences, found.shared, found.windows), occurrences)


def _within(group: Group, span: SourceSpan) -> bool:
    place = group.location
    return (
        place is not None
        and place.file == span.file
        and span.first_line <= place.first_line
        and place.last_line <= span.last_line
    )


def _outermost(rows: pd.DataFrame) -> pd.DataFrame:
    """Ranges in order of their start, without those inside another of them."""
    rows = rows[~rows.index.duplicated()].sort_values(["start_ns", "end_ns"], ascending=[True, False], kind="stable")
    reached = np.maximum.accumulate(rows["end_ns"].to_numpy())
    return rows[np.concatenate(([True], rows["start_ns"].to_numpy()[1:] >= reached[:-1]))]


def _first_line(name: str) -> int:
    mark = decode(name)
    place = parse_span(mark.label) if mark is not None else None
    return place.first_line if place is not None else 0
