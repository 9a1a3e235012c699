"""An analysis (with what a run folder adds to it) as a snapshot: named counts, lines, regions, times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from advisor.gate.snapshot import STEP_TIME, Environment, Place, RegionFigures, Snapshot, Times, Verified
from advisor.model import (
    Analysis,
    Attempt,
    Blocker,
    Clock,
    DeviceSummary,
    EqualityOutcome,
    Manifest,
    NumberKind,
    Outcome,
    Region,
    SourceSpan,
    Verification,
)

TRACED_STEP_TIME: Final = "traced_step_ns"
_CLAIMS: Final = frozenset({"launches", "regions"})  # a quality note that forbids these forbids the counts
_ARGV_SEPARATOR: Final = "\x1f"  # between the script's arguments in Manifest.options["argv"]
_DIGITS: Final = 6  # a share times a count is exact only up to rounding


@dataclass(frozen=True)
class RunArtefacts:
    """The artefacts of one run that the gate reads. Only the analysis is required."""

    analysis: Analysis
    manifest: Manifest | None = None
    clock: Clock | None = None
    verification: Verification | None = None


def snapshot_of(run: RunArtefacts, label: str) -> Snapshot:
    """The snapshot of one run."""
    analysis, sources = run.analysis, run.manifest.source_files if run.manifest else {}
    step = next((region for region in analysis.regions if region.id == "step"), None)
    blockers = tuple(_place(blocker, sources) for blocker in analysis.syncs or analysis.blockers)
    return Snapshot(
        tool_version=analysis.tool_version,
        label=label,
        step_label=analysis.step.label if analysis.step else "",
        step_count=analysis.step.count if analysis.step else 0,
        environment=_environment(analysis, run.manifest),
        metrics=_run_metrics(run, step),
        regions=tuple(_region(region, sources) for region in analysis.regions if region.id != "step"),
        blockers=blockers,
        verified=tuple(_verified(attempt, sources) for attempt in _as_written(run.verification)),
        times=_times(run),
        noise_ratio=_noise(run.verification),
        unusable=tuple(note.message for note in analysis.quality if _CLAIMS & set(note.forbids)),
    )


def region_metrics(region: Region) -> dict[str, float]:
    """The counts of one region per step (per occurrence where it has no step)."""
    times = region.occurrences_per_step or 1.0
    found = {
        "launches_per_step": region.launch_count * times,
        "kernels_per_step": region.kernel_count * times,
        "syncs_per_step": region.sync_count * times,
        "h2d_copies_per_step": region.h2d_count * times,
        "d2h_copies_per_step": region.d2h_count * times,
        "graph_launches_per_step": region.graph_launch_count * times,
        "graph_coverage": region.graphed_item_ratio,
        "items_outside_graphs_per_step": region.item_count * times * (1 - region.graphed_item_ratio),
        "busy_ns_per_step": region.busy_ns * times,
    }
    if region.extent_ns:
        found["launch_idle_ratio"] = region.idle.launch_ns / region.extent_ns
    if region.shape_signature_count is not None:
        found["shape_signatures"] = float(region.shape_signature_count)
    return {name: round(value, _DIGITS) for name, value in found.items()}


def _run_metrics(run: RunArtefacts, step: Region | None) -> dict[str, float]:
    found = region_metrics(step) if step is not None else {}
    found["blockers"] = float(len(run.analysis.syncs or run.analysis.blockers))
    device = _device(run.analysis)
    if device is not None:
        found |= _totals(device)
    if run.clock is not None and run.clock.peak_memory_bytes:
        found["peak_memory_bytes"] = float(run.clock.peak_memory_bytes)
    speedups = [
        attempt.timing.speedup_ratio
        for attempt in _as_written(run.verification)
        if attempt.outcome == Outcome.VERIFIED and attempt.timing is not None
    ]
    if speedups:
        found["verified_speedup"] = round(max(speedups), _DIGITS)
    return found


def _totals(device: DeviceSummary) -> dict[str, float]:
    return {
        "launches": float(device.launches.launch_count),
        "items": float(device.item_count),
        "syncs": float(device.launches.sync_count),
        "graph_launches": float(device.graphs.launch_count),
        "recording_graph_coverage": round(device.graphs.item_ratio, _DIGITS),
    }


def _device(analysis: Analysis) -> DeviceSummary | None:
    return max(analysis.devices, key=lambda device: device.item_count, default=None)


def _region(region: Region, sources: Mapping[str, str]) -> RegionFigures:
    return RegionFigures(
        label=region.label,
        kind=region.kind.value,
        metrics=region_metrics(region),
        share_ratio=round(region.step_share_ratio, 3),
        location=region.location,
        code=_code(region.location, sources),
    )


def _place(blocker: Blocker, sources: Mapping[str, str]) -> Place:
    return Place(
        id=blocker.id,
        title=blocker.title,
        count_per_step=round(blocker.count_per_step, _DIGITS),
        fix=blocker.fix,
        evidence=blocker.evidence,
        location=blocker.location,
        code=_code(blocker.location, sources),
    )


def _code(span: SourceSpan | None, sources: Mapping[str, str]) -> str:
    """The stripped text of a span's first line; a label moves when lines are added above, the text does not."""
    lines = sources.get(span.file, "").splitlines() if span else []
    return lines[span.first_line - 1].strip()[:200] if span and 0 < span.first_line <= len(lines) else ""


def _as_written(verification: Verification | None) -> Sequence[Attempt]:
    """Attempts without fixes, the best outcome of each region: a region that one strategy verified is verified."""
    best: dict[str, Attempt] = {}
    for attempt in verification.attempts if verification else ():
        if attempt.fixes or attempt.outcome == Outcome.NOT_ATTEMPTED:
            continue
        held = best.get(attempt.region_label)
        if held is None or (attempt.outcome == Outcome.VERIFIED and held.outcome != Outcome.VERIFIED):
            best[attempt.region_label] = attempt
    return tuple(best.values())


def _verified(attempt: Attempt, sources: Mapping[str, str]) -> Verified:
    return Verified(
        label=attempt.region_label,
        outcome=attempt.outcome,
        message=attempt.message,
        equality=attempt.equality.outcome if attempt.equality else EqualityOutcome.NOT_CHECKED,
        speedup_ratio=round(attempt.timing.speedup_ratio, 4) if attempt.timing else None,
        location=attempt.location,
        blocked_by=_place(attempt.blocker, sources) if attempt.blocker else None,
        code=_code(attempt.location, sources),
    )


def _times(run: RunArtefacts) -> dict[str, Times]:
    found = {}
    if run.clock is not None and run.clock.host_step.samples_ns:
        found[STEP_TIME] = Times(kind=run.clock.host_step.kind, processes_ns=(run.clock.host_step.samples_ns,))
    step = run.analysis.step
    if step is not None and step.traced.samples_ns:
        found[TRACED_STEP_TIME] = Times(kind=NumberKind.PROFILED, processes_ns=(step.traced.samples_ns,))
    return found


def _noise(verification: Verification | None) -> float:
    attempts = verification.attempts if verification else ()
    return round(max((attempt.timing.noise_ratio for attempt in attempts if attempt.timing), default=0.0), _DIGITS)


def _environment(analysis: Analysis, manifest: Manifest | None) -> Environment:
    trace = analysis.trace
    if manifest is None:
        return Environment(
            gpu_names=tuple(sorted(set(trace.gpu_names))),
            torch_version=trace.torch_version,
            cuda_version=trace.cuda_version,
            source=trace.source,
        )
    return Environment(
        gpu_names=tuple(sorted(set(manifest.gpu_names or trace.gpu_names))),
        torch_version=manifest.torch_version or trace.torch_version,
        cuda_version=manifest.cuda_version or trace.cuda_version,
        arguments=_arguments(manifest),
        source=trace.source,
        driver_version=manifest.driver_version,
        gpu_clock_mhz=manifest.gpu_clock_mhz,
        cpu_count=manifest.cpu_count,
        python_version=".".join(manifest.python_version.split(".")[:2]),
    )


def _arguments(manifest: Manifest) -> tuple[str, ...] | None:
    """What followed the script on the command line: base and head may live in different checkouts."""
    if "argv" in manifest.options:
        words = manifest.options["argv"]
        return tuple(words.split(_ARGV_SEPARATOR)) if words else ()
    name = PurePath(manifest.script).name
    for index, word in enumerate(manifest.command):
        if word == manifest.script or PurePath(word).name == name:
            return tuple(manifest.command[index + 1 :])
    return None
