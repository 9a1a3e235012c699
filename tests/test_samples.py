"""samples/ and tests/gpu/programs: plain user code, marked lines in place, and every one runs on a CPU if it can.

Whether each gets its verdict is for tests/gpu; here a sample that no longer runs, or an index that points at the wrong
line, fails before a GPU is spent on it.
"""

from __future__ import annotations

import ast
import json
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "samples"
PROGRAMS = ROOT / "tests" / "gpu" / "programs"
LIBRARIES = {"models.py", "trainer_lib.py", "trainer_module.py"}
INDEX: list[dict[str, Any]] = json.loads((PROGRAMS / "INDEX.json").read_text())["programs"]
ROWS = {row["file"]: row for row in INDEX}

# Options that make a sample small enough for a CPU.
SMALL = {
    "adamw_foreach_false.py": ["--image", "32", "--batch", "2"],
    "decode_static.py": ["--layers", "2", "--dim", "128"],
    "generate_dynamic.py": ["--layers", "2", "--dim", "128"],
    "gnn.py": ["--nodes", "100"],
    "input_bound.py": ["--workers", "0", "--batch", "2", "--size", "64"],
    "resnet_infer.py": ["--size", "64"],
    "resnet_train.py": ["--size", "64", "--batch", "2"],
    "trainer_train.py": ["--workers", "0"],
    "word_lm.py": ["--bptt", "6", "--batch", "4"],
}
# Twins that cannot print the same: other random numbers, other batches, other averages.
OTHER_RESULTS = {
    "fault_accumulation.py",
    "fault_batchnorm_mode.py",
    "fault_cpu_random.py",
    "fault_generator.py",
    "library_sync_blocked.py",
}


def scripts(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("*.py")) if path.name not in LIBRARIES]


def name_of(path: Path) -> str:
    return path.name


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a script as __main__ in this process and returns what it printed."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    def execute(path: Path, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        monkeypatch.syspath_prepend(str(path.parent))
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        capsys.readouterr()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                runpy.run_path(str(path), run_name="__main__")
        finally:
            torch.set_num_threads(threads)
        return capsys.readouterr().out

    return execute


@pytest.mark.parametrize("path", [*sorted(SAMPLES.glob("*.py")), *sorted(PROGRAMS.glob("*.py"))], ids=name_of)
def test_is_plain_user_code(path: Path) -> None:
    tree = ast.parse(path.read_text(), str(path))
    imported = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    imported |= {(node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    beside = {file.stem for file in path.parent.glob("*.py")}
    assert imported - beside <= set(sys.stdlib_module_names) | {"torch", "numpy"}
    assert ast.get_docstring(tree), "says what eager does"


@pytest.mark.parametrize("path", scripts(SAMPLES), ids=name_of)
def test_sample_runs_three_steps_on_a_cpu(path: Path, run: Any) -> None:
    out = run(path, "--steps", "3", "--log-every", "1", *SMALL.get(path.name, []))
    last = out.rstrip().split("\n")[-1]
    assert re.match(r"final|last tokens", last)
    assert len(out.split("\n")) >= 3
    assert "nan" not in out


@pytest.mark.parametrize("path", scripts(SAMPLES), ids=name_of)
def test_sample_takes_the_common_options(path: Path) -> None:
    text = path.read_text()
    assert '"--steps"' in text and '"--batch"' in text and '"--seed"' in text
    assert (
        "torch.manual_seed(" in text and "torch.cuda.is_available()" in text + (SAMPLES / "trainer_lib.py").read_text()
    )


def test_readme_has_one_row_for_each_sample() -> None:
    cells = re.findall(r"^\| `(\w+\.py)[^`]*` \|", (SAMPLES / "README.md").read_text(), re.M)
    assert set(cells) == {path.name for path in scripts(SAMPLES)}


def test_index_lists_each_program_once() -> None:
    assert [row["file"] for row in INDEX] == [path.name for path in scripts(PROGRAMS)]
    assert {row["category"] for row in INDEX} == {"blocker", "fault", "twin", "public"}


@pytest.mark.parametrize("row", INDEX, ids=lambda row: row["file"])
def test_marked_lines_are_where_the_index_says(row: dict[str, Any]) -> None:
    assert marked(PROGRAMS / row["file"], "culprit") == row["culprit_line"]
    assert marked(PROGRAMS / row["span_file"], "first") == row["first_line"]
    assert marked(PROGRAMS / row["span_file"], "last") == row["last_line"]
    if row["category"] in ("blocker", "fault"):
        assert row["culprit_line"], "a blocker or a fault has a line"
    tree = ast.parse((PROGRAMS / row["span_file"]).read_text())
    assert any(covers(body, row["first_line"], row["last_line"]) for body in bodies(tree)), "statements of one block"


def marked(path: Path, word: str) -> int | None:
    found = [
        number
        for number, line in enumerate(path.read_text().split("\n"), start=1)
        if (comment := re.search(r"# <- (.+)$", line)) and word in comment[1].split(", ")
    ]
    assert len(found) <= 1
    return found[0] if found else None


def bodies(tree: ast.AST) -> list[list[ast.stmt]]:
    """The statement lists of every loop and what it holds."""
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While)]
    return [part.body for loop in loops for part in ast.walk(loop) if isinstance(part, ast.For | ast.While | ast.With)]


def covers(body: list[ast.stmt], first: int, last: int) -> bool:
    starts = [i for i, node in enumerate(body) if node.lineno == first]
    ends = [i for i, node in enumerate(body) if node.end_lineno == last]
    return bool(starts and ends and starts[0] <= ends[0])


@pytest.mark.parametrize("row", INDEX, ids=lambda row: row["file"])
def test_expectations_use_the_tool_s_words(row: dict[str, Any]) -> None:
    model = pytest.importorskip("advisor.model")
    assert row["expected"] and set(row["expected"]) <= {outcome.value for outcome in model.Outcome}
    if row["twin"]:
        assert "verified" in ROWS[row["twin"]]["expected"]
    if row["category"] == "blocker":
        assert row["twin"] and row["ids"] and row["expected"] == ["blocked"]
        assert row["first_line"] <= row["last_line"]
        if row["culprit_line"] > row["last_line"] or row["culprit_line"] < row["first_line"]:
            assert row["file"] == "lazy_init_blocked.py", "only there the line is in something the span calls"


@pytest.mark.parametrize("row", [row for row in INDEX if row["cpu"]], ids=lambda row: row["file"])
def test_program_runs_on_a_cpu(row: dict[str, Any], run: Any) -> None:
    path = PROGRAMS / row["file"]
    if "num_workers" in path.read_text() or row["span_file"] != row["file"]:
        # Worker processes are forked: from a process of the script's own, as users do.
        done = subprocess.run([sys.executable, str(path), "6"], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        out = done.stdout
    else:
        out = run(path, "6")
    assert re.search(r"-?\d+", out) and "nan" not in out


@pytest.mark.parametrize(
    "row",
    [row for row in INDEX if row["twin"] and row["cpu"] and row["file"] not in OTHER_RESULTS],
    ids=lambda row: row["file"],
)
def test_twin_computes_the_same(row: dict[str, Any], run: Any) -> None:
    """A cure that changes the results would make "verified" on the twin worthless."""
    assert run(PROGRAMS / row["file"], "8") == run(PROGRAMS / row["twin"], "8")
