"""Each rule fires on its own fact and stays silent on its opposite."""

from __future__ import annotations

import pytest
from facts import US, facts, region

from advisor import rules
from advisor.model import GraphCoverage, IdleByCause, Measurement, RegionKind, Step
from advisor.registry import members
from advisor.rules import Rule, all_findings

GPU_BOUND = region(busy_ns=990 * US, idle=IdleByCause(device_ns=10 * US))
CASES = {
    "gpu-bound": facts(GPU_BOUND),
    "alloc-stalls": facts(device={"alloc_ns": 4000 * US}),
    "long-gaps": facts(region(long_gap_ns=800 * US)),
    "input-bound": facts(region(idle=IdleByCause(input_ns=500 * US, launch_ns=400 * US))),
    "sync-bound": facts(region(idle=IdleByCause(sync_ns=500 * US, launch_ns=400 * US), sync_count=3.0)),
    "optimizer-launches": facts(
        region(), region(id="optimizer:Adam", label="Adam.step", kind=RegionKind.OPTIMIZER, launch_count=290.0)
    ),
    "partly-graphed": facts(device={"graphs": GraphCoverage(launch_count=20, item_count=400, item_ratio=0.4)}),
    "fragmented-graphs": facts(device={"graphs": GraphCoverage(launch_count=200, item_count=400, item_ratio=0.4)}),
    "varying-sequence": facts(region(signature_match_ratio=0.3, signature_count=7)),
    "varying-shapes": facts(region(shape_signature_count=8)),
    "profiler-inflation": facts(
        step=Step(
            id="step",
            label="s",
            how="t",
            count=3,
            traced=Measurement(samples_ns=(2,)),
            clocked=Measurement(samples_ns=(1,)),
            inflation_ratio=2.0,
        )
    ),
    "tiny-step": facts(region(item_count=2.0)),
    "many-streams": facts(device={"stream_count": 3}),
}


def test_every_rule_is_listed_here():
    assert {rule.id for rule in members(rules, "RULE", Rule)} == set(CASES)


@pytest.mark.parametrize("rule_id", sorted(CASES))
def test_rule_fires_on_its_fact(rule_id):
    assert rule_id in {finding.id for finding in all_findings(CASES[rule_id])}


def test_a_plain_launch_bound_step_has_no_findings():
    assert all_findings(facts()) == ()


def test_a_graphed_busy_gpu_is_not_called_gpu_bound():
    graphed = facts(GPU_BOUND, device={"graphs": GraphCoverage(launch_count=9, item_count=999, item_ratio=0.99)})
    assert "gpu-bound" not in {finding.id for finding in all_findings(graphed)}
