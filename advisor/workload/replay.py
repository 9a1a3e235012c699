"""A captured span ready to be replayed: stage what moved, replay, hand out what the span would have left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from advisor.workload import trees
from advisor.workload.flow import Path
from advisor.workload.graphs import Device, Graph
from advisor.workload.paths import MISSING, resolve, set_step
from advisor.workload.state import Grads, Modes, StepWatch
from advisor.workload.trees import Leaves, Opaque

REBOUND: Final = " is rebound"
_MAX_EXTENT_RATIO: Final = 2
_GRADS: Final = {
    "grad-reset-outside": "a gradient was reset or rebound outside the span between two replays",
    "grad-accumulate-twice": "a gradient was there where the capture found none, or the other way round",
}


@dataclass(frozen=True)
class Switches:
    """How faithful the replay is. The defaults are the safe ones; tests and fixes turn single ones over.

    `clone_outputs`: a live-out is cloned after every replay, so that a value the script keeps is never overwritten.
    `stage_inputs`: moving live-ins are copied into the captured ones. `clear_autocast`: casts cached outside the span
    are dropped before the capture.
    `register_generators`: random generators among the live-ins are made known to the graph.
    """

    error_mode: str = "thread_local"
    clone_outputs: bool = True
    stage_inputs: bool = True
    clear_autocast: bool = True
    register_generators: bool = False


@dataclass
class Staged:
    """One live-in tensor. `static` is what the graph reads: the tensor itself, or a private copy when it moves."""

    path: tuple[str, ...]
    tensor: torch.Tensor
    moving: bool
    static: torch.Tensor = field(init=False)
    version: int = -1

    def __post_init__(self) -> None:
        self.static = _private_copy(self.tensor) if self.moving else self.tensor

    def prepare(self) -> None:
        self.version = _version(self.static)

    @property
    def written(self) -> bool:
        return self.moving and self.version >= 0 and _version(self.static) != self.version


def _private_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the tensor's own strides, so that the graph's kernels are those of the eager span.

    Compact where one cannot be written to (an expanded tensor) or would hold far more than the values (a column).
    """
    with torch.inference_mode(False), torch.no_grad():  # else nothing would count the writes into the copy
        copy = _copied(tensor.detach())
    if tensor.device.type == "cpu" and torch.cuda.is_available() and tensor.is_pinned():
        copy = copy.pin_memory()
    return copy.requires_grad_(tensor.requires_grad) if tensor.requires_grad else copy


def _copied(plain: torch.Tensor) -> torch.Tensor:
    if plain.layout is torch.strided and plain.numel() <= _extent(plain) <= _MAX_EXTENT_RATIO * plain.numel():
        return torch.empty_strided(plain.shape, plain.stride(), dtype=plain.dtype, device=plain.device).copy_(plain)
    return plain.clone()


def _extent(tensor: torch.Tensor) -> int:
    """Elements of memory from the first to the last value; -1 when dimensions of stride 0 make values share memory."""
    if any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
        return -1
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


@dataclass
class Carried:
    """One tensor a span leaves behind."""

    static: torch.Tensor

    def give(self, clone: bool) -> torch.Tensor:
        """The current value: a clone of its own memory, or the static tensor itself."""
        if not clone:
            return self.static
        fresh = (self.static.detach() if self.static.requires_grad else self.static).clone()
        wants_grad = self.static.requires_grad and self.static.is_leaf
        return fresh.requires_grad_(True) if wants_grad else fresh


@dataclass
class Output:
    """One live-out name or path: the captured value as a template, and its tensors."""

    path: Path
    value: Any
    tensors: Mapping[tuple[str, ...], torch.Tensor]
    carried: list[Carried]

    def current(self, clone: bool) -> Any:
        if not self.tensors:
            return self.value
        fresh = {key: item.give(clone) for key, item in zip(self.tensors, self.carried, strict=True)}
        return trees.replaced(self.value, (self.path.root,), fresh)


class Inputs:
    """The captured live-ins, and what later ones are compared with."""

    def __init__(
        self,
        leaves: Leaves,
        staged: Mapping[tuple[str, ...], Staged],
        loose: frozenset[tuple[str, ...]],
        check_fixed: bool = True,
    ) -> None:
        self.moving = [item for item in staged.values() if item.moving]
        self.pointers = {path: pointer(item.static) for path, item in staged.items()}
        self._keep = [item.static for item in staged.values()]  # the graph reads them for as long as it lives
        self._signatures = {path: trees.tensor_signature(item.tensor) for path, item in staged.items()}
        self._fixed = {path for path, item in staged.items() if not item.moving} if check_fixed else set()
        self._plain = {path: leaf for path, leaf in leaves.items() if path not in staged}
        self._loose = loose

    def mismatch(self, leaves: Leaves) -> str:
        """Why these live-ins are not the captured ones, in a few words; nothing when they are alike."""
        if leaves.keys() != self._signatures.keys() | self._plain.keys():
            odd = sorted(leaves.keys() ^ (self._signatures.keys() | self._plain.keys()))
            return f"structure of {trees.describe(odd[0])}"
        for path, leaf in leaves.items():
            reason = self._tensor_mismatch(path, leaf) if path in self._signatures else self._plain_mismatch(path, leaf)
            if reason:
                return reason
        return ""

    def numbers(self) -> Iterator[tuple[str, float]]:
        """(`scale`, 0.5): the Python numbers among the live-ins, which the graph holds as constants."""
        for path, leaf in self._plain.items():
            if isinstance(leaf, bool | int | float) and path not in self._loose and path[-1] != "len":
                yield trees.describe(path), leaf

    def _tensor_mismatch(self, path: tuple[str, ...], leaf: object) -> str:
        if not isinstance(leaf, torch.Tensor):
            return f"{trees.describe(path)} is no tensor"
        found = trees.tensor_signature(leaf)
        if found != self._signatures[path]:
            return f"{trees.describe(path)} {list(leaf.shape)} {leaf.dtype}"
        if path in self._fixed and pointer(leaf) != self.pointers[path]:
            return f"{trees.describe(path)}{REBOUND}"
        return ""

    def _plain_mismatch(self, path: tuple[str, ...], leaf: object) -> str:
        expected = self._plain[path]
        if type(leaf) is type(expected) and (leaf == expected or (leaf != leaf and expected != expected)):  # NaN is NaN
            return ""
        if path in self._loose and isinstance(leaf, Opaque) and leaf.form == getattr(expected, "form", None):
            return ""
        return f"{trees.describe(path)} = {leaf!r}"[:80]


class Recording:
    """One captured graph with its live-ins and live-outs."""

    outputs_of: list[Output]
    hazards: Callable[[str, str], None]
    capture_ns = instantiate_ns = pool_bytes = 0
    rebound: Sequence[str] = ()  # module attributes the captured statements bound to other tensors
    unbound: tuple[str, ...] = ()
    ambience: tuple[bool, ...] = ()

    def __init__(
        self, device: Device, graph: Graph, inputs: Inputs, grads: Grads, watch: StepWatch, switches: Switches
    ) -> None:
        self.device, self.graph, self.inputs = device, graph, inputs
        self.grads, self.watch, self.switches = grads, watch, switches
        self.staged = inputs.moving
        self._written = [item for item in self.staged if item.written]
        self._host = any(item.static.device.type == "cpu" for item in self.staged) and device.kind == "cuda"
        self._modes = Modes()
        self._last: Any = None

    def mismatch(self, leaves: Leaves) -> str:
        """Why the graph must not run for these live-ins, in a few words; nothing when it may."""
        if ambience() != self.ambience:
            return "another mode of gradients, inference or autocast"
        reason = self.inputs.mismatch(leaves)
        if reason.endswith(REBOUND):
            self.hazards("stale-input", f"{reason}: it was the same tensor in every warm-up step")
        return reason

    def run_first(self) -> None:
        """The replay that does the capturing iteration's work: live-ins are in place already."""
        self.graph.replay()
        self._write_back({item.path: item.tensor for item in self._written})
        self._last = self.device.mark() if self._host else None

    def replay(self, leaves: Leaves) -> None:
        """Stage, replay, write back. Asynchronous unless a host-side source must not be overwritten too early."""
        if self._last is not None:
            self.device.wait(self._last)
        moved = [item for item in self.staged if pointer(leaves[item.path]) != self.inputs.pointers[item.path]]
        if moved:
            with torch.no_grad():
                for item in moved:
                    item.static.copy_(leaves[item.path].detach(), non_blocking=True)
        hazard = self.grads.before_replay()
        if hazard:
            self.hazards(hazard, _GRADS[hazard])
        self.graph.replay()
        self._write_back(leaves)
        self.grads.after(eager=False)
        changed = self.watch.changed()
        if changed:
            identity = "frozen-lr-sgd" if changed.startswith("SGD lr") else "frozen-scalar"
            self.hazards(identity, f"{changed} after the capture; the graph keeps the old value")
        flipped = self._modes.changed()
        if flipped:
            self.hazards("train-eval-flip", f"{flipped} was switched between training and evaluation after the capture")
        if self._host:
            self._last = self.device.mark()

    def _write_back(self, leaves: Mapping[tuple[str, ...], Any]) -> None:
        if not self._written:
            return
        for item in self._written:
            leaf = leaves[item.path]
            with torch.inference_mode() if leaf.is_inference() else torch.no_grad():
                leaf.copy_(item.static)

    def after_eager(self) -> None:
        """The statements ran instead of a replay."""
        self.grads.after(eager=True)

    def outputs(self, local: Mapping[str, Any], glob: MutableMapping[str, Any]) -> dict[str, Any]:
        """Values for the names the span would have bound. Attributes and items are set here."""
        named: dict[str, Any] = {}
        for output in self.outputs_of:
            value = output.current(self.switches.clone_outputs)
            if not output.path.steps:
                named[output.path.root] = value
                continue
            owner = resolve(Path(output.path.root, output.path.steps[:-1]), local, glob)
            if owner is not MISSING:
                set_step(owner, output.path.steps[-1], value)
        return named


def ambience() -> tuple[bool, ...]:
    """The modes around the span that decide what its operators do."""
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled()


def pointer(tensor: torch.Tensor) -> int:
    return tensor.data_ptr() if tensor.layout is torch.strided else id(tensor)
