"""Two children's fingerprints side by side: is the state the same, and if not, where first and by how much?"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from advisor.errors import BundleError
from advisor.model import Equality, EqualityOutcome

NOISE_FACTOR: Final = 4.0  # a graph may differ from eager by this multiple of what two eager runs differ by
OWN_NOISE_FACTOR: Final = 32.0  # and each tensor by this multiple of its own largest: one noisy tensor excuses no other
MAX_NOISE_RATIO: Final = 0.05  # eager runs further apart than this prove nothing about a graph
_OWN: Final = re.compile(r"(kept|staged)_\d+(_\d+)?")  # names that source fixes leave in the loop's frame
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Checkpoint:
    """State after one step: per tensor name its hash, 2-norm and sampled values; Python values as text."""

    hashes: dict[str, int]
    norms: dict[str, float]
    samples: dict[str, Array]
    values: dict[str, str]


def load(path: Path) -> dict[int, Checkpoint]:
    """Checkpoints by step. Raises BundleError when the file is missing or broken."""
    try:
        with np.load(path, allow_pickle=False) as data:
            names = msgspec.json.decode(data["names"].tobytes(), type=list[str])
            return {int(step): _checkpoint(data, int(step), names) for step in data["steps"]}
    except (OSError, ValueError, KeyError, msgspec.DecodeError) as error:
        raise BundleError(f"{path}: the child's state cannot be read: {error}") from error


def _checkpoint(data: Any, step: int, names: list[str]) -> Checkpoint:
    key = f"s{step}"
    order = [names[index] for index in data[f"{key}_ids"]]
    return Checkpoint(
        hashes=dict(zip(order, data[f"{key}_hash"].tolist(), strict=True)),
        norms=dict(zip(order, data[f"{key}_norm"].tolist(), strict=True)),
        samples=dict(zip(order, data[f"{key}_sample"], strict=True)),
        values=msgspec.json.decode(data[f"{key}_values"].tobytes(), type=dict[str, str]),
    )


@dataclass(frozen=True)
class Difference:
    """How one checkpoint differs from another. Sizes: absolute over the samples, relative to the tensor's largest."""

    tensors: dict[str, tuple[float, float]]  # name -> (absolute, relative)
    missing: tuple[str, ...]  # tensors only one side has
    values: tuple[str, ...]  # Python values that differ

    @property
    def absolute(self) -> float:
        return max((size for size, _ in self.tensors.values()), default=0.0)

    @property
    def relative(self) -> float:
        return max((size for _, size in self.tensors.values()), default=0.0)


def difference(base: Checkpoint, other: Checkpoint, ignored: frozenset[str] = frozenset()) -> Difference:
    """`other` against `base`. `ignored` names roots (`out` covers `out[0].x`) whose value nobody reads."""
    tensors: dict[str, tuple[float, float]] = {}
    for name, found in base.hashes.items():
        if name in other.hashes and found != other.hashes[name] and not _ignored(name, ignored):
            tensors[name] = _size(base, other, name)
    missing = tuple(name for name in [*base.hashes, *other.hashes] if (name in base.hashes) != (name in other.hashes))
    values = tuple(
        name
        for name in dict.fromkeys([*base.values, *other.values])
        if base.values.get(name) != other.values.get(name) and not _ignored(name, ignored)
    )
    return Difference(tensors, tuple(name for name in missing if not _ignored(name, ignored)), values)


def _ignored(name: str, ignored: frozenset[str]) -> bool:
    bare = name[4:-1] if name.startswith("len(") else name
    root = bare.split("[", 1)[0].split(".", 1)[0]
    return _OWN.fullmatch(root) is not None or root in ignored


def _size(base: Checkpoint, other: Checkpoint, name: str) -> tuple[float, float]:
    one, two = base.samples[name].astype(np.float64), other.samples[name].astype(np.float64)
    if not (np.isfinite(one).all() and np.isfinite(two).all()):
        same = np.array_equal(one, two, equal_nan=True)
        return (0.0, 0.0) if same else (float("inf"), float("inf"))
    apart = max(float(np.abs(one - two).max(initial=0.0)), abs(base.norms[name] - other.norms[name]))
    scale = max(float(np.abs(one).max(initial=0.0)), 1e-30)
    return apart, apart / scale


@dataclass(frozen=True)
class Judged:
    """The verdict on equality and what it rests on."""

    equality: Equality
    noisy_values: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unproven: str = ""  # why equality could not be judged


Run = dict[int, Checkpoint]


def judge(base: Run, graph: Run, pair: tuple[Run, Run] | None, ignored: frozenset[str] = frozenset()) -> Judged:
    """Whether the graph child's state is that of the eager child `base`: to the bit, or within the noise.

    `pair` are two eager runs of the same script: what differs between them is noise. None allows none.
    """
    steps = sorted(base.keys() & graph.keys())
    if not steps:
        return Judged(Equality(outcome=EqualityOutcome.NOT_CHECKED))
    noise = _noise(pair, ignored)
    worst = 0.0
    largest = 0.0
    for step in steps:
        found = difference(base[step], graph[step], ignored)
        values = tuple(name for name in found.values if name not in noise.values)
        worst = max(worst, noise.relative.get(step, 0.0))
        beyond = _beyond_noise(found, worst, noise.tensors)
        largest = max(largest, found.absolute)
        if beyond or values or found.missing:
            first = (beyond or found.missing or values)[0]
            return Judged(
                Equality(
                    outcome=EqualityOutcome.DIFFERS,
                    step_count=len(steps),
                    tensor_count=len(base[step].hashes),
                    first_step=step,
                    first_name=first,
                    max_abs_difference=_finite(found.tensors.get(first, (found.absolute, 0.0))[0]),
                    noise_max_abs_difference=_finite(noise.absolute),
                    python_values=values,
                ),
                noise.values,
                found.missing,
            )
    bitwise = largest == 0.0 and not any(difference(base[s], graph[s], ignored).tensors for s in steps)
    outcome = EqualityOutcome.BITWISE if bitwise else EqualityOutcome.WITHIN_NOISE
    unproven = _unproven(worst, base[steps[-1]])
    if unproven:
        outcome = EqualityOutcome.NOT_CHECKED
    return Judged(
        Equality(
            outcome=outcome,
            step_count=len(steps),
            tensor_count=max(len(base[step].hashes) for step in steps),
            max_abs_difference=_finite(largest),
            noise_max_abs_difference=_finite(noise.absolute),
        ),
        noise.values,
        unproven=unproven,
    )


def _unproven(noise: float, last: Checkpoint) -> str:
    if noise > MAX_NOISE_RATIO:
        return "two eager runs differ too much from one another for the graph's results to be judged"
    if 2 * sum(np.isnan(norm) for norm in last.norms.values()) > len(last.norms):
        return "most of the script's own values are NaN, which any error leaves as they are"
    return ""


@dataclass(frozen=True)
class _Noise:
    relative: dict[int, float]  # step -> the largest of its tensors
    tensors: dict[str, float]  # tensor -> the largest of its steps
    values: tuple[str, ...]
    absolute: float


def _noise(pair: tuple[Run, Run] | None, ignored: frozenset[str]) -> _Noise:
    if pair is None:
        return _Noise({}, {}, (), 0.0)
    base, again = pair
    relative: dict[int, float] = {}
    tensors: dict[str, float] = {}
    values: dict[str, None] = {}
    absolute = 0.0
    for step in sorted(base.keys() & again.keys()):
        found = difference(base[step], again[step], ignored)
        relative[step] = found.relative
        for name, (_, size) in found.tensors.items():
            tensors[name] = max(size, tensors.get(name, 0.0))
        values.update(dict.fromkeys(found.values))
        absolute = max(absolute, found.absolute)
    return _Noise(relative, tensors, tuple(values), absolute)


def tensors_differ(one: Run, two: Run) -> bool:
    """Whether any tensor differs at any step both runs were checked at."""
    return any(difference(one[step], two[step]).tensors for step in one.keys() & two.keys())


def _beyond_noise(found: Difference, worst: float, noise: dict[str, float]) -> list[str]:
    """Tensors that differ though they never did between eager runs, or by more than those runs allow."""

    def allowed(own: float) -> float:  # noise that shows in none of its samples says nothing about its size
        return min(NOISE_FACTOR * worst, OWN_NOISE_FACTOR * own) if own else NOISE_FACTOR * worst

    return [name for name, (_, size) in found.tensors.items() if name not in noise or size > allowed(noise[name])]


def _finite(value: float) -> float:
    return value if np.isfinite(value) else float(np.finfo(np.float64).max)
