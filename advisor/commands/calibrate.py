"""`cgadvisor calibrate`: the machine's constants, measured in a child process and cached per GPU, driver and torch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from advisor.bundle import load_artefact, write_atomically
from advisor.errors import EXIT_INCONCLUSIVE, EXIT_NEEDS_GPU, EXIT_OK, BundleError, GpuRequired, Inconclusive
from advisor.model import Calibration
from advisor.units import format_bytes, format_ns, format_ratio
from advisor.workload.turn import Turn

TIMEOUT_S: Final = 120.0
_ROWS: Final = (
    ("launch, CPU", "launch_cpu_ns"),
    ("launch to start", "launch_to_start_ns"),
    ("gap between graph nodes", "node_gap_ns"),
    ("gap, kernels of one block", "node_gap_small_ns"),
    ("graph launch, CPU", "graph_launch_cpu_ns"),
    ("graph launch, CPU per node", "graph_launch_cpu_per_node_ns"),
    ("replay by the verifier, CPU", "replay_span_ns"),
    ("device copy", "copy_fixed_ns"),
    ("instantiate, per node", "instantiate_per_node_ns"),
    ("one instrumented range", "range_ns"),
    ("profiler, per recorded event", "profiler_per_op_ns"),
)
_NEWER: Final = ("node_gap_small_ns", "replay_span_ns")  # not in constants that an earlier version has cached


def run(out: Path | None, refresh: bool) -> int:
    """Print the constants, measured now or cached; `out` also gets them as JSON. Raises AdvisorError."""
    found, path = machine_calibration(refresh=refresh)
    if out is not None:
        write_atomically(out, path.read_bytes())
    print(render(found))
    print(f"cached in {path}")
    return EXIT_OK


def machine_calibration(
    *,
    refresh: bool = False,
    python: str = sys.executable,
    gpu_name: str = "",
    measuring: Callable[[], None] = lambda: None,
) -> tuple[Calibration, Path]:
    """This machine's constants and the file they are cached in. Measures when there are none yet, or on `refresh`.

    `python` is the interpreter whose torch the runs use; `measuring` is called before it measures. With `gpu_name`, as torch
    gives it, only constants of that GPU are taken from the cache. Raises GpuRequired without a GPU or torch, Inconclusive on
    a noisy machine, BundleError when the cache cannot be written.
    """
    folder = cache_folder()
    if not refresh:
        cached = _cached(folder, gpu_name)
        if cached is not None:
            return cached
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BundleError(f"{folder}: cannot make the cache folder: {error.strerror}") from error
    fresh = folder / f".fresh-{os.getpid()}.json"
    try:
        fresh.touch()  # now: a measurement that cannot be kept is not worth its seconds
    except OSError as error:
        raise BundleError(f"{folder}: cannot write to the cache folder: {error.strerror}") from error
    measuring()
    turn = Turn()
    turn.take()
    try:
        if turn.is_crowded:
            raise Inconclusive(
                "others would not give the GPU: calibrate once it is idle, or go on with the default constants"
            )
        _measure(python, fresh)
        found = load_artefact(fresh, Calibration)
        path = folder / file_name(found.gpu_name, found.driver_version, found.torch_version)
        fresh.replace(path)
    finally:
        turn.give()
        fresh.unlink(missing_ok=True)
    return found, path


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/cgadvisor, ~/.cache/cgadvisor without the variable."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "cgadvisor"


def file_name(gpu: str, driver: str, torch_version: str) -> str:
    """One file a combination; other characters than letters, digits, dots and plus become a dash."""
    parts = (re.sub(r"[^A-Za-z0-9.+]+", "-", part).strip("-") or "unknown" for part in (gpu, driver, torch_version))
    return f"calibration_{'_'.join(parts)}.json"


def _cached(folder: Path, gpu_name: str) -> tuple[Calibration, Path] | None:
    """The cached constants of this driver and torch, without importing torch. None when absent, broken, or several GPU models
    would fit: which one the run uses is only known to torch."""
    from advisor.workload import environment

    versions = environment.torch_versions()
    driver = environment.driver_version()
    if versions is None or not driver:
        return None
    if gpu_name:
        path = folder / file_name(gpu_name, driver, versions[0])
        fitting = [path] if path.exists() else []
    else:
        fitting = sorted(folder.glob(file_name("*", driver, versions[0]).replace("unknown", "*", 1)))
    if len(fitting) != 1:
        return None
    try:
        return load_artefact(fitting[0], Calibration), fitting[0]
    except BundleError:
        return None


def _measure(python: str, path: Path) -> None:
    command = [python, "-m", "advisor.workload.calibrate", str(path)]
    environment = {**os.environ, "PYTHONPATH": _with_package(os.environ.get("PYTHONPATH", ""))}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=environment)
    except subprocess.TimeoutExpired as error:
        raise Inconclusive(f"the calibration did not finish within {TIMEOUT_S:.0f} s: is the GPU in use?") from error
    except OSError as error:
        raise GpuRequired(f"{python}: cannot start: {error.strerror}") from error
    if done.returncode == EXIT_OK:
        return
    last = (done.stderr.strip().splitlines() or ["it left no message"])[-1]
    if done.returncode == EXIT_NEEDS_GPU:
        raise GpuRequired(last)
    if done.returncode == EXIT_INCONCLUSIVE:
        raise Inconclusive(last)
    raise Inconclusive(f"the calibration failed with exit code {done.returncode}: {last}")


def _with_package(path: str) -> str:
    """PYTHONPATH that finds this package in an interpreter it is not installed in."""
    here = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join(part for part in (here, path) if part)


def render(found: Calibration) -> str:
    """The constants as a small table."""
    lines = [f"{found.gpu_name}, driver {found.driver_version or 'unknown'}, torch {found.torch_version}"]
    measured = [
        (label, getattr(found, name)) for label, name in _ROWS if name not in _NEWER or getattr(found, name) > 0
    ]
    lines += [f"  {label:<30}{format_ns(ns):>10}" for label, ns in measured]
    if found.copy_per_byte_ns > 0:
        lines.append(f"  {'device copy, bandwidth':<30}{format_bytes(1e9 / found.copy_per_byte_ns):>10}/s")
    lines.append(f"  {'spread of the measurements':<30}{format_ratio(found.residual_ratio):>10}")
    return "\n".join(lines)
