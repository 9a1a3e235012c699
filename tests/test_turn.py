"""Measuring in turns, between processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from advisor.workload import worker
from advisor.workload.job import Job, Result, read_result
from advisor.workload.turn import Turn, lock_path

ROOT = Path(__file__).parents[1]
HOLDER = """
import os, sys
from pathlib import Path
from advisor.workload.turn import Turn
turn = Turn(Path(sys.argv[1]))
turn.take()
until_death, held_open = os.pipe()
if os.fork() == 0:  # a loader's worker: it inherits the lock and outlives the measurement
    os.close(held_open)
    os.read(until_death, 1)  # not stdin: the two would take each other's lines
    os._exit(0)
print("held", flush=True)
sys.stdin.readline()
turn.give()
print("given", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", HOLDER, str(tmp_path / "lock")]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, env=environ, stdin=pipe, stdout=pipe, text=True, bufsize=1) as child:
        assert child.stdout is not None and child.stdout.readline() == "held\n"
        yield child
        child.kill()


def test_the_second_waits_until_the_first_gives(holder, tmp_path):
    turn, asked = Turn(tmp_path / "lock"), []

    def waiting():
        asked.append(time.monotonic())
        if len(asked) == 3:
            holder.stdin.write("\n")

    assert turn.take(waiting) > 0.0
    assert turn.held and len(asked) >= 3


def test_a_dead_holder_holds_nothing(tmp_path):
    words = [
        sys.executable,
        "-c",
        "import sys; from pathlib import Path; from advisor.workload.turn import Turn; Turn(Path(sys.argv[1])).take()",
    ]
    subprocess.run([*words, str(tmp_path / "lock")], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    turn = Turn(tmp_path / "lock")
    turn.take(limit_s=0.0)
    assert turn.held


def test_after_the_limit_it_goes_on_without(holder, tmp_path):
    turn = Turn(tmp_path / "lock")
    assert turn.take(limit_s=0.05) >= 0.05
    assert not turn.held and turn.is_crowded
    turn.give()  # does nothing
    holder.stdin.write("\n")
    turn.take()
    assert turn.held and not turn.is_crowded


def test_a_turn_is_taken_once_and_can_be_taken_again(tmp_path):
    turn = Turn(tmp_path / "lock")
    turn.take()
    assert turn.take() == 0.0
    turn.give()
    turn.take(limit_s=0.0)
    assert turn.held


def test_nobody_to_take_turns_with_where_no_file_can_be_made(tmp_path):
    turn = Turn(tmp_path / "missing" / "lock")
    assert turn.take() == 0.0 and not turn.held


def test_other_gpus_have_other_turns(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    first = lock_path()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert lock_path() != first


def test_what_a_pass_notes_is_in_its_result_once(tmp_path, monkeypatch):
    monkeypatch.setattr(worker, "_notes", [])
    for _ in range(2):
        worker.add_note("crowded")
    job = Job(mode="plain", target="x.py", out_dir=str(tmp_path))
    worker.Worker(job)._write(Result(mode="plain", ending="refused"))
    assert read_result(tmp_path, "plain").notes == ("crowded",)
