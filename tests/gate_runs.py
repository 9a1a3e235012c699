"""Runs with chosen figures, and edited copies of real traces, for the gate's tests."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from facts import facts, region

from advisor.gate.counts import RunArtefacts, snapshot_of
from advisor.gate.snapshot import Snapshot
from advisor.model import (
    Analysis,
    Answer,
    Attempt,
    Blocker,
    Clock,
    Equality,
    EqualityOutcome,
    Manifest,
    Measurement,
    Outcome,
    Region,
    RegionKind,
    SourceSpan,
    Step,
    Timing,
    TraceInfo,
    Verdict,
    Verification,
)

US, MS = 1_000, 1_000_000
TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"


def step_region(**other: Any) -> Region:
    values: dict[str, Any] = {"kernel_count": 98.0, "h2d_count": 2.0}
    return region(**(values | other))


def statement(first: int, last: int, **other: Any) -> Region:
    values: dict[str, Any] = {
        "id": f"stmt:{first}", "label": f"train.py:{first}-{last}", "kind": RegionKind.STATEMENT, "launch_count": 40.0,
        "item_count": 40.0, "kernel_count": 40.0, "step_share_ratio": 0.4,
        "location": SourceSpan(file="train.py", first_line=first, last_line=last),
    }  # fmt: skip
    return region(**(values | other))


def module(label: str = "encoder", **other: Any) -> Region:
    values: dict[str, Any] = {
        "id": f"module:{label}", "label": label, "kind": RegionKind.MODULE, "launch_count": 50.0, "item_count": 50.0,
        "kernel_count": 50.0, "step_share_ratio": 0.5,
    }  # fmt: skip
    return region(**(values | other))


def sync(line: int = 20, per_step: float = 1.0, **other: Any) -> Blocker:
    values: dict[str, Any] = {
        "id": "sync-item", "title": "a tensor value is read on the host", "evidence": "cudaStreamSynchronize in aten::item",
        "fix": "read it after the replay", "location": SourceSpan(file="train.py", first_line=line, last_line=line),
        "count_per_step": per_step, "region_id": "step",
    }  # fmt: skip
    return Blocker(**(values | other))


def analysis(*regions: Region, syncs: tuple[Blocker, ...] = (), **other: Any) -> Analysis:
    kept = regions or (step_region(),)
    made = facts(*kept)
    values: dict[str, Any] = {
        "tool_version": "0.1.0",
        "trace": TraceInfo(source="kineto", files=("t.json",), gpu_names=("NVIDIA H200",), torch_version="2.11.0"),
        "quality": (), "devices": (made.device,),
        "step": Step(id="step", label="train.py:10", how="hot loop", count=10, traced=Measurement(samples_ns=(2 * MS,) * 10)),
        "regions": kept, "estimates": (), "blockers": syncs, "hazards": (), "findings": (), "syncs": syncs,
        "verdict": Verdict(answer=Answer.PROBABLY, sentence="Probably."),
    }  # fmt: skip
    return Analysis(**(values | other))


def manifest(source: str = "", **other: Any) -> Manifest:
    values: dict[str, Any] = {
        "tool_version": "0.1.0", "command": ("train.py", "--lr", "3e-4"), "script": "train.py",
        "created_at": "2026-01-01T00:00:00Z", "python_version": "3.12.3", "torch_version": "2.11.0", "cuda_version": "13.0",
        "driver_version": "580.1", "gpu_names": ("NVIDIA H200",), "gpu_clock_mhz": 1980, "cpu_count": 16,
        "source_files": {"train.py": source} if source else {},
    }  # fmt: skip
    return Manifest(**(values | other))


def clock(*samples: int) -> Clock:
    return Clock(step_label="train.py:10", step_how="hot loop", host_step=Measurement(samples_ns=samples))


def noisy(seed: int, level: float = MS, count: int = 30, cv: float = 0.05) -> tuple[int, ...]:
    return tuple(int(value) for value in np.random.default_rng(seed).normal(level, cv * level, count))


def attempt(outcome: Outcome = Outcome.VERIFIED, **other: Any) -> Attempt:
    eager, graph = Measurement(samples_ns=(7 * MS,) * 5), Measurement(samples_ns=(MS,) * 5)
    verified = outcome == Outcome.VERIFIED
    values: dict[str, Any] = {
        "id": "a1", "region_label": "train.py:12-17", "outcome": outcome, "message": "",
        "location": SourceSpan(file="train.py", first_line=12, last_line=17),
        "equality": Equality(outcome=EqualityOutcome.BITWISE) if verified else None,
        "timing": Timing(eager=eager, graph=graph, speedup_ratio=7.1) if verified else None,
    }  # fmt: skip
    return Attempt(**(values | other))


def verification(*attempts: Attempt) -> Verification:
    return Verification(attempts=attempts)


def snapshot(made: Analysis | None = None, label: str = "run", **artefacts: Any) -> Snapshot:
    return snapshot_of(RunArtefacts(made or analysis(), **artefacts), label)


def trace_path(name: str) -> Path:
    """A recorded trace of the collection beside the repository; skips when it is not there."""
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"recorded traces are not beside the repository ({path.parent.name}/{path.name})")
    return path


def edited(name: str, folder: Path, edit: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Path:
    """A copy of a real Kineto trace whose events went through `edit`."""
    with gzip.open(trace_path(name), "rt", encoding="utf-8") as file:
        document = json.load(file)
    document["traceEvents"] = edit(document["traceEvents"])
    out = folder / "edited.json.gz"
    with gzip.open(out, "wt", encoding="utf-8") as file:
        json.dump(document, file)
    return out
