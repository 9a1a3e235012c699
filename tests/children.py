"""Runs programs plainly and under the tool's worker, for comparing what they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from advisor.runner import child_environment
from advisor.workload.job import Job, Result, read_result, write_job

PROGRAMS = Path(__file__).parent / "programs"
_PROFILER_NOISE = re.compile(r"^USDT:.*\n|^\[?[WI]\d{3,4}.*\n", re.MULTILINE)  # written by torch's profiler itself


@dataclass(frozen=True)
class Ran:
    stdout: str
    stderr: str
    code: int
    result: Result | None = None


def plain(cwd: Path, *words: str) -> Ran:
    """`python words...` in `cwd`."""
    done = subprocess.run([sys.executable, *words], cwd=cwd, capture_output=True, text=True, timeout=120)
    return Ran(done.stdout, done.stderr, done.returncode)


def worker(cwd: Path, out: Path, mode: str, target: str, *argv: str, **job: Any) -> Ran:
    """The same program under the worker, its streams kept apart."""
    out.mkdir(exist_ok=True)
    options = {"device": "cpu", **job.pop("options", {})}
    whole = Job(mode=mode, target=target, argv=argv, out_dir=str(out), options=options, **job)
    path = write_job(whole)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "advisor.workload.worker", str(path)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        env=child_environment(),
    )
    stderr = _PROFILER_NOISE.sub("", done.stderr)
    return Ran(done.stdout, stderr, done.returncode, read_result(out, mode))


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def load(path: Path, kind: Any) -> Any:
    return msgspec.json.decode(path.read_bytes(), type=kind)


def environment_without(*names: str) -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key not in names}
