"""Recording one callable under torch.profiler, here on the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def test_a_callable_is_recorded_once_a_step(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="records under torch.profiler, here on the CPU")
    from advisor.workload.callable import STEP_LABEL, record

    calls: list[int] = []
    out = record(lambda: calls.append(1), tmp_path / "trace.json", steps=4, warmup=2, device="cpu")
    names = [event.get("name") for event in json.loads(out.read_text())["traceEvents"]]
    assert names.count(STEP_LABEL) == 4
    assert len(calls) == 2 + 1 + 4
    with pytest.raises(ValueError, match="three steps"):
        record(lambda: None, out, steps=2, device="cpu")
