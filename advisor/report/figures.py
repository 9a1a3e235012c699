"""The figures all renderers show, as values: what a step is made of now and with a graph, and on which clock."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import msgspec

from advisor.model import Cause, IdleByCause, Layers, Measurement, NumberKind, Step
from advisor.report.content import RunContent

CAUSE_WORDS: dict[Cause, str] = {
    Cause.LAUNCH: "the CPU was late to launch",
    Cause.SYNC: "after a synchronisation",
    Cause.INPUT: "waiting for input",
    Cause.DEVICE: "queued in time, yet not started",
    Cause.PROFILER: "the profiler itself",
    Cause.UNKNOWN: "no launch recorded",
}
# The order of every bar and table: what a graph can remove first.
CAUSE_ORDER = (Cause.LAUNCH, Cause.SYNC, Cause.INPUT, Cause.DEVICE, Cause.PROFILER, Cause.UNKNOWN)


@dataclass(frozen=True)
class Part:
    """A piece of a bar: `id` is "busy", a cause, or "rest". Busy time is never scaled: it stays as the trace has it."""

    id: str
    label: str
    ns: int


@dataclass(frozen=True)
class Bar:
    """A step as stacked parts that sum to `total_ns`. `kind` is that of the total, `parts_kind` that of the pieces."""

    label: str
    total_ns: int
    kind: NumberKind
    parts_kind: NumberKind
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class StepFigures:
    """The step (or, without one, the recording) on the best clock there is.

    `scale` is what idle time of the typical traced step was multiplied by to fit `total_ns`.
    """

    label: str
    total_ns: int
    kind: NumberKind
    parts_kind: NumberKind
    traced_ns: int
    traced_count: int
    clocked_count: int
    busy_ns: int
    idle: IdleByCause
    layers: Layers
    scale: float
    # Traced over clocked, both of the same passes; the step above may be of another process. None without a clock.
    inflation_ratio: float | None = None

    @property
    def busy_ratio(self) -> float:
        return self.busy_ns / self.total_ns if self.total_ns else 0.0


def median_ns(measurement: Measurement) -> int:
    """Median of the raw samples; 0 when there are none."""
    return round(median(measurement.samples_ns)) if measurement.samples_ns else 0


def step_figures(content: RunContent) -> StepFigures | None:
    """The step's figures, idle time deflated to the unprofiled clock when there is one. None without a GPU item.

    The GPU's own time is not inflated by a profiler, so busy stays and only idle time is scaled; what the profiler itself
    caused is dropped. scale = (clocked - busy) / (traced idle - profiler); the shares of the other causes are the trace's.
    Without a clock, the typical step's idle time is brought to the length of the median traced step, so that every number on
    a page that says "a step" is the same one.
    """
    step, region = content.analysis.step, content.step_region
    if step is None or region is None or not region.extent_ns:
        return _window_figures(content)
    traced, clock = median_ns(step.traced) or region.extent_ns, _clock(content)
    clocked = median_ns(clock) if clock else 0
    own = region.idle.total_ns - region.idle.profiler_ns
    measured = clocked > region.busy_ns and own > 0
    total = clocked if measured else traced
    idle = msgspec.structs.replace(region.idle, profiler_ns=0) if measured else region.idle
    scale = (total - region.busy_ns) / idle.total_ns if idle.total_ns and total > region.busy_ns else 1.0
    idle = _scaled_idle(idle, scale)
    busy = region.busy_ns
    return StepFigures(
        label=step.label,
        total_ns=busy + idle.total_ns,
        kind=NumberKind.MEASURED if measured else NumberKind.PROFILED,
        parts_kind=NumberKind.CALIBRATED if measured else NumberKind.PROFILED,
        traced_ns=traced,
        traced_count=len(step.traced.samples_ns),
        clocked_count=len(clock.samples_ns) if clock and measured else 0,
        busy_ns=busy,
        idle=idle,
        layers=_scaled_layers(region.layers, scale),
        scale=scale,
        inflation_ratio=_inflation(step, traced, total) if measured else None,
    )


def _inflation(step: Step, traced_ns: int, total_ns: int) -> float:
    clocked = median_ns(step.clocked) if step.clocked is not None else 0
    return traced_ns / (clocked or total_ns)


def _clock(content: RunContent) -> Measurement | None:
    """Unprofiled step times: the eager side of the attempt the verdict rests on, else the clock pass.

    The verdict's sentence quotes that attempt, so the bar beside it has to show the same number.
    """
    attempt = content.headline_attempt
    if attempt is not None and attempt.timing is not None and attempt.timing.eager.samples_ns:
        return attempt.timing.eager
    return content.analysis.step.clocked if content.analysis.step else None


def _window_figures(content: RunContent) -> StepFigures | None:
    device = content.device
    if device is None:
        return None
    total = device.end_ns - device.start_ns
    return StepFigures(
        label="the recording",
        total_ns=total,
        kind=NumberKind.PROFILED,
        parts_kind=NumberKind.PROFILED,
        traced_ns=total,
        traced_count=1,
        clocked_count=0,
        busy_ns=device.busy_ns,
        idle=device.idle,
        layers=device.layers,
        scale=1.0,
    )


def _scaled_idle(idle: IdleByCause, scale: float) -> IdleByCause:
    return IdleByCause(**{f"{cause}_ns": round(ns * scale) for cause, ns in idle.by_cause().items()})


def _scaled_layers(layers: Layers, scale: float) -> Layers:
    return Layers(**{f"{layer}_ns": round(ns * scale) for layer, ns in layers.by_layer().items()})


def bar_now(figures: StepFigures) -> Bar:
    """The step as it is: busy, then idle by cause."""
    idle = figures.idle.by_cause()
    parts = [Part("busy", "GPU busy", figures.busy_ns)]
    parts += [Part(cause.value, CAUSE_WORDS[cause], idle[cause]) for cause in CAUSE_ORDER if idle[cause]]
    return Bar("now", figures.total_ns, figures.kind, figures.parts_kind, tuple(parts))


def bars(content: RunContent, figures: StepFigures | None) -> tuple[Bar, ...]:
    """The step before and after, on one clock: what the first screen compares.

    Where a verified attempt clocked a step that the recording's figures do not fit (its busy time alone is longer), both
    bars are the attempt's and are not divided.
    """
    attempt = content.headline_attempt
    timing = attempt.timing if attempt is not None else None
    if timing is not None and timing.graph.samples_ns and (figures is None or figures.kind != NumberKind.MEASURED):
        before, after = median_ns(timing.eager), median_ns(timing.graph)
        return (_undivided("now", before), _undivided("graphed", after))
    if figures is None:
        return ()
    graphed = bar_graphed(content, figures)
    return (bar_now(figures), *((graphed,) if graphed is not None else ()))


def _undivided(label: str, ns: int) -> Bar:
    part = Part("rest", "not divided: the recording's step is another one", ns)
    return Bar(label, ns, NumberKind.MEASURED, NumberKind.MEASURED, (part,))


def bar_graphed(content: RunContent, figures: StepFigures) -> Bar | None:
    """The step with the graph of the headline: measured when an attempt carries it, else estimated. None without either.

    Inside it only the GPU's busy time is known; the remainder is shown as one piece. None, too, when the attempt's clock and
    the figures' have no step in common.
    """
    attempt, estimate = content.headline_attempt, content.headline_estimate
    if attempt is not None and attempt.timing is not None and attempt.timing.graph.samples_ns:
        if figures.kind != NumberKind.MEASURED:
            return None
        total, kind = median_ns(attempt.timing.graph), NumberKind.MEASURED
    elif estimate is not None and estimate.saved_ns > 0:
        # On the clock of the bar beside it: an estimate on another clock would compare nothing.
        total, kind = max(figures.total_ns - estimate.saved_ns, 0), NumberKind.ESTIMATED
        if figures.kind == NumberKind.MEASURED and estimate.before_ns:
            total = round(figures.total_ns * estimate.after_ns / estimate.before_ns)
    else:
        return None
    busy = min(figures.busy_ns, total)
    rest = Part("rest", "idle or host time that remains", total - busy)
    parts = (Part("busy", "GPU busy", busy), *((rest,) if rest.ns else ()))
    return Bar("graphed", total, kind, figures.parts_kind, parts)
