"""GPU tests: skipped without a CUDA device; a whole run writes last_run.json, the record of what was shown on a GPU.

    python -m pytest tests/gpu -n 7 --dist loadfile --record
"""

from __future__ import annotations

import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path

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
    counts = {kind: len(reporter.stats.get(kind, [])) for kind in ("passed", "failed", "error", "skipped")}
    failures = [report.nodeid for kind in ("failed", "error") for report in reporter.stats.get(kind, [])]
    option = session.config.option
    record = {
        # A run of a part, or one that was cut short, must not pass for the whole folder's.
        "complete": exitstatus != pytest.ExitCode.INTERRUPTED
        and not (session.shouldstop or session.shouldfail)
        and is_whole(session.config.args, option.keyword, option.markexpr),
        "sources_sha256": sources_hash(),
        "ran_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **_environment(),
        "counts": counts,
        "failures": failures,
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def is_whole(args: list[str], keyword: str, markexpr: str) -> bool:
    """Whether these pytest arguments select every test of the folder."""
    folders = {Path(arg).resolve() for arg in args if "::" not in arg}
    return not keyword and markexpr in ("", "gpu") and bool(folders & {HERE, *HERE.parents})


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
