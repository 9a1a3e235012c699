"""How long simulating a large step takes: one simulation, a whole question about a region, and JSON of the same events.

    python benchmarks/simulate.py                       # a step of 5,000 items, 20 repeats, as text
    python benchmarks/simulate.py --json                # the same as JSON and nothing else
    python benchmarks/simulate.py --check               # exit 1 when one simulation takes more than the bar

The step: 5,000 launches from one thread, 10 µs apart; every fourth kernel runs on a second stream and waits for the one before
it on the first, which in turn waits for it; the thread synchronises once in the middle. Building it is not timed. The reference
is `json.loads(json.dumps(...))` of the step's events as Kineto writes them, a launch and a kernel for each item: the least that
anything reading a trace does with them, on one core and mostly making Python objects, as a simulation does. All kinds of work
take turns in one process on one core, in the opposite order every other repeat; a ratio is the median over the repeats. The
garbage collector is on, but starts clean each time and looks only at what the work itself makes: how much else is alive (pandas,
a trace) would show in whichever work happens to set it off.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

from advisor import __version__
from advisor.estimate.costs import costs_of
from advisor.estimate.deflate import Deflated
from advisor.estimate.interval import SHARE_TRACED
from advisor.estimate.replace import Spans
from advisor.estimate.simulate import simulate
from advisor.estimate.stepmodel import NONE, StepModel, build_model
from advisor.estimate.whatif import Scene, ask

BAR_S = 0.2  # one simulation of 5,000 items
SIDE_EVERY = 4
REFERENCE, ONE = "json", "simulate"
LABELS = {
    REFERENCE: "json.dumps and json.loads of the events",
    ONE: "simulate: the step as it is",
    "ask": "ask: the whole step as a graph",
    "ask-half": "ask: half of the step as a graph",
}

# --- what is measured --------------------------------------------------------------------------------------------------


def step_of(items: int) -> tuple[StepModel, Spans]:
    """The model of one step, and the span of it."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    from loops import Loop  # the loops that the tests of the simulation are made of

    loop = Loop(steps=3, items=items, sync_at=items // 2)
    made = loop.build()
    windows = loop.windows(made)
    model = build_model(made, windows, 1, costs_of(None))
    assert model is not None and model.item_count == items
    position = np.arange(items)
    side = position % SIDE_EVERY == SIDE_EVERY - 1
    after_side = (position % SIDE_EVERY == 0) & (position > 0)
    model = replace(
        model, stream=side.astype(np.int64), needs=np.where(side | after_side, position - 1, NONE).astype(np.int64)
    )
    return model, Spans(windows.cpu_start_ns[1:2], windows.cpu_end_ns[1:2])


def scene_of(model: StepModel) -> Scene:
    """The step without a clock: nothing to deflate."""
    base = simulate(model)
    return Scene(
        Deflated(model, base, 0.0, 1.0, 0), costs_of(None), round(base.step_ns), round(model.length.sum()), 0.02, SHARE_TRACED
    )  # fmt: skip


def events_of(model: StepModel) -> list[dict[str, Any]]:
    """The step's launches and kernels as events of a Kineto trace."""
    starts, launch = model.start.tolist(), np.repeat(np.arange(len(model.count)), model.count).tolist()
    made: list[dict[str, Any]] = []
    for number, (call, length) in enumerate(zip(launch, model.length.tolist(), strict=True)):
        begin, args = starts[call] / 1e3, {"correlation": number, "External id": number}
        made.append(
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": begin, "dur": 2.0,
             "args": args}
        )  # fmt: skip
        made.append(
            {"ph": "X", "cat": "kernel", "name": "void at::native::vectorized_elementwise_kernel<4>", "pid": 0, "tid": 7,
             "ts": begin + 3.0, "dur": length / 1e3, "args": {**args, "device": 0, "stream": 7, "grid": [64, 1, 1]}}
        )  # fmt: skip
    return made


def works_of(items: int) -> dict[str, Callable[[], object]]:
    model, whole = step_of(items)
    half = Spans(whole.start_ns, (whole.start_ns + whole.end_ns) // 2)
    scene, events = scene_of(model), events_of(model)
    return {
        REFERENCE: lambda: json.loads(json.dumps(events)),
        ONE: lambda: simulate(model),
        "ask": lambda: ask(scene, whole),
        "ask-half": lambda: ask(scene, half),
    }


def simulations_in(work: Callable[[], object]) -> int:
    """How many simulations a question runs."""
    with mock.patch("advisor.estimate.whatif.simulate", wraps=simulate) as counted:
        work()
    return counted.call_count


# --- the bench -----------------------------------------------------------------------------------------------------------


@dataclass
class Samples:
    """Seconds of each repeat: by the wall clock and of the processor."""

    wall_s: list[float]
    cpu_s: list[float]


def measure(works: dict[str, Callable[[], object]], repeats: int) -> dict[str, Samples]:
    """Samples of each work, in turns, after one round that does not count."""
    made = {name: Samples([], []) for name in works}
    gc.collect()
    gc.freeze()
    for number in range(repeats + 1):
        for name in works if number % 2 == 0 else reversed(works):
            gc.collect()
            wall, cpu = time.perf_counter(), time.process_time()
            result = works[name]()
            took = time.perf_counter() - wall, time.process_time() - cpu
            del result
            if number:
                made[name].wall_s.append(took[0])
                made[name].cpu_s.append(took[1])
    return made


def one_core() -> int | None:
    """Stay on one core, the last of those allowed; None where that cannot be asked for."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def result(options: argparse.Namespace) -> dict[str, Any]:
    """Everything that is printed."""
    cores = os.cpu_count()
    core = one_core()
    works = works_of(options.items)
    counts = {name: simulations_in(work) for name, work in works.items() if name.startswith("ask")}
    samples = measure(works, options.repeats)
    reference = samples[REFERENCE].wall_s
    rows = []
    for name, found in samples.items():
        low, middle, high = statistics.quantiles(found.wall_s, n=4)
        ratio = statistics.median(mine / its for mine, its in zip(found.wall_s, reference, strict=True))
        rows.append(
            {
                "work": name,
                "median_s": middle,
                "quartiles_s": [low, high],
                "range_s": [min(found.wall_s), max(found.wall_s)],
                "cpu_median_s": statistics.median(found.cpu_s),
                "ratio_to_json": ratio,
                "simulations": counts.get(name, 1 if name == ONE else 0),
                "samples_s": found.wall_s,
            }
        )
    return {
        "machine": {"processor": processor(), "cores": cores, "pinned_to": core, "system": platform.platform()},
        "versions": {
            "cgadvisor": __version__, "python": platform.python_version(), "numpy": np.__version__, "pandas": pd.__version__
        },
        "command": shlex.join(["python", *sys.argv]),
        "items": options.items,
        "repeats": options.repeats,
        "bar_s": BAR_S,
        "within_bar": statistics.median(samples[ONE].wall_s) <= BAR_S,
        "rows": rows,
    }  # fmt: skip


def text(found: dict[str, Any]) -> str:
    machine, versions = found["machine"], found["versions"]
    pinned = "not pinned" if machine["pinned_to"] is None else f"pinned to core {machine['pinned_to']}"
    lines = [
        f"{machine['processor']}, {machine['cores']} cores, {pinned}; {machine['system']}",
        ", ".join(f"{name} {version}" for name, version in versions.items()),
        found["command"],
        "",
        f"a step of {found['items']:,} items, {found['repeats']} repeats",
        "",
        "| work | median ms | quartiles | range | CPU ms | ÷ JSON | simulations |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for row in found["rows"]:
        spans = (f"{1e3 * low:.1f}-{1e3 * high:.1f}" for low, high in (row["quartiles_s"], row["range_s"]))
        cells = [
            f"{1e3 * row['median_s']:.1f}",
            *spans,
            f"{1e3 * row['cpu_median_s']:.1f}",
            f"{row['ratio_to_json']:.2f}",
        ]
        lines.append(f"| {LABELS[row['work']]} | {' | '.join(cells)} | {row['simulations'] or ''} |")
    said = "ok" if found["within_bar"] else "MISSED"
    return "\n".join([*lines, "", f"one simulation within {1e3 * found['bar_s']:.0f} ms: {said}"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=5_000)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="print JSON, with every sample, and nothing else")
    parser.add_argument("--check", action="store_true", help="exit 1 when the bar is missed")
    options = parser.parse_args()
    if options.repeats < 2 or options.items < 2:
        parser.error("at least two items and two repeats")
    found = result(options)
    print(json.dumps(found, indent=1) if options.json else text(found))
    return 1 if options.check and not found["within_bar"] else 0


if __name__ == "__main__":
    sys.exit(main())
