"""Children are watched, timed, named by how they died, and ended with everything they started."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor import runner
from advisor.errors import AdvisorError, GpuRequired, ScriptFailed, UsageError
from advisor.runner import Ended, checked, end_group, log_tail, run_job, supervise
from advisor.workload import environment
from advisor.workload.job import Job, Progress, Result, log_path, read_result

LONG_S = 600.0  # longer than any test may take: a script that sleeps so long has to be ended


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def job_of(out: Path, text: str, *argv: str, mode: str = "plain", **job: object) -> Job:
    """A job for a script of this text, to be run on the CPU."""
    script = out.parent / "train.py"
    script.write_text(textwrap.dedent(text), encoding="utf-8")
    return Job(
        **{
            "mode": mode,
            "target": str(script),
            "argv": argv,
            "out_dir": str(out),
            "timeout_s": 120.0,
            "options": {"device": "cpu"},
            **job,
        }
    )


def instead(text: str) -> list[str]:
    """A prefix that runs this text in the place of the worker; `out` is the run folder."""
    head = "import os, sys, time\nfrom pathlib import Path\nout = Path(sys.argv[-1]).parent\n"
    return [sys.executable, "-c", head + textwrap.dedent(text)]


def log_of(out: Path, mode: str = "plain") -> str:
    return log_path(out, mode).read_text(encoding="utf-8")


def is_alive(pid: int) -> bool:
    """Whether the process still runs; one that is dead but not yet collected does not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


def wait_for(what: Callable[[], bool], limit_s: float = 60.0) -> bool:
    until = time.monotonic() + limit_s
    while not what() and time.monotonic() < until:
        time.sleep(0.01)
    return what()


def pids_in(path: Path, count: int) -> list[int]:
    assert wait_for(lambda: path.exists() and path.read_text().count("\n") == count), "the script did not start"
    return [int(line) for line in path.read_text().split()]


def in_a_process(out: Path) -> subprocess.Popen[str]:
    """`run_job` of the script that `job_of` wrote, in a process of its own."""
    text = f"""
import signal, sys
from advisor.runner import run_job
from advisor.workload.job import Job
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored where these tests run in the background
job = Job(mode="plain", target={str(out.parent / "train.py")!r}, out_dir={str(out)!r}, options={{"device": "cpu"}})
try:
    run_job(job)
except KeyboardInterrupt:
    sys.exit("interrupted")
"""
    return subprocess.Popen(
        [sys.executable, "-c", text],
        env=runner.child_environment(),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


class Clock:
    """Time for the runner: while it `runs`, every look for news takes `step_s`. `at_look` is called after each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step_s: float) -> None:
        self.now, self.step_s, self.runs = 0.0, step_s, False
        self.at_look: Callable[[], None] = lambda: None
        monkeypatch.setattr(runner, "time", self)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, _seconds: float) -> None:
        time.sleep(0.01)
        self.now += self.step_s if self.runs else 0.0
        self.at_look()

    def start(self) -> None:
        self.runs = True


# --- a script that ends by itself ---------------------------------------------------------------------------------------


def test_a_script_that_ends_gives_its_result_and_its_output_in_the_log(out: Path) -> None:
    text = """
        import os, subprocess, sys
        print("printed", sys.argv[1:], flush=True)
        print("to stderr", file=sys.stderr)
        subprocess.run([sys.executable, "-c", "print('from a child')"])
        os.write(1, b"written\\n")
    """
    result = run_job(job_of(out, text, "a", "b"))
    assert (result.mode, result.ending, result.exit_code) == ("plain", "finished", 0)
    assert result == read_result(out, "plain")
    said = log_of(out).splitlines()
    assert sorted(said) == ["from a child", "printed ['a', 'b']", "to stderr", "written"]


def test_nothing_that_names_the_arguments_stays_in_the_folder(out: Path) -> None:
    run_job(job_of(out, "for i in range(20):\n    abs(i)\n", "--token", "hunter2", mode="clock"))
    left = {path.name for path in out.iterdir()}
    assert {"log-clock.txt", "result-clock.json", "clock.json"} <= left
    assert not any(name.startswith(("job-", "progress-")) for name in left)
    assert not any("hunter2" in path.read_text(errors="replace") for path in out.iterdir())


def test_the_script_reads_nothing_from_the_terminal(out: Path) -> None:
    job_of(out, "import sys\nprint(repr(sys.stdin.read()))")
    done = in_a_process(out).communicate("typed", timeout=120)
    assert done == (None, "") and log_of(out) == "''\n"


def test_progress_reaches_the_watch(out: Path) -> None:
    seen: list[Progress] = []
    text = """
        from advisor.workload.job import Job, ProgressWriter, Result, result_path
        import msgspec
        writer = ProgressWriter(Job(mode="plain", target="", out_dir=str(out)))
        for phase in ("start", "warmup", "record"):
            writer.write(phase, 1, 3)
            while not (out / phase).exists():
                time.sleep(0.01)
        result_path(out, "plain").write_bytes(msgspec.json.encode(Result(mode="plain", ending="stopped", steps=3)))
    """

    def watch(progress: Progress) -> None:
        seen.append(progress)
        (out / progress.phase).touch()

    result = run_job(job_of(out, ""), watch, instead(text))
    assert [(one.phase, one.step, one.steps) for one in seen] == [("start", 1, 3), ("warmup", 1, 3), ("record", 1, 3)]
    assert result.steps == 3


def test_a_prefix_runs_the_worker(out: Path) -> None:
    text = "print('before', flush=True)\nos.execv(sys.argv[1], sys.argv[1:])"
    assert run_job(job_of(out, "print('script')"), prefix=instead(text)).ending == "finished"
    assert log_of(out) == "before\nscript\n"


# --- a script that fails ------------------------------------------------------------------------------------------------


def test_a_script_that_raises_is_told_with_its_error_place_and_log(out: Path) -> None:
    job = job_of(out, "print('begun', flush=True)\ndef f():\n    raise RuntimeError('planted')\nf()\n")
    with pytest.raises(ScriptFailed) as caught:
        run_job(job)
    assert caught.value.exit_code == 6
    assert str(caught.value) == (
        f"the script failed in the plain pass: RuntimeError: planted at train.py:3; its output is in {log_path(out, 'plain')}"
    )
    tail = log_tail(job).split("\n")
    assert tail[0] == "begun" and tail[-1] == "RuntimeError: planted"
    assert "advisor" not in log_of(out)


@pytest.mark.parametrize(
    ("leave", "code"),
    [("sys.exit(3)", 3), ("sys.exit('text')", 1), ("sys.exit(2)", 2), ("sys.exit(4)", 4), ("os._exit(7)", 7)],
)
def test_a_script_that_exits_with_a_failure_has_failed(out: Path, leave: str, code: int) -> None:
    with pytest.raises(ScriptFailed, match=f"exited with code {code} in the plain pass; its output is in") as caught:
        run_job(job_of(out, f"import os, sys\n{leave}"))
    assert caught.value.exit_code == 6  # whatever the script's own code means to the tool


def test_a_script_that_exits_with_0_has_not_failed(out: Path) -> None:
    assert run_job(job_of(out, "import sys\nsys.exit(0)")).ending == "exited"
    assert run_job(job_of(out, "import os\nos._exit(0)")).ending == "exited"


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGTERM"])
def test_a_crash_is_named_by_its_signal(out: Path, name: str) -> None:
    text = "import os, resource, signal\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\nprint('begun', flush=True)\n"
    with pytest.raises(ScriptFailed, match=f"killed by {name} in the plain pass") as caught:
        run_job(job_of(out, text + f"os.kill(os.getpid(), signal.{name})"))
    assert caught.value.exit_code == 6 and log_of(out) == "begun\n"


def test_a_signal_without_a_name_is_told_by_its_number(out: Path) -> None:
    with pytest.raises(ScriptFailed, match=f"killed by signal {signal.SIGRTMIN + 1} in the plain pass"):
        run_job(job_of(out, "import os, signal\nos.kill(os.getpid(), signal.SIGRTMIN + 1)"))


def test_an_older_result_does_not_stand_for_a_crash(out: Path) -> None:
    assert run_job(job_of(out, "pass")).ending == "finished"
    with pytest.raises(ScriptFailed, match="ended with code 9 in the plain pass without handing over"):
        run_job(job_of(out, ""), prefix=instead("os._exit(9)"))


def test_a_script_that_becomes_another_program_is_told_so(out: Path) -> None:
    text = "import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'print(1)'])"
    with pytest.raises(ScriptFailed, match=r"ended with code 0 .*\(did it replace itself by another program\?\)"):
        run_job(job_of(out, text))


def test_half_a_result_is_no_result(out: Path) -> None:
    with pytest.raises(ScriptFailed, match="ended with code 0"):
        run_job(job_of(out, ""), prefix=instead("(out / 'result-plain.json').write_text('{\"mode\": \"pl')"))


@pytest.mark.parametrize(
    ("changes", "kind", "code", "said"),
    [
        ({"target": "nosuch.py"}, UsageError, 2, "nosuch.py: no such script"),
        ({"target": "nosuch_module", "is_module": True}, UsageError, 2, "-m nosuch_module: "),
        ({"mode": "clock", "step": "nonsense"}, UsageError, 2, "--step-at nonsense"),
        ({"mode": "nosuch"}, AdvisorError, 3, "unknown mode 'nosuch'"),
        ({"options": {"device": "cuda"}}, GpuRequired, 4, "GPU|CUDA"),
    ],
)
def test_a_refusal_is_raised_as_what_it_is(
    out: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, object],
    kind: type[AdvisorError],
    code: int,
    said: str,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(kind, match=said) as caught:
        run_job(job_of(out, "print('never')", **changes))
    assert type(caught.value) is kind and caught.value.exit_code == code
    assert "never" not in log_of(out, str(changes.get("mode", "plain")))


def test_only_what_did_not_fail_passes(out: Path) -> None:
    job = job_of(out, "")

    def result(ending: str, **more: object) -> Result:
        return Result(mode="plain", ending=ending, **more)

    for good in (result("finished"), result("stopped"), result("exited"), result("stopped", notes=("late",))):
        assert checked(job, good) is good
    with pytest.raises(ScriptFailed, match="ValueError: x; its output"):
        checked(job, result("failed", exit_code=1, error="ValueError: x"))
    with pytest.raises(ScriptFailed, match=r"ValueError: x at a/b\.py:3; its output"):
        checked(job, result("failed", exit_code=1, error="ValueError: x", location="a/b.py:3"))
    with pytest.raises(ScriptFailed, match="exited with code -1"):
        checked(job, result("exited", exit_code=-1))
    for code, kind in ((2, UsageError), (3, AdvisorError), (4, GpuRequired)):
        with pytest.raises(AdvisorError, match=r"^why$") as caught:
            checked(job, result("refused", exit_code=code, error="why"))
        assert type(caught.value) is kind


def test_the_tail_of_the_log_is_short_and_never_fails(out: Path) -> None:
    job = job_of(out, "")
    assert log_tail(job) == ""
    log_path(out, "plain").write_bytes(b"\n".join(b"line %d \xff" % number for number in range(100)) + b"\n\n")
    tail = log_tail(job).split("\n")
    assert len(tail) == 40 and tail[0].startswith("line 60") and tail[-1].startswith("line 99")


# --- limits -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["while True:\n    pass", f"import time\ntime.sleep({LONG_S})"])
def test_a_script_that_hangs_is_ended_at_its_limit(out: Path, text: str) -> None:
    with pytest.raises(ScriptFailed, match="the plain pass was not over after 1 s: raise --timeout") as caught:
        run_job(job_of(out, text, timeout_s=1.0))
    assert caught.value.exit_code == 6 and str(log_path(out, "plain")) in str(caught.value)
    assert not (out / "job-plain.json").exists()


def test_a_script_that_ignores_polite_signals_is_ended_all_the_same(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"""
        import os, signal, time
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        with open({str(out / "pid")!r}, "w") as file:
            file.write(f"{{os.getpid()}}\\n")
        print("ready", flush=True)
        time.sleep({LONG_S})
    """
    clock = Clock(monkeypatch, 50.0)
    clock.at_look = lambda: clock.start() if log_of(out) else None
    ended = supervise(job_of(out, text))
    assert ended == Ended(result=None, exit_code=-signal.SIGKILL, timed_out=True)
    assert not is_alive(pids_in(out / "pid", 1)[0])


QUEUE = """
    from advisor.workload.job import Job, ProgressWriter, Result, result_path
    import msgspec
    ProgressWriter(Job(mode="plain", target="", out_dir=str(out))).write({phase!r})
    while not (out / "go").exists():
        time.sleep(0.01)
    result_path(out, "plain").write_bytes(msgspec.json.encode(Result(mode="plain", ending="finished")))
"""


@pytest.mark.parametrize("phase", ["queued", "record"])
def test_waiting_for_ones_turn_does_not_count_as_time_of_the_run(
    out: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    clock = Clock(monkeypatch, 50.0)

    def at_look() -> None:
        if clock.now > 2000.0:  # long after the limit
            clock.runs = False
            (out / "go").touch()

    clock.at_look = at_look
    ended = supervise(job_of(out, ""), lambda _progress: clock.start(), instead(QUEUE.format(phase=phase)))
    if phase == "queued":
        assert not ended.timed_out and ended.result.ending == "finished" and clock.now > 2000.0
    else:
        assert ended.timed_out and ended.result is None and clock.now < 300.0


def test_the_limit_goes_on_after_the_queue(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 50.0)
    text = f"""
        from advisor.workload.job import Job, ProgressWriter
        writer = ProgressWriter(Job(mode="plain", target="", out_dir=str(out)))
        writer.write("queued")
        while not (out / "turn").exists():
            time.sleep(0.01)
        writer.write("record")
        time.sleep({LONG_S})
    """
    seen: list[str] = []

    def watch(progress: Progress) -> None:
        seen.append(progress.phase)
        clock.start()

    def at_look() -> None:
        if clock.now > 1000.0 and seen == ["queued"]:
            clock.runs = False
            (out / "turn").touch()

    clock.at_look = at_look
    ended = supervise(job_of(out, ""), watch, instead(text))
    assert ended.timed_out and seen == ["queued", "record"]
    assert 1000.0 < clock.now < 1500.0


def test_a_child_that_hangs_after_its_last_word_is_ended_and_believed(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "GRACE_S", 0.1)
    text = f"""
        import atexit, os, time
        with open({str(out / "pid")!r}, "w") as file:
            file.write(f"{{os.getpid()}}\\n")
        atexit.register(time.sleep, {LONG_S})
        print("done", flush=True)
    """
    result = run_job(job_of(out, text))
    assert result.ending == "finished" and log_of(out) == "done\n"
    assert not is_alive(pids_in(out / "pid", 1)[0])


def test_a_limit_that_is_reached_after_the_last_word_is_no_failure(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, 5.0)
    clock.at_look = lambda: clock.start() if (out / "result-plain.json").exists() else None
    text = f"import atexit, time\natexit.register(time.sleep, {LONG_S})\n"
    ended = supervise(job_of(out, text, timeout_s=6.0))
    assert not ended.timed_out and ended.result.ending == "finished" and ended.exit_code == -signal.SIGKILL
    assert clock.now == 10.0  # within the time it has for cleaning up


# --- nothing is left behind ---------------------------------------------------------------------------------------------

FAMILY = """
    import os, subprocess, sys, time
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    forked = os.fork()
    if forked == 0:
        time.sleep(600)
        os._exit(0)
    path = {path!r}
    with open(path + ".part", "w") as file:
        file.write("".join(f"{{pid}}\\n" for pid in (os.getpid(), forked, child.pid)))
    os.replace(path + ".part", path)
"""


def family(out: Path, then: str) -> str:
    """A script with worker processes of its own that it leaves running."""
    return textwrap.dedent(FAMILY.format(path=str(out / "pids"))) + then


@pytest.mark.parametrize(
    ("then", "raises"), [("", False), ("1 / 0", True), ("os._exit(0)", False), ("os.kill(os.getpid(), 9)", True)]
)
def test_workers_of_the_script_end_with_it(out: Path, then: str, raises: bool) -> None:
    job = job_of(out, family(out, then))
    if raises:
        with pytest.raises(ScriptFailed):
            run_job(job)
    else:
        run_job(job)
    assert wait_for(lambda: not any(map(is_alive, pids_in(out / "pids", 3))))


def test_an_interrupt_ends_the_child_and_its_workers_first(out: Path) -> None:
    """A real Ctrl-C, in a process of its own."""
    job_of(out, family(out, "time.sleep(600)"))
    parent = in_a_process(out)
    try:
        pids = pids_in(out / "pids", 3)
        assert all(map(is_alive, pids))
        parent.send_signal(signal.SIGINT)
        _, said = parent.communicate(timeout=120)
    finally:
        parent.kill()
        parent.wait()
    assert parent.returncode == 1 and said == "interrupted\n"
    assert wait_for(lambda: not any(map(is_alive, pids)))
    assert not (out / "job-plain.json").exists()


def test_an_error_of_the_watch_ends_the_child_too(out: Path) -> None:
    text = """
        from advisor.workload.job import Job, ProgressWriter
        (out / "pid").write_text(f"{os.getpid()}\\n")
        ProgressWriter(Job(mode="plain", target="", out_dir=str(out))).write("start")
        time.sleep(600)
    """

    def watch(_progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(job_of(out, ""), watch, instead(text))
    assert not is_alive(pids_in(out / "pid", 1)[0])
    assert not (out / "job-plain.json").exists() and not (out / "progress-plain.jsonl").exists()


def test_a_child_is_collected(out: Path) -> None:
    """No zombie stays behind this process."""
    job = job_of(out, f"import os\nopen({str(out / 'pid')!r}, 'w').write(f'{{os.getpid()}}\\n')")
    run_job(job)
    assert not Path(f"/proc/{pids_in(out / 'pid', 1)[0]}").exists()


def test_ending_a_group_that_is_gone_already_is_no_error() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    process.wait()
    end_group(process)
    end_group(process)
    assert process.returncode == 0


# --- the child's environment --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cuda", "expected"),
    [("11.8", ("1", "0")), ("12.4", ("1", "0")), ("12.6", (None, None)), ("13.0", (None, None)), (None, (None, None))],
)
def test_cupti_is_kept_alive_for_older_cuda_releases(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, expected: tuple[str | None, str | None]
) -> None:
    for name in ("DISABLE_CUPTI_LAZY_REINIT", "TEARDOWN_CUPTI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(environment, "torch_versions", lambda: ("2.5.0", cuda))
    found = runner.child_environment()
    assert (found.get("DISABLE_CUPTI_LAZY_REINIT"), found.get("TEARDOWN_CUPTI")) == expected


def test_the_users_own_settings_of_cupti_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEARDOWN_CUPTI", "1")
    monkeypatch.setattr(environment, "torch_versions", lambda: ("2.4.0", "12.1"))
    assert runner.child_environment()["TEARDOWN_CUPTI"] == "1"


def test_the_environment_of_this_process_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CGADVISOR", raising=False)
    before = dict(os.environ)
    monkeypatch.setattr(environment, "torch_versions", lambda: None)
    found = runner.child_environment()
    assert dict(os.environ) == before
    assert found["CGADVISOR"] == "1"
    assert {name: found[name] for name in before if name != "PYTHONPATH"} == {
        name: value for name, value in before.items() if name != "PYTHONPATH"
    }


# --- Nsight Systems -----------------------------------------------------------------------------------------------------


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_nsys_is_taken_from_the_search_path_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nsys = program(tmp_path / "bin" / "nsys", "true")
    installed = program(tmp_path / "opt" / "2025.1" / "nsys", "true")
    places = (f"{str(tmp_path)[1:]}/nowhere/*/nsys", f"{str(tmp_path)[1:]}/opt/*/nsys")
    monkeypatch.setattr(runner, "_NSYS_PLACES", places)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert runner.find_nsys() == str(nsys)
    nsys.unlink()
    assert runner.find_nsys() == str(installed)
    newer = program(tmp_path / "opt" / "2025.3" / "nsys", "true")
    assert runner.find_nsys() == str(newer)


def test_without_nsys_the_other_tracer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_NSYS_PLACES", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="--tracer torch"):
        runner.find_nsys()


def test_nsys_wraps_the_worker(out: Path) -> None:
    report = out / "trace.nsys-rep"
    nsys = program(
        out.parent / "nsys", 'echo "$@"\nwhile [ "$1" != "-o" ]; do shift; done\necho > "$2"\nshift 2\nexec "$@"'
    )
    assert run_job(job_of(out, "print('script')"), prefix=runner.nsys_prefix(str(nsys), report)).ending == "finished"
    first, second = log_of(out).splitlines()
    assert first.startswith("profile -t cuda,nvtx ") and "--capture-range=cudaProfilerApi" in first
    assert second == "script" and report.exists()


EXPORT = """
for word in "$@"; do
  if [ "$last" = "-o" ]; then out="$word"; fi
  last="$word"
done
"""


def test_an_export_is_complete_or_not_there(tmp_path: Path) -> None:
    report, target = tmp_path / "trace.nsys-rep", tmp_path / "nsys.sqlite"
    good = program(tmp_path / "good", f'{EXPORT}\necho "$@" > "$out"\ntest ! -e {target}')
    runner.export_sqlite(str(good), report, target)
    words = target.read_text().split()
    assert words[:2] == ["export", "--type=sqlite"] and words[-1] == str(report)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good", "nsys.sqlite"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo reading; echo first >&2; echo 'no such report' >&2; exit 1", "no such report"),
        ("echo 'only on stdout'; exit 3", "only on stdout"),
        (f"{EXPORT}\necho half > $out; echo 'disk full'; exit 1", "disk full"),
        ("echo 'said it worked'", "said it worked"),
    ],
)
def test_an_export_that_fails_says_what_nsys_said(tmp_path: Path, text: str, said: str) -> None:
    report, target = tmp_path / "trace.nsys-rep", tmp_path / "nsys.sqlite"
    with pytest.raises(AdvisorError, match=f"trace.nsys-rep: nsys could not export it: {said}$"):
        runner.export_sqlite(str(program(tmp_path / "nsys", text)), report, target)
    assert [path.name for path in tmp_path.iterdir()] == ["nsys"]
