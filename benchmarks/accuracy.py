"""How far predicted step times are from measured ones: profile and verify the samples, then compare.

    python benchmarks/accuracy.py collect FOLDER [--lanes 4] [--budget S] [--only mlp_train] [--list]    # needs a GPU
    python benchmarks/accuracy.py table FOLDER [FOLDER ...]                              # reports/accuracy.md, .png
    python benchmarks/accuracy.py table FOLDER --again                  # predict anew from the recordings: for development

`collect` runs `cgadvisor profile` on each case (a sample and a size), then `cgadvisor verify` on the span that paid without
its last statement, and keeps rows.json. Cases run side by side on cores of their own; what is timed takes turns on the GPU.
Predictions are the stored ones, written before each attempt. A row is one attempt that was replayed, found equal and timed.

Rivals, on the same attempt: (idle) the step takes its busy time; (trace) the share of the traced step that is idle inside the
region is saved, without calibration; (launch) 3 µs a launch of the region are saved. `before` is the clocked step for all.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Final

import msgspec
import numpy as np
from accuracy_rows import EXTRA, SIZES, SWEEPS, Case, Row, cases, is_measured, rows_of, summary, sweep

from advisor.bundle import Bundle
from advisor.commands.predict import study_of
from advisor.errors import AdvisorError
from advisor.model import Manifest, Predictions, Verification
from advisor.units import format_ns
from advisor.verify.candidate import Sources
from advisor.workload.spans import SpanError, first_line, locate

ROOT: Final = Path(__file__).parents[1]
ROWS: Final = "rows.json"
BARS: Final = {"median": 0.05, "p90": 0.12, "covered": 0.85}

# --- collecting ---------------------------------------------------------------------------------------------------------------


def collect(folder: Path, chosen: Sequence[Case], lanes: int, budget_s: float) -> int:
    """Profile and verify every case, none begun after `budget_s`; 1 when one of them failed or was left out."""
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // lanes)
    free: Queue[list[int]] = Queue()
    for lane in range(lanes):
        free.put(cores[lane * share : (lane + 1) * share] or cores)

    if _cgadvisor(["calibrate"], cores, folder / "calibrate.log"):  # once, alone: every profile would do it otherwise
        print("calibrate failed, see calibrate.log; profiles try again or use the default constants", flush=True)

    def one(case: Case) -> bool:
        mine = free.get()
        try:
            if time.monotonic() - began > budget_s:
                raise AdvisorError("not begun, the budget is spent")
            done = _collect_one(folder / case.name, case, mine)
        except AdvisorError as error:  # the other cases go on
            done = f"failed: {error}"
        finally:
            free.put(mine)
        print(f"{time.monotonic() - began:4.0f} s {case.name}: {done}", flush=True)
        return done.startswith("ok")

    with ThreadPoolExecutor(lanes) as pool:
        return 0 if all(list(pool.map(one, chosen))) else 1


def _collect_one(folder: Path, case: Case, cores: Sequence[int]) -> str:
    log = folder.with_suffix(".log")
    script = str(ROOT / "samples" / f"{case.sample}.py")
    if _cgadvisor(["profile", "--out", str(folder), script, *case.argv], cores, log):
        return f"profile failed, see {log.name}"
    bundle = Bundle.open(folder)
    rows = rows_of(bundle, case)
    shorter = _shorter_span(bundle)
    if shorter:
        for kind in (Verification, Predictions):
            path = bundle.path(f"{kind.__name__.lower()}.json")
            shutil.copy(path, path.with_suffix(".first.json"))
        words = ["verify", str(folder), "--region", shorter, "--max-attempts", "2", "--budget", "30"]
        if _cgadvisor(words, cores, log):
            return f"verify {shorter} failed, see {log.name}"
        rows += rows_of(bundle, case)
    bundle.path(ROWS).write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1))
    shown = (f"{row.region} {row.error_ratio:+.1%}" for row in rows)
    return f"ok, {len(rows)} rows: {'; '.join(shown)}"


def _cgadvisor(words: list[str], cores: Sequence[int], log: Path) -> int:
    command = ["taskset", "-c", ",".join(map(str, cores)), sys.executable, "-c", "from advisor.cli import main; main()"]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
    with log.open("ab") as output:
        done = subprocess.run([*command, *words], stdout=output, stderr=output, env=environ, cwd=ROOT, check=False)
    return done.returncode


def _shorter_span(bundle: Bundle) -> str:
    """The span that paid, without its last statement; nothing when it has only one."""
    paid = next((one for one in reversed(bundle.load(Verification).attempts) if is_measured(one)), None)
    place = paid.location if paid is not None else None
    if place is None:
        return ""
    tree = Sources(dict(bundle.load(Manifest).source_files)).tree(place.file)
    try:
        statements = locate(tree, place.first_line, place.last_line).statements[:-1]
    except SpanError:
        return ""
    return f"{place.file}:{first_line(statements[0])}-{statements[-1].end_lineno}" if statements else ""


# --- the table ----------------------------------------------------------------------------------------------------------------


def load_rows(folders: Sequence[Path], again: bool) -> list[Row]:
    """All rows under these folders, anew from the recordings when asked."""
    rows: list[Row] = []
    known = {case.name: case for case in cases()}
    for path in sorted(path for folder in folders for path in folder.rglob(ROWS)):
        if again:
            bundle = Bundle.open(path.parent)
            study = study_of(bundle)
            for suffix in (".first", "") if bundle.path("verification.first.json").exists() else ("",):
                rows += rows_of(bundle, known[path.parent.name], study, suffix)
        else:
            rows += msgspec.json.decode(path.read_bytes(), type=list[Row])
    return rows


def markdown(rows: Sequence[Row], about: str) -> str:
    """The page reports/accuracy.md."""
    return "\n".join([*_opening(rows, about), *_sweeps(rows), *_all_rows(rows), ""])


def _opening(rows: Sequence[Row], about: str) -> Iterator[str]:
    found = summary(rows)
    yield "# Predicted against measured"
    yield ""
    yield f"{about} One row is one region that was captured, replayed, found equal and timed; its prediction was stored before."
    yield ""
    yield "![predicted and measured step times](accuracy.png)"
    yield ""
    yield "| step time, absolute error | median | 90th percentile |"
    yield "|---|--:|--:|"
    yield f"| **cgadvisor** (bars: 5 %, 12 %) | {_share(found['median'])} | {_share(found['p90'])} |"
    words = {
        "idle": "all idle time of the step removed",
        "trace": "idle share of the region in the profiled trace, not calibrated",
        "launch": "3 µs saved a launch",
    }
    for name, text in words.items():
        yield f"| {text} | {_share(found[f'{name}_median'])} | {_share(found[f'{name}_p90'])} |"
    yield ""
    yield (
        f"{len(rows)} rows from {len({row.case for row in rows})} cases. The interval covers the measured step in "
        f"{_share(found['covered'])} of them (bar: 85 %). Region time: median error {_share(found['region_median'])}."
    )
    wrong = [f"{row.case} {row.region}" for row in rows if row.is_wrong_call]
    yield f"Predicted over 10 % and measured below 2 %, or the reverse: {', '.join(wrong) if wrong else 'none'}."
    yield ""


def _sweeps(rows: Sequence[Row]) -> Iterator[str]:
    yield '## From "helps" to "does not"'
    yield ""
    for sample in SWEEPS:
        count = len({row.size for row in rows if row.sample == sample})
        sizes = (*SIZES[sample], *EXTRA.get(sample, ()))
        told, seen = (sizes[at] if at < len(sizes) else "none of them" for at in sweep(rows, sample))
        yield f"- `{sample}`, {count} sizes: gain below 10 % from {told} predicted, from {seen} measured."
    yield ""


def _about(folders: Sequence[Path]) -> str:
    """Machines, versions, days and command of the runs."""
    found = set()
    for path in sorted(path for folder in folders for path in folder.rglob(ROWS)):
        ran = Bundle.open(path.parent).load(Manifest)
        machine = f"{', '.join(ran.gpu_names)}, {ran.cpu_count} CPU cores, driver {ran.driver_version}"
        found.add(f"{machine}, torch {ran.torch_version}, Python {ran.python_version}, {ran.created_at[:10]}")
    return f"{'; '.join(sorted(found))}. Command: `python benchmarks/accuracy.py collect`."


def _all_rows(rows: Sequence[Row]) -> Iterator[str]:
    yield "## Every row"
    yield ""
    yield "| case | region | fixes | before | predicted (interval) | measured | error | region | idle | trace | launch |"
    yield "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    for row in sorted(rows, key=lambda row: (row.sample, row.size, row.region)):
        inside = "" if row.is_covered else " !"
        others = " | ".join(f"{value / row.measured_ns - 1:+.0%}" for value in row.rivals().values())
        yield (
            f"| {row.case} | {row.region} | {', '.join(row.fixes) or 'none'} | {format_ns(row.before_ns)} "
            f"| {format_ns(row.predicted_ns)} ({format_ns(row.low_ns)} to {format_ns(row.high_ns)}) "
            f"| {format_ns(row.measured_ns)}{inside} | {row.error_ratio:+.1%} | {row.region_error_ratio:+.1%} | {others} |"
        )
    yield ""
    yield "`!`: outside the interval. The last columns are the rivals' errors of the step time."


def _share(value: float) -> str:
    return f"{value:.1%}".replace("%", " %")


def plot(rows: Sequence[Row], path: Path) -> None:
    """Predicted over measured, both logarithmic, with intervals and rivals, as a picture. Needs Chromium."""
    import plotly.graph_objects as go

    measured = [row.measured_ns / 1e6 for row in rows]
    figure = go.Figure()
    ends = [min(measured) / 1.5, max(measured) * 1.5]
    figure.add_scatter(x=ends, y=ends, mode="lines", line={"color": "#888", "dash": "dot"}, name="equal")
    colours = {"idle": "#c9a227", "trace": "#b5533c", "launch": "#7a7a7a"}
    for name, colour in colours.items():
        others = [row.rivals()[name] / 1e6 for row in rows]
        figure.add_scatter(
            x=measured, y=others, mode="markers", marker={"color": colour, "size": 5}, name=f"rival: {name}"
        )
    figure.add_scatter(
        x=measured,
        y=[row.predicted_ns / 1e6 for row in rows],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [max(0.0, row.high_ns - row.predicted_ns) / 1e6 for row in rows],
            "arrayminus": [max(0.0, row.predicted_ns - row.low_ns) / 1e6 for row in rows],
            "thickness": 1,
        },
        mode="markers",
        marker={"color": "#1f5fa8", "size": 8},
        name="cgadvisor, with its interval",
    )
    figure.update_xaxes(type="log", dtick="D2", title="measured step, ms")
    figure.update_yaxes(type="log", dtick="D2", title="predicted step, ms")
    figure.update_layout(
        width=900, height=640, template="plotly_white", legend={"x": 0.02, "y": 0.98}, margin={"t": 20}
    )
    page = path.with_suffix(".html")
    figure.write_html(page, include_plotlyjs=True, config={"displayModeBar": False})
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        print(f"accuracy: no Chromium, so {page.name} was not made into a picture", file=sys.stderr)
        return
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=920,660"]
    words += ["--virtual-time-budget=5000", f"--screenshot={path}", page.resolve().as_uri()]
    subprocess.run([chromium, *words], check=True, capture_output=True)
    page.unlink()


def table(folders: Sequence[Path], again: bool, out: Path) -> int:
    """Write the page and the picture; 1 when a bar does not hold."""
    rows = load_rows(folders, again)
    if not rows:
        print(f"accuracy: no {ROWS} with rows under {', '.join(map(str, folders))}; run collect first", file=sys.stderr)
        return 2
    out.write_text(markdown(rows, _about(folders)), encoding="utf-8")
    plot(rows, out.with_suffix(".png"))
    found = summary(rows)
    print("\n".join(f"{name:<16}{value:.4g}" for name, value in found.items()))
    broken = [name for name in ("median", "p90") if found[name] > BARS[name]]
    broken += ["covered"] * (found["covered"] < BARS["covered"]) + ["wrong calls"] * bool(found["wrong_calls"])
    broken += [f"sweep of {sample}" for sample in SWEEPS if abs(int(np.subtract(*sweep(rows, sample)))) > 1]
    print(f"bars that do not hold: {', '.join(broken) or 'none'}")
    return 1 if broken else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("folder", type=Path)
    collecting.add_argument("--lanes", type=int, default=4)
    collecting.add_argument("--budget", type=float, default=float("inf"), help="seconds after which no case begins")
    collecting.add_argument("--shard", default="1/1")
    collecting.add_argument("--only", action="append", default=[])
    collecting.add_argument("--list", action="store_true")
    tabling = commands.add_parser("table")
    tabling.add_argument("folders", type=Path, nargs="+")
    tabling.add_argument("--again", action="store_true")
    tabling.add_argument("--out", type=Path, default=ROOT / "reports" / "accuracy.md")
    options = parser.parse_args()
    try:
        if options.command == "table":
            return table(options.folders, options.again, options.out)
        chosen = cases(options.only, options.shard)
        if options.list:
            print("\n".join(case.name for case in chosen))
            return 0
        return collect(options.folder, chosen, options.lanes, options.budget)
    except AdvisorError as error:
        print(f"accuracy: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
