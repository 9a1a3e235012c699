"""The timeline of one step, and below it on the same axis the step as one graph."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import Any

from advisor.marks import decode
from advisor.model import Cause, Lane, TimelineCut
from advisor.report.content import RunContent
from advisor.report.figures import CAUSE_ORDER, bar_graphed, step_figures
from advisor.report.predicted import DEFAULT_NODE_GAP_NS, length_ns, predicted_lanes
from advisor.report.sections import Body, Section


def _build(content: RunContent) -> Body:
    cut = content.analysis.timeline
    if cut is None or not any(lane.start_ns for lane in cut.lanes):
        return Body({"cut": None})
    estimate = content.headline_estimate
    helps = content.headline_attempt is not None or (estimate is not None and estimate.saved_ns > 0)
    predicted = predicted_lanes(cut, content.calibration) if helps else ()
    figures = step_figures(content)
    graphed = bar_graphed(content, figures) if figures else None
    return Body(
        {
            "cut": cut,
            "length_ns": cut.end_ns - cut.start_ns,
            "events": sum(len(lane.start_ns) for lane in cut.lanes),
            "gaps": _gap_rows(cut),
            "lanes": [(lane.label, lane.kind, len(lane.start_ns), sum(lane.duration_ns)) for lane in cut.lanes],
            "predicted_ns": length_ns(predicted),
            "node_gap_ns": content.calibration.node_gap_ns if content.calibration else DEFAULT_NODE_GAP_NS,
            "calibrated": content.calibration is not None,
            "graphed": graphed,
        },
        _data(cut, predicted, {region.label for region in content.analysis.regions}),
    )


def _gap_rows(cut: TimelineCut) -> list[tuple[str, int, int]]:
    """(cause, number, ns) of the drawn gaps."""
    counts: Counter[str] = Counter()
    lengths: Counter[str] = Counter()
    for lane in cut.lanes:
        if lane.kind == "gap":
            for duration, name in zip(lane.duration_ns, lane.name_ids, strict=True):
                counts[cut.names[name]] += 1
                lengths[cut.names[name]] += duration
    order = [cause.value for cause in CAUSE_ORDER]
    return [(cause, counts[cause], lengths[cause]) for cause in order if counts[cause]]


def _data(cut: TimelineCut, predicted: tuple[Lane, ...], labels: set[str]) -> dict[str, Any]:
    """The lanes as small integers: starts as differences to the previous start, which compresses 50,000 events to 1 MB."""
    return {
        "length": cut.end_ns - cut.start_ns,
        "names": [_shown(name) for name in cut.names],
        "marks": [index for index, name in enumerate(cut.names) if _is_range(name, labels)],
        "causes": [cause.value for cause in Cause],
        "lanes": [_lane(lane) for lane in cut.lanes],
        "predicted": [_lane(lane) for lane in predicted],
    }


def _is_range(name: str, labels: set[str]) -> bool:
    """Whether a CPU range is the script's own: a mark, a region, a profiler step. The rest are framework ops."""
    numbered = re.sub(r"[#_ ]?\d+$", "", name)  # a range that counts its steps: "step6" of the region "step"
    own = name.startswith(("ProfilerStep#", "Optimizer.step#", "nn.Module:"))
    return own or decode(name) is not None or name in labels or numbered in labels


def _shown(name: str) -> str:
    mark = decode(name)
    return mark.label if mark is not None else name


def _lane(lane: Lane) -> dict[str, Any]:
    starts = lane.start_ns
    made: dict[str, Any] = {
        "id": lane.id,
        "label": lane.label,
        "kind": lane.kind,
        "d": [*starts[:1], *(after - before for before, after in pairwise(starts))],
        "n": lane.duration_ns,
        "i": lane.name_ids,
    }
    if any(lane.depths):
        made["p"] = lane.depths
    if lane.links:
        made["l"] = lane.links
    return made


SECTION = Section("timeline", 30, "One step, event by event", _build)
