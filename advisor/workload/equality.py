"""Fingerprints of the script's state at step boundaries: exact, cheap, kept on the device until the run is over.

Per tensor: a hash of the bit pattern (sum of bits times pseudo-random position weights, modulo 2^64; -0.0 counts as
0.0), its 2-norm, and a strided sample of `SAMPLE` values from which the size of a difference is read. Python numbers,
lengths and the states of all random generators are recorded beside them.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import torch

from advisor.workload import namespaces, state, trees
from advisor.workload.trees import Opaque

SAMPLE: Final = 64
_TEXT: Final = 200  # characters kept of a Python value
_CHUNK: Final = 1 << 24  # elements hashed at a time: bounds the int64 temporaries to 256 MiB
_CPU_LIMIT: Final = 1 << 20  # larger host tensors and
_DEVICE_LIMIT: Final = 1 << 28  # larger device tensors are hashed through a strided subset of this size
_INTS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_TORCH_STATE: Final = (torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)  # torch's, with a state of its own
_weights: dict[tuple[int, str], torch.Tensor] = {}


@dataclass
class Checkpoint:
    """The state after one step. Tensors stay on the device; `values` are the Python side, as text."""

    step: int
    names: list[str]
    hashes: list[torch.Tensor]
    norms: list[torch.Tensor]
    samples: list[torch.Tensor]
    values: dict[str, str]


@dataclass
class Fingerprints:
    """Takes checkpoints during a run and writes them at its end."""

    rng_states: Callable[[], tuple[str, ...]]
    user_modules: frozenset[str] = frozenset({"__main__"})
    checkpoints: list[Checkpoint] = field(default_factory=list)
    rebound: set[str] = field(default_factory=set)  # where another tensor object lay at two successive checkpoints
    _seen: dict[str, int] = field(default_factory=dict)

    def take(self, step: int, local: Mapping[str, Any]) -> None:
        """Fingerprint modules, optimizers, the loop's local names and the script's other Python state.

        Submits work, never waits for it.
        """
        checkpoint = Checkpoint(step, [], [], [], [], {})
        mode = torch.is_inference_mode_enabled()
        with torch.no_grad() if not mode else torch.inference_mode():
            for name, tensor in self._tensors(local, checkpoint.values):
                _add(checkpoint, name, tensor)
            known = set(checkpoint.names)
            roots = namespaces.roots(self.user_modules, local)
            for name, found in namespaces.deep_state(roots, self.user_modules):
                if isinstance(found, str):
                    checkpoint.values.setdefault(name, _shortened(found))
                elif name not in known:
                    _add(checkpoint, name, found)
        self._generators(checkpoint.values)
        self.checkpoints.append(checkpoint)

    def _tensors(self, local: Mapping[str, Any], values: dict[str, str]) -> Iterator[tuple[str, torch.Tensor]]:
        yield from module_tensors()
        yield from optimizer_tensors(values)
        known = {id(module) for module in state.REGISTRY.live_modules()}
        for name, value in list(local.items()):
            if name.startswith(("_cga", "__")) or id(value) in known:
                continue
            for path, leaf in trees.flatten(name, value, self._look_into).items():
                yield from self._leaf(trees.describe(path), leaf, values)
        for text, leaf in namespaces.leaves(self.user_modules, local, self._look_into):
            yield from self._leaf(text, leaf, values)

    def _leaf(self, text: str, leaf: object, values: dict[str, str]) -> Iterator[tuple[str, torch.Tensor]]:
        """The leaf when it is a tensor; else its text goes to `values`."""
        if isinstance(leaf, torch.Tensor):
            if self._seen.setdefault(text, id(leaf)) != id(leaf):
                self._seen[text] = id(leaf)
                self.rebound.add(text)
            yield text, leaf
        elif isinstance(leaf, Opaque):
            if leaf.length >= 0:
                values[f"len({text})"] = str(leaf.length)
        else:
            values[text] = _text(leaf)

    def _look_into(self, value: object) -> bool:
        return type(value).__module__ in self.user_modules or isinstance(value, _TORCH_STATE)

    def _generators(self, values: dict[str, str]) -> None:
        values["rng:torch"] = hashlib.sha1(bytes(torch.get_rng_state().tolist())).hexdigest()
        values["rng:python"] = hashlib.sha1(repr(random.getstate()).encode()).hexdigest()
        values["rng:numpy"] = hashlib.sha1(repr(np.random.get_state()).encode()).hexdigest()
        for number, text in enumerate(self.rng_states()):
            values[f"rng:device{number}"] = text

    def write(self, path: Path) -> int:
        """Write all checkpoints to an .npz file; returns the number of distinct tensors. Waits for the device."""
        arrays: dict[str, Any] = {}
        table: dict[str, int] = {}
        for checkpoint in self.checkpoints:
            ids = [table.setdefault(name, len(table)) for name in checkpoint.names]
            key = f"s{checkpoint.step}"
            arrays[f"{key}_ids"] = np.array(ids, dtype=np.int32)
            arrays[f"{key}_hash"] = _stack(checkpoint.hashes, np.int64)
            arrays[f"{key}_norm"] = _stack(checkpoint.norms, np.float64)
            arrays[f"{key}_sample"] = _rows(checkpoint.samples)
            arrays[f"{key}_values"] = np.frombuffer(msgspec.json.encode(checkpoint.values), dtype=np.uint8)
        arrays["names"] = np.frombuffer(msgspec.json.encode(list(table)), dtype=np.uint8)
        arrays["steps"] = np.array([checkpoint.step for checkpoint in self.checkpoints], dtype=np.int64)
        np.savez(path, **arrays)
        return len(table)


def module_tensors() -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters, gradients, buffers and tensor attributes of every module the script has made."""
    for root, module in state.REGISTRY.roots():
        for path, parameter in module.named_parameters():
            yield f"{root}.{path}", parameter
            if parameter.grad is not None:
                yield f"{root}.{path}.grad", parameter.grad
        for path, buffer in module.named_buffers():
            yield f"{root}.{path}", buffer
    yield from state.iter_tensor_attributes()


def optimizer_tensors(values: dict[str, str]) -> Iterator[tuple[str, torch.Tensor]]:
    """State tensors of every optimizer; its Python numbers go to `values`."""
    seen: dict[str, int] = {}
    for optimizer in state.REGISTRY.live_optimizers():
        kind = type(optimizer).__name__
        number = seen[kind] = seen.get(kind, -1) + 1
        for index, group in enumerate(optimizer.param_groups):
            for key, value in group.items():
                if isinstance(value, torch.Tensor):
                    yield f"{kind}[{number}].group[{index}].{key}", value
                elif isinstance(value, int | float | tuple):
                    values[f"{kind}[{number}].group[{index}].{key}"] = repr(value)
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for index, parameter in enumerate(parameters):
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    yield f"{kind}[{number}].state[{index}].{key}", value
                elif isinstance(value, int | float):
                    values[f"{kind}[{number}].state[{index}].{key}"] = repr(value)


def _text(leaf: object) -> str:
    """A leaf as text that differs whenever the value does: a long one ends in the digest of all of it."""
    return _shortened(leaf.hex() if isinstance(leaf, float) else repr(leaf))


def _shortened(text: str) -> str:
    return (
        text
        if len(text) <= _TEXT
        else f"{text[:_TEXT]}… sha1 {hashlib.sha1(text.encode(errors='replace')).hexdigest()}"
    )


def _add(checkpoint: Checkpoint, name: str, tensor: torch.Tensor) -> None:
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
        return
    flat = _flat(tensor)
    checkpoint.names.append(name)
    checkpoint.hashes.append(bit_hash(flat) + _kind_tag(tensor))
    number = flat.double() if flat.device.type == "cpu" else flat.float()
    checkpoint.norms.append(torch.linalg.vector_norm(number) if flat.numel() else number.new_zeros(()))
    stride = max(1, flat.numel() // SAMPLE)
    checkpoint.samples.append(number[::stride][:SAMPLE].float())


def _kind_tag(tensor: torch.Tensor) -> int:
    """Part of the hash: the same bits in another shape or dtype are another result."""
    digest = hashlib.sha1(f"{tuple(tensor.shape)} {tensor.dtype}".encode()).digest()
    return int.from_bytes(digest[:7], "big")


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's values in one dimension: complex as pairs, bool as bytes, a very large one through a subset."""
    plain = tensor.detach()
    if plain.is_complex():
        plain = torch.view_as_real(plain.resolve_conj())
    flat = plain.reshape(-1)
    if flat.dtype is torch.bool:
        flat = flat.to(torch.uint8)
    limit = _CPU_LIMIT if flat.device.type == "cpu" else _DEVICE_LIMIT
    return flat[:: flat.numel() // limit] if flat.numel() > limit else flat


def bit_hash(flat: torch.Tensor) -> torch.Tensor:
    """A 64-bit hash (int64, 0-dim, same device) of a one-dimensional tensor's bit pattern."""
    total = torch.zeros((), dtype=torch.int64, device=flat.device)
    for begin in range(0, flat.numel(), _CHUNK):
        part = flat[begin : begin + _CHUNK]
        if part.is_floating_point() and part.element_size() > 1:  # float8 has no addition, and is never a step's sum
            part = part + torch.zeros((), dtype=part.dtype, device=part.device)  # -0.0 + 0.0 is 0.0
        bits = part.contiguous().view(_INTS[part.element_size()]).to(torch.int64)
        total = total * 0x100000001B3 + (bits * _position_weights(bits)).sum()
    return total + flat.numel()


def _position_weights(bits: torch.Tensor) -> torch.Tensor:
    """Odd pseudo-random weights of the positions (splitmix-like), cached per size."""
    key = (bits.numel(), str(bits.device))
    found = _weights.get(key)
    if found is None:
        position = torch.arange(1, bits.numel() + 1, dtype=torch.int64, device=bits.device) * -7046029254386353131
        mixed = (position ^ (position >> 31)) * -4658895280553007687
        found = (mixed ^ (mixed >> 29)) | 1
        if sum(tensor.numel() for tensor in _weights.values()) + found.numel() < 1 << 26:
            _weights[key] = found
    return found


def _stack(tensors: list[torch.Tensor], dtype: Any) -> np.ndarray[Any, Any]:
    """0-dim tensors of mixed devices as one host array, one copy per device."""
    result = np.zeros(len(tensors), dtype=dtype)
    by_device: dict[torch.device, list[int]] = {}
    for index, tensor in enumerate(tensors):
        by_device.setdefault(tensor.device, []).append(index)
    for indices in by_device.values():
        same = [tensors[index] for index in indices]
        wide = torch.float64 if same[0].is_floating_point() else torch.int64
        result[indices] = torch.stack([tensor.to(wide) for tensor in same]).cpu().numpy()
    return result


def _rows(samples: list[torch.Tensor]) -> np.ndarray[Any, Any]:
    """Samples as rows of SAMPLE float32 values, missing ones zero."""
    rows = np.zeros((len(samples), SAMPLE), dtype=np.float32)
    if not samples:
        return rows
    by_device: dict[torch.device, list[int]] = {}
    for index, tensor in enumerate(samples):
        by_device.setdefault(tensor.device, []).append(index)
    for indices in by_device.values():
        joined = torch.cat([samples[index] for index in indices]).cpu().numpy()
        offset = 0
        for index in indices:
            count = samples[index].numel()
            rows[index, :count] = joined[offset : offset + count]
            offset += count
    return rows
