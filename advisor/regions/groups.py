"""Ranges of the same name as one group of occurrences, with the items each of them launched."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from advisor.marks import decode, parse_span
from advisor.model import RegionKind, SourceSpan
from advisor.timeline import Timeline

Ints = npt.NDArray[np.int64]

_NAMED_KINDS: Final = ("user", "step", "nvtx", "mark", "module")
_NUMBERED = re.compile(r"^(?P<stem>.*\D)(?P<number>\d+)$", re.DOTALL)
_OPTIMIZER = re.compile(r"^Optimizer\.step#(?P<name>.+?)(?:\.step)?$")
_MARK_KINDS: Final = {
    "loop": RegionKind.LOOP,
    "iter": RegionKind.LOOP,
    "stmt": RegionKind.STATEMENT,
    "module": RegionKind.MODULE,
    "optim": RegionKind.OPTIMIZER,
    "data": RegionKind.RANGE,
    "region": RegionKind.RANGE,
}
# Ranges around the whole recording or around nothing a user wrote.
_IGNORED = re.compile(r"^(?:enumerate\(DataLoader\)#|PyTorch Profiler|Iteration Start|## Call CompiledFxGraph)")


@dataclass(frozen=True)
class Group:
    """One name. `range_ids` int64 (n,), ordered by start; `item_ids`/`occurrence` int64 (m,) by (occurrence, start)."""

    key: str
    label: str
    kind: RegionKind
    mark_kind: str  # "" when the range is not one of the tool's own
    source_kind: str  # kind in the ranges table
    range_ids: Ints
    item_ids: Ints
    occurrence: Ints
    depth: float
    location: SourceSpan | None

    @property
    def count(self) -> int:
        return len(self.range_ids)


@dataclass(frozen=True)
class _Naming:
    key: str
    label: str
    kind: RegionKind
    mark_kind: str


def find_groups(timeline: Timeline, rank: int, device: int) -> list[Group]:
    """Every named group that launched at least one item on the device, outermost and earliest first."""
    ranges = timeline.ranges
    named = ranges[
        (ranges["rank"] == rank) & ranges["kind"].isin(_NAMED_KINDS) & (ranges["end_ns"] > ranges["start_ns"])
    ]
    optimizers = ranges[(ranges["rank"] == rank) & (ranges["kind"] == "op") & _is_optimizer(ranges)]
    named = pd.concat([named, optimizers]).sort_values("start_ns", kind="stable")
    if len(named) == 0:
        return []
    naming = _name_groups(named)
    named = named[named["name"].astype(str).isin(list(naming))]
    range_ids = named.index.to_numpy(dtype=np.int64)
    item_ids, owner = timeline.items_of_ranges(range_ids)
    keep = _on_device(timeline, item_ids, rank, device)
    item_ids, owner = item_ids[keep], owner[keep]
    keys = named["name"].astype(str).map({name: found.key for name, found in naming.items()}).to_numpy()
    by_key = {found.key: found for found in naming.values()}
    codes, unique = pd.factorize(keys)
    groups = [
        _group(timeline, by_key[key], range_ids[codes == code], item_ids, owner, np.flatnonzero(codes == code))
        for code, key in enumerate(unique)
    ]
    return sorted((group for group in groups if len(group.item_ids)), key=lambda group: (group.depth, group.key))


def _is_optimizer(ranges: pd.DataFrame) -> pd.Series:
    return ranges["name"].isin([name for name in ranges["name"].cat.categories if _OPTIMIZER.match(str(name))])


def _name_groups(named: pd.DataFrame) -> dict[str, _Naming]:
    """Range name -> its group. Names that differ only in a final number and occur once each are one group."""
    names, kinds = named["name"].astype(str).tolist(), named["kind"].astype(str).tolist()
    counts = Counter(zip(names, kinds, strict=True))
    stems: dict[str, list[int]] = {}
    for (name, _kind), count in counts.items():
        if found := _NUMBERED.match(name):
            stems.setdefault(found["stem"], []).append(count)
    # Twice is allowed: profilers re-emit a step's range when a window closes.
    counters = {stem for stem, each in stems.items() if len(each) > 1 and max(each) <= 2}
    made = {name: _naming(name, kind, counters) for name, kind in counts}
    return {name: found for name, found in made.items() if found is not None}


def _naming(name: str, kind: str, counters: set[str]) -> _Naming | None:
    if _IGNORED.match(name):
        return None
    if (mark := decode(name)) is not None:
        return _Naming(f"{mark.kind}:{mark.label}", mark.label, _MARK_KINDS[mark.kind], mark.kind)
    if found := _OPTIMIZER.match(name):
        return _Naming(f"optimizer:{found['name']}", f"{found['name']}.step", RegionKind.OPTIMIZER, "")
    if kind == "module":
        label = name.removeprefix("nn.Module: ")
        return _Naming(f"module:{label}", label, RegionKind.MODULE, "")
    numbered = _NUMBERED.match(name)
    if numbered and (numbered["stem"] in counters or kind == "step"):
        label = numbered["stem"].rstrip(" #_-:")
        return _Naming(f"range:{label}*", label, RegionKind.STEP if kind == "step" else RegionKind.RANGE, "")
    return _Naming(f"range:{name}", name, RegionKind.RANGE, "")


def _group(timeline: Timeline, naming: _Naming, range_ids: Ints, item_ids: Ints, owner: Ints, positions: Ints) -> Group:
    mine = np.isin(owner, positions)
    occurrence = np.searchsorted(positions, owner[mine])
    items = item_ids[mine]
    order = np.lexsort((timeline.items["start_ns"].to_numpy()[items], occurrence))
    span = parse_span(naming.label) if naming.mark_kind else None
    rows = timeline.ranges.loc[range_ids]
    return Group(
        key=naming.key,
        label=naming.label,
        kind=naming.kind,
        mark_kind=naming.mark_kind,
        source_kind=str(rows["kind"].iloc[0]),
        range_ids=range_ids,
        item_ids=items[order],
        occurrence=occurrence[order].astype(np.int64),
        depth=float(rows["depth"].median()),
        location=SourceSpan(file=span.file, first_line=span.first_line, last_line=span.last_line) if span else None,
    )


def _on_device(timeline: Timeline, item_ids: Ints, rank: int, device: int) -> npt.NDArray[np.bool_]:
    items = timeline.items
    here = (items["rank"] == rank) & (items["device"] == device)
    return np.asarray(here.to_numpy()[item_ids], dtype=bool)
