"""Why a captured span may be wrong: the ids, what they mean, and which one best explains a difference."""

from __future__ import annotations

from typing import Final

from advisor.model import Equality, Hazard, SourceSpan
from advisor.workload.verify_job import ChildReport

HAZARDS: Final[dict[str, tuple[str, str]]] = {
    "grad-reset-outside": ("gradients are reset outside the graph", "take zero_grad into the span, or zero in place"),
    "grad-accumulate-twice": (
        "the graph overwrites what eager accumulates",
        "one graph per micro-batch, or zero in place",
    ),
    "frozen-lr-sgd": ("the learning rate is a constant in the graph", "a tensor lr with fused=True, or step outside"),
    "frozen-scalar": ("a Python number is a constant in the graph", "a 0-dim GPU tensor, filled before each replay"),
    "cpu-side-effect": ("Python code in the span runs only at capture", "move it out of the span"),
    "stale-input": ("a tensor is rebound, the graph reads the old one", "copy_ into a fixed tensor"),
    "train-eval-flip": ("the graph keeps the mode it was captured in", "one graph for training, one for evaluation"),
    "output-overwrite": ("a kept output is overwritten by the next replay", "clone() what is kept"),
    "autocast-cache": (
        "weights cast outside the graph are cached",
        "enter autocast in the span, or cache_enabled=False",
    ),
    "rng-fixed": ("a random number drawn on the host is a constant in the graph", "draw it on the GPU"),
    "hidden-input": ("the span reads something that changes unseen", "pass it in as a tensor"),
    "capture-aware-branch": ("the code takes another path while capturing", "make both paths equal"),
    "no-such-module": ("the module was not found", "name it as named_modules() does"),
    "mgc-nontensor": ("the model takes arguments that are no tensors", "wrap it in a module that takes tensors alone"),
    "control-flow": ("the statements leave the span", "choose a span without return, break or continue"),
}
_PRIORITY: Final = (
    "grad-accumulate-twice",
    "grad-reset-outside",
    "frozen-lr-sgd",
    "frozen-scalar",
    "train-eval-flip",
    "stale-input",
    "autocast-cache",
)


def likely(report: ChildReport, equality: Equality) -> str:
    """The hazard that best explains a difference: what was seen at run time, then what the source shows."""
    seen = {one.id for one in report.suspects}
    for identity in _PRIORITY:
        if identity in seen:
            return identity
    kinds = {line.split(" ", 2)[1] for line in report.effects}
    name, values = equality.first_name, equality.python_values
    if any(value.startswith("rng:") for value in values) or kinds & {"random", "generator"}:
        return "rng-fixed"
    if values and kinds & {"counter", "append", "attribute"}:
        return "cpu-side-effect"
    if "capture-aware" in kinds:
        return "capture-aware-branch"
    if "[" in name and not name.split("[", 1)[0][:1].isupper():
        return "output-overwrite"  # an element of a container of the user's
    if any(value.startswith("len(") for value in values):
        return "cpu-side-effect"
    if "attribute" in kinds:
        return "stale-input"
    return "cpu-side-effect" if values else "hidden-input"


def effect(report: ChildReport, identity: str) -> str:
    wanted = {
        "cpu-side-effect": ("counter", "append"),
        "rng-fixed": ("random", "generator"),
        "stale-input": ("attribute",),
    }
    kinds = wanted.get(identity, ())
    return next((line for line in report.effects if line.split(" ", 2)[1] in kinds), "")


def line_of(evidence: str) -> SourceSpan | None:
    file, _, rest = evidence.partition(":")
    number = rest.split(" ", 1)[0]
    if file.endswith(".py") and number.isdigit():
        return SourceSpan(file=file, first_line=int(number), last_line=int(number))
    return None


def suspected(report: ChildReport, location: SourceSpan | None) -> tuple[Hazard, ...]:
    """Hazards worth telling even when the results are equal: found in the source, or seen and harmless here."""
    found: dict[str, Hazard] = {}
    for suspect in report.suspects:
        title, fix = HAZARDS.get(suspect.id, HAZARDS["hidden-input"])
        found[suspect.id] = Hazard(id=suspect.id, title=title, evidence=suspect.evidence, fix=fix, location=location)
    by_kind = {"counter": "cpu-side-effect", "append": "output-overwrite", "random": "rng-fixed"}
    for line in report.effects:
        identity = by_kind.get(line.split(" ", 2)[1], "")
        if identity and identity not in found:
            title, fix = HAZARDS[identity]
            found[identity] = Hazard(
                id=identity, title=title, evidence=line, fix=fix, location=line_of(line), found_by="source"
            )
    return tuple(found.values())
