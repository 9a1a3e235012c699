"""What the parent asks of a child process and what the child answers; plain values, no torch.

`job-<mode>.json` goes in; `progress-<mode>.jsonl` grows while the child runs; `result-<mode>.json` is the last word,
written atomically. The script's own output goes to `log-<mode>.txt`. All of them lie in the run folder.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final, Literal

import msgspec

PARTIAL: Final = ".recording"  # files in the run folder that are not complete begin so; the parent removes what is left
QUEUED: Final = "queued"  # Progress.phase: another process measures; the time limit waits as well
DEVICE_OPTION: Final = "device"  # Job.options: "cuda" (default) or "cpu", the latter for developing without a GPU
Ending = Literal["finished", "stopped", "exited", "failed", "refused"]


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run of the user's script in one child process.

    `target` is a script's path, or a module's name when `is_module`. `argv` are the script's own arguments, without
    its name. `steps` are recorded after `warmup` dropped ones. `step` is the `--step-at` text, "" to find it.
    `options` holds what only one mode understands.
    """

    mode: str  # a key of advisor.workload.worker.MODES
    target: str
    out_dir: str
    is_module: bool = False
    argv: tuple[str, ...] = ()
    steps: int = 50
    warmup: int = 10
    seed: int | None = None
    step: str = ""
    instrument: tuple[str, ...] = ()  # further packages whose files are transformed
    regions: tuple[str, ...] = ()  # globs over mark labels; empty: all
    stacks: bool = False
    timeout_s: float = 600.0
    options: dict[str, str] = {}

    @property
    def folder(self) -> Path:
        return Path(self.out_dir)

    @property
    def device(self) -> str:
        return self.options.get(DEVICE_OPTION, "cuda")


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """One line of progress: where the child is. `phase`: "start" | "queued" | "warmup" | "record" | "finish"."""

    mode: str
    phase: str
    step: int = 0
    steps: int = 0
    at_s: float = 0.0  # seconds since the child began


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a child ended. `exit_code` is the one the script would have ended with; `error` one line, the user's own.

    ending: "finished" ran to its end · "stopped" by the tool after enough steps · "exited" by sys.exit or os._exit ·
    "failed" with an exception · "refused" before it began (no torch, no device, no such script).
    """

    mode: str
    ending: Ending
    exit_code: int = 0
    error: str = ""
    location: str = ""  # file:line of the innermost frame of the user's code, when it failed
    steps: int = 0
    wall_ns: int = 0
    facts: dict[str, str] = {}  # versions and device names; never environment variables, host or user names
    notes: tuple[str, ...] = ()


def job_path(folder: Path, mode: str) -> Path:
    return folder / f"job-{mode}.json"


def progress_path(folder: Path, mode: str) -> Path:
    return folder / f"progress-{mode}.jsonl"


def result_path(folder: Path, mode: str) -> Path:
    return folder / f"result-{mode}.json"


def log_path(folder: Path, mode: str) -> Path:
    return folder / f"log-{mode}.txt"


def write_job(job: Job) -> Path:
    """Write the job's file and return its path. Raises OSError."""
    path = job_path(job.folder, job.mode)
    path.write_bytes(msgspec.json.encode(job))
    return path


def read_job(path: Path) -> Job:
    """The job in a file. Raises OSError or msgspec.ValidationError."""
    return msgspec.json.decode(path.read_bytes(), type=Job)


def read_result(folder: Path, mode: str) -> Result | None:
    """The child's last word, None when it left none (killed, crashed)."""
    try:
        return msgspec.json.decode(result_path(folder, mode).read_bytes(), type=Result)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


class ProgressWriter:
    """Appends progress lines, at most ten a second but for a change of phase."""

    def __init__(self, job: Job) -> None:
        self._path = progress_path(job.folder, job.mode)
        self._mode = job.mode
        self._began = time.monotonic()
        self._last = 0.0
        self._phase = ""
        self._path.write_bytes(b"")

    def write(self, phase: str, step: int = 0, steps: int = 0) -> None:
        now = time.monotonic()
        if phase == self._phase and now - self._last < 0.1:
            return
        self._phase, self._last = phase, now
        line = Progress(mode=self._mode, phase=phase, step=step, steps=steps, at_s=round(now - self._began, 3))
        # One write call of one short line: a reader never sees half of one.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, msgspec.json.encode(line) + b"\n")
        finally:
            os.close(descriptor)


def read_progress(folder: Path, mode: str) -> Progress | None:
    """The last complete line of progress, None before the first."""
    try:
        lines = progress_path(folder, mode).read_bytes().split(b"\n")
    except FileNotFoundError:
        return None
    complete = [line for line in lines[:-1] if line]
    return msgspec.json.decode(complete[-1], type=Progress) if complete else None
