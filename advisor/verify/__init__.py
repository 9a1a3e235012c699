"""Capture the regions of a recorded run in place, replay them through the rest of the script, prove gain and equality.

The parent side: which spans to try, the children that try them, and what their reports add up to. It reads of a run only
the script, its arguments, where the hot loop is and what regions are called; never what was predicted for them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from advisor import marks
from advisor.bundle import Bundle
from advisor.errors import UsageError
from advisor.model import Analysis, Clock, Manifest, RegionKind, Verification
from advisor.verify import plan
from advisor.verify.candidate import Candidate, Sources
from advisor.verify.children import Script
from advisor.verify.search import Limits, Search
from advisor.workload import spans
from advisor.workload.verify_job import Schedule

FOLDER: Final = "verify"
DISTRIBUTED_WARMUP: Final = 12


@dataclass(frozen=True)
class Options:
    """What the user asked for. `script` overrides what the manifest says, each of `regions` is an id, a label or lines."""

    script: Script | None = None
    regions: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    strategies: tuple[str, ...] = ()
    schedule: Schedule = field(default_factory=Schedule)
    tell: Callable[[str], None] = lambda text: None
    # called with each candidate before it is tried: whoever predicts writes the prediction down now
    before: Callable[[Candidate], None] = lambda candidate: None


def run(bundle: Bundle, options: Options) -> Verification:
    """Verify a run's regions, write verification.json, and return what it holds.

    Raises UsageError for a region that is none, ScriptFailed when the script fails, BundleError for a broken run folder.
    """
    manifest = bundle.load(Manifest)
    analysis = bundle.load_if_present(Analysis)
    loop = _loop(bundle, analysis)
    script = options.script or script_of(manifest)
    sources = Sources(_texts(manifest, script))
    named = [[chosen(sources, name, analysis)] for name in options.regions]
    groups = named or [_candidates(sources, loop, analysis)]
    schedule = schedule_for(sources, options.schedule)
    search = Search(script, sources, loop, bundle.path(FOLDER), options.limits, schedule, options.tell, options.before)
    if not any(groups):
        search.notes.append("no span of the hot loop can be skipped as a whole; name one with --region file:first-last")
    verification = search.run(*groups, strategies=options.strategies)
    bundle.save(verification)
    return verification


def schedule_for(sources: Sources, schedule: Schedule) -> Schedule:
    """DistributedDataParallel rebuilds its buckets and logs in its first ten steps: none of those may be captured."""
    distributed = any("DistributedDataParallel" in text for text in sources.texts.values())
    warmup = max(schedule.warmup, DISTRIBUTED_WARMUP) if distributed else schedule.warmup
    return msgspec.structs.replace(schedule, warmup=warmup)


def script_of(manifest: Manifest) -> Script:
    """The script a run recorded, to be started from the current folder. Raises UsageError when an argument was secret."""
    options = manifest.options
    argv = tuple(os.path.expanduser(part) for part in options.get("argv", "").split("\x1f") if part)
    if any(part == "***" or part.endswith("=***") for part in argv):
        raise UsageError(
            "the run folder keeps no secret arguments of the script: verify within `cgadvisor profile` instead"
        )
    seed = options.get("seed", "")
    return Script(
        target=os.path.expanduser(manifest.script),
        argv=argv,
        is_module=options.get("module", "") == "1",
        cwd=os.getcwd(),
        seed=int(seed) if seed.lstrip("-").isdigit() else 0,
    )


def _texts(manifest: Manifest, script: Script) -> dict[str, str]:
    if manifest.source_files:
        return dict(manifest.source_files)
    path = Path(script.cwd, script.target)
    return {path.name: path.read_text(encoding="utf-8")} if path.is_file() else {}


def _loop(bundle: Bundle, analysis: Analysis | None) -> tuple[str, int] | None:
    """File and line of the hot loop the run chose, or None when its steps are no loop's."""
    place = analysis.step.location if analysis is not None and analysis.step is not None else None
    if place is None:
        clock = bundle.load_if_present(Clock)
        place = clock.step_location if clock is not None else None
    return (place.file, place.first_line) if place is not None else None


def _candidates(sources: Sources, loop: tuple[str, int] | None, analysis: Analysis | None) -> list[Candidate]:
    if loop is not None:
        return plan.candidates(sources, *loop)
    found = []
    for region in analysis.regions if analysis is not None else ():
        if region.kind is RegionKind.STATEMENT and region.location is not None:
            place = region.location
            found.append(Candidate(place.file, place.first_line, place.last_line))
    return found[:3]


def chosen(sources: Sources, name: str, analysis: Analysis | None = None) -> Candidate:
    """The span a user names: a region's id or label, `file:first-last`, an nn.Module's path, a range of theirs.

    Raises UsageError when it is none of these.
    """
    label = name
    for region in analysis.regions if analysis is not None else ():
        if name in (region.id, region.label):
            label = region.label
            if region.kind is RegionKind.MODULE:
                return Candidate("", 0, 0, module=region.label)
            if region.location is not None:
                place = region.location
                return Candidate(place.file, place.first_line, place.last_line)
    span = marks.parse_span(label)
    if span is not None and span.file in sources.texts:
        return Candidate(span.file, span.first_line, span.last_line)
    for file in sources.texts:
        lines = spans.find_range(sources.tree(file), label)
        if lines is not None:
            return Candidate(file, *lines)
    if label.startswith("module:"):
        return Candidate("", 0, 0, module=label.removeprefix("module:"))
    known = ", ".join(sorted(sources.texts)) or "no source file"
    raise UsageError(
        f"--region {name}: no such region; give file:first-last (in {known}), a range's name, or module:PATH"
    )
