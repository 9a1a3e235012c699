"""Runs a script's text through a verification child in this process, on the recording double."""

from __future__ import annotations

import ast
import sys
import textwrap
import types
from pathlib import Path

import numpy as np
import torch
from tape import TapeDevice

from advisor.model import Attempt
from advisor.verify import combine
from advisor.verify.candidate import Candidate, Sources
from advisor.verify.children import ChildRun
from advisor.verify.combine import Eager
from advisor.workload import state
from advisor.workload.imports import SourceFile
from advisor.workload.job import Job
from advisor.workload.verify_child import Child
from advisor.workload.verify_job import ChildReport, FixSpec, Schedule, VerifySpec, read_report

torch.set_num_threads(1)  # tensors of a few hundred elements: threads only wait for one another
SHORT = Schedule(warmup=5, checks=6, block=3, blocks=6)


class Stop(BaseException):
    pass


def line_of(text: str, marker: str) -> int:
    """The 1-based line that holds `marker`."""
    return next(i for i, line in enumerate(text.split("\n"), start=1) if marker in line)


def spec_for(text: str, role: str, first: str, last: str, loop: str = "for ", **options: object) -> VerifySpec:
    return VerifySpec(
        role=role,  # type: ignore[arg-type]
        loop_file="prog.py",
        loop_line=line_of(text, loop),
        span_file="prog.py",
        first_line=line_of(text, first) if first else 0,
        last_line=line_of(text, last) if last else 0,
        schedule=options.pop("schedule", SHORT),  # type: ignore[arg-type]
        **options,  # type: ignore[arg-type]
    )


def run_child(folder: Path, text: str, spec: VerifySpec, seed: int = 0) -> ChildReport:
    """The report of one child. Exceptions of the script end in the report, as they do in a process."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    np.random.seed(seed)
    __import__("random").seed(seed)
    child = Child(Job(mode="verify", target="prog.py", out_dir=str(folder)), spec, TapeDevice())

    def stop() -> None:
        raise Stop

    child.session.stop = stop  # type: ignore[assignment]
    child.prepare()
    path = str(folder / "prog.py")
    file = SourceFile(path=path, label="prog.py", module="__main__", root=str(folder), text=text)
    plain, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    names = vars(sys.modules["__main__"])
    names["__file__"] = path
    try:
        tree = ast.fix_missing_locations(child.transform(ast.parse(text), file))
        names.update(file.inject)
        exec(compile(tree, path, "exec"), names)
    except Stop:
        pass
    except Exception as error:
        child.error = error
    child.finish()
    sys.modules["__main__"] = plain
    state.REGISTRY.optimizer_fixes = frozenset()
    report = read_report(folder)
    assert report is not None
    return report


def dedent(text: str) -> str:
    return textwrap.dedent(text).strip("\n") + "\n"


def fix(name: str, text: str = "", marker: str = "") -> FixSpec:
    return FixSpec(id=name, file="prog.py" if marker else "", line=line_of(text, marker) if marker else 0)


def verify(
    folder: Path,
    text: str,
    first: str,
    last: str,
    fixes: tuple[FixSpec, ...] = (),
    **options: object,
) -> Attempt:
    """One attempt: eager, eager again, graph, and what the parent makes of them."""
    loop = str(options.pop("loop", "for "))
    runs = {}
    for name, role in (("eager", "eager"), ("again", "eager"), ("graph", "graph")):
        mine = fixes if role == "graph" else ()
        spec = spec_for(text, role, first, last, loop, fixes=mine, **dict(options))
        report = run_child(folder / name, text, spec)
        runs[name] = ChildRun(name, folder / name, report, 0, False, 0)
    if runs["eager"].report is not None:
        assert runs["eager"].report.ending == "ran", runs["eager"].report.message
    lines = (line_of(text, first), line_of(text, last)) if first else (0, 0)
    candidate = Candidate("prog.py", *lines, fixes, module=str(options.get("module", "")))
    return combine.attempt(
        "attempt-1", candidate, runs["graph"], Eager(runs["eager"], runs["again"]), Sources({"prog.py": text})
    )
