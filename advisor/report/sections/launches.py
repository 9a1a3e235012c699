"""How launches and items relate: launch-to-execute scatter, gap sizes, queue depth, time by kernel."""

from __future__ import annotations

from typing import Any

from advisor.model import Distribution, Series
from advisor.report.content import RunContent
from advisor.report.sections import Body, Section

_TOP_KERNELS = 15
_STATISTICS = (
    ("api", "Launch call", "duration of the launching CUDA call itself"),
    (
        "issue",
        "Issue time",
        "CPU time on the launching thread from the end of the previous launch to the end of this one",
    ),
    ("latency", "Launch latency", "item start − call start, signed"),
    ("queue", "Queue time", "item start − call end, when the item waited"),
)


def _build(content: RunContent) -> Body:
    device = content.device
    if device is None:
        return Body({"device": None, "plots": ()})
    plots = [plot for plot in (_scatter(content), _gaps(device.gap_sizes), _depth(content), _kernels(content)) if plot]
    launches = device.launches
    return Body(
        {
            "device": device,
            "statistics": [(label, words, getattr(launches, name)) for name, label, words in _STATISTICS],
            "plots": [(plot["id"], plot["title"], plot["text"]) for plot in plots],
            "kernels": content.analysis.kernels[:_TOP_KERNELS],
            "kernel_total_ns": sum(row.total_ns for row in content.analysis.kernels),
            "kernels_left_out": max(0, len(content.analysis.kernels) - _TOP_KERNELS),
        },
        {"plots": plots} if plots else None,
    )


def _series(content: RunContent, series_id: str) -> Series | None:
    return next((one for one in content.analysis.series if one.id == series_id and one.x), None)


def _scatter(content: RunContent) -> dict[str, Any] | None:
    series = _series(content, "launch-to-execute")
    if series is None:
        return None
    points = [(x, y, name) for x, y, name in _points(series) if x > 0 and y > 0]
    if not points:
        return None
    late = sum(1 for x, y, _ in points if y > x)
    names = list(dict.fromkeys(name for *_, name in points))
    index = {name: at for at, name in enumerate(names)}
    return {
        "id": "scatter",
        "title": "Launch-to-execute ratio",
        "text": f"{late:,} of {len(points):,} items take the CPU longer to issue than the GPU to run: above the line the CPU "
        "cannot keep up. Drag to zoom, double-click to reset.",
        "x": [round(x / 1_000, 3) for x, _, _ in points],
        "y": [round(y / 1_000, 3) for _, y, _ in points],
        "names": names,
        "name_ids": [index[name] for *_, name in points],
    }


def _points(series: Series) -> list[tuple[float, float, str]]:
    names = series.names or ("",) * len(series.x)
    return list(zip(series.x, series.y, names, strict=True))


def _gaps(sizes: Distribution | None) -> dict[str, Any] | None:
    if sizes is None or not sizes.bin_counts:
        return None
    return {
        "id": "gaps",
        "title": "Sizes of the idle gaps",
        "text": f"{sizes.count:,} gaps, median {sizes.median / 1_000:.3g} µs, 95 % below {sizes.p95 / 1_000:.3g} µs. "
        "A graph removes gaps of a few µs to some tens; gaps over 1 ms have other reasons.",
        "edges": [round(edge / 1_000, 4) for edge in sizes.bin_edges],
        "counts": list(sizes.bin_counts),
    }


def _depth(content: RunContent) -> dict[str, Any] | None:
    series = _series(content, "queue-depth")
    if series is None:
        return None
    empty = sum(1 for depth in series.y if depth == 0)
    return {
        "id": "depth",
        "title": "Queue depth over the step",
        "text": f"Items launched and not yet started. The queue was empty at {empty / len(series.y):.0%} of the points: "
        "an empty queue means that the GPU waits for the CPU.",
        "x": [round(x / 1_000, 3) for x in series.x],
        "y": list(series.y),
    }


def _kernels(content: RunContent) -> dict[str, Any] | None:
    rows = content.analysis.kernels[:_TOP_KERNELS]
    if not rows:
        return None
    return {
        "id": "kernels",
        "title": "GPU time by item",
        "text": "Total time per name over the recording; the table below has the same figures.",
        "names": [row.name for row in rows],
        "total": [round(row.total_ns / 1_000, 3) for row in rows],
        "count": [row.count for row in rows],
    }


SECTION = Section("launches", 60, "Launches and kernels", _build)
