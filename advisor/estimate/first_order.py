"""The estimate by arithmetic on a region's figures, where a simulation cannot be built.

    step after = max(GPU path, CPU path, busy)
    GPU path   = step - launch-bound idle of the region + in-graph gaps + graph launches + input copies
    CPU path   = CPU time of the step - CPU time of the region + CPU time of its replays

Only launch-bound idle time is removable; time lost to synchronisation, input, the device or an unknown cause stays. With an
unprofiled clock the CPU side is deflated by (clocked - busy) / (traced - busy): the GPU's own time is not inflated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from advisor.estimate.costs import Cost, Costs
from advisor.estimate.terms import Ledger
from advisor.model import NumberKind, Region, Term

_BUSY_SPREAD: Final = 0.05  # kernels run a little longer in a replay (no pauses to cool down) or shorter (warm caches)


@dataclass(frozen=True)
class StepFigures:
    """One step: `before_ns` on the clock the estimate speaks in, `busy_ns` of its items, `traced_ns` as recorded,
    `blocked_ns` of it in which the CPU only waited for the device; all medians over the steps."""

    before_ns: int
    busy_ns: int
    traced_ns: int
    blocked_ns: int

    @property
    def dilation(self) -> float:
        """Unprofiled over traced CPU time; 1 without a clock."""
        idle = self.traced_ns - self.busy_ns
        return min(1.2, max(0.05, (self.before_ns - self.busy_ns) / idle)) if idle > 0 else 1.0


@dataclass(frozen=True)
class Outcome:
    """A predicted step, per step in ns, and the terms that lead from before to after."""

    after_ns: int
    terms: tuple[Term, ...]
    binds_next: str


@dataclass(frozen=True)
class Levels:
    """The same prediction with favourable, expected and unfavourable constants."""

    best: Outcome
    expected: Outcome
    worst: Outcome


def predict(region: Region, step: StepFigures, costs: Costs, kind: NumberKind = NumberKind.ESTIMATED) -> Levels:
    """Favourable, expected and unfavourable prediction for one region replayed as a graph in every step."""
    return Levels(
        best=_at(region, step, costs, "low", kind),
        expected=_at(region, step, costs, "expected", kind),
        worst=_at(region, step, costs, "high", kind),
    )


def _at(region: Region, step: StepFigures, costs: Costs, level: str, kind: NumberKind) -> Outcome:
    def of(cost: Cost) -> float:
        value: float = getattr(cost, level)
        return value

    times, items = region.occurrences_per_step, region.item_count
    drift = {"low": -_BUSY_SPREAD, "expected": 0.0, "high": _BUSY_SPREAD}[level] * region.busy_ns * times
    ledger = Ledger(kind)
    removable = min(region.idle.launch_ns * times * step.dilation, float(max(step.before_ns - step.busy_ns, 0)))
    ledger.add("launch_idle", "launch-bound idle time inside the region", removable)
    ledger.add("node_gap", "gaps between nodes inside the graph", -times * items * of(costs.node_gap))
    whole = region.step_share_ratio >= _WHOLE and times <= 1.5
    if not whole:
        ledger.add("graph_start", "start of the graph on an idle GPU", -times * of(costs.launch_to_start))
    replay = of(costs.replay_cpu) + items * of(costs.replay_cpu_per_node)
    copies = of(costs.copy_fixed) + region.bytes_in * of(costs.copy_per_byte) if region.bytes_in else 0.0
    ledger.add("input_copy", "input copies into the graph's memory", -times * copies)
    ledger.add("busy_drift", "kernels slower or faster in a replay", -drift)
    gpu_path = step.before_ns - ledger.total_ns
    cpu_step = max(step.before_ns - step.blocked_ns * step.dilation, 0.0)
    cpu_region = min(region.cpu_ns * times * step.dilation, cpu_step)
    cpu_path = cpu_step - cpu_region + times * replay if region.cpu_ns else 0.0
    floor = min(step.busy_ns, step.before_ns) * (1 - _BUSY_SPREAD if level == "low" else 1)
    after = round(max(gpu_path, cpu_path, floor))
    cpu_binds = cpu_path >= max(gpu_path, floor)
    label = (
        "CPU work that stays outside the graph" if cpu_binds else "the step cannot be shorter than the GPU's own work"
    )
    terms = ledger.settle(step.before_ns - after, "cpu_rest" if cpu_binds else "floor", label)
    return Outcome(after, terms, "cpu" if cpu_binds else "gpu")


_WHOLE: Final = 0.9  # share of the step from which a region counts as the whole of it
