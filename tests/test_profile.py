"""`cgadvisor profile` from outside. The hidden CPU device runs the whole protocol without a GPU, so the passes, the run folder
and the errors are tested here; what needs CUDA is in tests/gpu."""

from __future__ import annotations

import getpass
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
ROOT = Path(__file__).parents[1]
SCRIPT = """
import sys
import torch

torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(60):
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    if step == int(sys.argv[1]):
        raise RuntimeError("planted")
print("done", sys.argv[1:])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("script")
    (made / "train.py").write_text(SCRIPT)
    return made


def profile(folder, *argv, device="cpu"):
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "CGADVISOR_TEST_SECRET": "hunter2"}
    words = [sys.executable, "-c", "from advisor.cli import main; main()", "profile", "--device", device, *argv]
    return subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, timeout=240)


def test_a_run_folder_with_what_ran_and_nothing_of_who_ran_it(folder):
    done = profile(folder, "--steps", "8", "--warmup", "3", "--no-verify", "--out", "run", "train.py", "-1")
    assert done.returncode == 0, done.stderr + done.stdout
    there = {path.name for path in (folder / "run").iterdir()}
    assert {"manifest.json", "clock.json", "findings.json", "report.html", "trace.json.gz"} <= there
    clock = json.loads((folder / "run" / "clock.json").read_text())
    assert clock["step_label"] == "train.py:8-14"
    assert len(clock["host_step"]["samples_ns"]) == 8
    assert "train.py:8-14" in done.stdout
    text = "".join((folder / "run" / name).read_text() for name in ("manifest.json", "clock.json", "findings.json"))
    for private in ("hunter2", socket.gethostname(), f"/home/{getpass.getuser()}"):
        assert private not in text


def test_a_script_that_fails_shows_its_own_traceback_and_ends_with_6(folder):
    done = profile(folder, "--steps", "5", "--warmup", "2", "--no-verify", "--out", "failed", "train.py", "3")
    assert done.returncode == 6, done.stderr
    assert "RuntimeError: planted" in done.stderr + done.stdout
    assert 'train.py", line 14' in done.stderr + done.stdout
    assert "advisor/workload" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("nosuch.py",), "nosuch.py"),
        (("--step-at", "nonsense", "train.py", "-1"), "--step-at"),
        (("--tracer", "perf", "train.py", "-1"), "--tracer"),
    ],
)
def test_usage_is_one_line(folder, argv, said):
    done = profile(folder, "--no-verify", "--out", "usage", *argv)
    assert done.returncode in (2, 3), done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_gpu_it_says_what_can_be_done_instead(folder):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    done = profile(folder, "--no-verify", "--out", "none", "train.py", "-1", device="cuda")
    assert done.returncode == 4
    assert "analyze" in done.stderr
    assert done.stderr.strip().count("\n") <= 1


HANGS_IN_ITS_SECOND_RUN = """
import os, time
import torch

with open("pids", "a") as file:
    file.write(f"{os.getpid()}\\n")
second = len(open("pids").readlines()) == 2
for step in range(60):
    torch.ones(4).sum()
    if second and step == 5:
        open("hangs", "w").close()
        time.sleep(600)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_an_interrupt_keeps_what_is_finished_and_leaves_no_child(tmp_path, name):
    """Ctrl-C, a cancelled CI job, a closed terminal: in the trace pass, after the clock pass is done."""
    (tmp_path / "train.py").write_text(HANGS_IN_ITS_SECOND_RUN)
    # Where tests run in the background an interrupt may be ignored: a shell's children have Python's own handler.
    text = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from advisor.cli import main; main()"
    words = ["profile", "--device", "cpu", "--steps", "8", "--warmup", "3", "--no-verify", "--out", "run", "train.py"]
    command = [sys.executable, "-c", text, *words]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            until = time.monotonic() + 120
            while not (tmp_path / "hangs").exists():
                assert time.monotonic() < until and process.poll() is None
                time.sleep(0.05)
            process.send_signal(getattr(signal, name))
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert said.endswith("cgadvisor: interrupted; finished and kept in run: clock\n")
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"manifest.json", "clock.json"} <= left and not any(one.startswith(("job-", ".recording")) for one in left)
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["notes"] == ["interrupted in the trace pass"]
    for pid in (tmp_path / "pids").read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
