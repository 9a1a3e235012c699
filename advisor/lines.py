"""The per-line view: each statement of the hot loop with what it launched, per step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from advisor.model import IdleByCause, Layers, LineRow, Region, RegionKind
from advisor.regions import FoundRegion


def line_rows(found: Sequence[FoundRegion], sources: Mapping[str, str] | None = None) -> tuple[LineRow, ...]:
    """One row per instrumented statement, in source order. `sources` maps relative file names to their text.

    Figures are per step: an occurrence's median times how often it occurs in a step.
    """
    rows = [one.region for one in found if one.region.kind == RegionKind.STATEMENT and one.region.location is not None]
    rows.sort(key=lambda region: (region.location.file, region.location.first_line, -region.location.last_line))  # type: ignore[union-attr]
    return tuple(_row(region, rows, sources or {}) for region in rows)


def _row(region: Region, rows: Sequence[Region], sources: Mapping[str, str]) -> LineRow:
    span = region.location
    assert span is not None
    text = sources.get(span.file, "").splitlines()[span.first_line - 1 : span.last_line]
    times = region.occurrences_per_step
    outer = [
        other
        for other in rows
        if other.location is not None
        and other is not region
        and other.location.file == span.file
        and other.location.first_line <= span.first_line
        and other.location.last_line >= span.last_line
    ]
    return LineRow(
        location=span,
        text=text[0].strip() if text else "",
        depth=len(outer),
        launch_count=region.launch_count * times,
        item_count=region.item_count * times,
        busy_ns=round(region.busy_ns * times),
        idle=IdleByCause(**{f"{cause}_ns": round(ns * times) for cause, ns in region.idle.by_cause().items()}),
        layers=Layers(**{f"{layer}_ns": round(ns * times) for layer, ns in region.layers.by_layer().items()}),
        sync_count=region.sync_count * times,
        step_share_ratio=region.step_share_ratio,
        region_id=region.id,
    )
