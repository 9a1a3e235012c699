"""What the parent asks of a verification child and what the child reports; plain values, no torch.

The request travels as JSON in `Job.options["verify"]`; the report is `verify.json` in the job's folder, written when the
child has finished, was refused or failed; fingerprints lie beside it in `state.npz`. A gated child makes `ready` before
its first step and waits for `go`: children start together and are measured one at a time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import msgspec

OPTION: Final = "verify"
REPORT_NAME: Final = "verify.json"
STATE_NAME: Final = "state.npz"
READY_NAME: Final = "ready"
GO_NAME: Final = "go"
_FEW_BLOCKS: Final = 6  # three of each kind; a loop too short for that gets shorter blocks instead of fewer
_SHORT_BLOCK: Final = 4
_LONG_BLOCK: Final = 6
Phase = Literal["warmup", "capture", "check", "replay", "eager", "done"]


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happens at which step. The same in every child, so that fingerprints of equal steps compare.

    `warmup` eager steps, one that captures, `checks` replayed and fingerprinted steps, then `blocks` timed blocks of
    `block` steps, replayed and eager in turn; the state is fingerprinted again after every third
    and fourth block of four.

    Seven: scripts log every 10, 50 or 100 steps, and with two blocks of five the step that logs would always be a replayed
    one. Its `loss.item()` drains the device, and the step after it starts late.
    """

    warmup: int = 5
    checks: int = 12
    block: int = 7
    blocks: int = 20

    @property
    def timing_start(self) -> int:
        return self.warmup + 1 + self.checks

    @property
    def total(self) -> int:
        return self.timing_start + self.block * self.blocks

    def phase(self, step: int) -> Phase:
        """The phase of a step, counted from 0."""
        if step < self.warmup:
            return "warmup"
        if step == self.warmup:
            return "capture"
        if step < self.timing_start:
            return "check"
        if step >= self.total:
            return "done"
        return "replay" if (step - self.timing_start) // self.block % 2 == 0 else "eager"

    @property
    def lr_change(self) -> int:
        """The checked step at whose beginning learning rates change, in scripts that change them at some time."""
        return self.warmup + 1 + self.checks // 2

    def starts_block(self, step: int) -> bool:
        """Whether `step` is the first of a timed block (or of nothing any more)."""
        return step >= self.timing_start and (step - self.timing_start) % self.block == 0

    def times_step(self, step: int) -> bool:
        """Whether the time of this step counts: not the first of a block, nor the last third, where the span is timed."""
        position = self._position(step)
        return position > 0 and (self.block < _LONG_BLOCK or position < 2 * self.block / 3)

    def times_region(self, step: int) -> bool:
        """Whether the span itself is timed in this step. Its two marks cost a slow host 10 to 20 µs a step; only in blocks too
        short to be shared does the step's own time hold them."""
        position = self._position(step)
        return position > 0 and (self.block < _LONG_BLOCK or position >= 2 * self.block / 3)

    def _position(self, step: int) -> int:
        """The position of a step in its timed block, -1 outside of one."""
        return (step - self.timing_start) % self.block if self.timing_start <= step < self.total else -1

    def checked(self, step: int) -> bool:
        """Whether the state is fingerprinted after `step`."""
        if step < self.timing_start:
            return step >= self.warmup - 2
        # behind a replayed block, where what an eager one left behind may have misled the graph, and behind an eager one
        return (step + 1 - self.timing_start) % (4 * self.block) in (0, 3 * self.block)

    def fitted(self, steps: int | None) -> Schedule:
        """The schedule for a loop of `steps` iterations in all; unchanged when that is unknown or enough."""
        if steps is None or steps >= self.total:
            return self
        checks = min(self.checks, max(3, (steps - self.warmup - 1) // 3))
        left = max(0, steps - self.warmup - 1 - checks)
        block = self.block if left >= _FEW_BLOCKS * self.block else min(self.block, _SHORT_BLOCK)
        return msgspec.structs.replace(self, checks=checks, block=block, blocks=min(self.blocks, left // block))


class FixSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One mechanical change. `line` is the statement it touches, in `file`; 0 when it is applied at run time."""

    id: str
    file: str = ""
    line: int = 0
    detail: str = ""


class VerifySpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One child's part. Files are relative to the script's folder; lines are those of the unmodified files."""

    role: Literal["eager", "graph"]
    loop_file: str = ""
    loop_line: int = 0
    span_file: str = ""
    first_line: int = 0
    last_line: int = 0
    module: str = ""  # the path of an nn.Module whose call is the span, instead of lines
    strategy: str = "in_place"
    fixes: tuple[FixSpec, ...] = ()
    schedule: Schedule = Schedule()
    deterministic: bool = False  # torch's deterministic algorithms: for scripts whose eager runs differ too much
    gate: bool = False  # wait before the first step until the parent says go
    error_mode: str = "thread_local"
    clone_outputs: bool = True
    stage_inputs: bool = True
    clear_autocast: bool = True


class Failed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What stopped a capture."""

    blocker: str
    evidence: str
    file: str = ""
    line: int = 0
    library: str = ""  # file:line inside a library, when it was raised there


class Suspect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A hazard seen at run time or in the source."""

    id: str
    evidence: str
    file: str = ""
    line: int = 0


class OptimizerFact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One optimizer the script made."""

    kind: str
    file: str = ""
    line: int = 0
    has_capturable: bool = False
    capturable: bool = False
    has_fused: bool = False
    float_lr: bool = True


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """One timed step. kind: "eager", "replay" or "mixed" (some executions fell back)."""

    step: int
    kind: str
    device_ns: int
    host_ns: int


class ChildReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one child did. ending: "ran", "blocked", "refused", "failed" (the script or a replay raised)."""

    role: str
    ending: Literal["ran", "blocked", "refused", "failed"]
    message: str = ""
    step_count: int = 0
    span_count: int = 0
    replay_count: int = 0
    fallback_count: int = 0
    signatures: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = ()
    region_eager_ns: tuple[int, ...] = ()
    region_replay_ns: tuple[int, ...] = ()
    node_count: int | None = None
    pool_bytes: int | None = None
    capture_ns: int | None = None
    instantiate_ns: int | None = None
    failed: Failed | None = None
    suspects: tuple[Suspect, ...] = ()
    effects: tuple[str, ...] = ()  # "train.py:12 append losses.append(loss)"
    dead_names: tuple[str, ...] = ()  # written by the span and read by nobody: not compared
    frozen: tuple[str, ...] = ()  # "SGD lr = 0.01": Python numbers that are constants in the graph
    staged_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    optimizers: tuple[OptimizerFact, ...] = ()
    lr_changed: bool = False  # learning rates were scaled in the checked steps, as a scheduler will some day
    tensor_count: int = 0
    wall_ns: int = 0


def write_report(folder: Path, report: ChildReport) -> Path:
    """Write the report atomically. Raises BundleError."""
    from advisor.bundle import write_atomically

    return write_atomically(folder / REPORT_NAME, msgspec.json.encode(report))


def read_report(folder: Path) -> ChildReport | None:
    """The child's report; None when it left none (crashed, killed at the time limit)."""
    try:
        return msgspec.json.decode((folder / REPORT_NAME).read_bytes(), type=ChildReport)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
