"""What the recording says of a span that is captured: expected beforehand (predictions.json), counted afterwards."""

from __future__ import annotations

import msgspec

from advisor.advise import Evidence, Study, study
from advisor.bundle import NSYS_NAME, TRACE_NAME, Bundle
from advisor.errors import AdvisorError
from advisor.model import Calibration, Clock, Manifest, Prediction, Predictions, SourceSpan, Verification
from advisor.regions import span_region
from advisor.verify.candidate import Candidate


class Predictor:
    """Called with each candidate of a search. The recording is read at the first one, unless `made` is given."""

    def __init__(self, bundle: Bundle, made: Study | None = None) -> None:
        self._bundle = bundle
        self._study = made
        self._looked = made is not None
        self._predictions: list[Prediction] = []

    def __call__(self, candidate: Candidate) -> None:
        """Predict this candidate and save; a candidate without lines, or a run without its recording, gets no estimate."""
        fixes = tuple(fix.id for fix in candidate.fixes)
        estimate = None
        made = self._ready()
        if made is not None and candidate.first:
            span = SourceSpan(file=candidate.file, first_line=candidate.first, last_line=candidate.last)
            estimate = made.predict(span, fixes)
        self._predictions.append(Prediction(region_label=candidate.label, fixes=fixes, estimate=estimate))
        self._bundle.save(Predictions(predictions=tuple(self._predictions)))

    def with_traced_items(self, found: Verification) -> Verification:
        """`found`, each attempt on lines with the items the recording holds of one execution; saved.

        A graph of another number of nodes ran other kernels than were recorded: a fix brought them, or the library takes
        another path while a stream captures.
        """
        made = self._ready()
        if made is None:
            return found
        counted = tuple(
            msgspec.structs.replace(one, traced_item_count=_traced_items(made, one.location)) for one in found.attempts
        )
        result = msgspec.structs.replace(found, attempts=counted)
        self._bundle.save(result)
        return result

    def _ready(self) -> Study | None:
        if not self._looked:
            self._looked = True
            self._study = study_of(self._bundle)
        return self._study


def _traced_items(made: Study, span: SourceSpan | None) -> int | None:
    if span is None or made.found is None:
        return None
    one = span_region(made.timeline, made.found, span)
    return round(one.region.item_count) if one is not None else None


def study_of(bundle: Bundle) -> Study | None:
    """The study of a run folder's own recording; None when it is not there or cannot be read any more."""
    from advisor import load

    path = next((bundle.path(name) for name in (TRACE_NAME, NSYS_NAME) if bundle.path(name).exists()), None)
    if path is None:
        return None
    try:
        return study(load(path), evidence_of(bundle))
    except AdvisorError:
        return None


def evidence_of(bundle: Bundle) -> Evidence:
    """What a run folder holds beside its recording. Raises BundleError for a broken one."""
    clock = bundle.load_if_present(Clock)
    clocked = clock is not None and bool(clock.host_step.samples_ns)
    manifest = bundle.load_if_present(Manifest)
    return Evidence(
        clock=clock if clocked else None,
        calibration=bundle.load_if_present(Calibration),
        sources=manifest.source_files if manifest is not None else {},
        step_label=clock.step_label if clock is not None and clocked else None,
    )
