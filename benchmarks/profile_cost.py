"""What profiling costs, and whether the clocked step is the script's own: plain runs and the tool's, in turns.

    python benchmarks/profile_cost.py [--rounds 5] [--sample mlp_train --sample lstm_cell ...] [--json FILE]   # needs a GPU
    python benchmarks/profile_cost.py --device cpu --sample mlp_train

Step: the script prints its own time per step (median over windows of ten steps between two logged ones); the clock pass of
`cgadvisor profile` is read the same way, in windows of ten steps. One ratio a round, plain and clocked taking turns at going
first; bar: the median ratio within 3 % of 1. Wall: `profile --no-verify` against the plain script; bar: 2 x plain + 10 s.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from advisor.commands.gate_run import real_profiler

ROOT: Final = Path(__file__).parents[1]
WINDOW: Final = 10  # the samples log every tenth step
STEP_BAR: Final = 0.03
WALL_BAR_RATIO: Final = 2.0
WALL_BAR_S: Final = 10.0
SAMPLES: Final = ("mlp_train", "lstm_cell", "encoder_infer", "gpt_train", "resnet_infer", "word_lm")


@dataclass(frozen=True)
class Step:
    """One sample: step times in ms, one a round, and the ratio clocked over plain of each round."""

    sample: str
    plain_ms: tuple[float, ...]
    clocked_ms: tuple[float, ...]

    @property
    def ratio(self) -> float:
        return statistics.median(b / a for a, b in zip(self.plain_ms, self.clocked_ms, strict=True))

    @property
    def is_held(self) -> bool:
        return abs(self.ratio - 1) <= STEP_BAR


@dataclass(frozen=True)
class Wall:
    """One sample's whole run, s."""

    sample: str
    plain_s: tuple[float, ...]
    profile_s: tuple[float, ...]

    @property
    def is_held(self) -> bool:
        plain, profile = statistics.median(self.plain_s), statistics.median(self.profile_s)
        return profile <= WALL_BAR_RATIO * plain + WALL_BAR_S


def own_time_ms(text: str) -> float:
    """The time per step a sample prints on its standard error. Raises ValueError when there is none."""
    found = re.findall(r"([\d.]+) ms per step", text)
    if not found:
        raise ValueError(f"the script printed no time per step: {text[-300:]}")
    return float(found[-1])


def windowed_ms(samples_ns: Sequence[int]) -> float:
    """The median over windows of ten steps, as the samples do it. Raises ValueError with fewer than ten."""
    windows = [samples_ns[at : at + WINDOW] for at in range(0, len(samples_ns) - WINDOW + 1, WINDOW)]
    if not windows:
        raise ValueError(f"{len(samples_ns)} clocked steps are no window of {WINDOW}")
    return statistics.median(sum(window) / WINDOW for window in windows) / 1e6


def plain(sample: str) -> tuple[float, float]:
    """(ms per step as the script says, s in all)."""
    began = time.perf_counter()
    words = [sys.executable, str(ROOT / "samples" / f"{sample}.py")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return own_time_ms(done.stderr), time.perf_counter() - began


def steps_of(sample: str, rounds: int, device: str) -> Step:
    """Plain and clocked runs of one sample in turns."""
    clock = real_profiler(device).clock
    script = ROOT / "samples" / f"{sample}.py"
    theirs: list[float] = []
    ours: list[float] = []
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            for side in (0, 1) if number % 2 == 0 else (1, 0):
                if side == 0:
                    theirs.append(plain(sample)[0])
                else:
                    ours.append(windowed_ms(clock(script, (), Path(folder, "clock"))))
    return Step(sample, tuple(theirs), tuple(ours))


def walls_of(sample: str, rounds: int, device: str) -> Wall:
    """Whole runs in turns: the script alone, and `profile --no-verify` on it."""
    theirs, ours = [], []
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
    for _ in range(rounds):
        theirs.append(plain(sample)[1])
        with tempfile.TemporaryDirectory() as folder:
            words = ["profile", "--no-verify", "--device", device, "--out", f"{folder}/run"]
            words.append(str(ROOT / "samples" / f"{sample}.py"))
            began = time.perf_counter()
            subprocess.run(
                [sys.executable, "-c", "from advisor.cli import main; main()", *words],
                env=environ, cwd=folder, capture_output=True, check=True,
            )  # fmt: skip
            ours.append(time.perf_counter() - began)
    return Wall(sample, tuple(theirs), tuple(ours))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--wall-rounds", type=int, default=3)
    parser.add_argument("--sample", action="append", default=[])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    broken = 0
    found: list[Step | Wall] = []
    print("| sample | plain ms | clocked ms | clocked / plain |\n|---|--:|--:|--:|")
    for sample in options.sample or SAMPLES:
        step = steps_of(sample, options.rounds, options.device)
        found.append(step)
        broken += not step.is_held
        sides = f"{statistics.median(step.plain_ms):.3f} | {statistics.median(step.clocked_ms):.3f}"
        print(f"| {sample} | {sides} | {step.ratio:.3f}{'' if step.is_held else ' !'} |", flush=True)
    wall = walls_of((options.sample or SAMPLES)[0], options.wall_rounds, options.device)
    found.append(wall)
    broken += not wall.is_held
    both = f"{statistics.median(wall.profile_s):.1f} s against {statistics.median(wall.plain_s):.1f} s plain"
    print(
        f"\n{wall.sample}: profile --no-verify {both} (bar: 2 x plain + 10 s {'held' if wall.is_held else 'NOT held'})"
    )
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n", encoding="utf-8")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
