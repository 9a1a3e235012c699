"""Where the time goes: from the step's length through busy and idle by cause to what a graph leaves; the four layers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from advisor.model import Layer, NumberKind
from advisor.report.content import RunContent
from advisor.report.figures import CAUSE_ORDER, Bar, StepFigures, bar_graphed, bar_now, step_figures
from advisor.report.samples import Strip, strip
from advisor.report.sections import Body, Section

# Typical cost of one eager launch, by layer, in µs: NVIDIA's CUDA graph guide, "quantitative benefits".
TYPICAL_US = {
    Layer.LANGUAGE: (10.0, 100.0),
    Layer.FRAMEWORK: (5.0, 20.0),
    Layer.DRIVER: (5.0, 15.0),
    Layer.SUBMISSION: (1.0, 5.0),
}
LAYER_WORDS = {
    Layer.LANGUAGE: ("Language", "Python, no framework op running"),
    Layer.FRAMEWORK: ("Framework runtime", "inside an op, outside the CUDA call"),
    Layer.DRIVER: ("Driver", "inside the CUDA call"),
    Layer.SUBMISSION: ("Submission", "call returned, queue empty, item not started"),
}
_AXIS_US = (0.1, 1000.0)


@dataclass(frozen=True)
class Row:
    """One step of the waterfall; `start_x` and `width_x` in percent of the step."""

    id: str
    label: str
    ns: int
    share_ratio: float
    kind: str
    start_x: float
    width_x: float
    is_total: bool = False
    removes: bool = False


@dataclass(frozen=True)
class LayerRow:
    """One overhead layer: idle time per launch beside the typical range, on a logarithmic axis (percent)."""

    name: str
    words: str
    ns: int
    per_launch_us: float
    typical_us: tuple[float, float]
    dot_x: float | None
    band_x: float
    band_width_x: float
    word: str


def _build(content: RunContent) -> Body:
    figures = step_figures(content)
    if figures is None:
        return Body({"figures": None})
    step = content.analysis.step
    return Body(
        {
            "figures": figures,
            "rows": _rows(content, figures),
            "layers": _layers(content, figures),
            "layer_ticks": [(us, _log_x(us)) for us in (0.1, 1, 10, 100, 1000)],
            "launches": _launches(content),
            "clocked": step.clocked if step is not None else None,
            "strip": _strip(content),
            "devices": content.analysis.devices if len(content.analysis.devices) > 1 else (),
            "judged": content.device,
            "causes": CAUSE_ORDER,
            "long_gap_ns": content.device.long_gap_ns if content.device else 0,
            "window_ns": content.device.end_ns - content.device.start_ns if content.device else 0,
        }
    )


def _strip(content: RunContent) -> Strip | None:
    """Step times of every pass that has them; the eager steps of a verification are another process and may differ."""
    step, attempt = content.analysis.step, content.headline_attempt
    if step is None or step.clocked is None:
        return None
    timing = attempt.timing if attempt is not None else None
    rows = [("unprofiled", "measured", step.clocked)]
    rows += [("unprofiled, verifying", "measured", timing.eager)] if timing is not None else []
    return strip([*rows, ("under the profiler", "profiled", step.traced)])


def _rows(content: RunContent, figures: StepFigures) -> list[Row]:
    now, graphed = bar_now(figures), bar_graphed(content, figures)
    total = max(now.total_ns, graphed.total_ns if graphed else 0, 1)
    words = "Step now" if content.analysis.step else "Recording"
    rows = [Row("step", words, now.total_ns, 1.0, now.kind.value, 0.0, 100 * now.total_ns / total, is_total=True)]
    at = 0
    for part in now.parts:
        rows.append(
            Row(part.id, part.label, part.ns, part.ns / now.total_ns if now.total_ns else 0.0, _kind(part.id, now),
                100 * at / total, 100 * part.ns / total)
        )  # fmt: skip
        at += part.ns
    if graphed is None:
        return rows
    saved = now.total_ns - graphed.total_ns
    kind = "verified" if graphed.kind == NumberKind.MEASURED else graphed.kind.value
    low, high = sorted((graphed.total_ns, now.total_ns))
    rows.append(
        Row("removed", "A graph removes" if saved >= 0 else "A graph adds", abs(saved), abs(saved) / max(now.total_ns, 1), kind,
            100 * low / total, 100 * (high - low) / total, removes=True)
    )  # fmt: skip
    rows.append(
        Row("graphed", "Step graphed", graphed.total_ns, graphed.total_ns / max(now.total_ns, 1), kind, 0.0,
            100 * graphed.total_ns / total, is_total=True)
    )  # fmt: skip
    return rows


def _kind(part_id: str, bar: Bar) -> str:
    # The GPU's own time is not scaled to the unprofiled clock.
    return NumberKind.PROFILED.value if part_id == "busy" else bar.parts_kind.value


def _launches(content: RunContent) -> float:
    if content.analysis.step is not None and content.step_region is not None:
        return content.step_region.launch_count
    return float(content.device.launches.launch_count) if content.device else 0.0


def _layers(content: RunContent, figures: StepFigures) -> list[LayerRow]:
    launches = _launches(content)
    if not launches or not figures.layers.total_ns:
        return []
    rows = []
    for layer, ns in figures.layers.by_layer().items():
        low, high = TYPICAL_US[layer]
        per_launch = ns / launches / 1_000
        name, words = LAYER_WORDS[layer]
        rows.append(
            LayerRow(
                name=name,
                words=words,
                ns=ns,
                per_launch_us=per_launch,
                typical_us=(low, high),
                dot_x=_log_x(per_launch) if per_launch > 0 else None,
                band_x=_log_x(low),
                band_width_x=_log_x(high) - _log_x(low),
                word="below" if per_launch < low else "above" if per_launch > high else "within",
            )
        )
    return rows


def _log_x(us: float) -> float:
    low, high = (math.log10(edge) for edge in _AXIS_US)
    return round(100 * min(max((math.log10(us) - low) / (high - low), 0.0), 1.0), 2)


SECTION = Section("waterfall", 20, "Where the time goes", _build)
