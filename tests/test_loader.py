"""A script under the loader behaves as under plain Python, ends early when asked to, and runs the last work once."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import children
import pytest

from advisor.runner import child_environment
from advisor.workload import loader, tracebacks
from advisor.workload.loader import StopRun

SEEN = """
import os, sys, threading
print(__name__, __file__, __package__, __cached__, __doc__, __annotations__, __spec__)
print(type(__loader__).__name__, __loader__.name, __loader__.path, type(__builtins__).__name__)
print(sys.argv, sys.path[0], os.getcwd(), threading.current_thread().name)
print(sorted(name for name in globals() if not name.startswith("_cga")))
print(sys.modules["__main__"].__dict__ is globals())
"""
# The script's name -> how it ends: (text, ending, exit code of the result).
ENDS = {
    "finished": ("print('end')", "finished", 0),
    "exit_none": ("sys.exit()", "exited", 0),
    "exit_3": ("sys.exit(3)", "exited", 3),
    "exit_text": ("sys.exit('text')", "exited", 1),
    "exit_tuple": ("sys.exit((1, 'a'))", "exited", 1),
    "exit_negative": ("sys.exit(-1)", "exited", -1),
    "exit_true": ("sys.exit(True)", "exited", 1),
    "exit_false": ("sys.exit(1 > 2)", "exited", 0),
    "exit_enum": ("import enum\nclass Code(enum.IntEnum):\n    BAD = 3\nsys.exit(Code.BAD)", "exited", 3),
    "exit_builtin": ("exit(5)", "exited", 5),
    "exit_subclass": ("class Leave(SystemExit): pass\nraise Leave(4)", "exited", 4),
    "os_exit": ("print('flushed', flush=True)\nos._exit(7)", "exited", 7),
    "os_exit_0": ("os._exit(0)", "exited", 0),
    "os_exit_true": ("os._exit(status=True)", "exited", 1),
    "hard_exit_text": ("os._exit('3')", "failed", 1),
    "unprintable": ("class Bad(Exception):\n    def __str__(self): raise ValueError\nraise Bad", "failed", 1),
    "surrogates": ("raise ValueError('\\udce9')", "failed", 1),
    "no_main": ("del sys.modules['__main__']\nraise ValueError('v')", "failed", 1),
    "hook_exits": ("sys.excepthook = lambda *told: sys.exit(9)\n1 / 0", "failed", 9),
    "hook_exits_with_text": ("sys.excepthook = lambda *told: sys.exit('so')\n1 / 0", "failed", 1),
    "hook_fails": ("def hook(*told):\n    print('hook')\n    {}['k']\nsys.excepthook = hook\n1 / 0", "failed", 1),
    "no_hook": ("del sys.excepthook\n1 / 0", "failed", 1),
    "raises": ("1 / 0", "failed", 1),
    "notes": ("error = ValueError('v')\nerror.add_note('noted')\nraise error", "failed", 1),
    "group": ("raise ExceptionGroup('several', [ValueError(1), TypeError(2)])", "failed", 1),
    "from_none": ("try:\n    {}['k']\nexcept KeyError:\n    raise ValueError('v') from None", "failed", 1),
    "in_the_library": ("import json\njson.loads('{')", "failed", 1),
    "asserts": ("assert 1 == 2, 'not equal'", "failed", 1),
    "generator_exit": ("raise GeneratorExit", "failed", 1),
    "outside_a_function": ("return 1", "failed", 1),  # known to be wrong only when the tree is compiled
}


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).strip("\n") + "\n", encoding="utf-8")
    return name


def alike(folder: Path, target: str, *argv: str, is_module: bool = False, mode: str = "plain") -> children.Ran:
    """The script under the loader, after checking that it prints and returns what plain Python does."""
    words = ("-m", target) if is_module else (target,)
    expected = children.plain(folder, *words, *argv)
    got = children.worker(folder, folder / "out", mode, target, *argv, is_module=is_module)
    assert got.stdout == expected.stdout
    assert got.stderr == without_runpy(expected.stderr)
    assert got.code == expected.code
    return got


def without_runpy(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if "<frozen runpy>" not in line)


def run(folder: Path, text: str, **job: object) -> children.Ran:
    """A script that can reach the tool's `stopper`, in the plain mode: nothing else interferes."""
    write(folder, "stops.py", "from advisor.workload.loader import stopper\n" + textwrap.dedent(text))
    return children.worker(folder, folder / "out", "plain", "stops.py", **job)


# --- what the script sees -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["plain", "clock"])
def test_a_script_sees_itself_as_without_the_tool(tmp_path: Path, mode: str) -> None:
    write(tmp_path, "sub/see.py", SEEN)
    got = alike(tmp_path, "sub/see.py", "a", "--steps", "3", "with space", "", mode=mode)
    assert "['sub/see.py', 'a', '--steps', '3', 'with space', '']" in got.stdout
    assert str(tmp_path / "sub") in got.stdout and got.stdout.endswith("True\n")


@pytest.mark.parametrize("mode", ["plain", "clock"])
def test_a_module_sees_itself_as_without_the_tool(tmp_path: Path, mode: str) -> None:
    write(tmp_path, "pkg/__init__.py", "import sys\nprint('init', sys.argv)")
    write(tmp_path, "pkg/near.py", "WORD = 'near'")
    write(tmp_path, "pkg/sub/__init__.py", "")
    write(tmp_path, "pkg/sub/train.py", "from ..near import WORD\n" + SEEN.replace(", __spec__)", ", __spec__.name)"))
    got = alike(tmp_path, "pkg.sub.train", "a", "-m", is_module=True, mode=mode)
    assert "init ['-m', 'a', '-m']" in got.stdout
    assert f"['{tmp_path}/pkg/sub/train.py', 'a', '-m'] {tmp_path} {tmp_path}" in got.stdout


def test_a_package_runs_its_main_module(tmp_path: Path) -> None:
    write(tmp_path, "pkg/__init__.py", "")
    write(tmp_path, "pkg/__main__.py", "print(__name__, __package__, __spec__.name)\nraise SystemExit(3)")
    got = alike(tmp_path, "pkg", is_module=True)
    assert got.stdout == "__main__ pkg pkg.__main__\n" and got.code == 3


def test_a_script_behind_a_link_finds_its_neighbours(tmp_path: Path) -> None:
    write(tmp_path, "real/train.py", "import sys, near\nprint(sys.path[0], __file__, near.__file__)")
    write(tmp_path, "real/near.py", "")
    (tmp_path / "link.py").symlink_to(tmp_path / "real" / "train.py")
    assert f"{tmp_path}/real {tmp_path}/link.py" in alike(tmp_path, "link.py").stdout


def test_only_the_script_is_main(tmp_path: Path) -> None:
    write(tmp_path, "near.py", "print(__name__)\nif __name__ == '__main__':\n    print('never')\nclass Near: pass")
    text = """
        import __main__, pickle, sys
        import near
        class Own: pass
        if __name__ == "__main__":
            print("guarded", __main__.Own is Own, sys.modules["__main__"].near is near)
        print([type(one).__qualname__ for one in pickle.loads(pickle.dumps([Own(), near.Near()]))])
    """
    write(tmp_path, "train.py", text)
    assert "guarded True True" in alike(tmp_path, "train.py", mode="clock").stdout


def test_source_text_is_found(tmp_path: Path) -> None:
    text = "import inspect, linecache\ndef twice(x):\n    for i in range(2):\n        x = abs(x)\n    return x\n"
    write(tmp_path, "train.py", text + "print(inspect.getsource(twice), linecache.getline(__file__, 3))")
    assert "for i in range(2):" in alike(tmp_path, "train.py", mode="clock").stdout


@pytest.mark.parametrize("text", ["", "\ufeffprint('after a byte order mark')", "# coding: latin-1\nprint('\u00e9')"])
def test_files_of_other_shapes(tmp_path: Path, text: str) -> None:
    data = text.encode("latin-1" if "latin" in text else "utf-8")
    (tmp_path / "train.py").write_bytes(data)
    assert alike(tmp_path, "train.py").result.ending == "finished"


def test_future_imports_of_the_tool_are_not_the_scripts(tmp_path: Path) -> None:
    write(tmp_path, "plain.py", "def f(x: undefined_name): pass")
    write(
        tmp_path, "future.py", "from __future__ import annotations\ndef f(x: undefined_name): pass\nprint(f.__name__)"
    )
    assert "NameError" in alike(tmp_path, "plain.py").stderr
    assert alike(tmp_path, "future.py").code == 0


# --- output and endings -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENDS)
def test_a_script_ends_as_without_the_tool(tmp_path: Path, name: str) -> None:
    text, ending, code = ENDS[name]
    write(tmp_path, "train.py", f"import atexit, os, sys\natexit.register(print, 'atexit ran')\nprint('begun')\n{text}")
    got = alike(tmp_path, "train.py")
    assert (got.result.ending, got.result.exit_code) == (ending, code)
    assert "advisor" not in got.stderr
    left = name.startswith("os_exit") or name == "outside_a_function"
    assert ("atexit ran" in got.stdout) is not left


def test_all_output_comes_through(tmp_path: Path) -> None:
    text = """
        import logging, os, subprocess, sys, warnings
        print("printed", flush=True)
        print("to stderr", file=sys.stderr, flush=True)
        os.write(1, b"written\\n")
        os.write(2, b"written to stderr\\n")
        subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
        logging.basicConfig(format="%(message)s")
        logging.warning("logged")
        warnings.warn("warned", stacklevel=1)
        sys.stdout.buffer.write(b"raw")
        print(" without a newline", end="")
    """
    write(tmp_path, "train.py", text)
    got = alike(tmp_path, "train.py")
    assert got.stdout.endswith("raw without a newline") and "from a child" in got.stdout
    assert "logged" in got.stderr and "train.py:9: UserWarning: warned" in got.stderr


def test_threads_and_atexit_handlers_run_to_their_end(tmp_path: Path) -> None:
    text = """
        import atexit, threading, time
        atexit.register(print, "first registered, last run")
        atexit.register(divmod, 1, 0)
        def late():
            time.sleep(0.2)
            print("thread done")
        threading.Thread(target=late).start()
        print("main done")
    """
    write(tmp_path, "train.py", text)
    got = alike(tmp_path, "train.py")
    assert got.stdout == "main done\nthread done\nfirst registered, last run\n"
    assert "ZeroDivisionError" in got.stderr and got.code == 0


@pytest.mark.parametrize("mode", ["plain", "clock"])
def test_a_traceback_shows_the_users_lines_alone(tmp_path: Path, mode: str) -> None:
    write(tmp_path, "lib/near.py", "def deep(values):\n    for value in values:\n        print(1 / value)\n")
    write(tmp_path, "lib/__init__.py", "")
    write(tmp_path, "train.py", "import lib.near\n\nfor i in (1, 0):\n    lib.near.deep([i])\n")
    got = alike(tmp_path, "train.py", mode=mode)
    assert f'{tmp_path}/train.py", line 4' in got.stderr
    assert f'{tmp_path}/lib/near.py", line 3' in got.stderr
    assert "advisor" not in got.stderr
    assert got.result.error == "ZeroDivisionError: division by zero"
    assert got.result.location == "lib/near.py:3"


def test_the_result_names_the_users_line_and_not_the_librarys(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "import json\ndef read():\n    return json.loads('{')\nread()")
    found = alike(tmp_path, "train.py").result
    assert found.location == "train.py:3" and found.error.startswith("JSONDecodeError: ")
    assert "\n" not in found.error


def test_the_first_line_of_a_long_message_is_the_error(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "raise RuntimeError('first\\nsecond\\nthird')")
    assert alike(tmp_path, "train.py").result.error == "RuntimeError: first"


def test_the_scripts_own_excepthook_gets_the_error(tmp_path: Path) -> None:
    text = """
        import atexit, sys, traceback
        def report(kind, error, trace):
            print("hook", kind.__name__, error, traceback.extract_tb(trace)[0].lineno, trace is error.__traceback__)
        sys.excepthook = report
        atexit.register(lambda: print("last", repr(sys.last_value), sys.last_type.__name__, sys.last_traceback is not None))
        raise ValueError("planted")
    """
    write(tmp_path, "train.py", text)
    got = alike(tmp_path, "train.py")
    assert got.stdout == "hook ValueError planted 6 True\nlast ValueError('planted') ValueError True\n"
    assert got.stderr == "" and got.result.error == "ValueError: planted"


def test_a_neighbour_with_a_syntax_error_fails_as_ever(tmp_path: Path) -> None:
    write(tmp_path, "near.py", "x = 1\ndef f(:\n")
    write(tmp_path, "train.py", "import near")
    got = alike(tmp_path, "train.py")
    assert "SyntaxError" in got.stderr and f'{tmp_path}/near.py", line 2' in got.stderr


def test_a_script_with_a_syntax_error_is_named_with_its_line(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "print('never')\ndef f(:\n")
    got = children.worker(tmp_path, tmp_path / "out", "plain", "train.py")
    assert got.code == children.plain(tmp_path, "train.py").code == 1
    assert got.stdout == "" and f'{tmp_path}/train.py", line 2' in got.stderr and "advisor" not in got.stderr
    assert got.result.ending == "failed"
    assert got.result.error == "SyntaxError: invalid syntax (train.py, line 2)"


@pytest.mark.parametrize("data", [b"x = 1\ndef f(:\n", b"print('\xe9')\n", b"# coding: nosuch\n", b"x = 1\n  y = 2\n"])
def test_a_script_that_cannot_be_compiled_shows_its_line_and_no_frame(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "train.py").write_bytes(data)
    got = children.worker(tmp_path, tmp_path / "out", "plain", "train.py")
    expected = children.plain(tmp_path, "train.py")
    assert got.code == expected.code == 1 and got.result.ending == "failed"
    assert "Traceback" not in got.stderr and "ast.py" not in got.stderr
    assert got.stderr.splitlines()[-1].partition(":")[0] == expected.stderr.splitlines()[-1].partition(":")[0]


# The package's __init__ -> how `python -m pkg.train` ends.
PACKAGES = {
    "prints": ("print('init', __name__, __import__('sys').argv[0])", "finished"),
    "raises": ("1 / 0", "failed"),
    "exits": ("import sys\nsys.exit(4)", "exited"),
    "needs": ("import missing_dependency", "failed"),
    "imports_it": ("from pkg import train", "finished"),
}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_around_the_module_is_the_users_code(tmp_path: Path, name: str) -> None:
    text, ending = PACKAGES[name]
    write(tmp_path, "pkg/__init__.py", text)
    write(tmp_path, "pkg/train.py", "print(__name__, __package__, __spec__.name)")
    words = ("-W", "ignore", "-m", "pkg.train")  # runpy's own warning about `imports_it`
    expected = children.plain(tmp_path, *words)
    got = children.worker(tmp_path, tmp_path / "out", "plain", "pkg.train", is_module=True)
    assert (got.stdout, got.code) == (expected.stdout, expected.code)
    assert got.stderr == without_runpy(expected.stderr)
    assert got.result.ending == ending and got.result.location == ("pkg/__init__.py:1" if ending == "failed" else "")


def test_a_package_around_the_module_is_transformed_and_the_module_once(tmp_path: Path) -> None:
    write(tmp_path, "pkg/__init__.py", "import pkg.near\nprint(WORD)")
    write(tmp_path, "pkg/near.py", "print(WORD)")
    write(tmp_path, "pkg/train.py", "print(WORD)")
    text = """
from advisor.workload import loader
from advisor.workload.job import Job

def transform(tree, file):
    file.inject["WORD"] = file.label + " as " + file.module
    return tree

loader.execute(Job(mode="plain", target="pkg.train", is_module=True, out_dir="."), transform)
"""
    done = harness(tmp_path, text)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "pkg/near.py as pkg.near",
        "pkg/__init__.py as pkg",
        "pkg/train.py as pkg.train",
    ]


@pytest.mark.parametrize(
    ("target", "is_module", "said"),
    [
        ("nosuch.py", False, "nosuch.py: no such script"),
        ("pkg", False, "pkg: no such script"),
        ("nosuch", True, "-m nosuch: no Python module"),
        ("pkg", True, "-m pkg: no Python module"),
        ("pkg.nosuch.deeper", True, "-m pkg.nosuch.deeper: cannot be imported"),
        ("sys", True, "-m sys: no Python module"),
        (".pkg", True, "-m .pkg: "),
        ("lonely.py", True, "-m lonely.py: cannot be imported"),
    ],
)
def test_what_is_not_there_is_refused_in_one_line(tmp_path: Path, target: str, is_module: bool, said: str) -> None:
    write(tmp_path, "pkg/__init__.py", "")
    write(tmp_path, "lonely.py", "print('never')")
    got = children.worker(tmp_path, tmp_path / "out", "plain", target, is_module=is_module)
    assert got.code == 2
    assert got.stderr.startswith(f"cgadvisor: {said}") and got.stderr.count("\n") == 1
    assert (got.result.ending, got.result.exit_code) == ("refused", 2)
    assert got.stderr == f"cgadvisor: {got.result.error}\n"


# --- stopping -----------------------------------------------------------------------------------------------------------

STOPS = {
    "plain": ("stopper.stop()\nprint('never')", ""),
    "finally": ("try:\n    stopper.stop()\n    print('never')\nfinally:\n    print('finally')", "finally\n"),
    "with": (
        "import contextlib\nwith contextlib.ExitStack() as stack:\n    stack.callback(print, 'left')\n    stopper.stop()",
        "left\n",
    ),
    "except_exception": (
        "for i in range(3):\n    try:\n        print(i)\n        stopper.stop()\n    except Exception:\n        print('never')",
        "0\n",
    ),
    "generator": (
        "def items():\n    try:\n        yield 1\n    finally:\n        print('closed')\n"
        "for one in items():\n    stopper.stop()",
        "closed\n",
    ),
    "own_error": (
        "try:\n    stopper.stop()\nexcept BaseException as error:\n    raise RuntimeError('lost') from error",
        "",
    ),
    "error_while_leaving": ("try:\n    stopper.stop()\nfinally:\n    {}['missing']", ""),
    "hidden": ("try:\n    stopper.stop()\nexcept BaseException:\n    raise RuntimeError('lost') from None", ""),
    "exit": ("import sys\ntry:\n    stopper.stop()\nexcept BaseException:\n    sys.exit('interrupted')", ""),
    "coroutine": (
        "import asyncio\nasync def main():\n    try:\n        await asyncio.sleep(0)\n        stopper.stop()\n"
        "    finally:\n        print('cleaned')\nasyncio.run(main())",
        "cleaned\n",
    ),
    "task_group": (
        "import asyncio\nasync def work():\n    stopper.stop()\nasync def main():\n"
        "    async with asyncio.TaskGroup() as group:\n        group.create_task(work())\nasyncio.run(main())",
        "",
    ),
    "from_another": (
        "try:\n    stopper.stop()\nexcept BaseException:\n    raise RuntimeError('lost') from ValueError('cause')",
        "",
    ),
    "pool": (
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(1) as pool:\n"
        "    pool.submit(stopper.stop).result()",
        "",
    ),
}


@pytest.mark.parametrize("name", STOPS)
def test_a_stop_ends_the_script_as_an_interrupt_would(tmp_path: Path, name: str) -> None:
    text, printed = STOPS[name]
    got = run(tmp_path, f"import atexit\natexit.register(print, 'atexit ran')\nprint('begun')\n{text}")
    assert got.stdout == f"begun\n{printed}atexit ran\n"
    assert got.stderr == ""
    assert got.code == 0
    assert (got.result.ending, got.result.exit_code, got.result.error) == ("stopped", 0, "")


def test_a_script_that_swallows_the_stop_is_left_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    text = """
        import atexit, sys
        atexit.register(print, "never")
        for i in range(100):
            try:
                print("asked", i)
                stopper.stop()
            except BaseException as error:
                print("swallowed", type(error).__name__, file=sys.stderr)
    """
    got = run(tmp_path, text)
    assert got.stdout == "asked 0\nasked 1\nasked 2\nasked 3\n"  # all of it, though the process was left at once
    assert got.stderr == "swallowed StopRun\n" * 3
    assert got.code == 0 and got.result.ending == "stopped"


def test_a_script_that_swallows_it_once_and_ends_has_finished(tmp_path: Path) -> None:
    got = run(tmp_path, "try:\n    stopper.stop()\nexcept BaseException:\n    pass\nprint('end')")
    assert got.stdout == "end\n" and got.code == 0 and got.result.ending == "finished"


def test_the_error_of_a_script_that_swallowed_the_stop_is_its_own(tmp_path: Path) -> None:
    got = run(tmp_path, "try:\n    stopper.stop()\nexcept BaseException:\n    pass\nraise ValueError('mine')")
    assert got.code == 1 and got.result.ending == "failed" and got.result.error == "ValueError: mine"


def test_a_loop_in_a_thread_is_stopped_with_all_its_output(tmp_path: Path) -> None:
    text = """
        import threading, time
        def work():
            try:
                stopper.stop()
            finally:
                print("cleaned")
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        time.sleep(60)
    """
    got = run(tmp_path, text)
    assert (got.stdout, got.stderr, got.code) == ("cleaned\n", "", 0)
    assert got.result.ending == "stopped"


def test_other_errors_of_threads_are_printed_as_ever(tmp_path: Path) -> None:
    write(
        tmp_path,
        "train.py",
        "import threading\nthread = threading.Thread(target=lambda: 1 / 0, name='w')\nthread.start()",
    )
    assert "Exception in thread w:" in alike(tmp_path, "train.py").stderr


def test_a_pass_ends_an_endless_loop_once_it_has_its_steps(tmp_path: Path) -> None:
    text = """
        import atexit, itertools
        atexit.register(print, "atexit ran")
        count = 0
        try:
            for i in itertools.count():
                try:
                    count += abs(1)
                except Exception:
                    print("never")
        finally:
            print("counted", count)
        print("never")
    """
    write(tmp_path, "train.py", text)
    got = children.worker(tmp_path, tmp_path / "out", "clock", "train.py", steps=5, warmup=2, step="train.py:5")
    said = got.stdout.split("\n")
    assert said[0].startswith("counted ") and int(said[0].split()[1]) >= 7
    assert said[1:] == ["atexit ran", ""]
    assert got.stderr == "" and got.code == 0
    assert got.result.ending == "stopped" and got.result.steps == 5


# --- the last work of a mode --------------------------------------------------------------------------------------------

HARNESS = """
import sys
from advisor.errors import AdvisorError
from advisor.workload import loader
from advisor.workload.job import Job

def finish():
    print("finish", flush=True)

loader.before_hard_exit(lambda code: print("leaving with", code, flush=True))
try:
    outcome = loader.execute(Job(mode="plain", target=sys.argv[1], out_dir="."), finish=finish)
except AdvisorError as error:
    print("refused", error)
else:
    print("outcome", outcome.ending, outcome.exit_code, type(outcome.error).__name__)
"""
FINISHES = {
    "end": ("", "finish\noutcome finished 0 NoneType\nlate\n"),
    "exit": ("raise SystemExit(2)", "finish\noutcome exited 2 SystemExit\nlate\n"),
    "error": ("1 / 0", "finish\noutcome failed 1 ZeroDivisionError\nlate\n"),
    "stop": ("stopper.stop()", "finish\noutcome stopped 0 NoneType\nlate\n"),
    "os_exit": ("import os\nos._exit(4)", "finish\nleaving with 4\n"),
    "leave": ("stopper.leave(5)", "finish\nleaving with 5\n"),
    "fork": (
        "import os\nchild = os.fork()\nif not child:\n    os._exit(0)\nos.waitpid(child, 0)",
        "finish\noutcome finished 0 NoneType\nlate\n",
    ),
}


def harness(folder: Path, text: str, *argv: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", text, *argv]
    return subprocess.run(words, cwd=folder, env=child_environment(), capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("name", FINISHES)
def test_the_last_work_runs_once_and_before_atexit_handlers(tmp_path: Path, name: str) -> None:
    text, printed = FINISHES[name]
    head = "import atexit\nfrom advisor.workload.loader import stopper\natexit.register(print, 'late')\n"
    write(tmp_path, "train.py", head + text)
    assert harness(tmp_path, HARNESS, "train.py").stdout == printed


def test_without_a_script_nothing_runs(tmp_path: Path) -> None:
    assert harness(tmp_path, HARNESS, "nosuch.py").stdout.startswith("refused nosuch.py: no such script")


def test_the_script_and_its_neighbours_are_transformed_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "print(WORD, __name__)\nimport near, pkg.part, json, site_made\n")
    write(tmp_path, "near.py", "print(WORD, __name__)")
    write(tmp_path, "pkg/__init__.py", "")
    write(tmp_path, "pkg/part.py", "print(WORD, __name__)")
    write(tmp_path, "site-packages/site_made.py", "print('WORD' in globals(), __name__)")
    text = """
import sys
from advisor.workload import loader
from advisor.workload.job import Job

seen = []

def transform(tree, file):
    file.inject["WORD"] = "word of " + file.label
    seen.append((file.label, file.module, file.text.count("print")))
    return tree

sys.path.append("site-packages")
loader.execute(Job(mode="plain", target="train.py", out_dir="."), transform)
print(seen)
"""
    done = harness(tmp_path, text)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "word of train.py __main__",
        "word of near.py near",
        "word of pkg/part.py pkg.part",
        "False site_made",
        "[('train.py', '__main__', 1), ('near.py', 'near', 1), ('pkg/__init__.py', 'pkg', 0), ('pkg/part.py', 'pkg.part', 1)]",
    ]


# --- the pieces ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "expected"), [(None, 0), (0, 0), (3, 3), (-2, -2), ("text", 1), ("", 1), ([], 1)])
def test_exit_code_is_pythons(code: object, expected: int) -> None:
    assert loader.exit_code(SystemExit(code)) == expected


def test_a_stop_is_no_exception_a_script_would_catch() -> None:
    assert not issubclass(StopRun, Exception)
    with pytest.raises(StopRun):
        loader.Stopper().stop()


def test_a_stopper_remembers_that_it_was_asked_and_finishes_once() -> None:
    done: list[int] = []
    stopper = loader.Stopper(finish=lambda: done.append(1))
    assert not stopper.requested
    with pytest.raises(StopRun):
        stopper.stop()
    assert stopper.requested and stopper.raised_count == 1 and done == []
    stopper.run_finish()
    stopper.run_finish()
    assert done == [1] and stopper.finished


def test_last_work_that_fails_is_not_repeated() -> None:
    calls: list[int] = []

    def finish() -> None:
        calls.append(1)
        raise OSError("disk full")

    stopper = loader.Stopper(finish=finish)
    with pytest.raises(OSError, match="disk full"):
        stopper.run_finish()
    stopper.run_finish()
    assert calls == [1]


def through_the_tool(text: str, **names: object) -> dict[str, object]:
    """Names of a program compiled as a file of the tool's own."""
    space: dict[str, object] = dict(names)
    exec(compile(textwrap.dedent(text), str(Path(loader.__file__).with_name("nosuch.py")), "exec"), space)
    return space


def frames(error: BaseException | None) -> list[str]:
    found, at = [], error.__traceback__ if error is not None else None
    while at is not None:
        found.append(at.tb_frame.f_code.co_name)
        at = at.tb_next
    return found


@pytest.mark.parametrize("linked", ["__cause__", "__context__"])
def test_frames_of_the_tool_are_taken_out_wherever_they_lie(linked: str) -> None:
    call = through_the_tool("def call(function, *args):\n    function(*args)\n")["call"]

    def broken() -> None:
        raise KeyError("inner")

    def wrapping() -> None:
        try:
            call(broken)
        except KeyError as error:
            if linked == "__cause__":
                raise ValueError("outer") from error
            raise ValueError("outer")  # noqa: B904

    with pytest.raises(ValueError, match="outer") as caught:
        call(call, wrapping)
    error = caught.value
    assert frames(error)[1:] == ["call", "call", "wrapping"] and frames(getattr(error, linked)) == [
        "wrapping",
        "call",
        "broken",
    ]
    tracebacks.strip_frames(error)
    assert frames(error)[1:] == ["wrapping"]
    assert frames(getattr(error, linked)) == ["wrapping", "broken"]


def test_frames_are_taken_out_of_groups_and_of_circles() -> None:
    call = through_the_tool("def call(function, *args):\n    function(*args)\n")["call"]

    def caught(error: BaseException) -> BaseException:
        def fail() -> None:
            raise error

        try:
            call(fail)
        except BaseException as found:
            return found
        raise AssertionError

    one, two = caught(ValueError(1)), caught(TypeError(2))
    one.__context__, two.__context__ = two, one
    group = caught(BaseExceptionGroup("both", [one, two]))
    tracebacks.strip_frames(group)
    assert [frames(error) for error in (group, one, two)] == [["caught", "fail"]] * 3


def test_an_error_of_the_tool_alone_keeps_no_frame() -> None:
    error = None
    fail = through_the_tool("def fail():\n    raise ValueError\n")["fail"]
    try:
        fail()
    except ValueError as found:
        error = found.with_traceback(found.__traceback__.tb_next)
    tracebacks.strip_frames(error)
    assert error.__traceback__ is None


def test_where_it_failed_is_the_innermost_line_of_the_users(tmp_path: Path) -> None:
    space: dict[str, object] = {}
    for name, text in (
        ("site-packages/lib.py", "def deepest():\n    raise ValueError\n"),
        ("part/near.py", "\ndef deep():\n    deepest()\n"),
        ("train.py", "\n\ndef top():\n    deep()\n"),
    ):
        exec(compile(text, str(tmp_path / name), "exec"), space)
    with pytest.raises(ValueError) as caught:
        space["top"]()
    assert tracebacks.where_failed(caught.value, str(tmp_path)) == "part/near.py:3"
    assert tracebacks.where_failed(caught.value, str(tmp_path / "pa")) == ""
    assert tracebacks.where_failed(ValueError(), str(tmp_path)) == ""
