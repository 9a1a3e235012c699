"""The runtime object behind a wrapped span: it watches eager iterations, captures one, and hands over to a replay.

Live-ins are watched while the script warms up. A tensor that is another Python object in every iteration *moves* (a
batch, a carried hidden state): the capture reads a private copy of it, into which every replay copies the current one. A
tensor that stays the same object (a weight, a cache) is captured where it lies. Nothing of the user's is overwritten.
"""

from __future__ import annotations

import gc
import sys
import time
import weakref
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Protocol

import torch

from advisor.workload import trees
from advisor.workload.flow import Path
from advisor.workload.graphs import Device
from advisor.workload.liveness import SpanNames
from advisor.workload.paths import MISSING, class_of, get_step, resolve, set_step
from advisor.workload.replay import Carried, Inputs, Output, Recording, Staged, Switches, ambience
from advisor.workload.state import Grads, StepWatch, parameters, tensor_attributes
from advisor.workload.trees import Leaves, Opaque

Namespace = Mapping[str, Any]
_KEEP_VALUES: Final = 4


@dataclass(frozen=True)
class SpanSpec:
    """What the syntax tree says about the span. `swappable` None means any name may be rebound (module scope)."""

    label: str
    names: SpanNames
    swappable: frozenset[str] | None = None


class Conductor(Protocol):
    """Decides what an execution of the span does, and takes what came of it."""

    device: Device

    def entered(self, local: Namespace) -> None:
        """The span is about to be executed, one way or the other."""

    def mode(self) -> str:
        """ "eager", "capture" or "replay"."""

    def captured(self, recording: Recording) -> None:
        """A capture is complete and its first replay is submitted."""

    def capture_failed(self, error: BaseException) -> NoReturn:
        """Ends the attempt: the process is not to be trusted any further."""

    def refuse(self, hazard: str, message: str) -> NoReturn:
        """Ends the attempt before anything was captured."""

    def hazard(self, identity: str, message: str) -> None:
        """Something that makes a result suspect; the attempt goes on."""

    def region_mark(self) -> Any | None:
        """A device mark before an execution that is to be timed by itself, None for any other."""

    def region(self, replayed: bool, start: Any) -> None:
        """An execution that began at `start`, a mark, is over."""


@dataclass
class SpanRuntime:
    """Called by the wrapped statements. One per attempt."""

    spec: SpanSpec
    conductor: Conductor
    switches: Switches = field(default_factory=Switches)
    swaps: bool = False
    gives: bool = False
    ins: dict[str, Any] = field(default_factory=dict)
    outs: dict[str, Any] = field(default_factory=dict)
    unbound: tuple[str, ...] = ()
    recording: Recording | None = None
    replay_count: int = 0
    fallback_count: int = 0
    execution_count: int = 0
    signatures: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        names = self.spec.names
        self._watched = [name for name in names.live_in if name not in names.receivers]
        self._receivers = tuple(name for name in names.live_in if name in names.receivers)
        self._itemised = frozenset(names.items_only)
        self._previous: dict[tuple[str, ...], weakref.ref[torch.Tensor]] = {}
        self._fixed: dict[int, object] = {}
        self._moving: set[tuple[str, ...]] = set()
        self._opaque: dict[tuple[str, ...], Opaque] = {}
        self._loose: set[tuple[str, ...]] = set()
        self._seen_in: dict[tuple[str, ...], list[object]] = {}
        self._seen_out: dict[tuple[str, ...], list[object]] = {}
        self._capturing: _Capture | None = None
        self._start: Any = None

    # --- called from the wrapped code --------------------------------------------------------------------------------

    def enter(self, local: Namespace, glob: MutableMapping[str, Any]) -> bool:
        """Whether the statements must run. False when a replay has done their work."""
        self.swaps = self.gives = False
        self.conductor.entered(local)
        self.execution_count += 1
        mode = self.conductor.mode()
        if mode == "eager":
            self._start = self.conductor.region_mark()
        leaves = self.read(local, glob)
        if mode == "replay" and self.recording is not None:
            mismatch = self.recording.mismatch(leaves)
            if not mismatch:
                self._replay(self.recording, leaves, local, glob)
                return False
            self.fallback_count += 1
            self.signatures.add(mismatch)
        elif mode == "capture":
            self._begin(leaves, local, glob)
            return True
        self._observe(leaves)
        return True

    def leave(self, local: Namespace, glob: MutableMapping[str, Any]) -> None:
        """The statements ran to their end."""
        if self._capturing is not None:
            self._finish(self._capturing, local, glob)
            return
        if self._start is not None:
            self.conductor.region(False, self._start)
            self._start = None
        if self.recording is None:
            for path, value in self._numbers_out(local, glob).items():
                _remember(self._seen_out, path, value)
        else:
            self.recording.after_eager()

    def failed(self) -> None:
        """The statements raised; `sys.exc_info()` holds what."""
        if self._capturing is None:
            return
        error = sys.exc_info()[1]
        capture, self._capturing = self._capturing, None
        capture.abandon()
        self.conductor.capture_failed(error if error is not None else RuntimeError("unknown failure"))

    # --- live-ins ------------------------------------------------------------------------------------------------------

    def read(self, local: Namespace, glob: Namespace) -> Leaves:
        """The leaves of every live-in that is bound, by path."""
        leaves: Leaves = {}
        opaque: dict[int, object] = {}

        def look_into(value: object) -> bool:
            opaque[id(value)] = value
            return bool(self._fixed) and id(value) not in self._fixed

        # `x.add(1)` reads as a container being filled, and is arithmetic when x is a tensor.
        summed = [name for name in self._receivers if _is_tensor(local.get(name, glob.get(name)))]
        for name in (*self._watched, *summed):
            value = local.get(name, glob.get(name, MISSING))
            # Of a container whose items are named one by one, the paths below read what is needed.
            if value is not MISSING and not (name in self._itemised and isinstance(value, list | tuple | dict)):
                leaves.update(trees.flatten(name, value, look_into))
        for path in self.spec.names.path_reads:
            value = resolve(path, local, glob)
            if value is not MISSING:
                for key, leaf in trees.flatten(path.root, value, look_into).items():
                    leaves.setdefault((path.root, *path.steps, *key[1:]), leaf)
        if self.recording is None:
            self._fixed = opaque or {0: None}
        return leaves

    def _observe(self, leaves: Leaves) -> None:
        if self.recording is not None:
            return
        fresh: dict[tuple[str, ...], weakref.ref[torch.Tensor]] = {}
        for path, leaf in leaves.items():
            if isinstance(leaf, torch.Tensor):
                before = self._previous.get(path)
                if before is not None and before() is not leaf:
                    self._moving.add(path)
                fresh[path] = weakref.ref(leaf)
            elif isinstance(leaf, Opaque):
                if self._opaque.setdefault(path, leaf) != leaf:
                    self._loose.add(path)  # another object in every step: its identity says nothing
            else:
                _remember(self._seen_in, path, leaf)
        self._previous |= fresh  # a tensor that is None in between is watched on

    # --- capture -------------------------------------------------------------------------------------------------------

    def _begin(self, leaves: Leaves, local: Namespace, glob: MutableMapping[str, Any]) -> None:
        self._observe(leaves)
        staged = [Staged(path, leaf, path in self._moving) for path, leaf in leaves.items() if _is_tensor(leaf)]
        if not self.switches.stage_inputs:
            staged = [Staged(item.path, item.tensor, False) for item in staged]
        capture = _Capture(self, leaves, {item.path: item for item in staged}, local)
        try:
            self._substitute(capture, local, glob)
        except (TypeError, AttributeError) as error:
            self.conductor.refuse("hidden-input", f"an input that moves every step cannot be copied: {error}")
        if self.switches.register_generators:
            values = (local.get(name, glob.get(name)) for name in self._watched)
            capture.generators = tuple(value for value in values if isinstance(value, torch.Generator))
        if torch.is_autocast_enabled() and torch.is_autocast_cache_enabled():
            self.conductor.hazard("autocast-cache", "the span runs under an autocast region entered outside it")
            if self.switches.clear_autocast:
                torch.clear_autocast_cache()  # casts cached by earlier statements would be read, not recorded
        self._capturing = capture
        try:
            capture.start()
        except BaseException as error:
            self._capturing = None
            capture.abandon()
            self.conductor.capture_failed(error)

    def _refuse_unstable(self) -> None:
        for path, values in self._seen_in.items():
            if len(values) > 1 and path[-1] == "len":
                continue
            if len(values) >= _KEEP_VALUES:
                text = trees.describe(path)
                counts = path[0] in self.spec.names.live_out or path in self._seen_out
                kind = "cpu-side-effect" if counts else "frozen-scalar"
                self.conductor.refuse(kind, f"the span reads `{text}`, a Python value that changes every step")
        for path, values in self._seen_out.items():
            if len(values) > 1:
                text = trees.describe(path)
                self.conductor.refuse(
                    "cpu-side-effect", f"the span computes `{text}` in Python, and it changes every step"
                )

    def _substitute(self, capture: _Capture, local: Namespace, glob: MutableMapping[str, Any]) -> None:
        """Let the statements see the private copies of what moves."""
        swappable = self.spec.swappable
        by_root: dict[str, dict[tuple[str, ...], object]] = {}
        for item in capture.staged.values():
            if item.moving:
                by_root.setdefault(item.path[0], {})[item.path] = item.static
        self.ins = {}
        for root, new in by_root.items():
            value = local.get(root, glob.get(root, MISSING))
            owned = {path: leaf for path, leaf in new.items() if (root,) == path or _reaches(value, path)}
            self._substitute_paths(capture, {key: leaf for key, leaf in new.items() if key not in owned}, local, glob)
            if not owned:
                continue
            fresh = trees.replaced(value, (root,), owned)
            if swappable is None or root in swappable:
                self.ins[root] = fresh
                capture.swapped[root] = value
            elif root in glob and root not in local:
                glob[root] = fresh
                capture.swapped_globals[root] = value
            else:
                self.conductor.refuse("hidden-input", f"`{root}` comes from an enclosing function and moves every step")
        self.swaps = bool(self.ins)

    def _substitute_paths(
        self, capture: _Capture, new: Leaves, local: Namespace, glob: MutableMapping[str, Any]
    ) -> None:
        """Moving tensors held by attributes and items of the user's objects: rebind those for the capture."""
        for path in sorted(self.spec.names.path_reads, key=lambda path: -len(path.steps)):
            prefix = (path.root, *path.steps)
            held = {key: new.pop(key) for key in list(new) if key[: len(prefix)] == prefix}
            if held:
                value = resolve(path, local, glob)
                capture.set_path(path, trees.replaced(value, prefix, held), local, glob)
        for key in new:  # inside an object that is another one in every step
            capture.set_path(Path(key[0], key[1:]), new[key], local, glob)

    def _finish(self, capture: _Capture, local: Namespace, glob: MutableMapping[str, Any]) -> None:
        self._capturing = None
        try:
            recording = capture.finish(local, glob)
        except Exception as error:
            capture.abandon()
            self.conductor.capture_failed(error)
        self._refuse_unstable()  # not before: a blocker on the way says more
        self.recording = recording
        self.outs = {name: value for name, value in capture.swapped.items() if local.get(name) is self.ins.get(name)}
        for name, value in capture.swapped_globals.items():
            glob[name] = value
        capture.restore_paths()
        self.ins = {}
        recording.run_first()
        # Attributes and items go into the user's own objects, not into the copies that the captured statements saw.
        try:
            self.outs.update(recording.outputs({**local, **self.outs}, glob))
        except (TypeError, AttributeError, IndexError) as error:
            self.conductor.refuse("hidden-input", f"what the span leaves behind cannot be copied: {error}")
        self.gives = True
        self.replay_count += 1
        self.conductor.captured(recording)

    # --- replay --------------------------------------------------------------------------------------------------------

    def _replay(self, recording: Recording, leaves: Leaves, local: Namespace, glob: MutableMapping[str, Any]) -> None:
        start = self.conductor.region_mark()
        recording.replay(leaves)
        self.outs = recording.outputs(local, glob)
        self.unbound = tuple(name for name in recording.unbound if name in local or name in glob)
        self.gives = True
        self.replay_count += 1
        if start is not None:
            self.conductor.region(True, start)

    def _numbers_out(self, local: Namespace, glob: Namespace) -> Leaves:
        """Python numbers among the live-outs, by path."""
        found: Leaves = {}
        for key, value in _live_outs(self.spec.names, local, glob).items():
            for path, leaf in trees.flatten(key.root, value, lambda _: False).items():
                if isinstance(leaf, bool | int | float | complex):
                    found[(key.root, *key.steps, *path[1:])] = leaf
        return found


@dataclass
class _Capture:
    """One capture under way."""

    runtime: SpanRuntime
    leaves: Leaves
    staged: dict[tuple[str, ...], Staged]
    before: Namespace
    swapped: dict[str, Any] = field(default_factory=dict)
    swapped_globals: dict[str, Any] = field(default_factory=dict)
    generators: tuple[torch.Generator, ...] = ()
    ambience: tuple[bool, ...] = field(default_factory=ambience)
    _paths: list[tuple[Any, str, Any, Any]] = field(default_factory=list)

    def start(self) -> None:
        device = self.runtime.conductor.device
        for item in self.staged.values():
            item.prepare()
        self.bound = _live_outs(self.runtime.spec.names, self.before, {})
        self.deletable = [name for name in self.runtime.spec.names.deleted if name in self.before]
        self.grads = Grads([item.static for item in self.staged.values() if item.static.requires_grad])
        self.attributes = tensor_attributes()
        self.watch = StepWatch()
        self.graph = device.new_graph(self.runtime.switches.error_mode, self.generators)
        self.reserved = device.reserved_bytes()
        self.gc_was_on = gc.isenabled()
        gc.disable()  # a finaliser that frees an event or a module in mid-capture would end it
        self.started_ns = time.perf_counter_ns()
        self.graph.begin()

    def abandon(self) -> None:
        """Leave capture mode as well as that is possible; the process is of no further use."""
        graph = getattr(self, "graph", None)
        if graph is not None:
            try:
                graph.end()
            except Exception:  # the recording is invalid already, that is why we are here
                pass
        if getattr(self, "gc_was_on", False):
            gc.enable()
        if hasattr(self, "watch"):
            self.watch.close()

    def finish(self, local: Namespace, glob: Namespace) -> Recording:
        """The recording. Raises what the device raises for an invalid capture."""
        self.graph.end()
        capture_ns = time.perf_counter_ns() - self.started_ns
        if self.gc_was_on:
            gc.enable()
        self.watch.close()
        started = time.perf_counter_ns()
        self.graph.instantiate()
        instantiate_ns = time.perf_counter_ns() - started
        if torch.is_autocast_enabled():
            torch.clear_autocast_cache()  # casts made inside live in the graph's memory
        device = self.runtime.conductor.device
        self.grads.captured()
        loose = frozenset(self.runtime._loose)
        inputs = Inputs(self.leaves, self.staged, loose, self.runtime.switches.stage_inputs)
        recording = Recording(device, self.graph, inputs, self.grads, self.watch, self.runtime.switches)
        recording.capture_ns, recording.instantiate_ns = capture_ns, instantiate_ns
        recording.pool_bytes = max(0, device.reserved_bytes() - self.reserved)
        recording.ambience = self.ambience
        recording.hazards = self.runtime.conductor.hazard
        recording.outputs_of = self._outputs(local, glob)
        recording.unbound = tuple(name for name in self.deletable if name not in local)
        now = tensor_attributes()
        recording.rebound = sorted(name for name in now if now[name] != self.attributes.get(name))
        return recording

    def _outputs(self, local: Namespace, glob: Namespace) -> list[Output]:
        """The live-outs the span has bound anew, as templates with their static tensors."""
        found = []
        lasting = {id(tensor) for tensor in parameters()}
        lasting |= {id(item.tensor) for item in self.staged.values() if not item.moving}
        for path, value in _live_outs(self.runtime.spec.names, local, glob).items():
            if path in self.bound and self.bound[path] is value:
                continue
            if not path.steps and value is self.runtime.ins.get(path.root, MISSING):
                continue
            leaves = trees.flatten(path.root, value, lambda _: True)
            tensors = {key: leaf for key, leaf in leaves.items() if _is_tensor(leaf) and id(leaf) not in lasting}
            found.append(Output(path, value, tensors, [Carried(leaf) for leaf in tensors.values()]))
        return found

    def set_path(self, path: Path, value: object, local: Namespace, glob: Namespace) -> None:
        """Rebind an attribute or item of a user's object for the duration of the capture."""
        owner = resolve(Path(path.root, path.steps[:-1]), local, glob)
        if owner is MISSING:
            return
        step = path.steps[-1]
        if step.startswith(".") and step[1:] not in getattr(owner, "__dict__", {}):
            owner = self._class_holding(owner, step) or owner
        self._paths.append((owner, step, get_step(owner, step), value))
        set_step(owner, step, value)

    @staticmethod
    def _class_holding(owner: Any, step: str) -> type | None:
        """The class, when the attribute is one of the class itself: setting it on the object would hide the class's."""
        kind = class_of(owner, step[1:])
        return None if kind is None or get_step(kind, step) is not get_step(owner, step) else kind

    def restore_paths(self) -> None:
        """Put the user's own values back where the span has left the substitutes."""
        for owner, step, before, substitute in self._paths:
            if get_step(owner, step) is substitute:
                set_step(owner, step, before)


def _live_outs(names: SpanNames, local: Namespace, glob: Namespace) -> dict[Path, Any]:
    found: dict[Path, Any] = {}
    for name in names.live_out:
        value = local.get(name, glob.get(name, MISSING))
        if value is not MISSING:
            found[Path(name, ())] = value
    for path in names.path_writes:
        owner = resolve(Path(path.root, path.steps[:-1]), local, glob)
        if owner is MISSING or isinstance(owner, torch.Tensor):
            continue  # writing into a tensor is a kernel: the graph does it
        value = get_step(owner, path.steps[-1])
        if value is not MISSING:
            found[path] = value
    for path in names.item_writes:
        found.update(_items(path, resolve(path, local, glob)))
    return found


def _items(path: Path, container: object) -> dict[Path, Any]:
    """The items of a list or a dictionary by path, any of which the span may have written."""
    if not isinstance(container, list | dict) or not trees.is_short(container):
        return {}
    every = container.items() if isinstance(container, dict) else enumerate(container)
    return {
        Path(path.root, (*path.steps, f"[{key!r}]")): value for key, value in every if type(key) in (int, str, bool)
    }


def _reaches(value: object, path: tuple[str, ...]) -> bool:
    """Whether the tree walk of the root value itself contains `path` (else it is an attribute of a fixed object)."""
    return path in trees.flatten(path[0], value, lambda _: False)


def _is_tensor(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor)


def _remember(store: dict[tuple[str, ...], list[object]], path: tuple[str, ...], value: object) -> None:
    values = store.setdefault(path, [])
    if len(values) < _KEEP_VALUES and value not in values:
        values.append(value)
