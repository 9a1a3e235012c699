"""Recorded loops written by rule: every step launches the same items at the same pace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from timelines import MAIN, Row, call, kernel, rng, timeline

from advisor.metrics import gaps
from advisor.regions import Found, StepWindows, find
from advisor.timeline import Timeline

US = 1_000


@dataclass
class Loop:
    """`steps` steps of `items` launches, one every `issue` ns; each call takes `api`, its kernel starts `lead` after the call
    began, or when the stream is free plus `gap`, and runs `kernel` ns. `sync_at`: a device synchronise after that launch."""

    steps: int = 6
    items: int = 10
    issue: int = 10 * US
    api: int = 2 * US
    lead: int = 3 * US
    length: int = 3 * US
    gap: int = 1 * US
    sync_at: int | None = None
    inner: tuple[int, int] | None = None  # a nested range "part" over launches [a, b)

    def windows(self, made: Timeline) -> StepWindows:
        """The steps as `find` would give them, without looking for them."""
        begin = made.ranges["start_ns"].to_numpy()[(made.ranges["name"] == "step").to_numpy()]
        end = made.ranges["end_ns"].to_numpy()[(made.ranges["name"] == "step").to_numpy()]
        first = made.items["start_ns"].to_numpy()[:: self.items]
        last = made.items["end_ns"].to_numpy()[-1:]
        tid = np.full(self.steps, MAIN)
        return StepWindows(0, 0, first, np.concatenate((first[1:], last)), begin, end, tid)

    def build(self) -> Timeline:
        now, free, correlation = 0, -(10**9), 1
        items: list[Row] = []
        calls: list[Row] = []
        ranges: list[Row] = []
        for _ in range(self.steps):
            begin, part = now, 0
            for number in range(self.items):
                if self.inner and number == self.inner[0]:
                    part = now
                now += self.issue - self.api
                start = max(now + self.lead, free + self.gap)
                free = start + self.length
                calls.append(call(now, now + self.api, correlation))
                items.append(kernel(start, free, correlation))
                now += self.api
                correlation += 1
                if number == self.sync_at:
                    until = max(now + US, free + US)
                    calls.append(call(now, until, api="cudaDeviceSynchronize"))
                    now = until
                if self.inner and number == self.inner[1] - 1:
                    ranges.append(rng(part, now, "part", "user"))
            ranges.append(rng(begin, now, "step", "user"))
        return timeline(items, calls, ranges)


def found(made: Timeline) -> Found:
    return find(made.with_gaps(gaps(made)), 0, 0)
