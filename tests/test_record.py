"""The recording's file: complete or absent, and packed."""

from __future__ import annotations

import gzip
import itertools
import json

import children
import pytest

from advisor.bundle import TRACE_NAME
from advisor.errors import ScriptFailed
from advisor.marks import decode
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


LOOPS = {
    "for": "for step in range(60):\n    x = x + 1\n    x.sum()\n",
    "while": "step = 0\nwhile step < 60:\n    x = x + 1\n    step += 1\n",
    "generator": "def ys():\n    for n in range(60):\n        yield x + n\nfor y in ys():\n    y.sum()\n",
    "epochs": "for epoch in range(12):\n    for step in range(5):\n        x = x + 1\n",
}
HOT = {"for": 3, "while": 4, "generator": 6, "epochs": 4}  # the line of the hot loop


@pytest.mark.parametrize("warmup", [1, 5, 10])
@pytest.mark.parametrize("name", LOOPS)
def test_every_recorded_step_is_one_iteration(tmp_path, name, warmup):
    pytest.importorskip("torch")
    children.write(tmp_path, "loop.py", "import torch\nx = torch.ones(4)\n" + LOOPS[name])
    line = HOT[name]
    options = {"steps": 6, "warmup": warmup, "step": f"loop.py:{line}"}
    for mode in ("clock", "trace"):
        assert children.worker(tmp_path, tmp_path / "out", mode, "loop.py", **options).result.ending == "stopped"
    events = json.loads(gzip.decompress((tmp_path / "out" / TRACE_NAME).read_bytes()))["traceEvents"]
    iterations, statements = _spans(events, "iter", f"loop.py:{line}"), _spans(events, "stmt", f"loop.py:{line + 1}")
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(iterations))
    worked = [one for one in iterations if any(one[0] <= begin < one[1] for begin, _ in statements)]
    assert len(worked) == len(statements) == 6
    # What is left is the wait that found the loop exhausted.
    assert len(iterations) == 6 or name == "epochs"


def _spans(events, kind, label):
    """(begin, end) of the ranges of one kind at a place, in order."""
    ranges = [(decode(event.get("name", "")), event) for event in events if event.get("ph") == "X"]
    return sorted(
        (event["ts"], event["ts"] + event["dur"])
        for mark, event in ranges
        if mark is not None and mark.kind == kind and mark.label.startswith(label)
    )
