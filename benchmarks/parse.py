"""How fast a Kineto trace becomes answers: this tool, `json.loads` of the same text, and HolisticTraceAnalysis.

    python benchmarks/parse.py ../shared/traces/hta/v100_train_large.json.gz --megabytes 60 300 --rounds 3
    python benchmarks/parse.py TRACE --megabytes 60 --hta-python /path/to/venv/bin/python    # with HTA 0.5.0 in it
    python benchmarks/parse.py TRACE --megabytes 60 --check                                  # exit 1 above a bar

Inputs are made by repeating a real trace with shifted times, ids and step numbers, so that every copy is new work; the
layout of its text is kept. Each measurement is a fresh process; imports are not counted; the order is reversed every
other round. Printed: medians of wall clock (and its range) and CPU time, the ratio to `json.loads` of the same text, and
the peak memory of any run.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

JSON_RATIO_BAR = 1.3  # reading ÷ json.loads of the same text
MEGABYTES_PER_MEGABYTE_BAR = 1.2  # peak memory ÷ size of the text: 0.6 GB at 300 MB, 1.4 GB at 1 GB
IMPORTS_MB = 250  # what pandas and numpy hold before anything is read

# --- inputs ------------------------------------------------------------------------------------------------------------

_SHIFTED = re.compile(
    rb'(?P<time>"ts":\s*)(?P<ts>\d+)'
    rb'|(?:"(?:correlation|[Ee]xternal id|id|Ev Idx|Python id|Python parent id|Sequence number)":\s*|ProfilerStep#)'
    rb"(?P<number>\d+)"
)


def make_trace(source: Path, megabytes: int, target: Path) -> Path:
    """Whole copies of `source` in one document of about `megabytes` MB; gzipped when `target` ends in .gz."""
    head, body, tail = _split(gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes())
    count = max(1, round(megabytes * 1e6 / len(body)))
    opened = gzip.open(target, "wb", compresslevel=6) if target.suffix == ".gz" else target.open("wb")
    with opened as file:
        file.write(head)
        for number, copy in enumerate(_copies(body, count)):
            file.write(b",\n" + copy if number else copy)
        file.write(tail)
    return target


def _split(text: bytes) -> tuple[bytes, bytes, bytes]:
    begin = re.search(rb'"traceEvents"\s*:\s*\[|\A\s*\[', text)
    end = re.compile(rb"\}\s*(\])").search(text, text.rfind(b'"ph"'))
    if begin is None or end is None:
        raise SystemExit("the source trace is not whole; give another one")
    return text[: begin.end()], text[begin.end() : end.start(1)], text[end.start(1) :]


def _copies(body: bytes, count: int) -> Iterator[bytes]:
    """`body` `count` times, each with its times behind those of the one before and its ids apart."""
    literals, numbers, is_time, at = [], [], [], 0
    for found in _SHIFTED.finditer(body):
        group = "ts" if found["time"] else "number"
        literals.append(body[at : found.start(group)])
        numbers.append(int(found[group]))
        is_time.append(group == "ts")
        at = found.end(group)
    rest = body[at:]
    stamps = [number for number, timed in zip(numbers, is_time, strict=True) if timed and number]
    # Rows of the end of the recording lie behind all others; a second in between keeps the copies apart.
    step_us = max(stamps) - min(stamps) + 1_000_000
    step_id = max(number for number, timed in zip(numbers, is_time, strict=True) if not timed and number < 2**40) + 1
    steps = [step_us if timed else step_id for timed in is_time]
    for copy in range(count):
        parts = [b""] * (2 * len(literals) + 1)
        parts[0:-1:2] = literals
        parts[1::2] = [b"%d" % (number + copy * step) for number, step in zip(numbers, steps, strict=True)]
        parts[-1] = rest
        yield b"".join(parts)


# --- what is measured, each in its own process -------------------------------------------------------------------------


def _reader(path: Path) -> Callable[[], object]:
    from advisor.sources.kineto import read

    return lambda: read(path, 0)


def _whole(path: Path) -> Callable[[], object]:
    """Load, idle time by cause and launch statistics of every device."""
    import advisor
    import advisor.sources.kineto
    import advisor.sources.nsight  # `load` asks every reader, and would import them while the clock runs
    from advisor import metrics
    from advisor.advise import with_gaps

    def work() -> object:
        timeline = with_gaps(advisor.load(path))
        table = metrics.launch_table(timeline)
        pairs = timeline.items[["rank", "device"]].drop_duplicates()
        idle = [metrics.device_idle(timeline, int(rank), int(device)) for rank, device in pairs.itertuples(index=False)]
        return [metrics.device_summary(timeline, table, one) for one in idle]

    return work


def _json(path: Path) -> Callable[[], object]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return lambda: json.loads(text)


def _hta_parse(path: Path) -> Callable[[], object]:
    from hta.common.trace_parser import parse_trace_dataframe
    from hta.configs.parser_config import ParserConfig

    return lambda: parse_trace_dataframe(str(path), ParserConfig.get_default_cfg())


def _hta(path: Path) -> Callable[[], object]:
    from hta.trace_analysis import TraceAnalysis

    def work() -> object:
        analysis = TraceAnalysis(trace_files={0: str(path)}, trace_dir=str(path.parent))
        idle = analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
        return idle, analysis.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)

    return work


WORK = {"reader": _reader, "whole": _whole, "json": _json, "hta-parse": _hta_parse, "hta": _hta}
LABELS = {
    "reader": "this tool: read into tables",
    "whole": "this tool: load, idle by cause, launch statistics",
    "json": "json.loads of the text",
    "hta-parse": "HTA 0.5.0: parse",
    "hta": "HTA 0.5.0: load, idle breakdown, launch statistics",
}


def measure(name: str, path: Path) -> None:
    """The child process: do one piece of work, print what it took as JSON."""
    work = WORK[name](path)
    begin, cpu_begin = time.perf_counter(), time.process_time()
    result = work()
    wall_s, cpu_s = time.perf_counter() - begin, time.process_time() - cpu_begin
    del result
    print(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s, "peak_mb": _peak_mb()}))


def _peak_mb() -> float:
    """Peak resident memory. Linux' ru_maxrss is that of the parent when this process started, so it is no use there."""
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) / 1e3 if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


# --- the bench -----------------------------------------------------------------------------------------------------------


def run(name: str, path: Path, python: str) -> dict[str, float]:
    done = subprocess.run([python, __file__, "--measure", name, str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed on {path.name}:\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def bench(path: Path, names: list[str], rounds: int, hta_python: str) -> dict[str, list[dict[str, float]]]:
    """Samples of each work on one file, alternated."""
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            samples[name].append(run(name, path, hta_python if name.startswith("hta") else sys.executable))
    return samples


def report(title: str, samples: dict[str, list[dict[str, float]]]) -> None:
    wall, cpu = (
        {name: statistics.median(one[key] for one in found) for name, found in samples.items()}
        for key in ("wall_s", "cpu_s")
    )
    print(f"\n{title}\n\n| work | wall s (range) | CPU s | CPU ÷ json.loads | peak MB |\n|---|---|---|---|---|")
    for name, found in samples.items():
        spread = f"{min(one['wall_s'] for one in found):.2f}-{max(one['wall_s'] for one in found):.2f}, n={len(found)}"
        ratio = f"{cpu[name] / cpu['json']:.2f}" if "json" in cpu else ""
        peak = max(one["peak_mb"] for one in found)
        print(f"| {LABELS[name]} | {wall[name]:.2f} ({spread}) | {cpu[name]:.2f} | {ratio} | {peak:,.0f} |")
    for ours, theirs in (("reader", "hta-parse"), ("whole", "hta")):
        if ours in wall and theirs in wall:
            times = f"{wall[theirs] / wall[ours]:.1f} times as fast by wall clock, {cpu[theirs] / cpu[ours]:.1f} by CPU time"
            print(f"\n{LABELS[ours]} against {LABELS[theirs]}: {times}")
    sys.stdout.flush()


def check(samples: dict[str, list[dict[str, float]]], megabytes: float) -> bool:
    """Whether the bars hold that do not depend on the machine; CPU time, which other load disturbs least."""
    reader = statistics.median(one["cpu_s"] for one in samples["reader"])
    ratio = reader / statistics.median(one["cpu_s"] for one in samples["json"])
    peak = max(one["peak_mb"] for one in samples["reader"])
    limit = IMPORTS_MB + MEGABYTES_PER_MEGABYTE_BAR * megabytes
    good = ratio <= JSON_RATIO_BAR and peak <= limit
    said = "ok" if good else "MISSED"
    print(f"\nreading ÷ json.loads {ratio:.2f} (bar {JSON_RATIO_BAR}), peak {peak:.0f} MB (bar {limit:.0f}): {said}")
    return good


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("source", type=Path, help="a real trace to repeat")
    options.add_argument("--megabytes", type=int, nargs="+", default=[60])
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--work", nargs="+", choices=WORK, default=None, help="default: all that can run")
    options.add_argument("--forms", nargs="+", choices=("json", "json.gz"), default=["json", "json.gz"])
    options.add_argument("--hta-python", default="", help="an interpreter that has HolisticTraceAnalysis 0.5.0")
    options.add_argument("--check", action="store_true", help="exit 1 when a bar is missed")
    given = options.parse_args()
    names = given.work or ["reader", "whole", "json", *(["hta-parse", "hta"] if given.hta_python else [])]
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for megabytes in given.megabytes:
            for form in given.forms:
                path = make_trace(given.source, megabytes, Path(folder) / f"trace.{form}")
                size = path.stat().st_size / 1e6
                samples = bench(path, names, given.rounds, given.hta_python)
                report(f"{given.source.name} to about {megabytes} MB, {form} of {size:.0f} MB", samples)
                good &= not given.check or check(samples, megabytes)
                path.unlink()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
