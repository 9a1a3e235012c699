"""What the gate knows about one side: counts per step, lines that block, regions, environment, raw times.

A snapshot is small, has no trace in it, and is what a baseline file holds. All counts are medians over the recorded
steps, so a first step that initialises or a step that logs does not move them.
"""

from __future__ import annotations

from typing import Final

import msgspec

from advisor.model import EqualityOutcome, NumberKind, Outcome, SourceSpan, Value

FORMAT: Final = 1
KIND: Final = "cgadvisor-baseline"
STEP_TIME: Final = "step_ns"


class Environment(Value, frozen=True, kw_only=True):
    """What must be the same for two sides to be comparable; an empty field is unknown and compared with nothing."""

    gpu_names: tuple[str, ...] = ()
    torch_version: str = ""
    cuda_version: str = ""
    arguments: tuple[str, ...] | None = None  # of the script, without its path
    source: str = ""  # "kineto" | "nsight": the two count and clock differently
    driver_version: str = ""
    gpu_clock_mhz: int | None = None
    cpu_count: int = 0
    python_version: str = ""


class Place(Value, frozen=True, kw_only=True):
    """One synchronising or blocking line. `code` is the stripped text of the line, by which it is found when it moves."""

    id: str
    title: str
    count_per_step: float
    fix: str = ""
    evidence: str = ""
    location: SourceSpan | None = None
    code: str = ""

    @property
    def label(self) -> str:
        return self.location.label if self.location else self.evidence or "no line recorded"


class RegionFigures(Value, frozen=True, kw_only=True):
    """One region: its counts per step, and what verification said about it."""

    label: str
    kind: str
    metrics: dict[str, float]
    share_ratio: float = 0.0  # of the step, as traced
    location: SourceSpan | None = None
    code: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """A module and a range may carry one label."""
        return self.kind, self.label


class Verified(Value, frozen=True, kw_only=True):
    """The outcome of capturing one region, as written (no fixes)."""

    label: str
    outcome: Outcome
    message: str = ""
    equality: EqualityOutcome = EqualityOutcome.NOT_CHECKED
    speedup_ratio: float | None = None
    location: SourceSpan | None = None
    blocked_by: Place | None = None
    code: str = ""


class Times(Value, frozen=True, kw_only=True):
    """Raw samples of one quantity: one tuple a process, in measured order."""

    kind: NumberKind
    processes_ns: tuple[tuple[int, ...], ...]


class Snapshot(Value, frozen=True, kw_only=True):
    """One side of the gate, and the content of a baseline file."""

    kind: str = KIND
    format: int = FORMAT
    tool_version: str = ""
    created_at: str = ""  # ISO 8601, UTC; of a saved baseline
    label: str = ""
    note: str = ""
    step_label: str = ""
    step_count: int = 0
    run_count: int = 1
    environment: Environment = Environment()
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    metric_highs: dict[str, float] = msgspec.field(
        default_factory=dict
    )  # largest value over several runs of the same code, where they differ
    metric_lows: dict[str, float] = msgspec.field(default_factory=dict)
    regions: tuple[RegionFigures, ...] = ()
    blockers: tuple[Place, ...] = ()
    verified: tuple[Verified, ...] = ()
    times: dict[str, Times] = msgspec.field(default_factory=dict)
    noise_ratio: float = 0.0  # A/A: the largest relative difference of two runs of the same code
    unusable: tuple[str, ...] = ()  # why counts of this side cannot be trusted

    def region(self, label: str) -> RegionFigures | None:
        return next((region for region in self.regions if region.label == label), None)
