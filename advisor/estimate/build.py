"""From regions to estimates: the modelled step, one what-if a region, the words around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from advisor.estimate import first_order
from advisor.estimate import interval as bounds
from advisor.estimate.costs import CAPTURE_NS, WARMUP_STEPS, Costs, costs_of
from advisor.estimate.deflate import deflate
from advisor.estimate.first_order import StepFigures
from advisor.estimate.replace import Spans
from advisor.estimate.stepmodel import build_model, representative
from advisor.estimate.whatif import Scene, WhatIf, ask
from advisor.intervals import Ints, union
from advisor.metrics.gaps import synchronising
from advisor.model import Calibration, Clock, Estimate, NumberKind, Region, Step, Term
from advisor.regions import FoundRegion, StepWindows
from advisor.timeline import Timeline
from advisor.units import format_ns, format_ratio

PROFILED: Final = "estimated from a profiled trace; the profiler may have inflated it (1.4 to 2 times is usual)"
CLOCKED: Final = "CPU time of the trace deflated to the unprofiled clock"
DEFAULTS: Final = (
    "default constants for the in-graph gap, graph launch and copies; `cgadvisor calibrate` measures this machine's"
)
MEASURED: Final = "gaps, launches and copies as measured on this machine"
SAME_KERNELS: Final = "the library runs the same kernels while a stream captures"
NO_SHAPES: Final = "one graph serves every occurrence: input shapes were not recorded"
NOT_SIMULATED: Final = "first-order arithmetic on the region's figures, not simulated"

_MAX_MISFIT: Final = 0.25  # a step the model cannot reproduce is not worth asking
_CALLS_BUDGET: Final = (
    2_000_000  # simulated calls: about two seconds; the regions after that get the first-order estimate
)
_SIMULATIONS: Final = 7  # a region


class Estimator:
    """One step, ready to be asked about any region in it. Building it costs more than a question."""

    def __init__(self, figures: StepFigures, costs: Costs, kind: NumberKind, index: int, scene: Scene | None) -> None:
        self._figures, self._costs, self._kind = figures, costs, kind
        self._index, self._scene = index, scene

    @classmethod
    def of(
        cls,
        timeline: Timeline,
        step: Step,
        steps: StepWindows,
        found: Sequence[FoundRegion],
        calibration: Calibration | None,
        clock: Clock | None,
    ) -> Estimator:
        """The estimator of this step.

        timeline: with its gaps filled; steps: the windows of `step`; found: regions with the rows behind them. Without a clock
        the figures are those of the profiled trace and say so; without a calibration the documented default constants serve.
        """
        figures = step_figures(timeline, step, steps, found, clock)
        kind = NumberKind.CALIBRATED if _has_samples(clock) else NumberKind.PROFILED
        index, scene = 0, None
        if figures.before_ns > 0:
            index, scene = scene_of(timeline, step, steps, found, figures, (calibration, clock))
        return cls(figures, costs_of(calibration), kind, index, scene)

    def estimates(self, found: Sequence[FoundRegion]) -> tuple[Estimate, ...]:
        """One for each region inside the steps, in order: simulated while the budget of simulated calls lasts, then first-order
        arithmetic."""
        if self._figures.before_ns <= 0:
            return ()
        made, spent, each = [], 0, 0
        if self._scene is not None:
            each = len(self._scene.deflated.model.think) * 4 * _SIMULATIONS
        for one in found:
            if one.region.occurrences_per_step <= 0:
                continue
            answer = self._ask(one, 0) if spent < _CALLS_BUDGET else None
            spent += each if answer is not None else 0
            made.append(self._worded(one, answer))
        return tuple(made)

    def estimate(self, one: FoundRegion, extra_kernels: int = 0) -> Estimate | None:
        """What graphing one region inside the steps would save, when each replay runs `extra_kernels` small ones that the
        recording does not hold. None when there is no step to save of."""
        return self._worded(one, self._ask(one, extra_kernels)) if self._figures.before_ns > 0 else None

    def _ask(self, one: FoundRegion, extra_kernels: int) -> WhatIf | None:
        spans = spans_in(one, self._index)
        if self._scene is None or not len(spans.start_ns):
            return None
        return ask(self._scene, spans, one.region.bytes_in, extra_kernels)

    def _worded(self, one: FoundRegion, answer: WhatIf | None) -> Estimate:
        if answer is None:
            return _arithmetic(one.region, self._figures, self._costs, self._kind)
        return _simulated(one.region, self._scene, answer, self._figures, self._kind)


def combined(
    timeline: Timeline,
    step: Step,
    steps: StepWindows,
    found: Sequence[FoundRegion],
    chosen: Sequence[str],
    evidence: tuple[Calibration | None, Clock | None],
) -> WhatIf | None:
    """The step with all regions whose ids are in `chosen` as graphs at once; None when the step cannot be simulated.

    Gains of regions do not add up: what one graph leaves on the CPU can hide behind what another leaves on the GPU.
    """
    figures = step_figures(timeline, step, steps, found, evidence[1])
    index, scene = scene_of(timeline, step, steps, found, figures, evidence)
    spans = [spans_in(one, index) for one in found if one.region.id in chosen]
    if scene is None or not spans:
        return None
    return ask(scene, Spans.joined(spans))


def step_figures(
    timeline: Timeline, step: Step, steps: StepWindows, found: Sequence[FoundRegion], clock: Clock | None
) -> StepFigures:
    """Medians of the step. Busy time is the union of the items inside the step's device windows."""
    traced = int(np.median(step.traced.samples_ns)) if step.traced.samples_ns else 0
    # The step region's figures are those of a typical step and add up; the median window need not be that very step.
    extent = next((one.region.extent_ns for one in found if one.region.id == step.id), 0) or traced
    clocked = float(np.median(clock.host_step.samples_ns)) if clock is not None and _has_samples(clock) else None
    busy = busy_of_steps(timeline, steps)
    calls = timeline.calls[synchronising(timeline.calls) & (timeline.calls["rank"] == steps.rank).to_numpy()]
    blocked = union(calls["start_ns"], calls["end_ns"]).within(steps.cpu_start_ns, steps.cpu_end_ns)
    return StepFigures(
        before_ns=traced if clocked is None else round(clocked),
        busy_ns=int(np.median(busy)) if len(busy) else 0,
        traced_ns=extent,
        blocked_ns=int(np.median(blocked)) if len(blocked) else 0,
    )


def busy_of_steps(timeline: Timeline, steps: StepWindows) -> Ints:
    """Union of the items inside each device window: int64 (n,)."""
    items = timeline.items
    mine = items[(items["rank"] == steps.rank) & (items["device"] == steps.device)]
    return union(mine["start_ns"], mine["end_ns"]).within(steps.start_ns, steps.end_ns)


def scene_of(
    timeline: Timeline,
    step: Step,
    steps: StepWindows,
    found: Sequence[FoundRegion],
    figures: StepFigures,
    evidence: tuple[Calibration | None, Clock | None],
) -> tuple[int, Scene | None]:
    """The index of the modelled step and the scene; no scene when the step has no launches on record or the model cannot
    reproduce it."""
    calibration, clock = evidence
    costs = costs_of(calibration)
    if not steps.count:
        return 0, None
    index = representative(steps, busy_of_steps(timeline, steps))
    model = build_model(timeline, steps, index, costs)
    if model is None:
        return index, None
    ready = deflate(model, clock, found, index, calibration, costs.launch_to_start.low)
    samples = clock.host_step.samples_ns if clock is not None and _has_samples(clock) else step.traced.samples_ns
    share = bounds.SHARE_TRACED
    if _has_samples(clock):
        share = bounds.SHARE_CLOCKED if ready.statements else bounds.SHARE_SOLVED
    scene = Scene(ready, costs, figures.before_ns, figures.busy_ns, _spread(samples), share)
    return index, scene if abs(scene.misfit_ratio) <= _MAX_MISFIT else None


def spans_in(one: FoundRegion, index: int) -> Spans:
    """The region's occurrences in one step."""
    here = one.occurrences.step_index == index
    return Spans(one.occurrences.cpu_start_ns[here], one.occurrences.cpu_end_ns[here])


def _has_samples(clock: Clock | None) -> bool:
    return clock is not None and len(clock.host_step.samples_ns) > 0


def _spread(samples: Sequence[int]) -> float:
    """Half the interquartile range over the median."""
    if len(samples) < 2:
        return 0.1
    low, middle, high = np.quantile(np.asarray(samples, dtype=np.float64), [0.25, 0.5, 0.75])
    return float((high - low) / (2 * middle)) if middle > 0 else 0.0


def _simulated(region: Region, scene: Scene | None, answer: WhatIf, figures: StepFigures, kind: NumberKind) -> Estimate:
    assert scene is not None
    before = figures.before_ns
    saved, low, high = (
        before - ns for ns in (answer.interval.expected_ns, answer.interval.high_ns, answer.interval.low_ns)
    )
    words = list(assumptions(region, scene.costs, kind))
    if scene.deflated.per_event_ns:
        words.append(f"the profiler cost {format_ns(scene.deflated.per_event_ns)} for each recorded event")
    words.append(f"simulated without any change, the step is off by {format_ratio(abs(scene.misfit_ratio))}")
    if answer.without_syncs_ns is not None:
        words.append(
            f"with the synchronisations inside moved out of the step it would take {format_ns(answer.without_syncs_ns)}"
        )
    widths = tuple(
        Term(id=width.id, label=width.label, ns=round(max(width.less_ns, width.more_ns)))
        for width in answer.interval.widths
    )
    made = _around(region, figures, scene.costs, (saved, low, high), kind)
    return _completed(made, answer.terms, tuple(words), answer.binds_next, widths, answer.without_syncs_ns)


def _arithmetic(region: Region, figures: StepFigures, costs: Costs, kind: NumberKind) -> Estimate:
    levels = first_order.predict(region, figures, costs)
    before = figures.before_ns
    saved, low, high = (before - one.after_ns for one in (levels.expected, levels.worst, levels.best))
    made = _around(region, figures, costs, (saved, min(low, saved), max(high, saved)), kind)
    words = (*assumptions(region, costs, kind), NOT_SIMULATED)
    return _completed(made, levels.expected.terms, words, levels.expected.binds_next, (), None)


def _around(
    region: Region, figures: StepFigures, costs: Costs, saved: tuple[int, int, int], kind: NumberKind
) -> Estimate:
    """The estimate without its terms and words; `saved` is (expected, low, high)."""
    one_off = one_off_ns(region, figures.before_ns, costs)
    extent = round(region.busy_ns + (region.extent_ns - region.busy_ns) * figures.dilation)
    each = saved[0] / max(region.occurrences_per_step, 1e-9)
    return Estimate(
        region_id=region.id,
        before_ns=figures.before_ns,
        saved_low_ns=saved[1],
        saved_ns=saved[0],
        saved_high_ns=saved[2],
        terms=(),
        assumptions=(),
        kind=kind,
        region_before_ns=extent,
        region_after_ns=max(round(extent - each), min(region.busy_ns, extent)),
        one_off_ns=one_off,
        break_even_replays=break_even(one_off, each),
    )


def _completed(
    made: Estimate,
    terms: tuple[Term, ...],
    words: tuple[str, ...],
    binds_next: str,
    widths: tuple[Term, ...],
    without_syncs_ns: int | None,
) -> Estimate:
    """`made` with what a prediction adds to it."""
    return msgspec.structs.replace(
        made,
        terms=terms,
        assumptions=words,
        binds_next=binds_next,
        interval=widths,
        without_syncs_ns=without_syncs_ns,
    )


def assumptions(region: Region, costs: Costs, kind: NumberKind) -> tuple[str, ...]:
    """What the estimate takes for granted, in words."""
    made = [CLOCKED if kind == NumberKind.CALIBRATED else PROFILED]
    made.append(MEASURED if costs.calibrated else DEFAULTS)
    made.append(SAME_KERNELS)
    if region.shape_signature_count is None:
        made.append(NO_SHAPES)
    elif region.shape_signature_count > 1:
        made.append(f"{region.shape_signature_count} input shapes: each needs a graph of its own")
    if region.sync_count or region.d2h_count:
        made.append("its synchronisations moved to the edge of the region, where they still wait")
    return tuple(made)


def one_off_ns(region: Region, before_ns: int, costs: Costs) -> int:
    """Warm-up steps, capture and instantiation, once for each input shape."""
    graphs = max(region.shape_signature_count or 1, 1)
    each = CAPTURE_NS + costs.instantiate_per_node_ns * region.item_count
    return round(WARMUP_STEPS * before_ns + graphs * each)


def break_even(one_off: int, saved_per_replay_ns: float) -> int | None:
    """Replays after which the one-off cost is earned back; None when nothing is saved."""
    return int(np.ceil(one_off / saved_per_replay_ns)) if saved_per_replay_ns >= 1 else None
