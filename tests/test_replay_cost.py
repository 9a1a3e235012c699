"""The host's cost of a replay, on the recording double."""

from __future__ import annotations

import pytest
from tape import TapeDevice, TapeGraph

from advisor.workload import replay_cost


def test_a_replay_through_the_verifiers_code_is_timed(monkeypatch):
    replays = []
    monkeypatch.setattr(TapeGraph, "replay", lambda self: replays.append(self.node_count()))
    cost = replay_cost.measure(TapeDevice(), "cpu")
    assert 1_000 < cost < 10_000_000  # some microseconds of Python, whatever else the machine does
    assert len(replays) == 1 + 16 * 12  # the capturing iteration's, then bursts
    assert replays[0] >= replay_cost.LAYERS


def test_a_graph_that_costs_more_costs_more(monkeypatch):
    monkeypatch.setattr(TapeGraph, "replay", lambda self: replay_cost.time.sleep(0.02))
    monkeypatch.setattr(replay_cost, "_BURSTS", 1)
    assert replay_cost.measure(TapeDevice(), "cpu") > 20_000_000


def test_a_capture_that_fails_is_told(monkeypatch):
    plain = TapeGraph.end

    def refuse(self):
        plain(self)
        raise RuntimeError("no capture here")

    monkeypatch.setattr(TapeGraph, "end", refuse)
    with pytest.raises(RuntimeError, match="no capture here"):
        replay_cost.measure(TapeDevice(), "cpu")
