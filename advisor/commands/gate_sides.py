"""What `cgadvisor gate` compares: its options, and the snapshot of whatever a side is given as."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from advisor.config import Config
from advisor.gate import Snapshot, is_trace, load_side
from advisor.gate.baseline import DEFAULT_NAME
from advisor.gate.sides import label_of


@dataclass(frozen=True)
class Options:
    """The command line, typed. `files`: format -> file to write beside what is printed."""

    run: Path | None
    baseline: Path | None
    config: Path | None = None
    format: str = "text"
    files: Mapping[str, Path] = field(default_factory=dict)
    allow_missing: tuple[str, ...] = ()
    source_root: str = ""
    verbose: bool = False
    script: Path | None = None  # --run: profile this now
    script_args: tuple[str, ...] = ()
    rounds: int = 5


def side(path: Path, config: Config) -> Snapshot:
    """The snapshot of a run folder, findings.json, baseline or recorded trace, which is analysed here and now."""
    if not is_trace(path):
        return load_side(path)
    from advisor import analyze, load
    from advisor.gate.counts import RunArtefacts, snapshot_of

    return snapshot_of(RunArtefacts(analyze(load(path), config=config)), label_of(path))


def base_path(options: Options) -> Path | None:
    """The baseline asked for; else `cgadvisor-baseline.json` here; None when there is none."""
    if options.baseline is not None:
        return options.baseline
    here = Path(DEFAULT_NAME)
    return here if here.exists() else None
