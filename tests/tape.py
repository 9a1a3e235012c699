"""A CPU stand-in for a device with graphs: records operators at capture, repeats them on the same memory at replay.

It has the semantics that matter: Python numbers are frozen, inputs and outputs are fixed memory, a host read during the
capture is refused with CUDA's own words, random operators draw afresh at every replay.
"""

from __future__ import annotations

import gc
import time
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

CAPTURING = "CUDA error: operation not permitted when stream is capturing"
SYNCING = ("_local_scalar_dense", "nonzero", "_unique2", "masked_select", "equal", "is_nonzero")


def _aliases(func: Any) -> tuple[bool, bool]:
    """(the operator writes an argument, its results are views of an argument)."""
    schema = func._schema
    writes = any(arg.alias_info is not None and arg.alias_info.is_write for arg in schema.arguments)
    views = any(ret.alias_info is not None and not ret.alias_info.is_write for ret in schema.returns)
    return writes, views


class _Recorder(TorchDispatchMode):
    """Notes every operator, and what in-place writes overwrite."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []
        self.saved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.split("::")[-1]
        if name in SYNCING or (name == "index" and _by_mask(args[1])):
            raise RuntimeError(CAPTURING)
        writes, views = _aliases(func)
        if writes:
            self._save(func, args, kwargs)
        elif name == "native_batch_norm":  # writes its running statistics without saying so
            self._keep([value for value in args[3:5] if value is not None])
        result = func(*args, **kwargs)
        if writes or not views:
            self.calls.append((func, args, kwargs, result))
        return result

    def _save(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for position, declared in enumerate(func._schema.arguments):
            if declared.alias_info is None or not declared.alias_info.is_write:
                continue
            value = args[position] if position < len(args) else kwargs.get(declared.name)
            self._keep(tree_flatten(value)[0])

    def _keep(self, leaves: list[Any]) -> None:
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor) and leaf.data_ptr() not in self.saved:
                self.saved[leaf.data_ptr()] = (leaf.detach(), leaf.detach().clone())


def _by_mask(indices: Any) -> bool:
    return any(index is not None and index.dtype is torch.bool for index in indices)


class TapeGraph:
    def __init__(self) -> None:
        self._recorder = _Recorder()

    def begin(self) -> None:
        self._random = torch.get_rng_state()
        self._recorder.__enter__()

    def end(self) -> None:
        """A CUDA capture executes nothing: take the writes back, and leave rubbish in what was allocated."""
        self._recorder.__exit__(None, None, None)
        for func, _, _, result in self._recorder.calls:
            if not _aliases(func)[0]:
                for leaf in tree_flatten(result)[0]:
                    if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                        leaf.detach().fill_(float("nan"))
        for live, before in self._recorder.saved.values():
            live.copy_(before)
        torch.set_rng_state(self._random)

    def instantiate(self) -> None:
        pass

    def replay(self) -> None:
        with torch.no_grad():
            for func, args, kwargs, result in self._recorder.calls:
                fresh = func(*args, **kwargs)
                if _aliases(func)[0]:
                    continue
                for old, new in zip(tree_flatten(result)[0], tree_flatten(fresh)[0], strict=True):
                    if isinstance(old, torch.Tensor):
                        old.detach().copy_(new)

    def node_count(self) -> int:
        return len(self._recorder.calls)

    def reset(self) -> None:
        self._recorder.calls.clear()


class TapeDevice:
    kind = "tape"

    def start(self) -> None:
        pass

    def new_graph(self, error_mode: str, generators: tuple[torch.Generator, ...] = ()) -> TapeGraph:
        gc.collect()
        return TapeGraph()

    def synchronize(self) -> None:
        pass

    def mark(self) -> int:
        return time.perf_counter_ns()

    def elapsed_ns(self, earlier: int, later: int) -> int:
        return later - earlier

    def wait(self, point: Any) -> None:
        pass

    def reserved_bytes(self) -> int:
        return 0

    def rng_states(self) -> tuple[str, ...]:
        return ()
