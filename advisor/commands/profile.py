"""`cgadvisor profile script.py`: clock it, trace it, analyse it, verify what is worth it, and write the run folder."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from advisor.bundle import NSYS_NAME, REPORT_NAME, TRACE_NAME, Bundle, write_atomically
from advisor.commands.calibrate import machine_calibration
from advisor.errors import EXIT_OK, AdvisorError, ScriptFailed, TraceError, UsageError
from advisor.model import Clock, Manifest
from advisor.runner import export_sqlite, find_nsys, log_tail, nsys_prefix, run_job
from advisor.units import format_ns
from advisor.version import __version__
from advisor.workload import environment
from advisor.workload.job import DEVICE_OPTION, Job, Progress, Result, result_path

if TYPE_CHECKING:  # pandas is loaded when there is something to analyse
    from advisor.advise import Study

RUNS_FOLDER: Final = "cgadvisor-runs"
EXIT_INTERRUPTED: Final = 130
TRACERS: Final = ("torch", "nsys")
_SOURCES: Final = "sources.json"
_PLAN: Final = "plan.json"
_SECRET: Final = re.compile(r"token|secret|passw|api[-_]?key|credential|auth", re.IGNORECASE)


@dataclass(frozen=True)
class Options:
    """The command line, typed. `target` is a script's path, or a module's name when `is_module`."""

    target: str
    argv: tuple[str, ...] = ()
    is_module: bool = False
    steps: int = 30
    warmup: int = 10
    step_at: str = ""
    instrument: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    tracer: str = "torch"
    stacks: bool = False
    verify: bool = True
    seed: int | None = None
    out: Path | None = None
    timeout_s: float = 600.0
    device: str = "cuda"  # "cpu" runs the whole protocol without a GPU, for developing the tool


def run(options: Options) -> int:
    """Profile and print. Returns the exit code; raises AdvisorError."""
    check(options)
    folder = options.out or free_folder(Path(RUNS_FOLDER), run_name(options))
    session = Session(options, Bundle.create(folder))
    try:
        session.run()
    except KeyboardInterrupt:
        session.note(f"interrupted in the {session.doing} pass")
        finished = ", ".join(session.passes) or "nothing"
        print(f"\ncgadvisor: interrupted; finished and kept in {folder}: {finished}", file=sys.stderr)
        return EXIT_INTERRUPTED
    except ScriptFailed:
        session.note(f"the script failed in the {session.doing} pass")
        raise
    return EXIT_OK


def check(options: Options) -> None:
    """Everything that can be refused before anything runs. Raises UsageError or GpuRequired."""
    from advisor.workload.steps import Spec

    if not options.is_module and not Path(options.target).is_file():
        raise UsageError(f"{options.target}: no such script; give the path of a Python file, or -m and a module's name")
    if options.tracer not in TRACERS:
        raise UsageError(f"--tracer {options.tracer}: there are {' and '.join(TRACERS)}")
    if options.tracer == "nsys":
        find_nsys()
    Spec.parse(options.step_at)
    environment.require_torch(options.device)


def run_name(options: Options) -> str:
    return options.target.rpartition(".")[2] if options.is_module else Path(options.target).stem


def free_folder(parent: Path, name: str) -> Path:
    """`parent/name`, or with the first free number: a run never overwrites another."""
    count, folder = 1, parent / name
    while folder.exists():
        count += 1
        folder = parent / f"{name}-{count}"
    return folder


@dataclass
class Session:
    """One `profile` run, pass by pass; the manifest is written after each, so that what is finished stays usable."""

    options: Options
    bundle: Bundle
    passes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    doing: str = "clock"
    sources: dict[str, str] = field(default_factory=dict)
    created_at: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))

    def run(self) -> None:
        """All passes, the analysis, the verification and the report."""
        self._clear()
        print(self.announcement(), flush=True)
        self._pass("clock")
        self._say_step()
        self._trace()
        self._calibrate()
        self.doing = "analysis"
        made = self._analyse()
        if self.options.verify:
            self._verify(made)
        self._report()

    def announcement(self) -> str:
        """How often and how far the script will run."""
        options = self.options
        steps, warmup = options.steps, options.warmup
        name = f"-m {options.target}" if options.is_module else options.target
        again = (
            "then a few times more, for seconds each, to verify what is worth it"
            if options.verify
            else "no verification"
        )
        return (
            f"{name} will run twice, unmodified, and be ended after about {warmup + 2 * steps} steps: once under a clock, once "
            f"under {'Nsight Systems' if options.tracer == 'nsys' else 'torch.profiler'}; {again}.\n"
            f"Its output goes to {self.bundle.folder}/log-*.txt"
        )

    def note(self, text: str) -> None:
        """Put a note into the manifest."""
        self.notes.append(text)
        self._save_manifest()

    def _clear(self) -> None:
        """An --out folder may hold an older run: its results must not be taken for this one's."""
        names = [
            "clock.json",
            TRACE_NAME,
            NSYS_NAME,
            "calibration.json",
            "findings.json",
            "predictions.json",
            "verification.json",
            REPORT_NAME,
            _PLAN,
            _SOURCES,
        ]
        for name in names:
            self.bundle.path(name).unlink(missing_ok=True)
        self._save_manifest()

    def _job(self, mode: str) -> Job:
        options = self.options
        return Job(
            mode=mode,
            target=options.target,
            is_module=options.is_module,
            argv=options.argv,
            out_dir=str(self.bundle.folder.resolve()),
            steps=options.steps,
            warmup=options.warmup,
            seed=options.seed,
            step=options.step_at,
            instrument=options.instrument,
            regions=options.regions,
            stacks=options.stacks,
            timeout_s=options.timeout_s,
            options={DEVICE_OPTION: options.device, "tracer": options.tracer},
        )

    def _pass(self, mode: str, prefix: tuple[str, ...] = ()) -> Result:
        self.doing = mode
        job, bar = self._job(mode), ProgressBar(mode)
        try:
            result = run_job(job, bar.show, prefix)
        except ScriptFailed:
            bar.end()
            tail = log_tail(job)
            if tail:
                print(tail, file=sys.stderr)
            raise
        finally:
            bar.end()
        self.facts |= result.facts
        self.notes += list(result.notes)
        self.passes.append(mode)
        self._take_sources()
        result_path(job.folder, mode).unlink(missing_ok=True)
        self._save_manifest()
        return result

    def _say_step(self) -> None:
        clock = self.bundle.load(Clock)
        samples = sorted(clock.host_step.samples_ns)
        if not samples:
            print(f"No step found ({clock.step_how}): the whole run is analysed; --step-at names one", flush=True)
            self.notes.append("no step found: the whole run is analysed")
            return
        middle = format_ns(samples[len(samples) // 2])
        print(f"Step: {clock.step_how}; {middle} unprofiled, median of {len(samples)}", flush=True)

    def _trace(self) -> None:
        if self.options.tracer != "nsys":
            self._pass("trace")
            return
        nsys = find_nsys()
        report = self.bundle.path("trace.nsys-rep")
        self._pass("trace", tuple(nsys_prefix(nsys, report.with_suffix(""))))
        export_sqlite(nsys, report, self.bundle.path(NSYS_NAME))
        report.unlink()

    def _calibrate(self) -> None:
        """This machine's constants into the run folder: cached ones, or measured now. Without them the defaults serve."""
        if self.options.device == "cpu":
            return
        self.doing = "calibration"
        bar = ProgressBar("calibrate")
        try:
            found, _ = machine_calibration(
                gpu_name=self.facts.get("gpus", "").split("\n")[0],
                measuring=lambda: bar.tell("measuring this machine, once"),
            )
        except AdvisorError as error:
            self.note(f"not calibrated, default constants are used: {error}")
            return
        finally:
            bar.end()
        self.bundle.save(found)

    def _analyse(self) -> Study:
        from advisor import load
        from advisor.advise import conclude, study
        from advisor.commands.predict import evidence_of

        name = NSYS_NAME if self.options.tracer == "nsys" else TRACE_NAME
        if not self.bundle.path(name).exists():
            raise TraceError(f"nothing was recorded: {self.options.target} has not used torch; is it the right script?")
        timeline = load(self.bundle.path(name))
        made = study(timeline, evidence_of(self.bundle))
        self.bundle.save(conclude(made))
        return made

    def _verify(self, made: Study) -> None:
        from advisor import verify
        from advisor.commands.predict import Predictor
        from advisor.verify.children import Script

        if not made.devices:
            self.note("not verified: the trace holds no GPU work")
            return
        self.doing = "verify"
        options = self.options
        script = Script(
            target=options.target,
            argv=options.argv,
            is_module=options.is_module,
            seed=options.seed if options.seed is not None else 0,
            instrument=options.instrument,
        )
        bar = ProgressBar("verify")
        try:
            predictor = Predictor(self.bundle, made)
            found = verify.run(self.bundle, verify.Options(script=script, tell=bar.tell, before=predictor))
            predictor.with_traced_items(found)
        finally:
            bar.end()
        self.passes.append("verify")
        self._save_manifest()

    def _report(self) -> None:
        from advisor.report import html, terminal
        from advisor.report.content import RunContent

        content = RunContent.load(self.bundle.folder)
        report = write_atomically(self.bundle.path(REPORT_NAME), html.render(content).encode())
        print(terminal.render(content, report=report))

    def _take_sources(self) -> None:
        """Move the sources the clock pass left into the manifest."""
        path = self.bundle.path(_SOURCES)
        if path.exists():
            self.sources = msgspec.json.decode(path.read_bytes(), type=dict[str, str])
            path.unlink()

    def _save_manifest(self) -> None:
        options, facts = self.options, self.facts
        argv = redacted(options.argv)
        target = ("-m", options.target) if options.is_module else (options.target,)
        manifest = Manifest(
            tool_version=__version__,
            command=tuple(shorten(part) for part in ("cgadvisor", "profile", *target, *argv)),
            script=shorten(options.target),
            created_at=self.created_at,
            python_version=facts.get("python", ""),
            torch_version=facts.get("torch", ""),
            cuda_version=facts.get("cuda", ""),
            driver_version=facts.get("driver", ""),
            gpu_clock_mhz=int(facts["gpu_clock_mhz"]) if facts.get("gpu_clock_mhz") else None,
            gpu_names=tuple(name for name in facts.get("gpus", "").split("\n") if name),
            cpu_count=int(facts.get("cpu_count", "0")),
            options={
                "argv": "\x1f".join(shorten(part) for part in argv),
                "module": "1" if options.is_module else "",
                "seed": "" if options.seed is None else str(options.seed),
                "steps": str(options.steps),
                "warmup": str(options.warmup),
                "step_at": options.step_at,
                "tracer": options.tracer,
                "stacks": "1" if options.stacks else "",
            },
            source_files=self.sources,
            passes=tuple(self.passes),
            notes=tuple(self.notes),
        )
        self.bundle.save(manifest)


def redacted(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments with the values of those that are named like a secret replaced by ***."""
    made: list[str] = []
    hide_next = False
    for part in argv:
        name, equals, _value = part.partition("=")
        if hide_next and not part.startswith("-"):
            made.append("***")
        elif equals and _SECRET.search(name):
            made.append(f"{name}=***")
        else:
            made.append(part)
        hide_next = part.startswith("-") and not equals and bool(_SECRET.search(part))
    return tuple(made)


def shorten(text: str) -> str:
    """Paths below the home folder begin with ~."""
    home = str(Path.home())
    return text.replace(home, "~") if len(home) > 1 else text


class ProgressBar:
    """Pass, step and time left: one line that is written over on a terminal, else one line per phase."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._live = sys.stderr.isatty()
        self._phase = ""
        self._first: tuple[int, float] | None = None
        self._shown = False

    def show(self, seen: Progress) -> None:
        """One report of a child."""
        text = f"{self._name}: {seen.phase}"
        if seen.steps and seen.step and seen.phase != "finish":
            text += f", step {seen.step} of {seen.steps}{self._left(seen)}"
        self._line(text, seen.phase)

    def tell(self, text: str) -> None:
        """A line of free text."""
        self._line(f"{self._name}: {text}", text)

    def end(self) -> None:
        if self._live and self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._shown = False

    def _line(self, text: str, phase: str) -> None:
        if self._live:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
            self._shown = True
        elif phase != self._phase:
            print(text, file=sys.stderr, flush=True)
        self._phase = phase

    def _left(self, seen: Progress) -> str:
        if self._first is None:
            self._first = (seen.step, time.monotonic())
            return ""
        step, at = self._first
        if seen.step <= step:
            return ""
        seconds = (time.monotonic() - at) / (seen.step - step) * (seen.steps - seen.step)
        return f", about {format_ns(seconds * 1e9)} left"
