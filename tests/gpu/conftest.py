"""GPU tests: skipped without a CUDA device. `--record` writes last_run.json, the record of what was shown on a GPU.

    python -m pytest tests/gpu -n 7 --dist loadfile --record

Runs of some files, one after the other on the same sources and machine, add up to the whole.
"""

from __future__ import annotations

import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RECORD = HERE / "last_run.json"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="write tests/gpu/last_run.json when the run ends")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mine = [item for item in items if HERE in item.path.parents]
    if not mine or _has_cuda():
        return
    for item in mine:
        item.add_marker(pytest.mark.skip(reason="needs a CUDA device and a CUDA build of torch"))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    worker = hasattr(session.config, "workerinput")
    if worker or not session.config.getoption("--record", default=False):
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    reports = {kind: reporter.stats.get(kind, []) for kind in ("passed", "failed", "error", "skipped")}
    option = session.config.option
    ended = exitstatus != pytest.ExitCode.INTERRUPTED and not (session.shouldstop or session.shouldfail)
    run = {
        "ran_at": datetime.now(UTC).isoformat(timespec="seconds"),
        # Files of which every test ran. A part of one, or a run that was cut short, must not pass for it.
        "files": whole_files(session.config.args, option.keyword, option.markexpr) if ended else [],
        "counts": {kind: len(found) for kind, found in reports.items()},
        "failures": [report.nodeid for kind in ("failed", "error") for report in reports[kind]],
    }
    about = {"sources_sha256": sources_hash(), **_environment()}
    earlier = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}
    RECORD.write_text(json.dumps(merged(earlier, about, run), indent=1) + "\n", encoding="utf-8")


def merged(earlier: dict[str, Any], about: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    """The record after `run`: runs of other files on the very same sources, versions and device still count."""
    same = all(earlier.get(key) == value for key, value in about.items())
    kept = [one for one in earlier.get("runs", []) if same and not set(one["files"]) & set(run["files"])]
    runs = [*kept, run]
    ran = {name for one in runs for name in one["files"]}
    missing = sorted({path.name for path in HERE.glob("test_*.py")} - ran)
    counts = {kind: sum(one["counts"].get(kind, 0) for one in runs) for kind in run["counts"]}
    failures = [name for one in runs for name in one["failures"]]
    return {"complete": not missing, "missing": missing, **about, "counts": counts, "failures": failures, "runs": runs}


def whole_files(args: list[str], keyword: str, markexpr: str) -> list[str]:
    """The test files of this folder that these pytest arguments select whole."""
    if keyword or markexpr not in ("", "gpu"):
        return []
    chosen = {Path(arg).resolve() for arg in args if "::" not in arg}
    return sorted(path.name for path in HERE.glob("test_*.py") if {path, *path.parents} & chosen)


def sources_hash() -> str:
    """SHA-256 over the paths and bytes of every Python file of advisor/workload and tests/gpu."""
    digest = hashlib.sha256()
    files = [path for folder in (ROOT / "advisor" / "workload", HERE) for path in folder.rglob("*.py")]
    for path in sorted(files):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _has_cuda() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def _environment() -> dict[str, object]:
    import platform

    import torch

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "cpu_count": os.cpu_count(),
    }
