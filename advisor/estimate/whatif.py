"""One region (or several) as graphs in the modelled step: the step then, term by term, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from advisor.estimate import interval as bounds
from advisor.estimate.costs import Costs
from advisor.estimate.deflate import Deflated
from advisor.estimate.interval import Interval, Width
from advisor.estimate.replace import FREE, GraphCosts, Spans, with_graphs
from advisor.estimate.simulate import Simulated, simulate
from advisor.estimate.stepmodel import NONE, StepModel
from advisor.estimate.terms import Ledger
from advisor.model import Term

_COPY_CPU_LAUNCHES: Final = 2.5  # a `copy_` from Python costs about this many bare launches on the thread
_INPUTS: Final = {"low": 0, "expected": 1, "high": 3}  # tensors staged for each replay; a trace does not show them


@dataclass(frozen=True)
class Scene:
    """The step a run is judged by, ready for questions. `before_ns` is the clocked (or traced) median step, `spread_ratio`
    half the interquartile range of its samples over their median."""

    deflated: Deflated
    costs: Costs
    before_ns: int
    busy_ns: int
    spread_ratio: float
    share_ratio: float  # how well a region's share of the CPU time is known, see `interval.SHARE_*`

    @property
    def misfit_ratio(self) -> float:
        """Simulated over real step: what the model gets wrong when nothing is changed."""
        return self.deflated.baseline.step_ns / self.before_ns - 1.0 if self.before_ns else 0.0


@dataclass(frozen=True)
class WhatIf:
    """The step with the graphs in it. `terms` add up to before - expected. `without_syncs_ns`: the step if the synchronisations
    inside were gone, None when there are none."""

    interval: Interval
    terms: tuple[Term, ...]
    binds_next: str
    idle_ns: int
    without_syncs_ns: int | None


def graph_costs(costs: Costs, level: str, bytes_in: int = 0, extra_ns: float = 0.0) -> GraphCosts:
    """Costs of a replay at one level ("low", "expected", "high") of the constants' ranges."""

    def of(name: str) -> float:
        value: float = getattr(getattr(costs, name), level)
        return value

    copies = _INPUTS[level]
    each = of("copy_fixed") + of("copy_per_byte") * bytes_in / max(copies, 1)
    return GraphCosts(
        node_gap=of("node_gap"),
        replay_cpu=of("replay_cpu"),
        replay_cpu_per_node=of("replay_cpu_per_node"),
        graph_start=max(of("launch_to_start") - of("launch_cpu"), 0.0),
        copies=copies,
        copy_cpu=_COPY_CPU_LAUNCHES * of("launch_cpu"),
        copy_gpu=each,
        extra_gpu=extra_ns,
    )


def ask(scene: Scene, spans: Spans, bytes_in: int = 0, extra_kernels: int = 0) -> WhatIf:
    """What the step becomes when the spans are graphs, each with `extra_kernels` small ones besides its items."""
    extra = extra_kernels * (_small_kernel(scene.deflated.model) + scene.costs.node_gap.expected)
    model, base = scene.deflated.model, scene.deflated.baseline
    full = graph_costs(scene.costs, "expected", bytes_in, extra)
    gapped = GraphCosts(full.node_gap, 0.0, 0.0, 0.0)
    launched = GraphCosts(full.node_gap, full.replay_cpu, full.replay_cpu_per_node, full.graph_start)
    free, with_gaps, with_launch, final = (
        simulate(with_graphs(model, spans, costs)) for costs in (FREE, gapped, launched, full)
    )
    with_copies = simulate(with_graphs(model, spans, replace(full, extra_gpu=0.0))) if extra else final
    floor = min(scene.busy_ns, scene.before_ns)
    after = max(_on_clock(scene, final), float(floor))
    ledger = Ledger()
    ledger.add("launch_idle", "waiting for launches inside the region", base.step_ns - free.step_ns)
    ledger.add("node_gap", "gaps between the nodes of the graph", free.step_ns - with_gaps.step_ns)
    ledger.add("graph_launch", "replay call and start of the graph", with_gaps.step_ns - with_launch.step_ns)
    ledger.add("input_copy", "input copies into the graph's memory", with_launch.step_ns - with_copies.step_ns)
    ledger.add("fix_kernels", "small kernels that the fix adds", with_copies.step_ns - final.step_ns)
    terms = ledger.settle(
        scene.before_ns - round(after),
        "model_misfit",
        "step as it is against its simulation",
        "simulated without any change",
    )
    moved = None
    if _waits_inside(scene, spans):
        moved = round(max(_on_clock(scene, simulate(with_graphs(model, spans, full, keep_syncs=False))), float(floor)))
    widths = _widths(scene, spans, (base, free, final), (bytes_in, extra))
    low_floor = floor * (1 - bounds.KERNEL_DRIFT)
    found = bounds.interval(after, low_floor, max(scene.before_ns * 1.1, after), widths)
    return WhatIf(found, terms, final.binds, round(max(after - scene.busy_ns, 0.0)), moved)


def _small_kernel(model: StepModel) -> float:
    """What a kernel takes that has next to nothing to do: the shortest tenth of the step's."""
    return float(np.quantile(model.length, 0.1)) if model.item_count else 0.0


def _on_clock(scene: Scene, after: Simulated) -> float:
    """A simulated step on the clock: where the CPU decides, the misfit of the unchanged step carries over; the GPU's own work
    is known by itself."""
    scale = scene.before_ns / scene.deflated.baseline.step_ns if scene.deflated.baseline.step_ns > 0 else 1.0
    return after.step_ns if after.binds == "gpu" else after.step_ns * scale


def _waits_inside(scene: Scene, spans: Spans) -> bool:
    model = scene.deflated.model
    return bool((model.wait[spans.owner(model) >= 0] != NONE).any())


def _widths(
    scene: Scene, spans: Spans, runs: tuple[Simulated, Simulated, Simulated], more: tuple[int, float]
) -> tuple[Width, ...]:
    base, free, final = runs
    model = scene.deflated.model
    best, worst = (
        simulate(with_graphs(model, spans, graph_costs(scene.costs, level, *more))) for level in ("low", "high")
    )
    # What the CPU still decides after the change moves with the steps' spread; a GPU-bound step hardly moves.
    cpu_part = max(final.step_ns - scene.busy_ns, 0.0)
    saved = max(base.step_ns - free.step_ns, 0.0)
    unsure = scene.share_ratio * min(saved, cpu_part)
    misfit = abs(scene.misfit_ratio) * cpu_part
    inside = np.repeat(spans.owner(model) >= 0, model.count)
    drift = bounds.KERNEL_DRIFT * float(model.length[inside].sum())
    small = float(np.quantile(model.length[inside], 0.25)) if inside.any() else 0.0
    others = bounds.OTHER_NODES * float(inside.sum()) * (scene.costs.node_gap.expected + small)
    return (
        Width(
            "constants",
            "range of the graph's constants",
            max(final.step_ns - best.step_ns, 0.0),
            max(worst.step_ns - final.step_ns, 0.0),
        ),
        Width("spread", "spread of the steps", scene.spread_ratio * cpu_part, scene.spread_ratio * cpu_part),
        Width("misfit", "misfit of the simulation without any change", misfit, misfit),
        Width("share", "the region's share of the CPU time", unsure, unsure),
        Width("drift", "kernels faster or slower in a replay", drift, drift),
        Width("other_kernels", "other kernels while a stream captures", 0.0, others),
    )
