"""Figures of a region: medians per occurrence over its items, the gaps they end, and the calls in its CPU range."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from advisor.calls import GRAPH
from advisor.intervals import grouped_union_ns, union
from advisor.metrics.gaps import LONG_GAP_NS, data_waits, synchronising
from advisor.metrics.summary import graphed
from advisor.model import Cause, IdleByCause, Layer, Layers, Region, RegionKind, SourceSpan
from advisor.regions.rows import Occurrences, StepWindows
from advisor.timeline import Timeline

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Columns:
    """Per-item and per-call columns of one device, computed once and shared by all its regions.

    gap_*: ns of idle time that each item (row of `items`) ended, by cause and layer; int64 (items,).
    """

    start: Ints
    end: Ints
    names: Ints
    graphed: Bools
    to_host: Bools
    to_device: Bools
    is_kernel: Bools
    launch: npt.NDArray[np.float64]
    launch_is_graph: Bools
    cause: dict[Cause, Ints]
    long_gap: Ints
    layer: dict[Layer, Ints]
    sync_starts: Ints
    shape_starts: Ints
    shape_hash: npt.NDArray[np.uint64]  # running sum of the hashes of ops with recorded shapes


def columns(timeline: Timeline, rank: int, device: int) -> Columns:
    """The shared columns; gaps are those of (rank, device)."""
    items, calls = timeline.items, timeline.calls
    launch = items["launch_id"].to_numpy(dtype="float64", na_value=np.nan)
    is_graph = np.zeros(len(items), dtype=bool)
    if len(calls):
        linked = ~np.isnan(launch)
        is_graph[linked] = (calls["kind"] == GRAPH).to_numpy()[launch[linked].astype(np.int64)]
    cause, layer = _gap_columns(timeline, rank, device)
    whole = np.sum(list(cause.values()), axis=0)
    syncs = calls[synchronising(calls) & (calls["rank"] == rank).to_numpy()]
    shape_starts, shape_hash = _shape_hashes(timeline, rank)
    return Columns(
        start=items["start_ns"].to_numpy(),
        end=items["end_ns"].to_numpy(),
        names=items["name"].cat.codes.to_numpy().astype(np.int64),
        graphed=graphed(timeline, items),
        to_host=(items["copy_kind"] == "d2h").to_numpy(dtype=bool, na_value=False),
        to_device=(items["copy_kind"] == "h2d").to_numpy(dtype=bool, na_value=False),
        is_kernel=(items["kind"] == "kernel").to_numpy(dtype=bool, na_value=False),
        launch=launch,
        launch_is_graph=is_graph,
        cause=cause,
        long_gap=np.where(whole > LONG_GAP_NS, whole, 0),
        layer=layer,
        sync_starts=np.sort(syncs["start_ns"].to_numpy()),
        shape_starts=shape_starts,
        shape_hash=shape_hash,
    )


@dataclass(frozen=True)
class Identity:
    """What names a region; the figures are added by `measure`."""

    id: str
    label: str
    kind: RegionKind
    how: str
    location: SourceSpan | None = None
    parent_id: str | None = None


def measure(identity: Identity, found: Occurrences, shared: Columns, windows: StepWindows | None) -> Region:
    """The region's figures. `windows` gives shares of the step; without them the share is 0."""
    items, owner, count = found.item_ids, found.occurrence, found.count
    busy = grouped_union_ns(owner, shared.start[items], shared.end[items], count)
    cause = {kind: _per_occurrence(shared.cause[kind][items], owner, count) for kind in Cause}
    layer = {kind: _per_occurrence(shared.layer[kind][items], owner, count) for kind in Layer}
    typical = _typical(busy + sum(cause.values()))
    rank, device = (windows.rank, windows.device) if windows else (0, 0)
    signature, match, distinct = _signature(shared.names[items], owner, count)
    idle = IdleByCause(**{f"{kind}_ns": int(cause[kind][typical].mean()) for kind in Cause})
    # Layers are cut to the launch-bound part's sum, so that rounding of means cannot break the law between the two.
    layers = _layers({kind: float(layer[kind][typical].mean()) for kind in Layer}, idle.launch_ns)
    busy_ns = int(busy[typical].mean())
    graph_launches = _distinct_launches(shared, items, owner, count, shared.launch_is_graph[items])
    return Region(
        id=identity.id,
        label=identity.label,
        kind=identity.kind,
        rank=rank,
        device=device,
        occurrence_count=count,
        occurrences_per_step=_per_step(found, windows),
        item_count=_median(np.bincount(owner, minlength=count)),
        launch_count=_median(_distinct_launches(shared, items, owner, count, ~np.isnan(shared.launch[items]))),
        busy_ns=busy_ns,
        idle=idle,
        layers=layers,
        extent_ns=busy_ns + idle.total_ns,
        long_gap_ns=int(_per_occurrence(shared.long_gap[items], owner, count)[typical].mean()),
        step_share_ratio=_share(found, windows, busy + sum(cause.values())),
        cpu_ns=int(np.median(found.cpu_end_ns - found.cpu_start_ns)),
        sync_count=_median(_calls_within(shared.sync_starts, found)),
        h2d_count=_median(_per_occurrence(shared.to_device[items].astype(np.int64), owner, count)),
        d2h_count=_median(_per_occurrence(shared.to_host[items].astype(np.int64), owner, count)),
        graph_launch_count=_median(graph_launches),
        graphed_item_ratio=float(shared.graphed[items].mean()) if len(items) else 0.0,
        signature=signature,
        signature_match_ratio=match,
        signature_count=distinct,
        shape_signature_count=_shape_signatures(shared, found),
        location=identity.location,
        parent_id=identity.parent_id,
        how=identity.how,
        kernel_count=_median(_per_occurrence(shared.is_kernel[items].astype(np.int64), owner, count)),
    )


def _gap_columns(timeline: Timeline, rank: int, device: int) -> tuple[dict[Cause, Ints], dict[Layer, Ints]]:
    found = timeline.gaps
    found = found[(found["rank"] == rank) & (found["device"] == device) & found["item_id"].notna()]
    ender = found["item_id"].to_numpy(dtype="int64")
    length = (found["end_ns"] - found["start_ns"]).to_numpy()
    kinds, size = found["cause"].to_numpy(), len(timeline.items)
    cause, layer = {}, {}
    for kind in Cause:
        cause[kind] = np.zeros(size, dtype=np.int64)
        cause[kind][ender[kinds == kind.value]] = length[kinds == kind.value]
    for part in Layer:
        layer[part] = np.zeros(size, dtype=np.int64)
        layer[part][ender] = found[f"{part.value}_ns"].to_numpy()
    return cause, layer


def _shape_hashes(timeline: Timeline, rank: int) -> tuple[Ints, npt.NDArray[np.uint64]]:
    """Running hash of the shapes of the ops, in order of their start; what a DataLoader does to a batch is not the step's, and a
    range without any size (ProfilerStep#7 among the ops of old traces) has a name that changes, not a shape."""
    ranges = timeline.ranges[timeline.ranges["rank"] == rank]
    waits = ranges[data_waits(ranges)]
    loading = union(waits["start_ns"], waits["end_ns"])
    sized = np.append(ranges["shapes"].cat.categories.astype(str).str.contains(r"\d"), False).astype(bool)
    shaped = ranges[sized[ranges["shapes"].cat.codes.to_numpy()]].sort_values("start_ns")
    shaped = shaped[loading.within(shaped["start_ns"], shaped["start_ns"] + 1) == 0]
    code = shaped["shapes"].cat.codes.to_numpy().astype(np.uint64)
    name = shaped["name"].cat.codes.to_numpy().astype(np.uint64)
    return shaped["start_ns"].to_numpy(), np.cumsum(_mix(code * np.uint64(1_000_003) + name), dtype=np.uint64)


def _mix(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """splitmix64's finaliser: spreads small codes over 64 bits so that their sums identify a multiset."""
    mixed = value + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _per_occurrence(values: Ints, owner: Ints, count: int) -> Ints:
    return np.bincount(owner, values, count).astype(np.int64)


def _median(values: Ints) -> float:
    return float(np.median(values)) if len(values) else 0.0


def _typical(extent: Ints) -> Ints:
    """The middle tenth of the occurrences by extent (at least one): their mean is a median whose parts still add up."""
    order = np.argsort(extent, kind="stable")
    half = max(0, len(order) // 20)
    middle = len(order) // 2
    low = middle - half - (1 - len(order) % 2 if len(order) > 1 else 0)
    return order[max(low, 0) : middle + half + 1]


def _layers(means: dict[Layer, float], total: int) -> Layers:
    """Integer layers that sum to `total`: the largest one takes the rounding."""
    parts = {kind: int(value) for kind, value in means.items()}
    largest = max(parts, key=lambda kind: parts[kind])
    parts[largest] += total - sum(parts.values())
    return Layers(**{f"{kind}_ns": value for kind, value in parts.items()})


def _signature(names: Ints, owner: Ints, count: int) -> tuple[str, float, int]:
    """Hash of the most frequent sequence of item names, the share of occurrences that have it, distinct sequences."""
    if not len(names):
        return "", 0.0, 0
    first = np.searchsorted(owner, np.arange(count))
    position = (np.arange(len(names)) - first[owner]).astype(np.uint64)
    mixed = _mix(names.astype(np.uint64) * np.uint64(2_654_435_761) + position * np.uint64(40_503))
    sums = np.zeros(count, dtype=np.uint64)
    np.add.at(sums, owner, mixed)
    values, counts = np.unique(sums, return_counts=True)
    best = int(np.argmax(counts))
    digest = hashlib.blake2b(values[best].tobytes(), digest_size=6).hexdigest()
    return digest, float(counts[best] / count), len(values)


def _distinct_launches(shared: Columns, items: Ints, owner: Ints, count: int, wanted: Bools) -> Ints:
    pairs = pd.DataFrame({"owner": owner[wanted], "launch": shared.launch[items][wanted]}).drop_duplicates()
    return np.bincount(pairs["owner"].to_numpy(dtype=np.int64), minlength=count)


def _calls_within(starts: Ints, found: Occurrences) -> Ints:
    return np.searchsorted(starts, found.cpu_end_ns) - np.searchsorted(starts, found.cpu_start_ns)


def _shape_signatures(shared: Columns, found: Occurrences) -> int | None:
    if not len(shared.shape_starts):
        return None
    running = np.concatenate((np.zeros(1, np.uint64), shared.shape_hash))
    low = np.searchsorted(shared.shape_starts, found.cpu_start_ns)
    high = np.searchsorted(shared.shape_starts, found.cpu_end_ns)
    return len(np.unique(running[high] - running[low])) if (high > low).any() else None


def _per_step(found: Occurrences, windows: StepWindows | None) -> float:
    if windows is None or not windows.count:
        return 0.0
    return float((found.step_index >= 0).sum() / windows.count)


def _share(found: Occurrences, windows: StepWindows | None, extent: Ints) -> float:
    """Extent inside the steps over the steps' time. The last step's window is cut short, so it is left out when it can be."""
    if windows is None or not windows.count:
        return 0.0
    last = windows.count - 1 if windows.count > 3 else windows.count
    total = int((windows.end_ns - windows.start_ns)[:last].sum())
    inside = int(extent[(found.step_index >= 0) & (found.step_index < last)].sum())
    return min(1.0, inside / total) if total else 0.0
