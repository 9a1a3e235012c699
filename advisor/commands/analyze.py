"""`cgadvisor analyze`: a recorded trace in, findings in the terminal and a run folder out."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Final

from advisor.bundle import REPORT_NAME, Bundle, write_atomically
from advisor.config import load_config
from advisor.errors import EXIT_OK, BundleError, TraceError, UsageError

if TYPE_CHECKING:
    from advisor.model import Analysis
    from advisor.timeline import Timeline

RUNS_FOLDER: Final = "cgadvisor-runs"
_UNITS: Final = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


@dataclass(frozen=True)
class Options:
    """The command line, typed."""

    trace: Path
    out: Path | None
    json: bool
    export: Path | None
    device: int | None
    window: str | None
    region: str | None
    config: Path | None
    open_report: bool


def run(options: Options) -> int:
    """Analyse, write the run folder, print. Returns the exit code; raises AdvisorError."""
    from advisor import load
    from advisor.advise import analyze, with_gaps

    config = load_config(options.config)
    timeline = load(options.trace, device=options.device)
    if options.window is not None:
        timeline = _windowed(timeline, options.window)
    timeline = with_gaps(timeline)
    analysis = analyze(timeline, config=config)
    if options.region is not None:
        _check_region(analysis, options.region)
    if options.export is not None:
        export_tables(timeline, options.export)
    folder = options.out or Path(RUNS_FOLDER) / _run_name(options.trace)
    bundle = Bundle.create(folder)
    bundle.save(analysis)
    report = _write_report(bundle)
    _print(options, analysis, folder, report)
    if options.open_report:
        import webbrowser

        webbrowser.open(report.resolve().as_uri())
    return EXIT_OK


def _write_report(bundle: Bundle) -> Path:
    from advisor.report import html
    from advisor.report.content import RunContent

    text = html.render(RunContent.load(bundle.folder))
    return write_atomically(bundle.path(REPORT_NAME), text.encode())


def _print(options: Options, analysis: Analysis, folder: Path, report: Path) -> None:
    if options.json:
        import msgspec

        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(analysis), indent=1) + b"\n")
        return
    from advisor.report import terminal
    from advisor.report.content import RunContent

    print(terminal.render(RunContent.load(folder), region=options.region, report=report))


def _run_name(trace: Path) -> str:
    name = trace.resolve().name
    for suffix in (".gz", ".json", ".pt.trace", ".trace", ".sqlite", ".nsys-rep"):
        name = name.removesuffix(suffix)
    return name or "trace"


def _check_region(analysis: Analysis, wanted: str) -> None:
    labels = [region.label for region in analysis.regions]
    if not any(wanted in (region.id, region.label) or fnmatch(region.label, wanted) for region in analysis.regions):
        from difflib import get_close_matches

        near = get_close_matches(wanted, labels, 3) or labels[:5]
        raise UsageError(f"--region {wanted}: no such region; there are {', '.join(near) or 'none in this trace'}")


def _windowed(timeline: Timeline, text: str) -> Timeline:
    """The part of the timeline inside `A:B`, measured from its first GPU item. Raises UsageError."""
    low, high = _parse_window(text)
    if not len(timeline.items):
        raise TraceError("--window: the trace holds no GPU items to cut")
    origin = int(timeline.items["start_ns"].min())
    last = int(timeline.items["end_ns"].max())
    start, end = origin + (low or 0), last if high is None else origin + high
    cut = timeline.between(start, end)
    if not len(cut.items):
        raise UsageError(f"--window {text}: no GPU items in it; the trace spans 0s:{(last - origin) / 1e9:.3f}s")
    return cut


def _parse_window(text: str) -> tuple[int | None, int | None]:
    parts = text.split(":")
    if len(parts) != 2:
        raise UsageError(f"--window {text}: expected A:B, for example 0.5:1.2 (seconds) or 10ms:250ms")
    low, high = (_parse_time(part) for part in parts)
    if low is not None and high is not None and high <= low:
        raise UsageError(f"--window {text}: ends before it starts")
    return low, high


def _parse_time(text: str) -> int | None:
    text = text.strip()
    if not text:
        return None
    unit = next((unit for unit in ("ns", "us", "µs", "ms", "s") if text.endswith(unit)), "")
    try:
        value = float(text.removesuffix(unit))
    except ValueError:
        raise UsageError(f"--window: {text!r} is not a time such as 0.5, 10ms or 250us") from None
    return round(value * _UNITS[unit or "s"])


def export_tables(timeline: Timeline, folder: Path) -> None:
    """items, launches, ranges and gaps as Parquet files. Raises UsageError when pyarrow is missing."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise UsageError("--export writes Parquet and needs pyarrow: pip install 'cgadvisor[parquet]'") from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("items", "launches", "ranges", "gaps"):
            getattr(timeline, name).to_parquet(folder / f"{name}.parquet")
    except OSError as error:
        raise BundleError(f"--export {folder}: cannot write: {error.strerror}") from error
