"""How often does the gate cry wolf, and how often does it sleep? Simulated step times, the real `judge`.

    python benchmarks/gate_simulation.py [--runs 1000] [--seed 0] [--json FILE]

Each run draws the samples of both sides, makes two snapshots and judges them as `cgadvisor gate` does with its defaults.
"unchanged" rows count false alarms (verdict fail), "slower" rows count catches. Inconclusive runs are listed apart: they
end with exit code 5 and are neither. All noise is seeded.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from advisor.config import GateConfig
from advisor.gate import Snapshot, Status, judge
from advisor.gate.snapshot import Times
from advisor.gate.verdict import Group
from advisor.model import NumberKind

Series = list[np.ndarray]
LEVEL_NS = 3_000_000
CV = 0.05


@dataclass(frozen=True)
class Scenario:
    """`draw(rng, factor)` gives the processes of both sides, head slowed by `factor`. `confirm`: a failure is measured
    again in fresh processes, as `gate --run` does."""

    name: str
    draw: Callable[[np.random.Generator, float], tuple[Series, Series]]
    paired: bool = False
    confirm: bool = False
    bound: bool = True  # held to the promised rates; the others show what the gate cannot know


def steady(
    processes: int, count: int, spread: float = 0.0
) -> Callable[[np.random.Generator, float], tuple[Series, Series]]:
    """Normal noise; process levels differ by `spread` (relative standard deviation)."""

    def draw(rng: np.random.Generator, factor: float) -> tuple[Series, Series]:
        def side(level: float) -> Series:
            return [
                level * rng.normal(1, spread) * rng.normal(1, CV, count) if spread else level * rng.normal(1, CV, count)
                for _ in range(processes)
            ]

        return side(LEVEL_NS), side(LEVEL_NS * factor)

    return draw


def outliers(rng: np.random.Generator, factor: float) -> tuple[Series, Series]:
    """Log-normal, every twentieth sample 20 % to 200 % late."""

    def side(level: float) -> Series:
        late = np.where(rng.random(30) < 0.05, rng.uniform(1.2, 3.0, 30), 1.0)
        return [level * np.exp(rng.normal(0, CV, 30)) * late]

    return side(LEVEL_NS), side(LEVEL_NS * factor)


def bimodal_samples(count: int) -> Callable[[np.random.Generator, float], tuple[Series, Series]]:
    """Each sample takes one of two modes 20 % apart."""

    def draw(rng: np.random.Generator, factor: float) -> tuple[Series, Series]:
        def side(level: float) -> Series:
            return [level * rng.choice([1.0, 1.2], count) * rng.normal(1, CV, count)]

        return side(LEVEL_NS), side(LEVEL_NS * factor)

    return draw


def shaped(
    values: Callable[[np.random.Generator, int], np.ndarray],
) -> Callable[[np.random.Generator, float], tuple[Series, Series]]:
    """30 samples a side of any shape: `values(rng, count)` around 1."""

    def draw(rng: np.random.Generator, factor: float) -> tuple[Series, Series]:
        return [LEVEL_NS * values(rng, 30)], [LEVEL_NS * factor * values(rng, 30)]

    return draw


def bimodal_processes(processes: int) -> Callable[[np.random.Generator, float], tuple[Series, Series]]:
    """Each process takes one of two modes 27 % apart at its start and keeps it."""

    def draw(rng: np.random.Generator, factor: float) -> tuple[Series, Series]:
        def side(level: float) -> Series:
            return [level * rng.choice([1.0, 1.27]) * rng.normal(1, CV, 30) for _ in range(processes)]

        return side(LEVEL_NS), side(LEVEL_NS * factor)

    return draw


def warming(rng: np.random.Generator, factor: float) -> tuple[Series, Series]:
    """Both sides get 15 % slower while they run, each from the same start."""
    heat = np.linspace(1.0, 1.15, 30)

    def side(level: float) -> Series:
        return [level * heat * rng.normal(1, CV, 30)]

    return side(LEVEL_NS), side(LEVEL_NS * factor)


def carried_heat(rng: np.random.Generator, factor: float) -> tuple[Series, Series]:
    """Base warms the machine by 10 % and head starts where it ended: the worst order to measure in."""
    base = [LEVEL_NS * np.linspace(1.0, 1.10, 60) * rng.normal(1, CV, 60)]
    head = [LEVEL_NS * factor * np.linspace(1.10, 1.12, 60) * rng.normal(1, CV, 60)]
    return base, head


def interleaved_heat(rng: np.random.Generator, factor: float) -> tuple[Series, Series]:
    """Five rounds, base and head in turns, the machine 15 % slower by the end."""
    levels = np.linspace(1.0, 1.15, 10)
    base = [LEVEL_NS * levels[2 * index + index % 2] * rng.normal(1, CV, 30) for index in range(5)]
    head = [LEVEL_NS * factor * levels[2 * index + 1 - index % 2] * rng.normal(1, CV, 30) for index in range(5)]
    return base, head


SCENARIOS = (
    Scenario("steady, 30 samples, 1 process", steady(1, 30)),
    Scenario("steady, 3 processes of 30", steady(3, 30)),
    Scenario("steady, 5 processes of 30", steady(5, 30)),
    Scenario("processes differ by 2 % (sd), 5 of 30", steady(5, 30, 0.02)),
    Scenario("late outliers, 30 samples", outliers),
    Scenario("bimodal samples (20 % apart), 30 samples", bimodal_samples(30)),
    Scenario("bimodal samples (20 % apart), 100 samples", bimodal_samples(100)),
    Scenario(
        "three modes (15 % apart), 30 samples", shaped(lambda g, n: g.choice([1, 1.15, 1.3], n) * g.normal(1, CV, n))
    ),
    Scenario(
        "every fifth sample 20 % late, 30 samples",
        shaped(lambda g, n: np.where(g.random(n) < 0.2, 1.2, 1) * g.normal(1, CV, n)),
    ),
    Scenario("uniform over 60 %, 30 samples", shaped(lambda g, n: g.uniform(1, 1.6, n))),
    Scenario("exponential tail of 15 %, 30 samples", shaped(lambda g, n: 1 + g.exponential(0.15, n))),
    Scenario("drift of 15 % in both sides, 30 samples", warming),
    Scenario("drift of 15 % over 5 interleaved rounds, confirmed", interleaved_heat, paired=True, confirm=True),
    Scenario("bimodal processes (27 % apart), 5 of 30", bimodal_processes(5)),
    Scenario("bimodal processes, 3 of 30, confirmed", bimodal_processes(3), confirm=True),
    Scenario("bimodal processes, 3 of 30, not confirmed", bimodal_processes(3), bound=False),
    Scenario("bimodal processes, 1 of 30", bimodal_processes(1), bound=False),
    Scenario("head measured on a machine base heated, 60 samples", carried_heat, bound=False),
)

# Held to 95 % of 10 % slow-downs: the three noises a step time usually has, 30 samples a process.
CAUGHT = (
    "steady, 30 samples, 1 process",
    "bimodal samples (20 % apart), 30 samples",
    "drift of 15 % over 5 interleaved rounds, confirmed",
)


def snapshot(processes: Series) -> Snapshot:
    """A snapshot that holds step times and one count, so that a verdict is about the times."""
    kept = tuple(tuple(int(value) for value in series) for series in processes)
    return Snapshot(
        step_count=30,
        metrics={"launches_per_step": 100.0},
        times={"step_ns": Times(kind=NumberKind.MEASURED, processes_ns=kept)},
    )


def outcome(scenario: Scenario, rng: np.random.Generator, factor: float) -> Status:
    """The status of one gate run."""
    for attempt in range(2 if scenario.confirm else 1):
        base, head = scenario.draw(rng, factor)
        verdict = judge(snapshot(head), snapshot(base), GateConfig(), paired=scenario.paired)
        status = next(check.status for check in verdict.checks if check.group == Group.TIME)
        if status != Status.FAIL:
            return Status.WARN if attempt and status != Status.INCONCLUSIVE else status  # as gate_run.confirmed
    return status


def rates(scenario: Scenario, factor: float, runs: int, seed: int) -> dict[str, float]:
    """Share of each status over `runs` runs."""
    rng = np.random.default_rng([seed, SCENARIOS.index(scenario), round(factor * 1000)])
    counts = Counter(outcome(scenario, rng, factor) for _ in range(runs))
    return {status.value: counts[status] / runs for status in Status if counts[status]}


def main() -> int:
    """Print the table; exit 1 when a promised rate does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json")
    options = parser.parse_args()
    rows, broken = [], 0
    print(
        "| samples | unchanged: false alarms | unchanged: inconclusive | 10 % slower: caught | 10 % slower: inconclusive |"
    )
    print("|---|--:|--:|--:|--:|")
    for scenario in SCENARIOS:
        same, slower = (rates(scenario, factor, options.runs, options.seed) for factor in (1.0, 1.1))
        rows.append({"scenario": scenario.name, "held_to": scenario.bound, "unchanged": same, "slower": slower})
        broken += scenario.bound and same.get("fail", 0.0) > 0.005
        cells = [same.get("fail", 0), same.get("inconclusive", 0), slower.get("fail", 0), slower.get("inconclusive", 0)]
        print(f"| {scenario.name} | {' | '.join(f'{cell:.1%}' for cell in cells)} |", flush=True)
    broken += sum(row["slower"].get("fail", 0.0) < 0.95 for row in rows if row["scenario"] in CAUGHT)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"runs": options.runs, "seed": options.seed, "rows": rows}, file, indent=1)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
