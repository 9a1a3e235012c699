"""The worker's process: what it refuses, what it hands the script, and what it leaves in the run folder."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path

import children
import msgspec
import pytest

from advisor.bundle import TRACE_NAME
from advisor.errors import AdvisorError
from advisor.model import Clock
from advisor.runner import child_environment
from advisor.workload import job as jobs
from advisor.workload import worker
from advisor.workload.environment import EXTRA_PATH
from advisor.workload.job import (
    Job,
    Progress,
    ProgressWriter,
    Result,
    progress_path,
    read_job,
    read_progress,
    read_result,
    result_path,
    write_job,
)

ROOT = Path(__file__).parents[1]


def start(folder: Path, text: str, mode: str = "plain", *argv: str, **job: object) -> children.Ran:
    children.write(folder, "train.py", textwrap.dedent(text))
    return children.worker(folder, folder / "out", mode, "train.py", *argv, **job)


def progress_of(folder: Path, mode: str) -> list[Progress]:
    lines = progress_path(folder, mode).read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Progress) for line in lines]


# --- what is refused ----------------------------------------------------------------------------------------------------


def test_an_unknown_mode_is_one_line_and_exit_code_3(tmp_path: Path) -> None:
    got = start(tmp_path, "print('never')", "nosuch")
    assert got.stderr == "cgadvisor: unknown mode 'nosuch'; known: clock, plain, trace, verify\n"
    assert got.stdout == "" and got.code == 3
    assert got.result == Result(
        mode="nosuch",
        ending="refused",
        exit_code=3,
        error="unknown mode 'nosuch'; known: clock, plain, trace, verify",
        wall_ns=got.result.wall_ns,
    )


@pytest.mark.parametrize(
    ("version", "device", "said"),
    [
        ("__version__ = '2.3.1'\ncuda = '12.1'", "cpu", "torch 2.3.1 is too old: profile and verify need 2.4 or newer"),
        ("__version__ = '1.13.0'\ncuda = None", "cuda", "torch 1.13.0 is too old"),
        ("__version__ = '2.6.0+cpu'\ncuda = None", "cuda", "torch 2.6.0+cpu is built without CUDA"),
        ("__version__ = '2.6.0'\ncuda: Optional[str] = '12.6'", "cuda", "CUDA_VISIBLE_DEVICES hides every GPU"),
    ],
)
def test_a_torch_that_will_not_do_is_exit_code_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, device: str, said: str
) -> None:
    (tmp_path / "libs" / "torch").mkdir(parents=True)
    children.write(tmp_path, "libs/torch/__init__.py", "raise AssertionError('imported')")
    children.write(tmp_path, "libs/torch/version.py", version)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "libs"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    got = start(tmp_path, "print('never')", options={"device": device})
    assert got.stderr.startswith(f"cgadvisor: {said}") and got.stderr.count("\n") == 1
    assert "cgadvisor analyze" in got.stderr  # what can be done instead
    assert got.stdout == "" and got.code == 4
    assert got.result.ending == "refused" and got.result.exit_code == 4


@pytest.mark.parametrize("mode", ["plain", "clock"])
def test_a_refusal_names_no_versions_and_runs_nothing(tmp_path: Path, mode: str) -> None:
    (tmp_path / "out").mkdir()
    got = children.worker(tmp_path, tmp_path / "out", mode, "nosuch.py")
    assert got.code == 2 and got.result.ending == "refused" and got.result.facts == {}
    assert "nosuch.py" in got.result.error


def test_a_step_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    got = start(tmp_path, "print('never')", "clock", step="nonsense")
    assert got.code == 2 and got.stdout == ""
    assert got.stderr.startswith("cgadvisor: --step-at nonsense: ") and got.result.ending == "refused"


def test_a_broken_plan_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    plan = children.write(tmp_path / "out", "plan.json", '{"source": 3}')
    got = start(tmp_path, "print('never')", "trace")
    assert got.code == 3 and got.stdout == ""
    assert got.stderr.startswith(f"cgadvisor: {plan}: not a plan") and got.stderr.count("\n") == 1


def test_every_mode_is_a_module_that_runs_jobs() -> None:
    pytest.importorskip("torch")
    assert set(worker.MODES) == {"plain", "clock", "trace", "verify"}
    for mode in worker.MODES:
        assert callable(importlib.import_module(worker.mode_module(mode)).run)
    with pytest.raises(AdvisorError, match="unknown mode ''"):
        worker.mode_module("")


# --- what the script is handed ------------------------------------------------------------------------------------------


def test_the_script_knows_that_it_is_watched_and_of_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    text = "import json, os, sys\nprint(json.dumps([dict(os.environ), sys.path]))"
    done = subprocess.run(
        [sys.executable, "-c", text], env=dict(os.environ), capture_output=True, text=True, timeout=120
    )
    environ, (_, *path) = json.loads(done.stdout)
    its_environ, its_path = json.loads(start(tmp_path, text).stdout)
    for name in ("DISABLE_CUPTI_LAZY_REINIT", "TEARDOWN_CUPTI"):  # for torch builds of older CUDA releases
        if name not in environ:
            its_environ.pop(name, None)
    assert its_environ == {**environ, "CGADVISOR": "1"}
    assert its_path == [str(tmp_path), *(part for part in path if part != str(ROOT)), str(ROOT)]


def test_the_users_own_search_path_stays_and_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    children.write(tmp_path, "two/own.py", "WORD = 'own'")
    before = os.pathsep.join(str(tmp_path / name) for name in ("one", "two"))
    monkeypatch.setenv("PYTHONPATH", before)
    got = start(
        tmp_path, "import os, sys, own, advisor\nprint(os.environ['PYTHONPATH'])\nprint(*sys.path[:3], own.WORD)"
    )
    assert got.stdout == f"{before}\n{tmp_path} {tmp_path}/one {tmp_path}/two own\n"


def test_a_search_path_that_names_the_tool_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    got = start(tmp_path, f"import os, sys\nprint(os.environ['PYTHONPATH'], sys.path[1], '{EXTRA_PATH}' in os.environ)")
    assert got.stdout == f"{ROOT} {ROOT} False\n"


@pytest.mark.parametrize(
    ("variable", "left"),
    [("/tool", None), ("/own:/tool", "/own"), ("/a::/tool:/b", "/a:/b"), ("/toolbox:/tool", "/toolbox")],
)
def test_the_added_folder_is_taken_out(monkeypatch: pytest.MonkeyPatch, variable: str, left: str | None) -> None:
    monkeypatch.setenv("PYTHONPATH", variable)
    monkeypatch.setenv(EXTRA_PATH, "/tool")
    monkeypatch.setattr(sys, "path", ["/script", "/tool", "/lib"])
    worker.prepare_process()
    assert os.environ.get("PYTHONPATH") == left and EXTRA_PATH not in os.environ
    assert sys.path == ["/script", "/lib", "/tool"]


def test_nothing_is_taken_out_where_nothing_was_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/own")
    monkeypatch.delenv(EXTRA_PATH, raising=False)
    monkeypatch.setattr(sys, "path", ["/script", "/lib"])
    worker.prepare_process()
    assert os.environ["PYTHONPATH"] == "/own" and sys.path == ["/script", "/lib"]


@pytest.mark.parametrize("mode", ["plain", "clock", "trace"])
def test_the_script_decides_when_torch_is_imported(tmp_path: Path, mode: str) -> None:
    got = start(tmp_path, "import sys\nprint(sorted({'torch', 'numpy', 'pandas', 'nvtx'} & set(sys.modules)))", mode)
    assert got.stdout == "[]\n" and got.code == 0


def test_a_seed_is_set_before_the_script_begins(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    got = start(
        tmp_path, "import random, torch\nprint(random.random(), torch.initial_seed(), torch.rand(1).item())", seed=5
    )
    expected = random.Random(5).random(), 5, torch.rand(1, generator=torch.Generator().manual_seed(5)).item()
    assert got.stdout == f"{expected[0]} {expected[1]} {expected[2]}\n"


def test_the_scripts_own_seed_wins(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    got = start(tmp_path, "import random\nrandom.seed(1)\nprint(random.random())", seed=5)
    assert got.stdout == f"{random.Random(1).random()}\n"


@pytest.mark.parametrize("seed", [0, 7, 2**32 + 3, 2**63])
def test_one_seed_sets_every_generator(seed: int) -> None:
    torch = pytest.importorskip("torch")
    import numpy

    kept = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
    try:
        drawn = []
        for one in (seed, seed, seed + 1):
            worker.seed_everything(one)
            drawn.append((random.random(), float(numpy.random.random()), torch.rand(1).item()))
        assert drawn[0] == drawn[1]
        assert all(a != b for a, b in zip(drawn[0], drawn[2], strict=True))
    finally:
        random.setstate(kept[0])
        numpy.random.set_state(kept[1])
        torch.set_rng_state(kept[2])


# --- what is left in the run folder -------------------------------------------------------------------------------------


def test_a_plain_run_leaves_its_job_and_its_result(tmp_path: Path) -> None:
    got = start(tmp_path, "print('done')")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"job-plain.json", "result-plain.json"}
    assert (got.result.mode, got.result.ending, got.result.steps, got.result.notes) == ("plain", "finished", 0, ())
    assert got.result.wall_ns > 0
    assert set(got.result.facts) == {"python", "cpu_count"}
    assert got.result.facts["python"] == ".".join(map(str, sys.version_info[:3]))


def test_the_result_names_the_torch_that_the_script_used(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    facts = start(tmp_path, "import torch").result.facts
    assert facts["torch"] == torch.__version__ and facts["cuda"] == (torch.version.cuda or "")
    assert "gpus" not in facts  # the device was never used


def test_the_result_of_an_earlier_run_does_not_outlive_a_crash(tmp_path: Path) -> None:
    assert start(tmp_path, "pass").result is not None
    assert result_path(tmp_path / "out", "plain").exists()
    got = start(tmp_path, "import os\nos.abort()")
    assert got.code < 0 and got.result is None and not result_path(tmp_path / "out", "plain").exists()


@pytest.mark.parametrize("leave", ["pass", "raise SystemExit(3)", "1 / 0", "import os\nos._exit(5)"])
def test_steps_and_notes_of_a_mode_are_in_the_result_however_it_ends(tmp_path: Path, leave: str) -> None:
    text = "from advisor.workload import worker\nworker.set_steps(4)\nworker.set_steps(7)\n"
    text += "for note in ('crowded', 'late', 'crowded'):\n    worker.add_note(note)\n"
    found = start(tmp_path, text + leave).result
    assert found.steps == 7 and found.notes == ("crowded", "late")


def test_the_result_is_there_before_the_scripts_last_handlers_run(tmp_path: Path) -> None:
    text = """
        import atexit, os, sys
        path = os.path.join("out", "result-plain.json")
        atexit.register(lambda: print(os.path.exists(path)))
        print(os.path.exists(path))
        sys.exit("said last")
    """
    got = start(tmp_path, text)
    assert got.stdout == "False\nTrue\n" and got.stderr == "said last\n"


def test_a_pass_on_the_cpu_leaves_progress_and_its_artefacts(tmp_path: Path) -> None:
    text = """
        import torch
        x = torch.ones(4)
        for i in range(40):
            x = x * 1.01 + i
    """
    got = start(tmp_path, text, "clock", steps=6, warmup=3, step="train.py:4")
    assert got.code == 0 and got.result.ending == "stopped" and got.result.steps == 6
    assert len(children.load(tmp_path / "out" / "clock.json", Clock).host_step.samples_ns) == 6
    seen = progress_of(tmp_path / "out", "clock")
    assert all(one.mode == "clock" for one in seen)
    assert [one.at_s for one in seen] == sorted(one.at_s for one in seen)
    phases = list(dict.fromkeys(one.phase for one in seen if one.phase != "queued"))
    assert phases == ["start", "warmup", "record", "finish"]

    # The trace pass takes the steps over from the clock pass, in the same folder.
    got = start(tmp_path, text, "trace", steps=6, warmup=3, step="train.py:4")
    assert got.code == 0 and got.result.ending == "stopped" and got.result.steps == 6, got.stderr
    events = json.loads(gzip.decompress((tmp_path / "out" / TRACE_NAME).read_bytes()))["traceEvents"]
    names = [event["name"] for event in events if str(event.get("name")).startswith("train.py:5 [cga:stmt:")]
    assert len(names) == 6 and len(set(names)) == 1
    assert progress_of(tmp_path / "out", "trace")[-1].phase == "finish"


def test_a_pass_that_fails_leaves_what_it_has_measured(tmp_path: Path) -> None:
    text = "total = 0\nfor i in range(9):\n    total += abs(1)\n    1 / (i - 8)\n"
    got = start(tmp_path, text.replace("(i - 8)", "(8 - i)"), "clock", steps=50, warmup=1, step="train.py:2")
    assert got.code == 1 and got.result.ending == "failed" and got.result.location == "train.py:4"
    assert len(children.load(tmp_path / "out" / "clock.json", Clock).host_step.samples_ns) >= 3
    assert progress_of(tmp_path / "out", "clock")[-1].phase == "finish"


def test_a_worker_run_by_hand_takes_the_job_as_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    children.write(tmp_path, "train.py", "import sys\nprint('by hand', sys.argv)")
    (tmp_path / "out").mkdir()
    path = write_job(Job(mode="plain", target="train.py", argv=("a",), out_dir="out", options={"device": "cpu"}))
    words = [sys.executable, "-m", "advisor.workload.worker", str(path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=child_environment())
    assert done.stdout == "by hand ['train.py', 'a']\n" and done.returncode == 0
    assert read_result(Path("out"), "plain").ending == "finished"


# --- jobs, results and progress as files --------------------------------------------------------------------------------


def test_a_job_survives_its_file(tmp_path: Path) -> None:
    job = Job(
        mode="clock",
        target="pkg.train",
        out_dir=str(tmp_path),
        is_module=True,
        argv=("--name", "\u00e9 \u4e16", ""),
        steps=3,
        warmup=0,
        seed=0,
        step="train.py:4",
        instrument=("pkg",),
        regions=("train.py:*",),
        stacks=True,
        timeout_s=1.5,
        options={"device": "cpu"},
    )
    path = write_job(job)
    assert path == tmp_path / "job-clock.json" and read_job(path) == job
    assert job.device == "cpu" and job.folder == tmp_path


def test_a_job_is_for_the_gpu_unless_it_says_otherwise(tmp_path: Path) -> None:
    assert Job(mode="plain", target="t.py", out_dir=str(tmp_path)).device == "cuda"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"mode": "plain"}', '{"mode": 3, "target": "t.py", "out_dir": "."}'])
def test_a_broken_job_file_is_not_taken_for_a_job(tmp_path: Path, text: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        read_job(children.write(tmp_path, "job.json", text))


@pytest.mark.parametrize("text", [None, "", '{"mode": "plain"', '{"mode": "plain", "ending": "vanished"}'])
def test_half_a_result_is_none(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        children.write(tmp_path, "result-plain.json", text)
    assert read_result(tmp_path, "plain") is None


def test_half_a_line_of_progress_is_not_read(tmp_path: Path) -> None:
    assert read_progress(tmp_path, "clock") is None
    path = children.write(tmp_path, "progress-clock.jsonl", '{"mode":"clock","ph')
    assert read_progress(tmp_path, "clock") is None
    path.write_text('{"mode":"clock","phase":"warmup","step":1}\n{"mode":"clock","phase":"record","step":2}\n{"mode')
    assert read_progress(tmp_path, "clock") == Progress(mode="clock", phase="record", step=2)


def test_progress_is_written_ten_times_a_second_and_at_every_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(jobs.time, "monotonic", lambda: now[0])
    children.write(tmp_path, "progress-clock.jsonl", '{"mode":"clock","phase":"finish"}\n')  # of an earlier run
    writer = ProgressWriter(Job(mode="clock", target="t.py", out_dir=str(tmp_path)))
    assert read_progress(tmp_path, "clock") is None
    writer.write("start", 0, 500)
    for step in range(200):
        now[0] += 0.01
        writer.write("warmup" if step < 100 else "record", step, 500)
    seen = progress_of(tmp_path, "clock")
    assert [one.phase for one in seen[:2]] == ["start", "warmup"] and seen[1].step == 0
    assert next(one for one in seen if one.phase == "record").step == 100
    assert 15 <= len(seen) <= 25 and seen[0].at_s == 0.0 and seen[-1].at_s > 1.8
