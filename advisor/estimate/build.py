"""From regions to estimates: the figures of the step, one prediction a region, the words around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from advisor.estimate import first_order
from advisor.estimate.costs import CAPTURE_NS, WARMUP_STEPS, Costs, costs_of
from advisor.estimate.first_order import Levels, StepFigures
from advisor.intervals import union
from advisor.metrics.gaps import synchronising
from advisor.model import Calibration, Clock, Estimate, NumberKind, Region, Step
from advisor.regions import FoundRegion, StepWindows
from advisor.timeline import Timeline

PROFILED: Final = "estimated from a profiled trace; the profiler may have inflated it (1.4 to 2 times is usual)"
CLOCKED: Final = "CPU time of the trace deflated to the unprofiled clock"
DEFAULTS: Final = "default constants for the in-graph gap, graph launch and copies; `cgadvisor calibrate` measures this machine's"
MEASURED: Final = "gaps, launches and copies as measured on this machine"
SAME_KERNELS: Final = "the library runs the same kernels while a stream captures"
NO_SHAPES: Final = "one graph serves every occurrence: input shapes were not recorded"


def estimate_regions(
    timeline: Timeline,
    step: Step,
    steps: StepWindows,
    found: Sequence[FoundRegion],
    calibration: Calibration | None,
    clock: Clock | None,
) -> tuple[Estimate, ...]:
    """See `advisor.estimate.estimate_regions`."""
    costs = costs_of(calibration)
    figures = step_figures(timeline, step, steps, found, clock)
    kind = NumberKind.PROFILED if clock is None else NumberKind.CALIBRATED
    made = []
    for one in found:
        if one.region.occurrences_per_step > 0 and figures.before_ns > 0:
            levels = first_order.predict(one.region, figures, costs)
            made.append(_estimate(one.region, levels, figures, costs, kind))
    return tuple(made)


def step_figures(
    timeline: Timeline, step: Step, steps: StepWindows, found: Sequence[FoundRegion], clock: Clock | None
) -> StepFigures:
    """Medians of the step. Busy time is the union of the items inside the step's device windows."""
    traced = int(np.median(step.traced.samples_ns))
    # The step region's figures are those of a typical step and add up; the median window need not be that very step.
    extent = next((one.region.extent_ns for one in found if one.region.id == step.id), 0) or traced
    clocked = np.median(clock.host_step.samples_ns) if clock is not None and clock.host_step.samples_ns else None
    items = timeline.items
    mine = items[(items["rank"] == steps.rank) & (items["device"] == steps.device)]
    busy = union(mine["start_ns"], mine["end_ns"]).within(steps.start_ns, steps.end_ns)
    calls = timeline.calls[synchronising(timeline.calls) & (timeline.calls["rank"] == steps.rank).to_numpy()]
    blocked = union(calls["start_ns"], calls["end_ns"]).within(steps.cpu_start_ns, steps.cpu_end_ns)
    return StepFigures(
        before_ns=traced if clocked is None else round(float(clocked)),
        busy_ns=int(np.median(busy)) if len(busy) else 0,
        traced_ns=extent,
        blocked_ns=int(np.median(blocked)) if len(blocked) else 0,
    )


def _estimate(region: Region, levels: Levels, figures: StepFigures, costs: Costs, kind: NumberKind) -> Estimate:
    before = figures.before_ns
    saved, low, high = (before - one.after_ns for one in (levels.expected, levels.worst, levels.best))
    one_off = one_off_ns(region, before, costs)
    extent = round(region.busy_ns + (region.extent_ns - region.busy_ns) * figures.dilation)
    times = max(region.occurrences_per_step, 1e-9)
    return Estimate(
        region_id=region.id,
        before_ns=before,
        saved_low_ns=min(low, saved),
        saved_ns=saved,
        saved_high_ns=max(high, saved),
        terms=levels.expected.terms,
        assumptions=assumptions(region, costs, kind),
        kind=kind,
        region_before_ns=extent,
        region_after_ns=max(round(extent - saved / times), min(region.busy_ns, extent)),
        one_off_ns=one_off,
        break_even_replays=break_even(one_off, saved / times),
        binds_next=levels.expected.binds_next,
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


