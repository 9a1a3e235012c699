"""Starts the child processes that run the user's script, watches them, and ends them with all they started.

A child runs in a process group of its own, so that its loader workers end with it. Its result may be written long before
it has cleaned up; a child that has said its last word and then hangs is ended after a grace period.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from advisor.errors import EXIT_NEEDS_GPU, AdvisorError, GpuRequired, ScriptFailed, UsageError
from advisor.workload import environment
from advisor.workload.job import (
    PARTIAL,
    QUEUED,
    Job,
    Progress,
    Result,
    job_path,
    log_path,
    progress_path,
    read_progress,
    read_result,
    result_path,
    write_job,
)

GRACE_S: Final = 10.0
_POLL_S: Final = 0.05
_FIXED_CUPTI: Final = (12, 6)  # the CUDA release from which CUPTI may be re-initialised beside graphs
_SHOWN_LINES: Final = 40
Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class Ended:
    """How a child ended: its last word, None when it left none, and its exit code (negative: the signal)."""

    result: Result | None
    exit_code: int
    timed_out: bool


def run_job(job: Job, watch: Watch | None = None, prefix: Sequence[str] = ()) -> Result:
    """Run one child to its end and return its result.

    Raises ScriptFailed when the script failed, died or took longer than `job.timeout_s`; GpuRequired, UsageError or
    AdvisorError when the child refused the job. On KeyboardInterrupt the child is ended first.
    """
    ended = supervise(job, watch, prefix)
    if ended.result is None:
        raise ScriptFailed(_no_result(job, ended))
    return checked(job, ended.result)


def checked(job: Job, result: Result) -> Result:
    """The result, when it stands for a script that did not fail. Raises as `run_job` does."""
    log = log_path(job.folder, job.mode)
    if result.ending == "refused":
        kind = {EXIT_NEEDS_GPU: GpuRequired, 2: UsageError}.get(result.exit_code, AdvisorError)
        raise kind(result.error)
    if result.ending == "failed":
        where = f" at {result.location}" if result.location else ""
        raise ScriptFailed(f"the script failed in the {job.mode} pass: {result.error}{where}; its output is in {log}")
    if result.exit_code != 0:
        raise ScriptFailed(
            f"the script exited with code {result.exit_code} in the {job.mode} pass; its output is in {log}"
        )
    return result


def _no_result(job: Job, ended: Ended) -> str:
    log = log_path(job.folder, job.mode)
    if ended.timed_out:
        return (
            f"the {job.mode} pass was not over after {job.timeout_s:g} s: raise --timeout, lower --steps, or name the step "
            f"with --step-at; the script's output is in {log}"
        )
    if ended.exit_code < 0:
        killer = _signal_name(-ended.exit_code)
        return f"the script's process was killed by {killer} in the {job.mode} pass; its output is in {log}"
    return (
        f"the script's process ended with code {ended.exit_code} in the {job.mode} pass without handing over what was "
        f"recorded (did it replace itself by another program?); its output is in {log}"
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # the real-time signals have none
        return f"signal {number}"


def log_tail(job: Job) -> str:
    """The last lines the script printed, for a person who is told that it failed."""
    try:
        text = log_path(job.folder, job.mode).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join(text.rstrip().split("\n")[-_SHOWN_LINES:])


def supervise(job: Job, watch: Watch | None = None, prefix: Sequence[str] = ()) -> Ended:
    """Start the child, wait for it, end what is left of it."""
    path = write_job(job).resolve()
    result_path(job.folder, job.mode).unlink(missing_ok=True)
    command = [*prefix, sys.executable, "-P", "-m", "advisor.workload.worker", str(path)]
    with log_path(job.folder, job.mode).open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=child_environment(),
            start_new_session=True,
        )
    try:
        timed_out = _wait(process, job, watch)
    finally:
        end_group(process)
        # They hold the script's arguments, which may hold a token.
        job_path(job.folder, job.mode).unlink(missing_ok=True)
        progress_path(job.folder, job.mode).unlink(missing_ok=True)
        for part in job.folder.glob(f"{PARTIAL}*"):
            part.unlink(missing_ok=True)
    return Ended(read_result(job.folder, job.mode), process.returncode, timed_out)


def _wait(process: subprocess.Popen[bytes], job: Job, watch: Watch | None) -> bool:
    """Wait for the child's end, its last word plus grace, or its time limit; whether it was the last."""
    limit = time.monotonic() + job.timeout_s
    said_at: float | None = None
    last: Progress | None = None
    before = time.monotonic()
    while process.poll() is None:
        now = time.monotonic()
        if (seen := read_progress(job.folder, job.mode)) is not None and seen != last:
            last = seen
            if watch is not None:
                watch(seen)
        if last is not None and last.phase == QUEUED:
            limit += now - before
        before = now
        if said_at is None and result_path(job.folder, job.mode).exists():
            said_at = now
        if said_at is not None and now - said_at > GRACE_S:
            return False
        if now > limit:
            return said_at is None
        time.sleep(_POLL_S)
    return False


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End what is left of the child's process group: the child itself, then workers it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()


def child_environment() -> dict[str, str]:
    """The user's environment, with the tool importable in it and the script told that it is watched."""
    variables = dict(os.environ)
    root = str(Path(__file__).resolve().parents[1])
    parts = [part for part in variables.get("PYTHONPATH", "").split(os.pathsep) if part]
    if root not in parts:
        variables[environment.EXTRA_PATH] = root
        parts.append(root)
    variables["PYTHONPATH"] = os.pathsep.join(parts)
    variables["CGADVISOR"] = "1"
    versions = environment.torch_versions()
    cuda = versions[1] if versions else None
    if cuda is not None and tuple(int(part) for part in cuda.split(".")[:2]) < _FIXED_CUPTI:
        # Attaching CUPTI again after a capture crashed before: https://github.com/pytorch/pytorch/pull/112507
        variables.setdefault("DISABLE_CUPTI_LAZY_REINIT", "1")
        variables.setdefault("TEARDOWN_CUPTI", "0")
    return variables


# --- Nsight Systems ----------------------------------------------------------------------------------------------------

_NSYS_PLACES: Final = (
    "opt/nvidia/nsight-systems/*/bin/nsys",
    "opt/nvidia/nsight-systems-cli/*/bin/nsys",
    "usr/local/cuda*/bin/nsys",
    "opt/nvidia/nsight-compute/*/host/target-linux-x64/nsys",
)


def find_nsys() -> str:
    """The path of `nsys`. Raises UsageError when there is none."""
    found = shutil.which("nsys")
    for pattern in _NSYS_PLACES:
        found = found or next((str(path) for path in sorted(Path("/").glob(pattern), reverse=True)), None)
    if found is None:
        raise UsageError(
            "--tracer nsys: no `nsys` on PATH or in /opt/nvidia; install Nsight Systems, or use --tracer torch"
        )
    return found


def nsys_prefix(nsys: str, report: Path) -> list[str]:
    """The command that records what follows it: CUDA calls, kernels inside graphs, NVTX; nothing else."""
    return [
        nsys,
        "profile",
        *("-t", "cuda,nvtx", "-s", "none", "--cpuctxsw=none", "--cuda-graph-trace=node"),
        *("--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--force-overwrite=true"),
        *("-o", str(report)),
    ]


def export_sqlite(nsys: str, report: Path, out: Path) -> None:
    """Turn an .nsys-rep into SQLite, complete or not at all. Raises AdvisorError with what `nsys` said."""
    temporary = out.with_name(f"{PARTIAL}.{os.getpid()}.{out.name}")
    command = [nsys, "export", "--type=sqlite", "--force-overwrite=true", "-o", str(temporary), str(report)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not temporary.exists():
            said = (done.stderr or done.stdout).strip().split("\n")[-1]
            raise AdvisorError(f"{report}: nsys could not export it: {said}")
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)
