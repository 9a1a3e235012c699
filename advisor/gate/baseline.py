"""Baseline files: a snapshot as small, reviewable JSON that survives upgrades of the tool.

Number lists are written on one line, so that a diff of a baseline shows what changed and not how. A file from a newer
tool is refused by name; an older one is upgraded, one format at a time, by `_UPGRADES`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from advisor.bundle import write_atomically
from advisor.errors import BundleError, UsageError
from advisor.gate import environment
from advisor.gate.merging import merged_blockers, merged_regions, merged_verified
from advisor.gate.snapshot import FORMAT, KIND, Snapshot, Times

DEFAULT_NAME: Final = "cgadvisor-baseline.json"
_MAX_BYTES: Final = 16 << 20  # a baseline is some kilobytes; a larger file is something else
_MAX_SAMPLES: Final = 200  # kept per process: enough for every test here, and a screenful
_NUMBERS: Final = re.compile(rb"\[\s*(-?[\d.eE+-]+(?:,\s*-?[\d.eE+-]+)*)\s*\]")
# Old format -> function from the raw object of that format to the next one's.
_UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


def save(snapshot: Snapshot, path: Path) -> Path:
    """Write a baseline; a killed process leaves the old one. Raises BundleError when it cannot be written."""
    text = msgspec.json.format(msgspec.json.encode(snapshot_fields(snapshot)), indent=1)
    compact = _NUMBERS.sub(lambda found: b"[" + b", ".join(found[1].replace(b",", b" ").split()) + b"]", text)
    return write_atomically(path, compact + b"\n")


def snapshot_fields(snapshot: Snapshot) -> dict[str, Any]:
    """Plain values with kind and format in front, though they are defaults: they say what the file is."""
    plain: dict[str, Any] = msgspec.to_builtins(snapshot)
    return {"kind": KIND, "format": FORMAT} | plain


def load(path: Path) -> Snapshot:
    """The baseline in `path`, upgraded to the current format. Raises BundleError in one line whatever is in the file."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise BundleError(
                f"{path}: {path.stat().st_size >> 20} MiB is no baseline; `cgadvisor baseline save` makes one"
            )
        raw = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError as error:
        raise BundleError(f"{path}: no such baseline; make one with `cgadvisor baseline save RUN`") from error
    except (OSError, msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BundleError(f"{path}: not readable as a baseline: {error}") from error
    return convert(raw, str(path))


def convert(raw: object, where: str) -> Snapshot:
    """A decoded JSON object as a snapshot. Raises BundleError naming `where`."""
    if not isinstance(raw, Mapping) or raw.get("kind") != KIND:
        raise BundleError(f"{where}: not a cgadvisor baseline; `cgadvisor baseline save RUN` makes one")
    found = raw.get("format")
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise BundleError(f"{where}: format {found!r} is not a format number")
    if found > FORMAT:
        raise BundleError(f"{where}: baseline format {found} is newer than this cgadvisor reads ({FORMAT}); upgrade it")
    upgraded = dict(raw)
    for number in range(found, FORMAT):
        upgraded = _UPGRADES[number](upgraded)
    try:
        snapshot = msgspec.convert(upgraded | {"format": FORMAT}, Snapshot, strict=True)
    except msgspec.ValidationError as error:
        raise BundleError(f"{where}: not a valid baseline: {error}") from error
    _check_numbers(snapshot, where)
    return snapshot


def merge(snapshots: Sequence[Snapshot], created_at: str, note: str = "") -> Snapshot:
    """One baseline from several runs of the same code: their processes side by side, the spread of their counts.

    Raises UsageError when the runs are not of one kind: a baseline of two GPUs is a baseline of neither.
    """
    first = snapshots[0]
    for other in snapshots[1:]:
        found = environment.differences(first.environment, other.environment)
        if found:
            raise UsageError(f"{other.label} and {first.label} are not runs of one kind: {'; '.join(found.values())}")
        step = environment.step_difference(first.step_label, other.step_label)
        if step:
            raise UsageError(f"{other.label} and {first.label} are not runs of one kind: {step}")
        if bool(first.step_count) != bool(other.step_count):
            raise UsageError(f"{other.label} and {first.label} are not runs of one kind: only one of them has a step")
    names = [name for name in first.metrics if all(name in one.metrics for one in snapshots)]
    values = {name: [one.metrics[name] for one in snapshots] for name in names}
    varying = [name for name in names if len(set(values[name])) > 1]
    return msgspec.structs.replace(
        first,
        created_at=created_at,
        note=note,
        run_count=len(snapshots),
        metrics={name: float(np.median(values[name])) for name in names},
        metric_highs={name: max(values[name]) for name in varying},
        metric_lows={name: min(values[name]) for name in varying},
        regions=merged_regions(snapshots),
        blockers=merged_blockers(snapshots),
        verified=merged_verified(snapshots),
        times={
            name: _merged(name, snapshots) for name in dict.fromkeys(name for one in snapshots for name in one.times)
        },
        unusable=tuple(dict.fromkeys(reason for one in snapshots for reason in one.unusable)),
        noise_ratio=max(one.noise_ratio for one in snapshots),
    )


def _merged(name: str, snapshots: Sequence[Snapshot]) -> Times:
    held = [one.times[name] for one in snapshots if name in one.times]
    return Times(
        kind=held[0].kind, processes_ns=tuple(_thinned(samples) for times in held for samples in times.processes_ns)
    )


def _thinned(samples: tuple[int, ...]) -> tuple[int, ...]:
    """At most 200 samples, evenly spaced in measured order: a drift stays visible."""
    if len(samples) <= _MAX_SAMPLES:
        return samples
    kept = np.linspace(0, len(samples) - 1, _MAX_SAMPLES).round().astype(int)
    return tuple(samples[index] for index in kept)


def _check_numbers(snapshot: Snapshot, where: str) -> None:
    """What the schema cannot say. A zero time or a count that is no number would fail later, far from its cause."""
    for times in snapshot.times.values():
        if not all(times.processes_ns):
            raise BundleError(f"{where}: not a valid baseline: a process without a time sample")
        if any(sample <= 0 for process in times.processes_ns for sample in process):
            raise BundleError(f"{where}: not a valid baseline: a time sample is not positive")
    figures = [
        snapshot.metrics,
        snapshot.metric_highs,
        snapshot.metric_lows,
        *(one.metrics for one in snapshot.regions),
    ]
    counts = [value for metrics in figures for value in metrics.values()]
    counts += [place.count_per_step for place in snapshot.blockers]
    if not all(0 <= value < float("inf") for value in counts):
        raise BundleError(f"{where}: not a valid baseline: a count is not a finite number of zero or more")
