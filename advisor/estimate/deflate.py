"""The recorded step brought to the speed it has without a profiler.

Unknown is what the profiler cost each recorded event. It is solved for: the simulated step must take as long as the clocked one.
Where the clock timed single statements, each statement's CPU time is set to what was clocked, and the rest is scaled to fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from advisor.estimate.simulate import Simulated, simulate
from advisor.estimate.stepmodel import StepModel
from advisor.intervals import union
from advisor.marks import decode
from advisor.model import Calibration, Clock
from advisor.regions import FoundRegion

PROFILER_PER_EVENT_NS: Final = 1_500.0  # recordings of seven workloads on an H200 gave 1.1 to 3.4 µs
_MAX_PER_EVENT_NS: Final = 20_000.0
_TOLERANCE: Final = 0.002
_ROUNDS: Final = 12


@dataclass(frozen=True)
class Deflated:
    """The model at the clock's speed, its simulation, and what was assumed of the profiler."""

    model: StepModel
    baseline: Simulated
    per_event_ns: float
    scale: float
    statements: int  # clocked statements whose own time was used


def deflate(
    model: StepModel,
    clock: Clock | None,
    found: Sequence[FoundRegion],
    index: int,
    calibration: Calibration | None,
    floor_ns: float,
) -> Deflated:
    """The model at the clock's speed; as recorded without a clock. `index` is the modelled step."""
    if clock is None or not clock.host_step.samples_ns:
        return Deflated(model, simulate(model), 0.0, 1.0, 0)
    target = float(np.median(clock.host_step.samples_ns))
    model = _fit_gpu(model, target)
    known = calibration.profiler_per_op_ns if calibration else PROFILER_PER_EVENT_NS
    if simulate(model).binds == "gpu":  # the CPU's speed does not show in the step: nothing to solve for
        per_event, scale = known, 1.0
    else:
        per_event = _solve(
            lambda cost: simulate(model.deflated(cost, 1.0, floor_ns)).step_ns, target, _MAX_PER_EVENT_NS
        )
        scale = 1.0
    deflated = model.deflated(per_event, scale, floor_ns)
    deflated, used = _statements(deflated, clock, found, index)
    rest = simulate(deflated)
    if rest.binds != "gpu" and abs(rest.step_ns - target) > _TOLERANCE * target:
        scale = 2.0 - _solve(lambda less: simulate(deflated.deflated(0.0, 2.0 - less)).step_ns, target, 1.9)
        deflated = deflated.deflated(0.0, scale)
        rest = simulate(deflated)
    return Deflated(deflated, rest, per_event, scale, used)


def _fit_gpu(model: StepModel, target_ns: float) -> StepModel:
    """Kernels shortened where their own sum exceeds the clocked step: recorded durations can be a few percent long."""
    work = simulate(model).gpu_ns
    return model.scaled_items(max(target_ns / work, 0.7)) if work > target_ns > 0 else model


def _solve(step_of: Callable[[float], float], target_ns: float, highest: float) -> float:
    """The argument in [0, highest] at which a falling function meets the target, by bisection; the nearer end when none does."""
    low, high = 0.0, highest
    if step_of(low) <= target_ns:
        return low
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        reached = step_of(middle)
        if abs(reached - target_ns) <= _TOLERANCE * target_ns:
            return middle
        low, high = (middle, high) if reached > target_ns else (low, middle)
    return (low + high) / 2


def _statements(model: StepModel, clock: Clock, found: Sequence[FoundRegion], index: int) -> tuple[StepModel, int]:
    """CPU time of each clocked statement set to its clocked median; inner statements override outer ones.

    Statements that synchronise are left out: their clocked time is partly the GPU's.
    """
    clocked = _clocked_by_region(clock)
    factor = np.ones(len(model.think))
    used = 0
    for one in sorted(found, key=lambda one: -one.region.cpu_ns):
        median = clocked.get(one.region.id)
        if median is None or one.region.sync_count or one.region.id.startswith(("iter:", "loop:")):
            continue
        here = one.occurrences.step_index == index
        start, end = one.occurrences.cpu_start_ns[here], one.occurrences.cpu_end_ns[here]
        cover = union(start, end)
        inside = (cover.within(model.start, model.start + 1) > 0) & (model.thread == 0)
        mine = float((model.think + model.api)[inside].sum())
        if not inside.any() or mine <= 0:
            continue
        factor[inside] = min(max(median * int(here.sum()) / mine, 0.3), 3.0)
        used += 1
    return model.scaled_calls(factor), used


def _clocked_by_region(clock: Clock) -> dict[str, float]:
    """Clocked host time of one occurrence by region id, the cost of the range itself taken off."""
    found = {}
    for text, measured in clock.regions.items():
        mark = decode(text)
        if mark is not None and measured.samples_ns:
            found[f"{mark.kind}:{mark.label}"] = max(float(np.median(measured.samples_ns)) - clock.range_cost_ns, 0.0)
    return found
