"""`cgadvisor baseline save|show|update`: what the gate compares with, as a small file in the repository."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from advisor.commands.gate_sides import side
from advisor.compare import bootstrap_median_interval, median
from advisor.config import Config
from advisor.errors import EXIT_OK, UsageError
from advisor.gate import Snapshot, judge
from advisor.gate.baseline import load, merge
from advisor.gate.baseline import save as write
from advisor.gate.environment import FIELDS
from advisor.gate.metrics import METRICS
from advisor.gate.outputs import terminal
from advisor.units import format_ns, format_ratio


def save(runs: Sequence[Path], out: Path, note: str = "", force: bool = False) -> int:
    """Write a baseline from one or more runs of the same code. Raises UsageError when the file exists and not `force`."""
    if out.exists() and not force:
        raise UsageError(f"{out} exists; `cgadvisor baseline update` shows what changes, --force overwrites")
    made = _made(runs, note)
    write(made, out)
    print(f"{out}: {_summary(made)}")
    return EXIT_OK


def update(runs: Sequence[Path], out: Path, note: str = "", dry_run: bool = False) -> int:
    """Show what the new runs change in the baseline, then replace it. Keeps its note unless a new one is given."""
    before = load(out)
    after = _made(runs, note or before.note)
    print(terminal.render(judge(after, before, Config().gate)), end="")
    if dry_run:
        print(f"{out}: unchanged (--dry-run)")
        return EXIT_OK
    write(after, out)
    print(f"{out}: {_summary(after)}")
    return EXIT_OK


def show(path: Path) -> int:
    """Print a baseline as a person reads it."""
    print("\n".join(_lines(load(path))))
    return EXIT_OK


def _made(runs: Sequence[Path], note: str) -> Snapshot:
    if not runs:
        raise UsageError("give at least one run folder, findings.json or trace")
    now = datetime.now(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")
    return merge([side(path, Config()) for path in runs], now, note)


def _summary(made: Snapshot) -> str:
    processes = sum(len(times.processes_ns) for name, times in made.times.items() if name == "step_ns")
    hint = "" if processes >= 3 else "; three runs or more would show how much processes differ"
    timed = f", step times of {processes} processes{hint}" if processes else ", no unprofiled step times"
    return f"{len(made.metrics)} metrics, {len(made.regions)} regions, {len(made.blockers)} synchronising lines{timed}"


def _lines(held: Snapshot) -> list[str]:
    dated = f"{held.created_at or 'not dated'}, cgadvisor {held.tool_version}"
    lines = [f"{held.label} ({dated}), from {held.run_count} run(s)"]
    if held.note:
        lines.append(f"note: {held.note}")
    for field, title in FIELDS.items():
        value = getattr(held.environment, field)
        if value:
            lines.append(f"  {title}: {' '.join(map(str, value)) if isinstance(value, tuple) else value}")
    lines.append(f"step: {held.step_label or 'none'}, {held.step_count} recorded")
    lines += [_metric(held, name) for name in held.metrics if name in METRICS]
    for name, times in held.times.items():
        for number, samples in enumerate(times.processes_ns, 1):
            low, high = bootstrap_median_interval(samples)
            spread = f"{format_ns(low)} to {format_ns(high)}, n {len(samples)}"
            lines.append(f"  {name}, process {number}: {format_ns(median(samples))} ({spread})")
    if held.noise_ratio:
        lines.append(f"  A/A noise: {format_ratio(held.noise_ratio)}")
    lines += [f"  {one.id} at {one.label}: {one.count_per_step:g} a step" for one in held.blockers]
    lines += [f"  {one.label}: {one.outcome.value}" for one in held.verified]
    return lines


def _metric(held: Snapshot, name: str) -> str:
    metric, value = METRICS[name], held.metrics[name]
    spread = ""
    if name in held.metric_highs:
        low, high = held.metric_lows.get(name, value), held.metric_highs[name]
        spread = f" ({metric.text(low)} to {metric.text(high)} over the runs)"
    return f"  {metric.title}: {metric.text(value)}{spread}"
