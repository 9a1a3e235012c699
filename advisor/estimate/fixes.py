"""What a fix changes in the work itself, beyond letting it be captured."""

from __future__ import annotations

from typing import Final

from advisor.model import Clock, OptimizerFacts

# `capturable=True` keeps step counts on the GPU. In torch/optim/adam.py, with foreach, two divisions by lists of single
# numbers then take the slow path, one kernel for each parameter, and eight calls over the step counts are new; without
# foreach the bias corrections are about a dozen kernels for each parameter. Fused kernels read the count where it lies.
_PER_PARAMETER: Final = {"foreach": 2, "single": 12, "fused": 0}
_PER_CALL: Final = {"foreach": 8, "single": 0, "fused": 0}
_ADAMS: Final = frozenset(("Adam", "AdamW", "NAdam", "RAdam", "Adamax"))
_COUNTED: Final = {"foreach": 1, "single": 1, "fused": 0}  # other optimizers only count on the GPU; "single" for each parameter


def extra_kernels(clock: Clock | None) -> int:
    """Kernels a step has more with `capturable=True` for all optimizers that are not; 0 when none was seen."""
    return sum(_of(one) for one in clock.optimizers) if clock is not None else 0


def _of(one: OptimizerFacts) -> int:
    if one.capturable:
        return 0
    if one.kind in _ADAMS:
        return _PER_PARAMETER[one.implementation] * one.parameter_count + _PER_CALL[one.implementation]
    return _COUNTED[one.implementation] * (one.parameter_count if one.implementation == "single" else 1)
