"""Runs many small verifications on one GPU at once: their verdicts, not their times, are what the tests ask for.

Every attempt is a process of its own and most of it is importing torch, so all programs of a module start together.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from advisor.model import Attempt
from advisor.verify import combine
from advisor.verify.children import Order, Script, run_wave
from advisor.verify.combine import NUMERIC, Eager
from advisor.verify.plan import Candidate, Sources
from advisor.workload.verify_job import FixSpec, Schedule, VerifySpec

PROGRAMS = Path(__file__).parent / "programs"
SCHEDULE = Schedule(warmup=5, checks=10, block=4, blocks=6)  # 40 steps, as many as the programs make


def marked(text: str, mark: str) -> int:
    """The 1-based line with the comment `# <- ... mark ...`, or 0."""
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.partition("# <- ")[2].replace(",", " ").split()
        if mark in words:
            return number
    return 0


@dataclass(frozen=True)
class Case:
    """One program to verify, its whole marked span, perhaps with fixes or with a safety turned off."""

    name: str
    fixes: tuple[str, ...] = ()
    options: dict[str, object] = field(default_factory=dict)
    timeout_s: float = 90.0

    @property
    def text(self) -> str:
        return (PROGRAMS / f"{self.name}.py").read_text(encoding="utf-8")

    @property
    def culprit(self) -> int:
        return marked(self.text, "culprit")


def run_cases(cases: list[Case], folder: Path) -> dict[str, Attempt]:
    """One attempt per case, by the case's name; as many at once as the machine has processors for."""
    with ThreadPoolExecutor(max_workers=max(1, (os.cpu_count() or 4) * 3 // 4)) as pool:
        found = pool.map(lambda case: _run(case, folder / case.name), cases)
    return {case.name: attempt for case, attempt in zip(cases, found, strict=True)}


def _run(case: Case, folder: Path) -> Attempt:
    text, file = case.text, f"{case.name}.py"
    loop = next(n for n, line in enumerate(text.split("\n"), start=1) if line.startswith("for step"))
    fixes = tuple(
        FixSpec(id=name, file=file if name in ("defer", "zero-grad") else "", line=case.culprit if name == "defer" else 0)
        for name in case.fixes
    )
    candidate = Candidate(file, marked(text, "first"), marked(text, "last"), fixes)
    common = {
        "loop_file": file,
        "loop_line": loop,
        "span_file": file,
        "first_line": candidate.first,
        "last_line": candidate.last,
        "schedule": SCHEDULE,
    }
    numeric = tuple(fix for fix in fixes if fix.id in NUMERIC)
    orders = [
        Order("eager", VerifySpec(role="eager", fixes=numeric, **common), folder / "eager"),
        Order("graph", VerifySpec(role="graph", fixes=fixes, **common, **case.options), folder / "graph"),
    ]
    script = Script(str(PROGRAMS / file), cwd=str(PROGRAMS))
    eager, graph = run_wave(script, orders, case.timeout_s)
    assert eager.report is not None, f"{case.name}: {eager.last_lines(5)}"
    assert eager.report.ending == "ran", eager.report.message
    return combine.attempt("attempt-1", candidate, graph, Eager(eager, None, eager), Sources({file: text}))
