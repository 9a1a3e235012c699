"""The verify mode of the worker: run the script once, eagerly or with the span captured, and report.

One capture attempt per process: after a failed one nothing in the process is to be trusted.
"""

from __future__ import annotations

import ast
import os
import sys
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import msgspec
import torch

from advisor.workload import diagnose, effects, loader, module_span, namespaces, spans, state, strategies, whatif
from advisor.workload.capture import SpanRuntime, SpanSpec
from advisor.workload.equality import Fingerprints
from advisor.workload.graphs import CudaDevice, Device
from advisor.workload.imports import SourceFile
from advisor.workload.job import Job, ProgressWriter
from advisor.workload.liveness import Scope, SpanNames
from advisor.workload.replay import Recording, Switches
from advisor.workload.session import Session
from advisor.workload.verify_job import (
    GO_NAME,
    OPTION,
    READY_NAME,
    STATE_NAME,
    ChildReport,
    Failed,
    OptimizerFact,
    Suspect,
    VerifySpec,
    write_report,
)


def run(job: Job) -> loader.Outcome:
    """Run the script under one verification role. Writes verify.json and state.npz into the job's folder."""
    spec = msgspec.json.decode(job.options[OPTION], type=VerifySpec)
    return Child(job, spec, CudaDevice()).run()


@dataclass
class Child:
    """One child's work, on any device."""

    job: Job
    spec: VerifySpec
    device: Device
    sources: dict[str, str] = field(default_factory=dict)  # path -> text of the user's files
    labels: dict[str, str] = field(default_factory=dict)  # path -> name relative to the script's folder
    effects: tuple[effects.Effect, ...] = ()
    failed: Failed | None = None
    refused: str = ""
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self._began = time.perf_counter_ns()
        self._names = SpanNames()
        self._dead: tuple[str, ...] = ()  # names of the loop's frame; another function's say nothing about the loop's
        self._hidden: frozenset[str] = frozenset()
        self._span_module = "__main__"
        self._side_stream: int | None = None
        self._registry = state.install((), {fix.id for fix in self.spec.fixes if fix.id in whatif.RUNTIME})
        if self.spec.deterministic:
            make_deterministic()
        self._fingerprints = Fingerprints(self.device.rng_states)
        writer = ProgressWriter(self.job)
        total = self.spec.schedule.total
        self.session = Session(
            self.spec,
            self.device,
            self._fingerprints,
            loader.stopper.stop,
            self._capture_failed,
            self._wait_for_turn if self.spec.gate else lambda: None,
            lambda phase, step: writer.write(phase, step, total),
        )
        self._written = False

    def run(self) -> loader.Outcome:
        """Execute the script; whatever happens, a report is written."""
        self.device.start()
        self.prepare()
        plain = sys.excepthook

        def note(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
            self.error = error
            plain(kind, error, traceback)

        sys.excepthook = note  # the loader reports the script's exception here, before it calls `finish`
        return loader.execute(self.job, self.transform, self.finish)

    def prepare(self) -> None:
        """What a span that is no run of statements needs before the script starts."""
        if self.spec.module:
            self._make_runtime(SpanSpec(f"module {self.spec.module}", SpanNames()))
            module_span.install(self.session, self.spec.module)
        elif self.spec.strategy != "in_place":
            strategies.start(self.spec.strategy, self.session, self.spec)

    def _wait_for_turn(self) -> None:
        """Say that the script is set up, and wait until the children before this one are measured."""
        folder = self.job.folder
        self.device.synchronize()
        (folder / READY_NAME).touch()
        while not (folder / GO_NAME).exists():
            time.sleep(0.01)

    # --- the transform ---------------------------------------------------------------------------------------------------

    def transform(self, tree: ast.Module, file: SourceFile) -> ast.Module:
        """Wrap the span and the loop where this file holds them."""
        self.sources[file.path] = file.text
        self.labels[file.path] = file.label
        self._registry.files = frozenset(self.sources)
        self._fingerprints.user_modules |= {file.module}
        self.session.changes_lr |= whatif.writes_learning_rate(tree)
        loop = None
        try:
            loop = self._loop(tree, file)
            if loop is not None:
                file.inject[spans.STEP_NAME] = self.session
            if file.label == self.spec.span_file and self.spec.first_line and self.spec.strategy == "in_place":
                self._wrap(tree, file, loop[0] if loop is not None else None)
            elif any(fix.file == file.label for fix in self.spec.fixes):
                self._edit_only(tree, file)
        except (spans.SpanError, ValueError) as error:
            if self.spec.role == "graph":
                self.refused = f"{file.label}: {error}"
                self.session.done = True
                self.session.stop()
        if loop is not None:
            spans.wrap_loop(*loop)
        return tree

    def _loop(self, tree: ast.Module, file: SourceFile) -> tuple[Scope, ast.For | ast.While] | None:
        if file.label != self.spec.loop_file or not self.spec.loop_line:
            return None
        return spans.find_loop(tree, self.spec.loop_line)

    def _wrap(self, tree: ast.Module, file: SourceFile, loop_scope: Scope | None) -> None:
        found = spans.locate(tree, self.spec.first_line, self.spec.last_line)
        found = self._apply_fixes(tree, file, found)
        spans.lift_return(found)
        self.effects = effects.find(tree, found.statements)
        self._side_stream = diagnose.side_stream_line(found.statements)
        self._span_module = file.module
        self._hidden = effects.hidden_names(tree, found.statements)
        self._names = spans.span_names(tree, found)
        if not self.spec.loop_line or loop_scope is found.scope:
            self._dead = self._names.dead
        self._make_runtime(SpanSpec(self._label(), self._names, spans.rebindable(found.scope)))
        file.inject[spans.SPAN_NAME] = self.session.runtime
        spans.wrap_span(tree, found, self._names)

    def _apply_fixes(self, tree: ast.Module, file: SourceFile, found: spans.Located) -> spans.Located:
        for fix in self.spec.fixes:
            if fix.file == file.label:
                changes = whatif.edits(fix, tree, found.statements)
                if changes:
                    found = whatif.apply(tree, found, changes)
        return found

    def _edit_only(self, tree: ast.Module, file: SourceFile) -> None:
        whole = spans.Located(tree, tree.body, 0, len(tree.body) - 1)
        for fix in self.spec.fixes:
            if fix.file == file.label and fix.id != "defer":
                whatif.apply(tree, whole, whatif.edits(fix, tree, []))

    def _label(self) -> str:
        return f"{self.spec.span_file}:{self.spec.first_line}-{self.spec.last_line}"

    def _make_runtime(self, what: SpanSpec) -> None:
        fixes = {fix.id for fix in self.spec.fixes}
        switches = Switches(
            error_mode="relaxed" if "error-mode" in fixes else self.spec.error_mode,
            clone_outputs=self.spec.clone_outputs,
            stage_inputs=self.spec.stage_inputs,
            clear_autocast=self.spec.clear_autocast,
            register_generators="generator" in fixes,
        )
        self.session.runtime = SpanRuntime(what, self.session, switches)

    # --- the report --------------------------------------------------------------------------------------------------------

    def _capture_failed(self, error: BaseException) -> None:
        failure = diagnose.failure_of(error)
        found = diagnose.diagnose(failure, self.sources, self.sources)
        user = found.user
        library = found.library
        elsewhere = self._side_stream or self.spec.last_line
        self.failed = Failed(
            blocker=found.blocker,
            evidence=found.evidence,
            file=self.labels.get(user.file, "") if user else self.spec.span_file,
            line=user.line if user else elsewhere,
            library=f"{short_path(library.file)}:{library.line}" if library else "",
        )
        self._write("blocked", found.evidence)  # now: the process may not survive its own clean-up

    def finish(self) -> None:
        """Write the report unless it is written. Called once the script is over."""
        if self._written:
            return
        if self.error is not None:
            self._write_error(self.error)
        elif self.session.refusal is not None:
            self._write("refused", self.session.refusal.evidence)
        elif self.refused:
            self._write("refused", self.refused)
        else:
            self._write("ran", "")

    def _write_error(self, error: BaseException) -> None:
        failure = diagnose.failure_of(error)
        found = diagnose.diagnose(failure, self.sources, self.sources)
        if self.session.recording is not None:
            user = found.user
            self.failed = Failed(
                blocker=found.blocker,
                evidence=found.evidence,
                file=self.labels.get(user.file, "") if user else "",
                line=user.line if user else 0,
            )
        self._write("failed", found.evidence)

    def _write(self, ending: Any, message: str) -> None:
        self._written = True
        session, runtime = self.session, self.session.runtime
        report = ChildReport(
            role=self.spec.role,
            ending=ending,
            message=message,
            step_count=min(session.step + 1, self.spec.schedule.total),
            failed=self.failed,
            suspects=self._suspects(),
            effects=tuple(f"{self.spec.span_file}:{line} {kind} {text}" for line, kind, text in self.effects),
            dead_names=self._dead,
            optimizers=optimizer_facts(self.labels),
            lr_changed=session.lr_changed,
            wall_ns=time.perf_counter_ns() - self._began,
        )
        if runtime is not None:
            report = msgspec.structs.replace(
                report,
                span_count=runtime.execution_count,
                replay_count=runtime.replay_count,
                fallback_count=runtime.fallback_count,
                signatures=tuple(sorted(runtime.signatures)),
            )
        if ending == "ran":
            report = self._with_measurements(report)
        write_report(self.job.folder, report)
        if ending == "ran" and session.recording is not None:
            session.recording.graph.reset()  # before any process group is destroyed

    def _with_measurements(self, report: ChildReport) -> ChildReport:
        session = self.session
        self.device.synchronize()
        report = msgspec.structs.replace(
            report,
            samples=session.samples(),
            region_eager_ns=session.region_ns(False),
            region_replay_ns=session.region_ns(True),
            tensor_count=self._fingerprints.write(self.job.folder / STATE_NAME),
        )
        recording = session.recording
        if recording is None:
            return report
        return msgspec.structs.replace(
            report,
            node_count=recording.graph.node_count(),
            pool_bytes=recording.pool_bytes,
            capture_ns=recording.capture_ns,
            instantiate_ns=recording.instantiate_ns,
            frozen=self._frozen(recording),
            staged_names=tuple(sorted({item.path[0] for item in recording.staged})),
            output_names=tuple(output.path.text for output in recording.outputs_of),
        )

    def _frozen(self, recording: Recording) -> tuple[str, ...]:
        """The Python numbers the graph keeps: of the span's own names, of functions it calls, of its optimizers."""
        numbers = {**dict(recording.inputs.numbers()), **dict(recording.watch.learning_rates())}
        prefix = namespaces.prefix(self._span_module)
        for text, leaf in namespaces.leaves(frozenset({self._span_module}), {}, lambda _: False):
            name = text.removeprefix(prefix)
            root = name.split("[", 1)[0].split(".", 1)[0]
            if text.startswith(prefix) and root in self._hidden and isinstance(leaf, bool | int | float):
                numbers.setdefault(name, leaf)
        return tuple(f"{name} = {value!r}" for name, value in numbers.items())

    def _suspects(self) -> tuple[Suspect, ...]:
        found = dict(self.session.suspects)
        if self.session.refusal is not None:
            found.setdefault(self.session.refusal.id, self.session.refusal)
        for place in sorted(self._fingerprints.rebound):
            root = place.removeprefix(namespaces.PREFIX).split("[", 1)[0].split(".", 1)[0]
            if root in self._hidden and root not in self._names.live_in:
                evidence = f"`{place}`, read by a function the span calls, is bound to another tensor outside the span"
                found.setdefault("stale-input", Suspect(id="stale-input", evidence=evidence))
        return tuple(found.values())


def short_path(path: str) -> str:
    """A library's file below its site-packages folder: where that lies is nobody's business."""
    for folder in ("site-packages", "dist-packages"):
        _, found, rest = path.replace(os.sep, "/").rpartition(f"/{folder}/")
        if found:
            return rest
    return os.path.basename(path)


def make_deterministic() -> None:
    """Let every operator that can be deterministic be it, so that equal work gives equal bits."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when the first handle is made
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Fused attention kernels are not all repeatable, and torch does not refuse them; the plain one is.
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)


def optimizer_facts(labels: dict[str, str]) -> tuple[OptimizerFact, ...]:
    """What the script's optimizers are; files as `labels` names them."""
    found = []
    for optimizer in state.REGISTRY.live_optimizers():
        path, line = state.REGISTRY.made_at.get(id(optimizer), ("", 0))
        group = optimizer.param_groups[0] if optimizer.param_groups else {}
        found.append(
            OptimizerFact(
                kind=type(optimizer).__name__,
                file=labels.get(path, ""),
                line=line,
                has_capturable="capturable" in group,
                capturable=bool(group.get("capturable")),
                has_fused="fused" in group,
                float_lr=not isinstance(group.get("lr"), torch.Tensor),
            )
        )
    return tuple(found)
