"""The parent side: which spans, which fixes, children and their ends, what adds up to an attempt."""

import dataclasses
import os
import stat
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from advisor.bundle import Bundle
from advisor.commands.verify import text as terminal_text
from advisor.errors import ScriptFailed, UsageError
from advisor.model import (
    Attempt,
    Clock,
    EqualityOutcome,
    Manifest,
    Measurement,
    Outcome,
    SourceSpan,
    Verification,
)
from advisor.verify import Options, children, chosen, combine, follow, plan, run, schedule_for, search
from advisor.verify.candidate import Candidate, Sources
from advisor.verify.children import ChildRun, Order, Script, run_wave
from advisor.verify.combine import Eager
from advisor.verify.search import Limits, Search
from advisor.workload.verify_job import (
    ChildReport,
    Failed,
    FixSpec,
    OptimizerFact,
    Sample,
    Schedule,
    Suspect,
    VerifySpec,
)


def sources(text: str, **more: str) -> Sources:
    return Sources({"train.py": textwrap.dedent(text).strip("\n"), **more})


# --- the schedule ------------------------------------------------------------------------------------------------------------


def test_phases_of_the_schedule() -> None:
    plan_of = Schedule(warmup=3, checks=2, block=2, blocks=4)
    phases = [plan_of.phase(step) for step in range(15)]
    assert phases[:3] == ["warmup"] * 3 and phases[3] == "capture" and phases[4:6] == ["check"] * 2
    assert phases[6:14] == ["replay", "replay", "eager", "eager"] * 2 and phases[14] == "done"
    assert [step for step in range(15) if plan_of.starts_block(step)] == [6, 8, 10, 12, 14]
    # the last warm-up steps, the capture and the checks; then the ends of the third block, a replayed one, and the fourth
    assert [step for step in range(14) if plan_of.checked(step)] == [1, 2, 3, 4, 5, 11, 13]


def test_the_span_is_timed_in_other_steps_than_the_step() -> None:
    plan_of = Schedule(warmup=1, checks=1, block=7, blocks=2)  # timed from step 3 on
    assert [step for step in range(20) if plan_of.times_step(step)] == [4, 5, 6, 7, 11, 12, 13, 14]
    assert [step for step in range(20) if plan_of.times_region(step)] == [8, 9, 15, 16]
    short = Schedule(warmup=1, checks=1, block=3, blocks=2)  # too few steps to be shared out
    assert [step for step in range(20) if short.times_step(step)] == [4, 5, 7, 8]
    assert [step for step in range(20) if short.times_region(step)] == [4, 5, 7, 8]


@pytest.mark.parametrize("every", [2, 5, 10, 20, 50, 100])
def test_a_step_that_logs_falls_into_both_kinds_of_blocks(every: int) -> None:
    long = Schedule(blocks=400)
    kinds = [long.phase(step) for step in range(0, long.total, every)]
    assert abs(kinds.count("replay") - kinds.count("eager")) <= len(kinds) // 5


def test_a_short_loop_gets_a_shorter_schedule() -> None:
    fitted = Schedule().fitted(40)
    assert fitted.total <= 40 and fitted.checks == 11 and (fitted.block, fitted.blocks) == (4, 5)
    middle = Schedule().fitted(70)  # 12 checks, 52 left: seven blocks of seven
    assert middle.total <= 70 and (middle.block, middle.blocks) == (7, 7)
    assert Schedule().fitted(None) == Schedule().fitted(500) == Schedule()


# --- candidates --------------------------------------------------------------------------------------------------------------


TRAIN = """
for step, (x, y) in enumerate(loader):
    x, y = x.to(device), y.to(device)
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if step % 10 == 0:
        print(loss)
"""


def test_input_copies_and_logging_stay_outside() -> None:
    found = plan.candidates(sources(TRAIN), "train.py", 1)
    assert [candidate.label for candidate in found] == ["train.py:3-6"]


def test_data_fetch_counters_and_control_flow_stay_outside() -> None:
    text = """
    while True:
        batch = next(data)
        out = model(batch)
        total = out.sum()
        self.count += 1
        if self.count > 9:
            break
    """
    assert plan.candidates(sources(text), "train.py", 1)[0].label == "train.py:3-4"


def test_an_index_that_moves_is_staged() -> None:
    text = """
    for i in range(n):
        net.zero_grad()
        real = images[i % 8]
        loss = net(real).sum()
        loss.backward()
    """
    found = plan.candidates(sources(text), "train.py", 1)[0]
    assert found.label == "train.py:2-5"
    assert [(fix.id, fix.line) for fix in found.fixes] == [("stage", 3)]


def test_the_body_of_a_called_function_is_a_candidate() -> None:
    text = """
    def train_step(x, y):
        opt.zero_grad()
        loss = f(model(x), y)
        loss.backward()
        opt.step()
        return loss
    for x, y in loader:
        loss = train_step(x, y)
    """
    labels = [candidate.label for candidate in plan.candidates(sources(text), "train.py", 7)]
    assert labels[:2] == ["train.py:8", "train.py:2-5"]


def test_a_tensor_counter_is_no_python_number() -> None:
    text = """
    pos = torch.tensor([0])
    for i in range(n):
        token = step(model, token, pos)
        pos += 1
        print(i)
    """
    assert plan.candidates(sources(text), "train.py", 2)[0].label == "train.py:3"


def test_no_such_loop() -> None:
    assert plan.candidates(sources("x = 1"), "train.py", 1) == []
    assert plan.candidates(sources("x = 1"), "other.py", 1) == []


def test_foreseen_fixes() -> None:
    text = """
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    sched = torch.optim.lr_scheduler.StepLR(opt, 10)
    for x in loader:
        opt.zero_grad()
        out = model(x)
        D_x = out.mean().item()
        out.sum().backward()
        opt.step()
    """
    found = follow.foreseen(sources(text), Candidate("train.py", 4, 8))
    assert [(fix.id, fix.line) for fix in found] == [("capturable", 0), ("lr-tensor", 0), ("defer", 6)]
    assert follow.foreseen(sources(text), Candidate("train.py", 5, 5)) == ()
    capturable = text.replace("lr=1e-3", "lr=1e-3, capturable=True")
    assert follow.foreseen(sources(capturable), Candidate("train.py", 7, 8)) == ()


def blocked_at(line: int, blocker: str = "sync-item", file: str = "train.py") -> ChildReport:
    failed = Failed(blocker=blocker, evidence="RuntimeError: capturing", file=file, line=line)
    return ChildReport(role="graph", ending="blocked", failed=failed)


MIDDLE = """
for x in loader:
    a = model(x)
    b = f(a)
    if b > 0:
        c = 1
    d = g(b, c)
    e = h(i(d))
    out(e)
"""


def test_a_blocked_span_is_cut_at_the_line() -> None:
    found = follow.follow_up(sources(MIDDLE), Candidate("train.py", 2, 7), blocked_at(4), "")
    assert [candidate.label for candidate in found] == ["train.py:6-7", "train.py:2-3"]


def test_a_read_that_can_wait_is_deferred_before_anything_is_cut() -> None:
    text = "for x in loader:\n    a = model(x)\n    n = a.sum().item()\n    b = f(g(a))\n    print(n, b)\n"
    found = follow.follow_up(sources(text), Candidate("train.py", 2, 4), blocked_at(3), "")
    assert [fix.id for fix in found[0].fixes] == ["defer"]
    assert [candidate.label for candidate in found[1:]] == ["train.py:4", "train.py:2"]


def test_a_rate_that_adam_keeps_goes_into_a_tensor() -> None:
    text = "opt = torch.optim.Adam(p, lr=0.1, capturable=True)\nfor x in loader:\n    model(x).backward()\n    opt.step()\n"
    ran = ChildReport(role="graph", ending="ran")
    found = follow.follow_up(sources(text), Candidate("train.py", 3, 4), ran, "frozen-scalar")
    assert [fix.id for fix in found[0].fixes] == ["capturable", "lr-tensor"]


def test_adam_becomes_capturable() -> None:
    found = follow.follow_up(sources(MIDDLE), Candidate("train.py", 2, 7), blocked_at(7, "optim-not-capturable"), "")
    assert [fix.id for fix in found[0].fixes] == ["capturable"]


def test_a_blocker_in_a_called_function_leads_there() -> None:
    text = """
    def step(x):
        a = model(x)
        n = int(a.max())
        b = head(tail(a))
        return b
    for x in loader:
        loss = step(x)
    """
    found = follow.follow_up(sources(text), Candidate("train.py", 7, 7), blocked_at(3), "")
    assert [candidate.label for candidate in found][:2] == ["train.py:4", "train.py:2"]


def test_a_refused_number_is_left_out() -> None:
    text = """
    for x in loader:
        a = model(x)
        b = a * temperature
        c = head(tail(b))
        print(c)
    """
    report = ChildReport(
        role="graph", ending="refused", message="the span reads `temperature`, a Python value that changes every step"
    )
    found = follow.follow_up(sources(text), Candidate("train.py", 2, 4), report, "")
    assert [candidate.label for candidate in found] == ["train.py:4", "train.py:2"]


def test_gradients_reset_outside_grow_the_span() -> None:
    text = "for x in loader:\n    opt.zero_grad()\n    loss = f(x)\n    loss.backward()\n    opt.step()\n"
    ran = ChildReport(role="graph", ending="ran")
    found = follow.follow_up(sources(text), Candidate("train.py", 3, 4), ran, "grad-reset-outside")
    assert found[0].label == "train.py:2-4"
    assert [fix.id for fix in found[1].fixes] == ["zero-grad"]


# --- children ----------------------------------------------------------------------------------------------------------------


Interpreter = Callable[[str], Script]


@pytest.fixture
def interpreter(tmp_path: Path) -> Interpreter:
    """A stand-in for the interpreter: a shell script that is handed the job file as its fourth argument."""

    def make(body: str) -> Script:
        path = tmp_path / "python"
        path.write_text(f'#!/bin/sh\nfolder=$(dirname "$4")\n{body}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return Script("train.py", cwd=str(tmp_path), python=str(path))

    return make


WAIT = 'touch "$folder/ready"; while [ ! -e "$folder/go" ]; do sleep 0.02; done'
REPORT = msgspec.json.encode(ChildReport(role="graph", ending="ran")).decode()


def one(script: Script, folder: Path, timeout_s: float = 5.0) -> ChildRun:
    return run_wave(script, [Order("a", VerifySpec(role="graph"), folder / "a")], timeout_s)[0]


def test_a_child_reports(interpreter: Interpreter, tmp_path: Path) -> None:
    found = one(interpreter(f"{WAIT}; printf '%s' '{REPORT}' > \"$folder/verify.json\""), tmp_path)
    assert found.report is not None and found.report.ending == "ran" and not found.timed_out


def test_a_crash_costs_one_row(interpreter: Interpreter, tmp_path: Path) -> None:
    found = one(interpreter(f"{WAIT}; echo last words; kill -SEGV $$"), tmp_path)
    assert found.report is None and found.crash_text() == "killed by SIGSEGV" and found.last_lines() == "last words"


def test_a_hang_ends_at_the_time_limit_with_all_its_processes(interpreter: Interpreter, tmp_path: Path) -> None:
    began = time.monotonic()
    found = one(interpreter(f'{WAIT}; sleep 60 & echo $! > "$folder/worker"; wait'), tmp_path, timeout_s=0.5)
    assert found.timed_out and found.report is None and time.monotonic() - began < 10
    worker = int((tmp_path / "a" / "worker").read_text())
    deadline = time.monotonic() + 5
    while _alive(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _alive(worker)


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_a_child_that_reported_and_hangs_counts(
    interpreter: Interpreter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "GRACE_S", 0.3)
    found = one(interpreter(f"{WAIT}; printf '%s' '{REPORT}' > \"$folder/verify.json\"; sleep 60"), tmp_path)
    assert found.report is not None and not found.timed_out


def test_children_start_together_and_take_turns(interpreter: Interpreter, tmp_path: Path) -> None:
    script = interpreter(
        f'date +%s%N > "$folder/started"; {WAIT}; date +%s%N > "$folder/begin"; sleep 0.2; '
        f"date +%s%N > \"$folder/end\"; printf '%s' '{REPORT}' > \"$folder/verify.json\""
    )
    orders = [Order(name, VerifySpec(role="graph"), tmp_path / name) for name in "abc"]
    run_wave(script, orders, 5.0)

    def at(name: str, what: str) -> int:
        return int((tmp_path / name / what).read_text())

    assert max(at(name, "started") for name in "abc") < at("a", "begin")
    assert at("a", "end") <= at("b", "begin") and at("b", "end") <= at("c", "begin")


def test_the_environment_finds_the_tool_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    found = children.child_environment()
    root = str(Path(children.__file__).resolve().parents[2])
    assert found["PYTHONPATH"].split(os.pathsep) == ["/elsewhere", root]
    assert found["CGADVISOR_EXTRA_PATH"] == root and found["CGADVISOR"] == "1"


# --- adding up ---------------------------------------------------------------------------------------------------------------


CANDIDATE = Candidate("train.py", 3, 6)
SOURCES = sources(TRAIN)


def child(tmp_path: Path, name: str, report: ChildReport | None, **changes: object) -> ChildRun:
    return dataclasses.replace(ChildRun(name, tmp_path / name, report, 0, False, 10), **changes)  # type: ignore[arg-type]


def eager(tmp_path: Path) -> Eager:
    report = ChildReport(role="eager", ending="ran", samples=samples("eager", 1000))
    return Eager(child(tmp_path, "eager", report), child(tmp_path, "again", report))


def samples(kind: str, ns: int, start: int = 18) -> tuple[Sample, ...]:
    return tuple(Sample(start + i, kind, ns + i % 3, ns) for i in range(20))


def added_up(tmp_path: Path, report: ChildReport | None, **changes: object) -> Attempt:
    return combine.attempt("a", CANDIDATE, child(tmp_path, "graph", report, **changes), eager(tmp_path), SOURCES)


def test_the_noise_of_eager_blocks_is_odd_against_even(tmp_path: Path) -> None:
    def block(start: int, kind: str, ns: int) -> list[Sample]:
        return [Sample(start + index, kind, ns, ns) for index in range(6)]

    found = [*block(19, "replay", 100), *block(26, "eager", 1000), *block(33, "replay", 100), *block(40, "eager", 1100)]
    found += [*block(47, "replay", 100), *block(54, "eager", 1000)]
    report = ChildReport(
        role="graph", ending="ran", samples=tuple(found), node_count=9, replay_count=18, tensor_count=3
    )
    assert combine._block_noise(report) == pytest.approx(0.1)


def test_no_report_is_a_crash_or_a_time_out(tmp_path: Path) -> None:
    assert added_up(tmp_path, None, exit_code=-11).message.endswith("(killed by SIGSEGV): ")
    assert added_up(tmp_path, None, exit_code=-11).outcome is Outcome.CRASHED
    assert added_up(tmp_path, None, timed_out=True).outcome is Outcome.TIMED_OUT


def test_blocked_names_line_and_library(tmp_path: Path) -> None:
    failed = Failed(blocker="sync-item", evidence="RuntimeError: x", file="train.py", line=7, library="torch/a.py:3")
    found = added_up(tmp_path, ChildReport(role="graph", ending="blocked", failed=failed))
    assert found.outcome is Outcome.BLOCKED and found.blocker is not None
    assert found.message == "blocked at train.py:7: reads a GPU value on the host, raised in torch/a.py:3"


def test_refused_carries_the_hazard(tmp_path: Path) -> None:
    report = ChildReport(
        role="graph",
        ending="refused",
        message="reads `n`",
        suspects=(Suspect(id="frozen-scalar", evidence="reads `n`"),),
    )
    found = added_up(tmp_path, report)
    assert found.outcome is Outcome.BLOCKED and found.hazards[0].id == "frozen-scalar"


def test_no_replay_never_counts(tmp_path: Path) -> None:
    report = ChildReport(
        role="graph", ending="ran", span_count=9, fallback_count=9, signatures=("x [4, 8]", "x [5, 8]")
    )
    found = added_up(tmp_path, report)
    assert found.outcome is Outcome.NO_REPLAY and "2 signatures in 9 fallbacks" in found.message
    empty = ChildReport(role="graph", ending="ran", replay_count=9, node_count=0)
    assert added_up(tmp_path, empty).outcome is Outcome.NO_REPLAY


def with_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graph: float = 1.0) -> None:
    """Every child's state is one tensor; the graph child's may be another."""
    from test_equality import point

    def load(path: Path) -> dict[int, object]:
        return {3: point({"w": graph if path.parent.name == "graph" else 1.0})}

    monkeypatch.setattr("advisor.verify.states.load", load)


RAN = ChildReport(
    role="graph",
    ending="ran",
    replay_count=50,
    span_count=100,
    node_count=114,
    capture_ns=9000,
    instantiate_ns=1000,
    samples=(*samples("replay", 100), *samples("eager", 1000)),
)


def test_verified_gain_with_its_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_states(tmp_path, monkeypatch)
    found = added_up(tmp_path, RAN)
    assert found.outcome is Outcome.VERIFIED and found.timing is not None and found.equality is not None
    assert found.timing.speedup_ratio == pytest.approx(1001 / 101)
    assert 9 < found.timing.speedup_low_ratio <= found.timing.speedup_high_ratio < 11
    assert found.equality.outcome is EqualityOutcome.BITWISE
    # 10 000 ns of capture against 900 ns a step: twelve steps
    assert found.break_even_replays == 12
    assert "bit-identical over 50 replays" in found.message


def test_equal_and_no_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_states(tmp_path, monkeypatch)
    report = msgspec.structs.replace(RAN, samples=(*samples("replay", 1000), *samples("eager", 1000)))
    assert added_up(tmp_path, report).outcome is Outcome.NOT_FASTER


def test_faster_and_wrong_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_states(tmp_path, monkeypatch, graph=1.5)
    found = added_up(tmp_path, RAN)
    assert found.outcome is Outcome.DIFFERS
    assert "from step 3 on: w by up to 0.5" in found.message


def test_a_fix_is_timed_against_the_script_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_states(tmp_path, monkeypatch)
    report = msgspec.structs.replace(RAN, samples=(*samples("replay", 100), *samples("eager", 5000)))
    fixed = CANDIDATE.fixed(FixSpec(id="capturable"))
    run_ = child(tmp_path, "graph", report)
    report_ = ChildReport(
        role="eager",
        ending="ran",
        samples=samples("eager", 1000),
        optimizers=(OptimizerFact(kind="Adam", file="train.py", line=4),),
    )
    pair = Eager(
        child(tmp_path, "eager", report_), child(tmp_path, "again", report_), child(tmp_path, "fixed", report_)
    )
    found = combine.attempt("a", fixed, run_, pair, SOURCES)
    assert found.timing is not None and found.timing.speedup_ratio == pytest.approx(1001 / 101)
    assert found.fixes[0].id == "capturable"


# --- the search --------------------------------------------------------------------------------------------------------------


def searched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, outcomes: dict[str, ChildReport], **limits: object
) -> tuple[Verification, list[str]]:
    """A search whose children answer from a table: label and fixes -> report."""
    with_states(tmp_path, monkeypatch)
    asked: list[str] = []

    def wave(script: Script, orders: list[Order], timeout_s: float, tell: object) -> list[ChildRun]:
        runs = []
        for order in orders:
            spec = order.spec
            key = f"{spec.first_line}-{spec.last_line} {','.join(fix.id for fix in spec.fixes)}".strip()
            if spec.role == "graph":
                asked.append(key)
                report = outcomes[key]
            else:
                report = ChildReport(role="eager", ending="ran", samples=samples("eager", 1000))
            runs.append(
                ChildRun(order.name, tmp_path / ("graph" if spec.role == "graph" else "eager"), report, 0, False, 1)
            )
        return runs

    monkeypatch.setattr(search, "run_wave", wave)
    files = sources(text)
    made = Search(Script("train.py"), files, ("train.py", 1), tmp_path, Limits(**limits))  # type: ignore[arg-type]
    return made.run(plan.candidates(files, "train.py", 1)), asked


def test_the_first_span_that_pays_ends_the_search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, asked = searched(monkeypatch, tmp_path, TRAIN, {"3-6": RAN})
    assert asked == ["3-6"] and found.attempts[0].outcome is Outcome.VERIFIED and found.untried == ()


def test_cut_pieces_follow_a_blocked_span(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    outcomes = {"2-8": blocked_at(4), "6-8": blocked_at(7), "2-3": RAN}
    found, asked = searched(monkeypatch, tmp_path, MIDDLE, {**outcomes, "8-8": blocked_at(8), "6-6": RAN})
    assert asked[:2] == ["2-8", "6-8"]
    assert found.attempts[-1].outcome is Outcome.VERIFIED


def test_as_written_and_with_the_fix_are_kept_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = TRAIN + "opt = torch.optim.Adam(p)\n"
    outcomes = {"3-6": blocked_at(6, "optim-not-capturable"), "3-6 capturable": RAN}
    found, asked = searched(monkeypatch, tmp_path, text, outcomes)
    assert asked == ["3-6", "3-6 capturable"]
    assert [(a.outcome, [f.id for f in a.fixes]) for a in found.attempts] == [
        (Outcome.BLOCKED, []),
        (Outcome.VERIFIED, ["capturable"]),
    ]
    assert "as written: blocked" in terminal_text(found)
    assert "with construct the optimizer with capturable=True: verified" in terminal_text(found)


def test_no_what_if_tries_no_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = TRAIN + "opt = torch.optim.Adam(p)\n"
    found, asked = searched(monkeypatch, tmp_path, text, {"3-6": blocked_at(6, "optim-not-capturable")}, what_if=False)
    assert asked == ["3-6"] and len(found.attempts) == 1


def test_every_named_region_is_tried_beside_one_pair_of_eager_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_states(tmp_path, monkeypatch)
    names: list[str] = []

    def wave(script: Script, orders: list[Order], timeout_s: float, tell: object) -> list[ChildRun]:
        names.extend(order.name for order in orders)
        eager_run = ChildReport(role="eager", ending="ran", samples=samples("eager", 1000))
        return [
            ChildRun(
                order.name, tmp_path / order.spec.role, RAN if order.spec.role == "graph" else eager_run, 0, False, 1
            )
            for order in orders
        ]

    monkeypatch.setattr(search, "run_wave", wave)
    made = Search(Script("train.py"), SOURCES, ("train.py", 1), tmp_path, Limits())
    found = made.run([CANDIDATE], [Candidate("train.py", 4, 6)])
    assert [one.region_label for one in found.attempts] == ["train.py:3-6", "train.py:4-6"]
    assert names == ["eager", "eager-again", "attempt-1", "attempt-2"]


def test_attempts_are_limited_and_the_rest_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, _ = searched(monkeypatch, tmp_path, MIDDLE, {"2-8": blocked_at(4)}, max_attempts=1)
    assert len(found.attempts) == 1 and found.untried == ("train.py:6-8", "train.py:2-3")


def test_children_that_do_not_fit_together_run_one_by_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with_states(tmp_path, monkeypatch)
    sizes: list[int] = []

    def wave(script: Script, orders: list[Order], timeout_s: float, tell: object) -> list[ChildRun]:
        sizes.append(len(orders))
        full = ChildReport(role="eager", ending="failed", message="OutOfMemoryError: CUDA out of memory")
        report = full if len(orders) > 1 else RAN
        return [ChildRun(order.name, tmp_path / order.spec.role, report, 0, False, 1) for order in orders]

    monkeypatch.setattr(search, "run_wave", wave)
    made = Search(Script("train.py"), SOURCES, ("train.py", 1), tmp_path, Limits(parallel=3))
    found = made.run([CANDIDATE])
    assert sizes == [3, 1, 1, 1] and found.attempts[0].outcome is Outcome.VERIFIED
    assert "one after the other" in found.notes[0] and found.notes[1].startswith("measuring took: eager 1 ns")


def scattered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, values: dict[str, float], report: ChildReport = RAN
) -> tuple[Verification, list[str]]:
    """A search whose children end with one tensor each, by the child's name; 1.0 without one."""
    from test_equality import point

    monkeypatch.setattr("advisor.verify.states.load", lambda path: {3: point({"w": values.get(path.parent.name, 1.0)})})
    names: list[str] = []

    def wave(script: Script, orders: list[Order], timeout_s: float, tell: object) -> list[ChildRun]:
        names.extend(order.name for order in orders)
        eager_run = ChildReport(role="eager", ending="ran", samples=samples("eager", 1000))
        return [
            ChildRun(order.name, order.folder, report if order.spec.role == "graph" else eager_run, 0, False, 1)
            for order in orders
        ]

    monkeypatch.setattr(search, "run_wave", wave)
    made = Search(Script("train.py"), SOURCES, ("train.py", 1), tmp_path, Limits(max_attempts=1, what_if=False))
    return made.run([CANDIDATE]), names


MORE = ["eager", "eager-again", "attempt-1", "eager-third", "eager-fourth"]


def test_a_difference_that_eager_runs_never_show_stays_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, names = scattered(monkeypatch, tmp_path, {"attempt-1": 1.5})
    assert names == MORE and found.attempts[0].outcome is Outcome.DIFFERS
    assert any("run eagerly twice more" in note for note in found.notes)


def test_a_script_whose_eager_pair_agreed_by_chance_is_judged_deterministically(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    apart = {"attempt-1": 1.001, "eager-fourth": 1.0001}
    proof = ["attempt-1-eager", "attempt-1-eager-again", "attempt-1-graph"]
    found, names = scattered(monkeypatch, tmp_path, apart)
    assert names == [*MORE, *proof] and found.attempts[0].outcome is Outcome.VERIFIED
    assert "under deterministic algorithms" in found.attempts[0].message
    # There the graph must agree to the bit: it is wrong otherwise, whatever eager runs without them do.
    found, names = scattered(monkeypatch, tmp_path, {**apart, "attempt-1-graph": 1.001})
    assert names == [*MORE, *proof] and found.attempts[0].outcome is Outcome.DIFFERS


def test_a_difference_with_a_hazard_in_sight_is_not_asked_about(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report = msgspec.structs.replace(RAN, suspects=(Suspect(id="grad-reset-outside", evidence="w.grad was reset"),))
    found, names = scattered(monkeypatch, tmp_path, {"attempt-1": 1.5}, report)
    assert names == MORE[:3] and found.attempts[0].outcome is Outcome.DIFFERS


def test_a_child_that_was_measured_beside_others_is_noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with_states(tmp_path, monkeypatch)

    def wave(script: Script, orders: list[Order], timeout_s: float, tell: object) -> list[ChildRun]:
        return [
            ChildRun(order.name, tmp_path / order.spec.role, RAN, 0, False, 1, order.name == "eager")
            for order in orders
        ]

    monkeypatch.setattr(search, "run_wave", wave)
    found = Search(Script("train.py"), SOURCES, ("train.py", 1), tmp_path, Limits()).run([CANDIDATE])
    assert found.notes[0].startswith("eager was measured beside others")


def test_a_script_that_fails_eagerly_is_the_users_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def wave(script: Script, orders: list[Order], timeout_s: float, tell: object) -> list[ChildRun]:
        report = ChildReport(role="eager", ending="failed", message="ValueError: boom")
        return [ChildRun(order.name, tmp_path, report, 1, False, 1) for order in orders]

    monkeypatch.setattr(search, "run_wave", wave)
    made = Search(Script("train.py"), SOURCES, ("train.py", 1), tmp_path, Limits())
    with pytest.raises(ScriptFailed, match="ValueError: boom"):
        made.run([CANDIDATE])


# --- entry -------------------------------------------------------------------------------------------------------------------


def bundle(tmp_path: Path) -> Bundle:
    made = Bundle.create(tmp_path / "run")
    texts = {"train.py": SOURCES.texts["train.py"]}
    made.save(Manifest(tool_version="0", command=(), script="train.py", created_at="", source_files=texts))
    place = SourceSpan(file="train.py", first_line=1, last_line=1)
    made.save(Clock(step_label="", step_how="", step_location=place, host_step=Measurement(samples_ns=())))
    return made


def test_run_writes_the_verification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_states(tmp_path, monkeypatch)

    def wave(script: Script, orders: list[Order], timeout_s: float, tell: object) -> list[ChildRun]:
        assert script.target == "train.py"
        return [
            ChildRun(o.name, tmp_path / ("graph" if o.spec.role == "graph" else "eager"), RAN, 0, False, 1)
            for o in orders
        ]

    monkeypatch.setattr(search, "run_wave", wave)
    made = bundle(tmp_path)
    found = run(made, Options())
    assert found == made.load(Verification) and found.attempts[0].region_label == "train.py:3-6"


def test_distributed_training_warms_up_longer() -> None:
    assert schedule_for(sources("x = 1"), Schedule()).warmup == 5
    assert schedule_for(sources("model = DistributedDataParallel(model)"), Schedule()).warmup == 12


def test_regions_a_user_may_name() -> None:
    files = sources("with advisor.region('decode'):\n    y = f(x)\n    z = y\n")
    assert chosen(files, "train.py:2-3").label == "train.py:2-3"
    assert chosen(files, "decode").label == "train.py:2-3"
    assert chosen(files, "module:encoder.layers.0").module == "encoder.layers.0"
    with pytest.raises(UsageError, match="no such region"):
        chosen(files, "elsewhere")
