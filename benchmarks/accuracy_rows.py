"""What the accuracy harness compares: cases, rows of predicted against measured times, and the figures the bars are about."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from advisor.advise import Study
from advisor.bundle import Bundle
from advisor.commands.predict import study_of
from advisor.estimate.build import NOT_SIMULATED
from advisor.marks import parse_span
from advisor.model import Attempt, Estimate, Outcome, Predictions, SourceSpan, Verification
from advisor.regions import FoundRegion, span_region

LAUNCH_NS: Final = 3_000.0
GAIN: Final = 0.10  # "helps"
NO_GAIN: Final = 0.02  # "does not"
RIVALS: Final = ("idle", "trace", "launch")

# Sample -> the arguments of its sizes: launch-bound, between, GPU-bound.
SIZES: Final = {
    "mlp_train": ("--batch 64", "--batch 4096", "--batch 32768"),
    "gpt_train": ("--batch 64", "--batch 512", "--batch 4096"),
    "transformer_train": ("--batch 8", "--batch 64", "--batch 256"),
    "adamw_foreach_false": ("--batch 8", "--batch 64", "--batch 256"),
    "sac_update": ("--batch 256", "--batch 8192", "--batch 65536"),
    "gnn": ("--nodes 2000", "--nodes 20000", "--nodes 40000"),
    "ode_rk4": ("--batch 20", "--batch 2000", "--batch 100000"),
    "word_lm": ("--batch 20", "--batch 200", "--batch 1000"),
    "gan_train": ("--batch 16", "--batch 128", "--batch 512"),
    "trainer_train": ("--batch 32", "--batch 256", "--batch 1024"),
    "resnet_train": ("--batch 4", "--batch 32", "--batch 128 --steps 60"),
    "resnet_infer": ("--batch 1", "--batch 8", "--batch 32", "--batch 256 --steps 100"),
    "encoder_infer": ("--batch 1", "--batch 32", "--batch 512"),
    "lstm_cell": ("--batch 32", "--batch 2048", "--batch 16384"),
    "decode_static": ("--batch 1", "--batch 32", "--batch 32 --dim 4096"),
}
SWEEPS: Final = ("resnet_infer", "gpt_train")
EXTRA: Final = {"gpt_train": ("--batch 16384 --steps 100",)}  # the fourth size of a sweep


@dataclass(frozen=True)
class Case:
    """A sample at one size."""

    sample: str
    size: int
    argv: tuple[str, ...]

    @property
    def name(self) -> str:
        return "_".join((self.sample, *(word.lstrip("-") for word in self.argv)))


def cases(only: Sequence[str] = (), shard: str = "1/1") -> list[Case]:
    """The cases of this shard, the launch-bound ones of all samples first."""
    found = [
        Case(sample, size, tuple(words.split()))
        for sample, sizes in SIZES.items()
        for size, words in enumerate((*sizes, *EXTRA.get(sample, ())))
        if not only or sample in only
    ]
    found.sort(key=lambda case: case.size)
    number, count = (int(part) for part in shard.split("/"))
    return found[number - 1 :: count]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One verified region. Times are ns per step, medians; `region` times are the span's own, on the device."""

    case: str
    sample: str
    size: int  # position in the sample's sizes
    region: str
    fixes: tuple[str, ...]
    outcome: str
    simulated: bool
    before_ns: float  # clocked, the prediction's starting point
    predicted_ns: float
    low_ns: float
    high_ns: float
    eager_ns: float  # beside the replays
    measured_ns: float
    region_predicted_ns: float
    region_measured_ns: float
    traced_ns: float
    busy_ns: float  # of the whole step
    idle_ns: float  # inside the region, as traced
    launch_count: float
    node_count: int | None
    traced_item_count: int | None

    @property
    def error_ratio(self) -> float:
        return self.predicted_ns / self.measured_ns - 1

    @property
    def region_error_ratio(self) -> float:
        return self.region_predicted_ns / self.region_measured_ns - 1 if self.region_measured_ns else 0.0

    @property
    def is_covered(self) -> bool:
        return self.low_ns <= self.measured_ns <= self.high_ns

    @property
    def predicted_gain_ratio(self) -> float:
        return 1 - self.predicted_ns / self.before_ns

    @property
    def measured_gain_ratio(self) -> float:
        return 1 - self.measured_ns / self.eager_ns

    @property
    def is_wrong_call(self) -> bool:
        """Predicted to help and did not, or the other way round."""
        told, found = self.predicted_gain_ratio, self.measured_gain_ratio
        return (told > GAIN and found < NO_GAIN) or (told < NO_GAIN and found > GAIN)

    def rivals(self) -> dict[str, float]:
        """Predicted step time of the simple rivals, ns."""
        return {
            "idle": self.busy_ns,
            "trace": self.before_ns * (1 - min(1.0, self.idle_ns / self.traced_ns)),
            "launch": max(0.0, self.before_ns - LAUNCH_NS * self.launch_count),
        }


def rows_of(bundle: Bundle, case: Case, study: Study | None = None, suffix: str = "") -> list[Row]:
    """The measured attempts of a run folder's verification against what was stored of them beforehand.

    `study`: predict anew with it instead.
    """
    verification, predictions = results(bundle, suffix)
    made = study or study_of(bundle)
    rows = []
    for attempt in verification.attempts:
        if not is_measured(attempt) or made is None:
            continue
        estimate = _again(study, attempt) if study is not None else predictions.of(attempt)
        region = _region_of(made, attempt)
        if estimate is not None and region is not None:
            rows.append(_row(case, attempt, estimate, region, made))
    return rows


def results(bundle: Bundle, suffix: str) -> tuple[Verification, Predictions]:
    if not suffix:
        return bundle.load(Verification), bundle.load_if_present(Predictions) or Predictions()
    texts = [bundle.path(f"{name}{suffix}.json").read_bytes() for name in ("verification", "predictions")]
    return msgspec.json.decode(texts[0], type=Verification), msgspec.json.decode(texts[1], type=Predictions)


def is_measured(attempt: Attempt) -> bool:
    return attempt.outcome in (Outcome.VERIFIED, Outcome.NOT_FASTER) and attempt.timing is not None


def _span(attempt: Attempt) -> SourceSpan | None:
    return attempt.location or parse_span(attempt.region_label)


def _again(study: Study, attempt: Attempt) -> Estimate | None:
    span = _span(attempt)
    return study.predict(span, tuple(fix.id for fix in attempt.fixes)) if span is not None else None


def _region_of(study: Study, attempt: Attempt) -> FoundRegion | None:
    span = _span(attempt)
    if span is None or study.found is None:
        return None
    return span_region(study.timeline, study.found, span)


def _row(case: Case, attempt: Attempt, estimate: Estimate, found: FoundRegion, study: Study) -> Row:
    timing, step = attempt.timing, study.found.step if study.found is not None else None
    assert timing is not None and step is not None
    region, times = found.region, found.region.occurrences_per_step
    region_graph = timing.region_graph.samples_ns if timing.region_graph is not None else ()
    return Row(
        case=case.name,
        sample=case.sample,
        size=case.size,
        region=attempt.region_label,
        fixes=tuple(fix.id for fix in attempt.fixes),
        outcome=attempt.outcome.value,
        simulated=NOT_SIMULATED not in estimate.assumptions,
        before_ns=float(estimate.before_ns),
        predicted_ns=float(estimate.after_ns),
        low_ns=float(estimate.before_ns - estimate.saved_high_ns),
        high_ns=float(estimate.before_ns - estimate.saved_low_ns),
        eager_ns=statistics.median(timing.eager.samples_ns),
        measured_ns=statistics.median(timing.graph.samples_ns),
        region_predicted_ns=float(estimate.region_after_ns),
        region_measured_ns=statistics.median(region_graph) if region_graph else 0.0,
        traced_ns=statistics.median(step.traced.samples_ns),
        busy_ns=_busy_ns(study),
        idle_ns=region.idle.total_ns * times,
        launch_count=region.launch_count * times,
        node_count=attempt.node_count,
        traced_item_count=attempt.traced_item_count,
    )


def _busy_ns(study: Study) -> float:
    assert study.found is not None
    steps = [one.region for one in study.found.regions if one.region.kind.value == "step"]
    return float(steps[0].busy_ns) if steps else 0.0


def summary(rows: Sequence[Row]) -> dict[str, float]:
    """The figures the bars are about, as ratios; the rivals' median errors beside ours."""
    errors = np.abs([row.error_ratio for row in rows])
    found = {
        "rows": float(len(rows)),
        "median": float(np.median(errors)),
        "p90": float(np.quantile(errors, 0.9)),
        "covered": float(np.mean([row.is_covered for row in rows])),
        "wrong_calls": float(sum(row.is_wrong_call for row in rows)),
        "region_median": float(np.median(np.abs([row.region_error_ratio for row in rows if row.region_measured_ns]))),
    }
    for name in RIVALS:
        others = np.abs([row.rivals()[name] / row.measured_ns - 1 for row in rows])
        found[f"{name}_median"], found[f"{name}_p90"] = float(np.median(others)), float(np.quantile(others, 0.9))
    return found


def crossover(rows: Sequence[Row], gain: Callable[[Row], float]) -> int:
    """The first size of a sweep whose best gain is below `GAIN`; one past the largest measured when there is none."""
    best: dict[int, float] = {}
    for row in rows:
        best[row.size] = max(best.get(row.size, -1.0), gain(row))
    return next((size for size in sorted(best) if best[size] < GAIN), max(best, default=-1) + 1)


def sweep(rows: Sequence[Row], sample: str) -> tuple[int, int]:
    """The crossover of one sample, predicted and measured."""
    mine = [row for row in rows if row.sample == sample]
    return crossover(mine, lambda row: row.predicted_gain_ratio), crossover(mine, lambda row: row.measured_gain_ratio)
