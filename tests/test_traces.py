"""Right answers on real traces, end to end through the library. Counts per file are in test_kineto.py and test_nsight.py."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import advisor
from advisor.errors import TraceError
from advisor.model import Analysis, Answer

TRACES = Path(__file__).parents[1].parent / "shared" / "traces"
DATA = Path(advisor.__file__).parent / "data"
US = 1_000

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason=f"the real traces are not at {TRACES}")


@cache
def analysis(name: str) -> Analysis:
    return advisor.analyze(advisor.load(TRACES / name))


def step(found: Analysis):
    return found.region("step")


ALL = sorted(str(path.relative_to(TRACES)) for path in TRACES.rglob("*") if path.suffix in (".gz", ".json", ".sqlite"))
# ExecutionTraces and exports without any CUDA activity are refused in one line; everything else gets findings.
REFUSED = {"hta/execution_trace_not_kineto.json.gz"}


@pytest.mark.parametrize("name", ALL)
def test_every_trace_gives_findings_or_a_clear_refusal(name):
    try:
        found = analysis(name)
    except TraceError as error:
        assert "\n" not in str(error)
        assert len(str(error)) > 20
        return
    assert found.verdict.sentence
    for device in found.devices:
        assert device.busy_ns + device.idle.total_ns == device.end_ns - device.start_ns
        assert device.layers.total_ns == device.idle.launch_ns
    for region in found.regions:
        assert region.busy_ns + region.idle.total_ns == region.extent_ns
        assert region.layers.total_ns == region.idle.launch_ns


def test_mlp_training_step():
    found = analysis("h200/mlp_adam_train_10steps.json.gz")
    assert found.step.count == 10
    assert step(found).item_count == 114
    assert step(found).busy_ns == pytest.approx(324 * US, rel=0.01)
    assert found.verdict.answer == Answer.PROBABLY
    estimate = next(one for one in found.estimates if one.region_id == "step")
    # As one graph the step takes 355 µs, measured; the estimate of the step after must hold it.
    assert estimate.before_ns - estimate.saved_high_ns <= 355 * US <= estimate.before_ns - estimate.saved_low_ns
    assert estimate.after_ns == pytest.approx(355 * US, rel=0.15)


def test_gpt2_forward_is_launch_bound_and_reads_a_value():
    found = analysis("h200/gpt2_fwd_10steps.json.gz")
    assert step(found).item_count == 245
    assert step(found).busy_ns == pytest.approx(595 * US, rel=0.01)
    assert [blocker.id for blocker in found.blockers] == ["sync-bool"]
    assert found.verdict.answer in (Answer.BLOCKED, Answer.PROBABLY)


def test_replayed_mlp_is_already_graphed():
    found = analysis("h200/mlp_adam_graph_replay_10x.json.gz")
    graphs = found.devices[0].graphs
    assert (graphs.launch_count, graphs.item_count, graphs.item_ratio) == (10, 1140, 1.0)
    assert found.verdict.answer == Answer.ALREADY_GRAPHED
    assert found.step.count == 10


def test_nsight_recording_tells_eager_and_replayed_parts_apart():
    found = analysis("h200/mlp_train_and_graph.sqlite")
    labels = {region.label: region for region in found.regions}
    assert labels["step" if "step" in labels else "fwd"].occurrence_count == 30
    graphs = found.devices[0].graphs
    assert (graphs.launch_count, graphs.item_count) == (5, 120)
    assert step(found).graphed_item_ratio == 0.0


def test_leimao_full_graph_is_predicted_from_the_eager_trace():
    eager = analysis("leimao-cudagraph/rtx5080_train_eager_a.json.gz")
    graphed = analysis("leimao-cudagraph/rtx5080_train_manual_graph_a.json.gz")
    estimate = next(one for one in eager.estimates if one.region_id == "step")
    measured = float(np.median(graphed.step.traced.samples_ns))
    assert estimate.after_ns == pytest.approx(measured, rel=0.15)
    assert graphed.verdict.answer == Answer.ALREADY_GRAPHED


def test_leimao_partial_graph_is_recognised():
    found = analysis("leimao-cudagraph/rtx5080_train_partial_graphed_callables_a.json.gz")
    assert 0.1 < found.devices[0].graphs.item_ratio < 0.9
    assert "partly-graphed" in {finding.id for finding in found.findings}
    assert found.verdict.answer in (Answer.PROBABLY, Answer.BLOCKED)


@pytest.mark.parametrize(
    "name", ["hta/a100_alexnet_benchmark.json.gz", "hta/a100_simple_add.json.gz", "tracelens/mi300_layernorm_test.json.gz"]
)
def test_a_few_long_gaps_are_not_launch_bound(name):
    found = analysis(name)
    assert "long-gaps" in {finding.id for finding in found.findings}
    assert found.verdict.answer not in (Answer.PROBABLY, Answer.BLOCKED)


@pytest.mark.parametrize(
    "name", ["param/rtx2080ti_linear_train.json.gz", "sidnb13/h100_transformer_session1_run1.json.gz"]
)
def test_thousands_of_short_gaps_are_launch_bound(name):
    found = analysis(name)
    region = step(found)
    assert region.idle.launch_ns > 0.5 * region.extent_ns
    assert found.verdict.answer == Answer.PROBABLY


def test_opaque_graphs_count_as_busy_and_nothing_is_said_inside():
    found = analysis("nsys/a100_gpt27b_reduce_overhead_graph.sqlite")
    device = found.devices[0]
    assert device.graphs.opaque_ns > 0.9 * (device.end_ns - device.start_ns)
    assert device.busy_ns >= device.graphs.opaque_ns
    assert "opaque-graphs" in {note.id for note in found.quality}
    assert found.verdict.answer == Answer.ALREADY_GRAPHED


def test_its_eager_twin_is_gpu_bound():
    found = analysis("nsys/a100_gpt27b_eager_cudaprofilerapi.sqlite")
    assert found.verdict.answer == Answer.NOT_WORTH_IT
    assert "gpu-bound" in {finding.id for finding in found.findings}


def test_every_kernel_followed_by_a_synchronise_is_sync_not_launch():
    device = analysis("nsys/a100_kokkos_cloverleaf.sqlite").devices[0]
    assert device.idle.sync_ns > 0.5 * device.idle.total_ns


def test_no_kernels_recorded_is_not_an_idle_gpu():
    found = analysis("zoology/a100_no_kernels_cupti_missing.json.gz")
    assert found.verdict.answer == Answer.CANNOT_TELL
    assert "not an idle GPU" in found.verdict.sentence


def test_sync_rows_are_not_gpu_work():
    device = analysis("hta/a100_event_sync.json.gz").devices[0]
    assert device.busy_ns / (device.end_ns - device.start_ns) == pytest.approx(0.194, abs=0.001)


def test_ranks_are_kept_apart():
    found = advisor.analyze(advisor.load(TRACES / "param-dlrm-8rank"))
    assert sorted(device.rank for device in found.devices) == list(range(8))
    assert found.trace.rank_count == 8


def test_input_bound_training_is_called_that():
    found = analysis("kineto-tb/torch18_resnet50_w0.json.gz")
    assert "input-bound" in {finding.id for finding in found.findings}
