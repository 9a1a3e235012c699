"""Analysing, reporting and gating never import torch or nvtx, and asking for help imports nothing heavy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RECORDING = Path(__file__).parents[1] / "advisor" / "data" / "h200_mlp_adam_train.json.gz"
BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {banned!r}:
            raise ImportError(f"blocked: {{name}}")
sys.meta_path.insert(0, Block())
from advisor.cli import main
sys.argv = {argv!r}
main()
"""


def run(banned, *argv):
    code = BLOCK.format(banned=set(banned), argv=["cgadvisor", *map(str, argv)])
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


def test_analyse_and_report_without_torch(tmp_path):
    done = run(["torch", "nvtx"], "analyze", RECORDING, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "Verdict" in done.stdout
    again = run(["torch", "nvtx", "pandas"], "report", tmp_path / "run", "--format", "md")
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize("argv", [["--help"], ["analyze", "--help"], ["profile", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(argv):
    done = run(["torch", "nvtx", "pandas", "numpy", "plotly", "jinja2", "msgspec"], *argv)
    assert done.returncode == 0, done.stderr
    assert done.stdout
