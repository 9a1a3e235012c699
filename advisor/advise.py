"""The pipeline: a timeline in, an `Analysis` out. Read top to bottom, this is what the tool does to a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec
import numpy as np

from advisor import metrics, quality
from advisor.config import Config
from advisor.cut import median_step, step_cut, window_cut
from advisor.estimate import Estimator, extra_kernels
from advisor.lines import line_rows
from advisor.model import (
    Analysis,
    Answer,
    Calibration,
    Clock,
    DeviceSummary,
    Estimate,
    NumberKind,
    QualityNote,
    Series,
    SourceSpan,
    Step,
    TimelineCut,
    Verdict,
)
from advisor.regions import Found, find, span_region
from advisor.regions.blockers import find_blockers
from advisor.rules import Facts, all_findings
from advisor.timeline import Timeline
from advisor.verdict import decide
from advisor.version import __version__

_SCATTER_POINTS = 4_000
_DEPTH_POINTS = 800


@dataclass(frozen=True)
class Evidence:
    """What a run adds to its trace: the unprofiled clock, the machine's constants, the text of the script's files."""

    clock: Clock | None = None
    calibration: Calibration | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    step_label: str | None = None


@dataclass(frozen=True)
class Study:
    """A timeline made ready: the device that is judged, its step and its regions. `focus` and `found` are None without a GPU."""

    timeline: Timeline
    evidence: Evidence
    notes: tuple[QualityNote, ...]
    devices: tuple[DeviceSummary, ...]
    focus: DeviceSummary | None = None
    found: Found | None = None

    @property
    def forbidden(self) -> frozenset[str]:
        """What the recording cannot support."""
        return quality.forbidden(self.notes)

    @cached_property
    def _estimator(self) -> Estimator | None:
        found, evidence = self.found, self.evidence
        if found is None or found.step is None or found.windows is None or "estimate" in self.forbidden:
            return None
        return Estimator.of(
            self.timeline, found.step, found.windows, found.regions, evidence.calibration, evidence.clock
        )

    def estimates(self) -> tuple[Estimate, ...]:
        """One for every region inside the steps."""
        if self._estimator is None or self.found is None:
            return ()
        return self._estimator.estimates(self.found.regions)

    def predict(self, span: SourceSpan, fixes: Sequence[str] = ()) -> Estimate | None:
        """What statements captured together would save; None where the recording does not tell.

        `fixes` are ids of changes made before the capture: `capturable` adds the optimizer's own small kernels.
        """
        if self._estimator is None or self.found is None:
            return None
        one = span_region(self.timeline, self.found, span)
        if one is None or one.region.occurrences_per_step <= 0:
            return None
        extra = extra_kernels(self.evidence.clock) if "capturable" in fixes else 0
        return self._estimator.estimate(one, extra)


def study(timeline: Timeline, evidence: Evidence | None = None) -> Study:
    """Find the step and the regions. The device with the most items is judged; the others are summed up."""
    evidence = evidence or Evidence()
    timeline = with_gaps(timeline)
    notes = quality.assess(timeline)
    devices = _devices(timeline)
    if not devices:
        return Study(timeline, evidence, notes, devices)
    focus = max(devices, key=lambda device: device.item_count)
    found = find(timeline, focus.rank, focus.device, step_label=evidence.step_label)
    found = replace(found, step=_clocked(found.step, evidence.clock))
    return Study(timeline, evidence, notes, devices, focus, found)


def analyze(timeline: Timeline, *, config: Config | None = None, evidence: Evidence | None = None) -> Analysis:
    """Findings of a timeline."""
    return conclude(study(timeline, evidence), config)


def conclude(made: Study, config: Config | None = None) -> Analysis:
    """The findings of a study: rules and the verdict over it, and what the report draws."""
    timeline, evidence, found, focus = made.timeline, made.evidence, made.found, made.focus
    if found is None or focus is None:
        return _nothing_to_judge(timeline, made.notes)
    config = config or Config()
    regions = tuple(one.region for one in found.regions)
    blockers = find_blockers(timeline, found.windows) if found.windows is not None else ()
    estimates = made.estimates()
    facts = Facts(
        device=focus,
        step=found.step,
        regions=regions,
        estimates={estimate.region_id: estimate for estimate in estimates},
        blockers=blockers,
        quality=made.notes,
        forbidden=made.forbidden,
        config=config.analyze,
        clock=evidence.clock,
    )
    return Analysis(
        tool_version=__version__,
        trace=timeline.info,
        quality=made.notes,
        devices=made.devices,
        step=found.step,
        regions=regions,
        estimates=estimates,
        blockers=blockers,
        hazards=(),
        findings=all_findings(facts),
        verdict=decide(facts),
        lines=line_rows(found.regions, evidence.sources),
        timeline=_cut(timeline, found, focus),
        series=_series(timeline, found, focus),
        kernels=tuple(metrics.kernel_rows(timeline, focus.rank, focus.device, (focus.start_ns, focus.end_ns))),
        syncs=blockers,
    )


def with_gaps(timeline: Timeline) -> Timeline:
    """The timeline with its gaps table filled; unchanged when it is."""
    if len(timeline.gaps) or not len(timeline.items):
        return timeline
    return timeline.with_gaps(metrics.gaps(timeline))


def _devices(timeline: Timeline) -> tuple[DeviceSummary, ...]:
    pairs = timeline.items[["rank", "device"]].drop_duplicates().sort_values(["rank", "device"])
    table = metrics.launch_table(timeline)
    return tuple(
        metrics.device_summary(timeline, table, metrics.device_idle(timeline, int(rank), int(device)))
        for rank, device in pairs.itertuples(index=False)
    )


def _clocked(step: Step | None, clock: Clock | None) -> Step | None:
    if step is None or clock is None or not clock.host_step.samples_ns:
        return step
    clocked = float(np.median(clock.host_step.samples_ns))
    traced = float(np.median(step.traced.samples_ns))
    return msgspec.structs.replace(step, clocked=clock.host_step, inflation_ratio=traced / clocked if clocked else None)


def _cut(timeline: Timeline, found: Found, focus: DeviceSummary) -> TimelineCut:
    if found.windows is not None and found.windows.count:
        index = median_step(found.windows)
        return step_cut(timeline, found.windows, index, f"step {index + 1} of {found.windows.count}, of median length")
    # Without a step, the start of the recording up to a readable length.
    end = min(focus.end_ns, focus.start_ns + max((focus.end_ns - focus.start_ns) // 10, 1_000_000))
    return window_cut(timeline, focus.rank, focus.device, (focus.start_ns, end), "the first part of the recording")


def _series(timeline: Timeline, found: Found, focus: DeviceSummary) -> tuple[Series, ...]:
    """Launch-to-execute scatter over the window and queue depth over the median step."""
    table = metrics.launch_table(timeline)
    items = timeline.items
    mine = items[(items["rank"] == focus.rank) & (items["device"] == focus.device)]
    rows = table.loc[table.index.intersection(mine.index)]
    rows = rows[(rows["issue_ns"] > 0) & (rows["item_ns"] > 0)]
    rows = rows.iloc[:: max(1, len(rows) // _SCATTER_POINTS)]
    scatter = Series(
        id="launch-to-execute",
        x=tuple(rows["item_ns"].astype(float).tolist()),
        y=tuple(rows["issue_ns"].astype(float).tolist()),
        x_label="item ns",
        y_label="issue ns",
        names=tuple(items.loc[rows.index, "name"].astype(str).str.slice(0, 120)),
    )
    window = (focus.start_ns, focus.end_ns)
    if found.windows is not None and found.windows.count:
        index = median_step(found.windows)
        window = (int(found.windows.start_ns[index]), int(found.windows.end_ns[index]))
    times, depth = metrics.queue_depth(timeline, focus.rank, focus.device, window)
    every = max(1, len(times) // _DEPTH_POINTS)
    queue = Series(
        id="queue-depth",
        x=tuple((times[::every] - window[0]).astype(float).tolist()),
        y=tuple(depth[::every].astype(float).tolist()),
        x_label="ns from the step's first item",
        y_label="items launched and not started",
    )
    return (scatter, queue)


def _nothing_to_judge(timeline: Timeline, notes: tuple[QualityNote, ...]) -> Analysis:
    reason = next((note.message for note in notes if note.forbids), "the file holds no GPU items")
    return Analysis(
        tool_version=__version__,
        trace=timeline.info,
        quality=notes,
        devices=(),
        step=None,
        regions=(),
        estimates=(),
        blockers=(),
        hazards=(),
        findings=(),
        verdict=Verdict(answer=Answer.CANNOT_TELL, sentence=f"Cannot tell: {reason}.", kind=NumberKind.PROFILED),
    )
