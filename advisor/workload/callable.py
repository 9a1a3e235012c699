"""Record a callable under torch.profiler: one labelled range a call, for the pytest plugin.

In-process and without instrumentation: a test wants the launches of one function, not a run folder.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from advisor.workload.environment import require_torch

STEP_LABEL: Final = "cgadvisor_call"


def record(function: Callable[[], Any], out: Path, *, steps: int = 5, warmup: int = 3, device: str = "cuda") -> Path:
    """Call `function` `warmup` times, then `steps` times under the profiler; write a Kineto trace to `out`.

    What the function raises passes through. Raises GpuRequired when there is no torch or no such device, ValueError when
    fewer than three steps are asked for: fewer do not make a median.
    """
    if steps < 3 or warmup < 0:
        raise ValueError("record needs at least three steps and no negative warm-up")
    require_torch(device)
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    on_gpu = device == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    for _ in range(warmup):
        function()
    if on_gpu:
        torch.cuda.synchronize()
    with _quiet(), profile(activities=activities, record_shapes=True) as recording:
        function()  # the profiler's own first launch is slow, and some versions lose its record
        if on_gpu:
            torch.cuda.synchronize()
        for _ in range(steps):
            with record_function(STEP_LABEL):
                function()
        if on_gpu:
            torch.cuda.synchronize()
    recording.export_chrome_trace(str(out))
    return out


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's note on its own profiler's cycles: an error under `-W error`, and no business of the user's test."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Warning: Profiler clears events")
        yield
