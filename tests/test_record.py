"""The recording's file: complete or absent, and packed."""

from __future__ import annotations

import gzip
import json

import pytest

from advisor.bundle import TRACE_NAME
from advisor.errors import ScriptFailed
from advisor.runner import run_job
from advisor.workload.job import PARTIAL, Job
from advisor.workload.record import TorchSession, compress


def test_compressing_keeps_every_byte(tmp_path):
    text = b'{"traceEvents": [' + b'{"ph": "X", "name": "k", "dur": 1.5},\n' * 100_000 + b"{}]}"
    (tmp_path / "plain").write_bytes(text)
    compress(tmp_path / "plain", tmp_path / "packed")
    assert gzip.decompress((tmp_path / "packed").read_bytes()) == text
    assert (tmp_path / "packed").stat().st_size < len(text) / 50


def test_a_session_leaves_one_complete_file(tmp_path):
    torch = pytest.importorskip("torch")
    session = TorchSession(Job(mode="trace", target="x.py", out_dir=str(tmp_path), options={"device": "cpu"}), 3, 2)
    session.start()
    for step in range(6):
        with torch.profiler.record_function(f"step {step}"):
            torch.ones(4).add(1)
        session.step()
    session.stop()
    session.export()
    assert [path.name for path in tmp_path.iterdir()] == [TRACE_NAME]
    events = json.loads(gzip.decompress((tmp_path / TRACE_NAME).read_bytes()))["traceEvents"]
    assert any(event.get("name") == "aten::add" for event in events)


def test_what_a_killed_pass_leaves_half_written_is_removed(tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(
        f"import os, signal\nopen({str(tmp_path / (PARTIAL + '.json'))!r}, 'w').write('half')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    job = Job(mode="plain", target=str(script), out_dir=str(tmp_path), timeout_s=60.0, options={"device": "cpu"})
    with pytest.raises(ScriptFailed, match="SIGKILL"):
        run_job(job)
    assert not list(tmp_path.glob(f"{PARTIAL}*"))
