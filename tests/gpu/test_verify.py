"""Samples verified end to end: the span is found, captured in the unmodified script, replayed, timed, proven equal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sample_runs import Sample, verify_samples

from advisor.model import Attempt, EqualityOutcome, Outcome, Verification

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

SAMPLES = {
    sample.key: sample
    for sample in (
        Sample("mlp_train", "for step"),
        Sample("trainer_train", "while True", file="trainer_lib.py"),
        Sample("encoder_infer", "for step"),
        Sample("decode_static", "for i in range(new_tokens)"),
        Sample("word_lm", "for batch"),
        Sample("lstm_cell", "for step"),
        Sample("gan_train", "for i, data in enumerate"),
        Sample("sac_update", "for global_step"),
        Sample("generate_dynamic", "for i in range(max_new"),
        Sample("resnet_train", "for step", ("--batch", "256", "--steps", "40")),
    )
}
AS_WRITTEN = {"encoder_infer": 3.0, "word_lm": 2.0, "lstm_cell": 3.0}
WITH_FIXES = {"mlp_train": 3.0, "trainer_train": 3.0, "sac_update": 3.0, "gan_train": 2.0, "decode_static": 1.5}


@pytest.fixture(scope="module")
def verified(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verification]:
    """The samples that the selected tests of this module ask for."""
    wanted = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    chosen = [sample for key, sample in SAMPLES.items() if key in wanted]
    return verify_samples(chosen, tmp_path_factory.mktemp("samples"))


def best(found: Verification) -> Attempt:
    return next((one for one in found.attempts if one.outcome is Outcome.VERIFIED), found.attempts[-1])


def assert_gain(attempt: Attempt, factor: float) -> None:
    assert attempt.outcome is Outcome.VERIFIED, attempt.message
    assert attempt.equality is not None and attempt.equality.outcome is EqualityOutcome.BITWISE, attempt.message
    assert attempt.timing is not None and attempt.timing.speedup_low_ratio > factor, attempt.message
    assert attempt.replay_count >= 20 and attempt.node_count is not None and attempt.node_count > 10
    assert attempt.break_even_replays is not None and attempt.pool_bytes is not None


@pytest.mark.parametrize("name", AS_WRITTEN)
def test_verified_as_written(verified: dict[str, Verification], name: str) -> None:
    found = best(verified[name])
    assert {fix.id for fix in found.fixes} <= {"stage"}  # at most an index is read before the span
    assert_gain(found, AS_WRITTEN[name])


@pytest.mark.parametrize("name", WITH_FIXES)
def test_verified_with_fixes_and_not_without(verified: dict[str, Verification], name: str) -> None:
    first, found = verified[name].attempts[0], best(verified[name])
    assert first.outcome in (Outcome.BLOCKED, Outcome.DIFFERS), first.message
    assert found.fixes and all(fix.diff for fix in found.fixes)
    assert_gain(found, WITH_FIXES[name])


@pytest.mark.parametrize("name", ["mlp_train", "trainer_train", "sac_update"])
def test_adam_as_written_is_blocked_at_its_step(verified: dict[str, Verification], name: str) -> None:
    blocker = verified[name].attempts[0].blocker
    assert blocker is not None and blocker.id == "optim-not-capturable" and blocker.location is not None


@pytest.mark.parametrize("name", ["generate_dynamic"])
def test_a_growing_cache_is_another_signature_in_every_step(verified: dict[str, Verification], name: str) -> None:
    for attempt in verified[name].attempts:
        assert attempt.outcome is Outcome.NO_REPLAY, attempt.message
        assert attempt.signature_count == attempt.fallback_count > 10


@pytest.mark.parametrize("name", ["resnet_train --batch 256 --steps 40"])
def test_a_busy_gpu_is_not_worth_a_graph(verified: dict[str, Verification], name: str) -> None:
    found = verified[name].attempts[-1]
    assert found.outcome is Outcome.NOT_FASTER, found.message
    assert found.timing is not None and 0.95 < found.timing.speedup_ratio < 1.05


CAPTURES = """
import torch
from torch.utils.data import DataLoader, Dataset
from advisor.workload.graphs import CudaDevice

class Noise(Dataset):
    def __len__(self):
        return 64 * 60
    def __getitem__(self, index):
        return torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(index))

device = CudaDevice()
device.start()
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(4)).cuda()
static = torch.rand(64, 3, 64, 64, device="cuda")
for _ in range(3):
    model(static).sum().backward()
done = 0
for batch in DataLoader(Noise(), batch_size=64, num_workers=2, pin_memory=True, prefetch_factor=8):
    graph = device.new_graph("thread_local")
    model.zero_grad()
    graph.begin()
    out = model(static)
    out.sum().backward()
    graph.end()
    graph.instantiate()
    static.copy_(batch, non_blocking=True)
    graph.replay()
    with torch.no_grad():
        assert torch.equal(out, model(static)), done
    nodes = graph.node_count()
    assert nodes is not None and nodes > 5, nodes
    graph.reset()
    done += 1
    if done == 50:
        break
print("captured", done)
"""


def test_fifty_captures_beside_a_pinning_loader(tmp_path: Path) -> None:
    (tmp_path / "captures.py").write_text(CAPTURES)
    path = os.pathsep.join((str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [sys.executable, "captures.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.strip() == "captured 50", done.stderr[-2000:]
