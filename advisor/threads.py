"""Which thread works for which: autograd runs the backward pass on a thread of its own while the main thread waits for it.

A launch from such a helper belongs to whatever the main thread of its process was in the middle of. Telling a helper from a
thread that does its own work (a second training loop, a server's worker) rests on the ranges each of them opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from advisor.intervals import Coverage, union
from advisor.marks import decode

# Ranges that say what a program is doing, as opposed to how (ops, Python frames).
NAMED_KINDS: Final = ("user", "step", "nvtx", "mark", "module")
_AUTOGRAD: Final = "autograd::engine::evaluate_function"
_KEY: Final = ["rank", "pid", "tid"]


class Thread(NamedTuple):
    rank: int
    pid: int
    tid: int


def as_thread(key: Any) -> Thread:
    """A (rank, pid, tid) key as pandas hands it out, typed."""
    rank, pid, tid = key
    return Thread(int(rank), int(pid), int(tid))


@dataclass(frozen=True)
class ThreadRoles:
    """`main` has one thread a process (rank, pid); `helpers` are the launching threads that work for it."""

    main: dict[tuple[int, int], Thread]
    helpers: frozenset[Thread]

    def working_for(self, thread: Thread) -> frozenset[int]:
        """The tids whose launches belong to ranges on `thread`: its own, and those of its helpers."""
        own = frozenset((thread.tid,))
        if self.main.get(thread[:2]) != thread:
            return own
        return own | {helper.tid for helper in self.helpers if helper[:2] == thread[:2]}


def thread_roles(launches: pd.DataFrame, ranges: pd.DataFrame) -> ThreadRoles:
    """Roles from the launching calls and all ranges (frames of `tables.CALLS` and `tables.RANGES`).

    The main thread of a process is the one that runs its steps or loops, else one that does not run autograd's nodes, else
    the one inside named ranges for longest, else the one with most launches. Another launching thread helps it when it runs
    no steps or loops and either opens no named range, runs autograd's nodes, or opens named ranges only while the main
    thread is inside one.
    """
    counts = {as_thread(key): len(rows) for key, rows in launches.groupby(_KEY, sort=True).indices.items()}
    named = ranges[ranges["kind"].isin(NAMED_KINDS)]
    covers = {
        as_thread(key): union(named["start_ns"].to_numpy()[rows], named["end_ns"].to_numpy()[rows])
        for key, rows in named.groupby(_KEY, sort=True).indices.items()
    }
    drivers = _threads(named[(named["kind"] == "step").to_numpy() | _is_loop(named)])
    autograd = _threads(ranges[_has_prefix(ranges["name"], _AUTOGRAD)])

    def seniority(thread: Thread) -> tuple[bool, bool, int, int]:
        time = covers[thread].total_ns if thread in covers else 0
        return thread in drivers, thread not in autograd, time, counts.get(thread, 0)

    main: dict[tuple[int, int], Thread] = {}
    for thread in sorted(counts.keys() | covers.keys()):
        main[thread[:2]] = max(main.get(thread[:2], thread), thread, key=seniority)
    candidates = [thread for thread in counts if thread != main[thread[:2]] and thread not in drivers]
    helpers = frozenset(
        thread
        for thread in candidates
        if thread in autograd or _only_within(covers.get(thread), covers.get(main[thread[:2]]))
    )
    return ThreadRoles(main, helpers)


def _only_within(mine: Coverage | None, its: Coverage | None) -> bool:
    """Whether one thread's ranges lie inside another's; a thread without ranges trivially does."""
    if mine is None:
        return True
    return its is not None and int(its.within(mine.starts, mine.ends).sum()) == mine.total_ns


def _threads(frame: pd.DataFrame) -> frozenset[Thread]:
    return frozenset(as_thread(key) for key in frame[_KEY].drop_duplicates().itertuples(index=False))


def _is_loop(named: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Which ranges are the tool's own marks of a loop or an iteration."""
    marks = named["name"].cat.categories
    found = [name for name in marks if (mark := decode(str(name))) is not None and mark.kind in ("loop", "iter")]
    return named["name"].isin(found).to_numpy()


def _has_prefix(names: pd.Series, prefix: str) -> pd.Series:
    return names.isin([name for name in names.cat.categories if str(name).startswith(prefix)])
