"""Runs many small verifications on one GPU at once: their verdicts, not their times, are what the tests ask for.

Every attempt is a process of its own and most of it is importing torch, so all programs of a module start together.
"""

import ast
import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor.model import Attempt
from advisor.verify import combine
from advisor.verify.candidate import Candidate, Sources
from advisor.verify.children import Order, Script, run_wave
from advisor.verify.combine import NUMERIC, Eager
from advisor.verify.follow import foreseen
from advisor.workload.turn import Turn
from advisor.workload.verify_job import Schedule, VerifySpec

PROGRAMS = Path(__file__).parent / "programs"
INDEX = {
    entry["file"]: entry for entry in json.loads((PROGRAMS / "INDEX.json").read_text(encoding="utf-8"))["programs"]
}
FORESEEN = "foreseen"  # the fixes that the source calls for
SCHEDULE = Schedule(warmup=5, checks=10, block=4, blocks=6)  # 40 steps, as many as the programs make


@dataclass(frozen=True)
class Case:
    """One program to verify, its whole marked span, perhaps with fixes or with a safety turned off."""

    name: str
    fixes: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    timeout_s: float = 90.0
    deterministic: bool = False

    @property
    def culprit(self) -> int:
        line: int = INDEX[f"{self.name}.py"]["culprit_line"]
        return line


def run_cases(cases: list[Case], folder: Path) -> dict[str, Attempt]:
    """One attempt per case, by the case's name; as many at once as the machine has processors for."""
    turn = Turn()
    turn.take()  # so many processes at once would disturb whatever another test measures
    try:
        with ThreadPoolExecutor(max_workers=max(1, (os.cpu_count() or 4) * 3 // 4)) as pool:
            found = pool.map(lambda case: _run(case, folder / case.name), cases)
        return {case.name: attempt for case, attempt in zip(cases, found, strict=True)}
    finally:
        turn.give()


def _run(case: Case, folder: Path) -> Attempt:
    candidate, loop, texts = located(case)
    if case.fixes == (FORESEEN,):
        candidate = candidate.fixed(*foreseen(Sources(texts), candidate))
    common: dict[str, Any] = {
        "loop_file": candidate.file,
        "loop_line": loop,
        "span_file": candidate.file,
        "first_line": candidate.first,
        "last_line": candidate.last,
        "schedule": SCHEDULE,
        "deterministic": case.deterministic,
    }
    numeric = tuple(fix for fix in candidate.fixes if fix.id in NUMERIC)
    orders = [
        Order("eager", VerifySpec(role="eager", fixes=numeric, **common), folder / "eager"),
        Order("graph", VerifySpec(role="graph", fixes=candidate.fixes, **common, **case.options), folder / "graph"),
    ]
    script = Script(str(PROGRAMS / f"{case.name}.py"), cwd=str(PROGRAMS))
    # One lock of this process's own: the whole module has the machine's turn already.
    turn = Turn(Path(tempfile.gettempdir(), f"cgadvisor-test-{os.getpid()}.lock"))
    eager, graph = run_wave(script, orders, case.timeout_s, turn=turn)
    assert eager.report is not None, f"{case.name}: {eager.last_lines(5)}"
    assert eager.report.ending == "ran", eager.report.message
    return combine.attempt("attempt-1", candidate, graph, Eager(eager, None, eager), Sources(texts))


def located(case: Case) -> tuple[Candidate, int, dict[str, str]]:
    """The program's span, the line of the innermost loop around it, and the texts of its files."""
    entry = INDEX[f"{case.name}.py"]
    file, first, last = entry["span_file"], entry["first_line"], entry["last_line"]
    texts = {name: (PROGRAMS / name).read_text(encoding="utf-8") for name in {file, f"{case.name}.py"}}
    loops = [node for node in ast.walk(ast.parse(texts[file])) if isinstance(node, ast.For | ast.While)]
    around = [node.lineno for node in loops if node.lineno < first and (node.end_lineno or 0) >= last]
    return Candidate(file, first, last), max(around), texts
