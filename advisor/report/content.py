"""What a report is made of: the values of a run folder, and the few choices every renderer shares.

A renderer takes a `RunContent` and nothing else: no trace, no dataframe, no GPU. A run folder re-renders years later.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from advisor.bundle import Bundle
from advisor.model import (
    Analysis,
    Answer,
    Attempt,
    Calibration,
    Clock,
    DeviceSummary,
    Estimate,
    Manifest,
    Outcome,
    Region,
    Verdict,
    Verification,
)
from advisor.verdict import with_verification

_SMALL_RATIO: Final = 0.1  # of a step: an estimate that a "not worth it" can still show


@dataclass(frozen=True)
class RegionRow:
    """One row of the region table. `region` is None for an attempt on lines the trace has no region for."""

    label: str
    region: Region | None
    estimate: Estimate | None
    attempts: tuple[Attempt, ...]

    @property
    def best(self) -> Attempt | None:
        """The verified attempt with the largest gain; else the first that says why not; None without attempts."""
        verified = [one for one in self.attempts if one.outcome == Outcome.VERIFIED and one.timing is not None]
        if verified:
            return max(verified, key=lambda one: one.timing.speedup_ratio if one.timing else 0.0)
        return self.attempts[0] if self.attempts else None

    @property
    def verified_ratio(self) -> float:
        """Speed-up of the step by the best verified attempt; 0 without one."""
        best = self.best
        verified = best is not None and best.outcome == Outcome.VERIFIED and best.timing is not None
        return best.timing.speedup_ratio if verified and best and best.timing else 0.0

    @property
    def saved_ns(self) -> int:
        return self.estimate.saved_ns if self.estimate else 0


@dataclass(frozen=True)
class RunContent:
    """The artefacts of one run. Only the analysis is required; a missing part becomes a sentence in the report."""

    analysis: Analysis
    manifest: Manifest | None = None
    clock: Clock | None = None
    calibration: Calibration | None = None
    verification: Verification | None = None

    @classmethod
    def load(cls, folder: Path) -> RunContent:
        """The content of a run folder. Raises BundleError when it holds no findings or a broken artefact."""
        bundle = Bundle.open(folder)
        return cls(
            analysis=bundle.load(Analysis),
            manifest=bundle.load_if_present(Manifest),
            clock=bundle.load_if_present(Clock),
            calibration=bundle.load_if_present(Calibration),
            verification=bundle.load_if_present(Verification),
        )

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict with what the verification adds to it."""
        return with_verification(self.analysis.verdict, self.verification)

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        return self.verification.attempts if self.verification else ()

    @cached_property
    def device(self) -> DeviceSummary | None:
        """The device the run is judged by: the one with most items, as the analysis chose it."""
        return max(self.analysis.devices, key=lambda device: device.item_count, default=None)

    @cached_property
    def step_region(self) -> Region | None:
        step = self.analysis.step
        wanted = step.id if step else "step"
        return next((region for region in self.analysis.regions if region.id == wanted), None)

    @cached_property
    def headline_attempt(self) -> Attempt | None:
        """The attempt that carries the verdict."""
        wanted = self.verdict.attempt_id
        return next((attempt for attempt in self.attempts if attempt.id == wanted), None) if wanted else None

    @cached_property
    def headline_estimate(self) -> Estimate | None:
        """The estimate of the region the verdict names; else the largest one. None where the verdict does not believe it:
        a "no" for other reasons beside a picture of a large gain would contradict itself."""
        answer, estimates = self.verdict.answer, self.analysis.estimates
        named = next((one for one in estimates if one.region_id == self.verdict.region_id), None)
        found = named or max(estimates, key=lambda one: one.saved_ns, default=None)
        if found is None or answer in (Answer.CANNOT_TELL, Answer.ALREADY_GRAPHED):
            return None
        refused = answer == Answer.NOT_WORTH_IT and found.saved_ns > _SMALL_RATIO * found.before_ns
        return None if refused else found

    @cached_property
    def region_rows(self) -> tuple[RegionRow, ...]:
        """Every region with its estimate and attempts: what was verified first, fastest first, then by estimated saving."""
        estimates = {one.region_id: one for one in self.analysis.estimates}
        rows: list[RegionRow] = []
        placed: set[str] = set()
        for region in self.analysis.regions:
            mine = tuple(attempt for attempt in self.attempts if _is_on(attempt, region))
            placed.update(attempt.id for attempt in mine)
            rows.append(RegionRow(region.label, region, estimates.get(region.id), mine))
        rest: dict[str, list[Attempt]] = {}
        for attempt in self.attempts:
            if attempt.id not in placed:
                rest.setdefault(attempt.region_label, []).append(attempt)
        rows += [RegionRow(label, None, None, tuple(found)) for label, found in rest.items()]
        return tuple(sorted(rows, key=_importance))


def _importance(row: RegionRow) -> tuple[float, bool, float, float]:
    """Sort key of a region row, the most important first."""
    share = row.region.step_share_ratio if row.region else 0.0
    return (-row.verified_ratio, not row.attempts, -row.saved_ns, -share)


def _is_on(attempt: Attempt, region: Region) -> bool:
    # The verifier knows lines, not the analysis: it may name the region by id, by place or by label.
    if attempt.region_id is not None:
        return attempt.region_id == region.id
    if attempt.location is not None and region.location is not None:
        return attempt.location == region.location
    return attempt.region_label == region.label
