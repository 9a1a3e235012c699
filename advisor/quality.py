"""What a trace cannot support, found before any claim is made from it.

Each check returns a `QualityNote` or None. `forbids` names the claims the note rules out; `advisor.advise` consults
them, and the report prints the notes first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pandas as pd

from advisor import calls as api
from advisor.intervals import union
from advisor.model import QualityNote, Severity
from advisor.timeline import Timeline
from advisor.units import format_ns, format_ratio

# A torch maintainer's own measure of a healthy session is zero orphans; one in a hundred is already a known fault.
ORPHAN_RATIO: Final = 0.01
UNUSABLE_ORPHAN_RATIO: Final = 0.2
UNLINKED_RATIO: Final = 0.05
UNUSABLE_UNLINKED_RATIO: Final = 0.5
NEGATIVE_RATIO: Final = 0.01
UNUSABLE_NEGATIVE_RATIO: Final = 0.1
COARSE_NS: Final = 100
EVERYTHING: Final = ("busy", "idle", "causes", "layers", "launches", "regions", "estimate")


def assess(timeline: Timeline) -> tuple[QualityNote, ...]:
    """All notes on a timeline: those of its reader first, then what the joined tables show."""
    found = [check(timeline) for check in _CHECKS]
    return timeline.notes + tuple(note for note in found if note is not None)


def forbidden(notes: tuple[QualityNote, ...]) -> frozenset[str]:
    """The claims any of the notes rules out."""
    return frozenset(claim for note in notes for claim in note.forbids)


def _no_items(timeline: Timeline) -> QualityNote | None:
    if len(timeline.items):
        return None
    launches = len(timeline.launches)
    if launches:
        what = f"{launches:,} launches but not one GPU item: GPU activity was not recorded, which is not an idle GPU"
        todo = "record again with GPU activity (CUPTI permission, ProfilerActivity.CUDA, or nsys -t cuda)"
    else:
        what, todo = "no GPU activity and no launches in the file", "record with ProfilerActivity.CUDA or nsys -t cuda"
    return QualityNote(
        id="no-gpu-items", severity=Severity.ERROR, count=launches, message=f"{what}; {todo}", forbids=EVERYTHING
    )


def _no_launches(timeline: Timeline) -> QualityNote | None:
    if len(timeline.items) == 0 or len(timeline.launches):
        return None
    return QualityNote(
        id="no-launches",
        severity=Severity.ERROR,
        count=len(timeline.items),
        message="GPU items but no CUDA API calls: why the GPU idled cannot be told; record CPU activity as well",
        forbids=("causes", "layers", "launches", "estimate"),
    )


def _items_without_launch(timeline: Timeline) -> QualityNote | None:
    missing, total = int(timeline.items["launch_id"].isna().sum()), len(timeline.items)
    if not missing or not len(timeline.launches):
        return None
    ratio = missing / total
    bad = ratio > UNUSABLE_UNLINKED_RATIO
    return QualityNote(
        id="items-without-launch",
        severity=Severity.WARNING if ratio > UNLINKED_RATIO else Severity.INFO,
        count=missing,
        ratio=ratio,
        message=f"{missing:,} of {total:,} GPU items ({format_ratio(ratio)}) have no launch in the file (work queued before "
        "the recording began, or lost records); their gaps count as unknown",
        forbids=("causes", "layers") if bad else (),
    )


def _orphans(timeline: Timeline) -> pd.Series:
    """Kernel and graph launches without any item, those during a stream capture left out: bool per call."""
    calls = timeline.calls
    orphan = calls["kind"].isin([api.KERNEL, api.GRAPH]) & (calls["item_count"] == 0)
    names = calls["api"].astype(str) if orphan.any() else None
    if names is None or not names.str.contains("BeginCapture").any():
        return orphan
    begins = calls[names.str.contains("BeginCapture")].sort_values("start_ns")["start_ns"].to_numpy()
    ends = calls[names.str.contains("EndCapture")].sort_values("end_ns")["end_ns"].to_numpy()
    pairs = [(begin, ends[ends > begin].min(initial=np.iinfo(np.int64).max)) for begin in begins]
    captured = union([begin for begin, _ in pairs], [end for _, end in pairs])
    start = calls["start_ns"].to_numpy()
    outside = pd.Series(captured.within(start, start + 1) == 0, index=calls.index)
    return orphan & outside


def _launches_without_items(timeline: Timeline) -> QualityNote | None:
    if len(timeline.items) == 0:
        return None
    orphan = _orphans(timeline)
    total = int(timeline.calls["kind"].isin([api.KERNEL, api.GRAPH]).sum())
    count = int(orphan.sum())
    if not count:
        return None
    ratio = count / total
    graphs = int((orphan & (timeline.calls["kind"] == api.GRAPH)).sum())
    hidden = f", {graphs:,} of them graph launches whose kernels were not recorded" if graphs else ""
    unusable = ratio > UNUSABLE_ORPHAN_RATIO or graphs > 0
    return QualityNote(
        id="launches-without-items",
        severity=Severity.ERROR if unusable else Severity.WARNING if ratio > ORPHAN_RATIO else Severity.INFO,
        count=count,
        ratio=ratio,
        message=f"{count:,} of {total:,} kernel and graph launches ({format_ratio(ratio)}) have no GPU item{hidden}: part of "
        "the GPU side is missing, so idle time would be overstated",
        forbids=("busy", "idle", "causes", "layers", "estimate")
        if unusable
        else ("estimate",)
        if ratio > ORPHAN_RATIO
        else (),
    )


def _truncated(timeline: Timeline) -> QualityNote | None:
    """GPU buffers ran full: launches go on long after the last item that was recorded."""
    launches = timeline.launches
    submitted = launches[launches["kind"].isin([api.KERNEL, api.GRAPH])]
    if len(timeline.items) == 0 or len(submitted) < 20:
        return None
    last_item = int(timeline.items["end_ns"].max())
    after = int((submitted["start_ns"] > last_item).sum())
    ratio = after / len(submitted)
    if ratio <= UNLINKED_RATIO:
        return None
    return QualityNote(
        id="truncated-gpu",
        severity=Severity.ERROR,
        count=after,
        ratio=ratio,
        message=f"the GPU timeline ends before the last {after:,} launches ({format_ratio(ratio)}): the profiler ran out of "
        "buffers, or these launches were captured into a graph and not run; record fewer steps, after any capture",
        forbids=EVERYTHING if ratio > UNUSABLE_ORPHAN_RATIO else ("estimate",),
    )


def _negative_latency(timeline: Timeline) -> QualityNote | None:
    items = timeline.items[timeline.items["launch_id"].notna()]
    if len(items) == 0:
        return None
    latency = items["start_ns"].to_numpy() - timeline.calls["start_ns"].to_numpy()[items["launch_id"].to_numpy("int64")]
    negative = latency[latency < 0]
    if not len(negative):
        return None
    ratio = len(negative) / len(latency)
    skew = format_ns(float(np.median(-negative)))
    return QualityNote(
        id="negative-latency",
        severity=Severity.WARNING if ratio > NEGATIVE_RATIO else Severity.INFO,
        count=len(negative),
        ratio=ratio,
        message=f"{len(negative):,} items ({format_ratio(ratio)}) start before their launch call: the CPU and GPU clocks are "
        f"apart by about {skew}",
        forbids=("causes", "layers") if ratio > UNUSABLE_NEGATIVE_RATIO else (),
    )


def _zero_duration(timeline: Timeline) -> QualityNote | None:
    count = int((timeline.items["end_ns"] == timeline.items["start_ns"]).sum())
    if not count:
        return None
    return QualityNote(
        id="zero-duration",
        severity=Severity.INFO,
        count=count,
        ratio=count / len(timeline.items),
        message=f"{count:,} GPU items last 0 ns in the file",
    )


def _opaque_graphs(timeline: Timeline) -> QualityNote | None:
    opaque = timeline.items[timeline.items["kind"] == "graph"]
    if not len(opaque):
        return None
    covered = union(opaque["start_ns"], opaque["end_ns"]).total_ns
    return QualityNote(
        id="opaque-graphs",
        severity=Severity.WARNING,
        count=len(opaque),
        message=f"{len(opaque):,} graph executions ({format_ns(covered)}) were recorded as a whole: counted as busy, nothing is "
        "known inside; record with --cuda-graph-trace=node for kernels",
        forbids=("sub_graph",),
    )


def _uneven_replays(timeline: Timeline) -> QualityNote | None:
    """The same graph must give the same number of items at every launch; fewer means lost records."""
    items = timeline.items
    inside = items[items["graph_id"].notna() & items["launch_id"].notna()]
    if not len(inside):
        return None
    per_launch = inside.groupby(["rank", "graph_id", "launch_id"]).size()
    most = per_launch.groupby(["rank", "graph_id"]).transform("max")
    short = int((per_launch < most).sum())
    if not short:
        return None
    return QualityNote(
        id="uneven-replays",
        severity=Severity.WARNING,
        count=short,
        ratio=short / len(per_launch),
        message=f"{short:,} of {len(per_launch):,} graph launches have fewer items than others of the same graph: records of "
        "replays were lost",
        forbids=("busy", "idle", "estimate"),
    )


def _coarse_clock(timeline: Timeline) -> QualityNote | None:
    if timeline.coarse_ns <= 1:
        return None
    return QualityNote(
        id="coarse-clock",
        severity=Severity.WARNING if timeline.coarse_ns >= COARSE_NS else Severity.INFO,
        count=timeline.coarse_ns,
        message=f"times in the file are only exact to {format_ns(timeline.coarse_ns)}: single gaps and launch calls below a "
        "few µs are not to be trusted",
        forbids=("sub_us",) if timeline.coarse_ns >= COARSE_NS else (),
    )


def _profiler_overhead(timeline: Timeline) -> QualityNote | None:
    overhead = timeline.ranges[timeline.ranges["kind"] == "overhead"]
    if not len(overhead) or not len(timeline.items):
        return None
    covered = union(overhead["start_ns"], overhead["end_ns"])
    span = int(timeline.items["end_ns"].max() - timeline.items["start_ns"].min())
    inside = int(covered.within(timeline.items["start_ns"].min(), timeline.items["end_ns"].max()))
    if not inside:
        return None
    return QualityNote(
        id="profiler-overhead",
        severity=Severity.INFO,
        count=len(overhead),
        ratio=inside / span if span else None,
        message=f"the profiler itself took {format_ns(inside)} inside the recording; gaps it overlaps have cause `profiler`",
    )


def _no_ops(timeline: Timeline) -> QualityNote | None:
    if len(timeline.launches) == 0 or (timeline.ranges["kind"] == "op").any():
        return None
    return QualityNote(
        id="no-framework-ops",
        severity=Severity.INFO,
        count=len(timeline.launches),
        message="no framework ops in the file (Nsight without emit_nvtx, or not PyTorch): the language layer includes the "
        "framework's time",
        forbids=("framework_layer",),
    )


_CHECKS: Final[tuple[Callable[[Timeline], QualityNote | None], ...]] = (
    _no_items,
    _no_launches,
    _items_without_launch,
    _launches_without_items,
    _truncated,
    _negative_latency,
    _zero_duration,
    _opaque_graphs,
    _uneven_replays,
    _coarse_clock,
    _profiler_overhead,
    _no_ops,
)
