"""Capture, replay-and-skip and the faults it must never let pass, on the recording double."""

from pathlib import Path

import pytest
import torch
from verify_harness import dedent, fix, line_of, verify

from advisor.model import EqualityOutcome, Outcome

EQUAL = (Outcome.VERIFIED, Outcome.NOT_FASTER)  # the double is no faster than eager: equality is what is tested here

HEAD = """
import random
import torch
from torch import nn
torch.manual_seed(0)
data = torch.randn(64, 4, 8)
target = torch.randn(64, 4, 1)
"""


def program(text: str) -> str:
    return dedent(HEAD) + dedent(text)


TRAIN = program("""
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.Linear(16, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for i in range(60):
    x, y = data[i].clone(), target[i].clone()
    opt.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    opt.step()
    print(loss.item())
""")


def test_whole_step_is_bit_identical_with_dropout_and_batch_norm(tmp_path: Path) -> None:
    found = verify(tmp_path, TRAIN, "opt.zero_grad", "opt.step")
    assert found.outcome in EQUAL, found.message
    assert found.equality is not None and found.equality.outcome is EqualityOutcome.BITWISE
    # the capturing step, 6 checked ones, and three replayed blocks of 3
    assert found.replay_count == 1 + 6 + 3 * 3
    assert found.fallback_count == 0


def test_a_batch_norm_that_replays_saw_once_too_often_would_be_seen(tmp_path: Path) -> None:
    """The warm-up of a capture must not advance the running statistics: eager and graph agree on their buffers."""
    found = verify(tmp_path, TRAIN, "loss = nn", "loss = nn")
    # forward alone: the backward pass outside has no graph to go through
    assert found.outcome is Outcome.BLOCKED and found.blocker is not None
    assert found.blocker.id == "autograd-cut"
    assert found.blocker.location is not None and found.blocker.location.first_line == 13


GRADS_OUTSIDE = program("""
model = nn.Linear(8, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for i in range(60):
    x, y = data[i].clone(), target[i].clone()
    opt.zero_grad()
    print(i)
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    opt.step()
""")


def test_forward_and_backward_alone_while_gradients_are_reset_outside(tmp_path: Path) -> None:
    found = verify(tmp_path, GRADS_OUTSIDE, "loss = nn", "loss.backward")
    assert found.outcome is Outcome.DIFFERS
    assert found.hazards[0].id == "grad-reset-outside"
    # the capturing step is the first that replays; its gradients are where eager's would be, the next ones are not
    assert found.equality is not None and found.equality.first_step == 6


def test_zeroing_in_place_makes_it_right(tmp_path: Path) -> None:
    found = verify(
        tmp_path, GRADS_OUTSIDE, "loss = nn", "loss.backward", (fix("zero-grad", GRADS_OUTSIDE, "zero_grad"),)
    )
    assert found.outcome in EQUAL, found.message
    assert "+    opt.zero_grad(set_to_none=False)" in found.fixes[0].diff


def test_gradient_accumulation_over_two_micro_batches(tmp_path: Path) -> None:
    text = program("""
    model = nn.Linear(8, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for i in range(60):
        x, y = data[i].clone(), target[i].clone()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        if i % 2 == 1:
            opt.step()
            opt.zero_grad()
    """)
    found = verify(tmp_path, text, "loss = nn", "loss.backward")
    assert found.outcome is Outcome.DIFFERS
    assert found.hazards[0].id == "grad-accumulate-twice"


SCHEDULED = program("""
model = nn.Linear(8, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(opt, step_size=7, gamma=0.5)
for i in range(60):
    x, y = data[i].clone(), target[i].clone()
    opt.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    opt.step()
    schedule.step()
""")


def test_a_float_learning_rate_under_a_scheduler_is_frozen(tmp_path: Path) -> None:
    found = verify(tmp_path, SCHEDULED, "opt.zero_grad", "opt.step")
    assert found.outcome is Outcome.DIFFERS
    assert found.hazards[0].id == "frozen-lr-sgd"
    assert "0.1 -> 0.05" in found.hazards[0].evidence
    # steps 0..6 run at 0.1, the rate changes after step 6, step 7 is the first that is wrong
    assert found.equality is not None and found.equality.first_step == 7


LATE = {
    "scheduler": ("schedule = torch.optim.lr_scheduler.StepLR(opt, step_size=1000)", "schedule.step()"),
    "by hand": ("", "for group in opt.param_groups: group['lr'] *= 0.1 if i == 59 else 1.0"),
}


@pytest.mark.parametrize("how", LATE)
@pytest.mark.parametrize(("rate", "outcomes"), [("0.1", (Outcome.DIFFERS,)), ("torch.tensor(0.1), fused=True", EQUAL)])
def test_a_learning_rate_that_changes_after_the_measured_steps(
    tmp_path: Path, how: str, rate: str, outcomes: tuple[Outcome, ...]
) -> None:
    """The tool changes it in the checked steps of every child: a graph that keeps the old one must not pass."""
    before, after = LATE[how]
    text = program(f"""
    model = nn.Linear(8, 1)
    opt = torch.optim.SGD(model.parameters(), lr={rate})
    {before}
    for i in range(60):
        x, y = data[i].clone(), target[i].clone()
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        {after}
    """)
    found = verify(tmp_path, text, "opt.zero_grad", "opt.step")
    assert found.outcome in outcomes, found.message
    if found.outcome is Outcome.DIFFERS:
        # warm-up 5, capture 1, the middle of 6 checks: step 9 is the first with another rate
        assert found.equality is not None and found.equality.first_step == 5 + 1 + 3
        assert found.hazards[0].id == "frozen-lr-sgd" and "0.1 -> 0.05" in found.hazards[0].evidence
    else:
        assert "and a changed learning rate" in found.message


def test_a_learning_rate_that_nothing_changes_is_left_alone(tmp_path: Path) -> None:
    text = SCHEDULED.replace("schedule", "pass  #")
    found = verify(tmp_path, text, "opt.zero_grad", "opt.step")
    assert found.outcome in EQUAL and "learning rate" not in found.message


def test_numbers_the_graph_keeps_are_listed(tmp_path: Path) -> None:
    text = program("""
    model = nn.Linear(8, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    config = {"weight": 2.0, "name": "x"}
    unread = 3.0
    def weighted(loss):
        return loss * config["weight"]
    scale = 0.5
    for i in range(60):
        x, y = data[i], target[i]
        opt.zero_grad()
        loss = weighted(nn.functional.mse_loss(model(x), y) * scale)
        loss.backward()
        opt.step()
    """)
    found = verify(tmp_path, text, "opt.zero_grad", "opt.step")
    assert found.outcome in EQUAL, found.message
    assert found.frozen == ("scale = 0.5", "SGD lr = 0.1", "config['weight'] = 2.0")


def test_a_python_counter_in_the_span(tmp_path: Path) -> None:
    text = program("""
    model = nn.Linear(8, 1)
    seen = 0
    for i in range(60):
        x = data[i].clone()
        with torch.no_grad():
            out = model(x)
        seen += 1
        print(seen)
    """)
    found = verify(tmp_path, text, "with torch", "seen += 1")
    assert found.outcome is Outcome.BLOCKED and found.blocker is not None
    assert found.blocker.id == "cpu-side-effect"
    assert "seen" in found.message


def test_a_counter_hidden_in_a_called_method(tmp_path: Path) -> None:
    text = program("""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(8, 1)
        def forward(self, x):
            counts["calls"] += 1
            return self.lin(x)
    counts = {"calls": 0}
    model = Net()
    for i in range(60):
        x = data[i].clone()
        with torch.no_grad():
            out = model(x)
        print(out)
    """)
    found = verify(tmp_path, text, "with torch", "out = model")
    assert found.outcome is Outcome.DIFFERS
    assert found.hazards[0].id == "cpu-side-effect"
    assert found.hazards[0].location is not None
    assert found.equality is not None and found.equality.python_values == ("counts['calls']",)


def test_a_state_rebound_as_an_attribute_inside_the_model(tmp_path: Path) -> None:
    text = program("""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(8, 8)
            self.last = torch.zeros(4, 8)
        def forward(self, x):
            self.last = torch.tanh(self.lin(x) + self.last)
            return self.last.sum(-1)
    model = Net()
    for i in range(60):
        x = data[i].clone()
        with torch.no_grad():
            out = model(x)
        print(out)
    """)
    found = verify(tmp_path, text, "with torch", "out = model")
    assert found.outcome is Outcome.DIFFERS
    assert found.hazards[0].id == "stale-input"
    assert "Net[0].last" in found.hazards[0].evidence


def test_a_tensor_rebound_outside_after_the_warm_up_falls_back(tmp_path: Path) -> None:
    text = program("""
    scale = torch.ones(8)
    for i in range(60):
        x = data[i].clone()
        if i == 8:
            scale = torch.full((8,), 2.0)
        out = x * scale
        print(out.sum())
    """)
    found = verify(tmp_path, text, "out = x", "out = x")
    # captured with the first tensor; after the rebinding nothing may be replayed, and the results stay right
    assert found.equality is not None and found.equality.outcome is EqualityOutcome.BITWISE
    # step 5 captures, 6 and 7 replay; then all of 8..11 and three replay blocks of 3 fall back
    assert (found.replay_count, found.fallback_count, found.signature_count) == (3, 4 + 9, 1)
    assert any(hazard.id == "stale-input" for hazard in found.hazards)


KEPT = program("""
model = nn.Linear(8, 1)
outs = []
for i in range(60):
    x = data[i].clone()
    with torch.no_grad():
        out = model(x)
    outs.append(out)
""")


def test_an_output_kept_in_a_list_is_a_clone(tmp_path: Path) -> None:
    found = verify(tmp_path, KEPT, "with torch", "out = model")
    assert found.outcome in EQUAL, found.message


def test_without_the_clone_the_overwritten_output_is_caught(tmp_path: Path) -> None:
    found = verify(tmp_path, KEPT, "with torch", "out = model", clone_outputs=False)
    assert found.outcome is Outcome.DIFFERS
    assert found.hazards[0].id == "output-overwrite"
    assert found.equality is not None and found.equality.first_name == "outs[5]"


def test_an_append_inside_the_span_is_missed_and_caught(tmp_path: Path) -> None:
    found = verify(tmp_path, KEPT, "with torch", "outs.append")
    assert found.outcome is Outcome.DIFFERS
    assert found.hazards[0].id == "cpu-side-effect"
    assert found.equality is not None and "len(outs)" in found.equality.python_values


def test_without_staging_the_input_is_stale(tmp_path: Path) -> None:
    found = verify(tmp_path, KEPT, "with torch", "out = model", stage_inputs=False)
    assert found.outcome is Outcome.DIFFERS
    assert found.equality is not None and found.equality.first_step == 6


@pytest.mark.parametrize("draw", ["random.random()", "__import__('numpy').random.rand()"])
def test_a_host_random_number_is_baked_in(tmp_path: Path, draw: str) -> None:
    text = program(f"""
    model = nn.Linear(8, 1)
    for i in range(60):
        x = data[i].clone()
        with torch.no_grad():
            out = model(x) * {draw}
        print(out)
    """)
    found = verify(tmp_path, text, "with torch", "out = model")
    assert found.outcome is Outcome.DIFFERS
    assert found.hazards[0].id == "rng-fixed"


def test_a_number_that_changes_every_step_is_refused(tmp_path: Path) -> None:
    text = program("""
    for i in range(60):
        x = data[i].clone()
        out = x * (1 + i)
        print(out)
    """)
    found = verify(tmp_path, text, "out = x", "out = x")
    assert found.outcome is Outcome.BLOCKED and found.blocker is not None
    assert found.blocker.id == "frozen-scalar" and "`i`" in found.message


def test_only_the_items_that_are_read_count(tmp_path: Path) -> None:
    text = program("""
    for i in range(60):
        batch = (data[i].clone(), i)
        row = data[i].clone()
        out = batch[0] * 2 + row[0]
        print(out)
    """)
    # the running number beside the tensor is not read; of the tensor `row` an item is read by a kernel
    found = verify(tmp_path, text, "out = batch", "out = batch")
    assert found.outcome in EQUAL, found.message
    assert found.fallback_count == 0


def test_a_rare_change_of_a_number_falls_back(tmp_path: Path) -> None:
    text = program("""
    factor = 2.0
    for i in range(60):
        x = data[i].clone()
        if i in (7, 8):
            factor = 3.0
        if i == 9:
            factor = 2.0
        out = x * factor
        print(out)
    """)
    found = verify(tmp_path, text, "out = x", "out = x")
    assert found.equality is not None and found.equality.outcome is EqualityOutcome.BITWISE
    assert (found.fallback_count, found.signature_count) == (2, 1)


def test_a_last_batch_of_another_shape_falls_back(tmp_path: Path) -> None:
    text = program("""
    model = nn.Linear(8, 1)
    for i in range(60):
        x = data[i].clone()
        x = x[:3] if i % 5 == 0 and i > 5 else x
        with torch.no_grad():
            out = model(x)
        print(out)
    """)
    found = verify(tmp_path, text, "with torch", "out = model")
    assert found.equality is not None and found.equality.outcome is EqualityOutcome.BITWISE
    # of the steps that replay (6..14, 18..20, 24..26) 10, 20 and 25 are odd ones
    assert (found.fallback_count, found.signature_count) == (3, 1)


def test_a_growing_cache_never_replays(tmp_path: Path) -> None:
    text = program("""
    cache = torch.zeros(1, 8)
    for i in range(60):
        x = data[i].clone()
        cache = torch.cat([cache, x[:1]])
        print(cache.shape)
    """)
    found = verify(tmp_path, text, "cache = torch.cat", "cache = torch.cat")
    # the capturing step's own replay is the only one
    assert found.replay_count == 1 and found.signature_count == found.fallback_count > 5


CARRIED = program("""
class Trainer:
    def __init__(self):
        self.cell = nn.LSTMCell(8, 8)
        self.state = {"h": (torch.zeros(4, 8), torch.zeros(4, 8))}
        self.loss = None
        self.total = 0.0
    def run(self):
        opt = torch.optim.SGD(self.cell.parameters(), lr=0.1)
        for i in range(60):
            batch = {"x": data[i].clone(), "y": (target[i].clone(),)}
            h, c = self.state["h"]
            h, c = self.cell(batch["x"], (h.detach(), c.detach()))
            self.loss = (h.mean(-1, keepdim=True) - batch["y"][0]).pow(2).mean()
            opt.zero_grad()
            self.loss.backward()
            opt.step()
            self.state["h"] = (h, c)
            self.total += self.loss.item()
Trainer().run()
""")


def test_carried_state_trees_and_attributes(tmp_path: Path) -> None:
    found = verify(tmp_path, CARRIED, 'h, c = self.state["h"]', 'self.state["h"] = (h, c)', loop="for i in range")
    assert found.outcome in EQUAL, found.message
    assert found.equality is not None and found.equality.outcome is EqualityOutcome.BITWISE


def test_an_input_written_in_place_is_written_back(tmp_path: Path) -> None:
    text = program("""
    for i in range(60):
        x = data[i]
        x.mul_(2.0)
        out = x + 1
        print(out)
    """)
    found = verify(tmp_path, text, "x.mul_", "out = x")
    assert found.outcome in EQUAL, found.message


def test_the_addition_of_a_tensor_is_not_taken_for_a_container_being_filled(tmp_path: Path) -> None:
    text = program("""
    for i in range(60):
        x = data[i].clone()
        out = x.add(1)
        print(out)
    """)
    found = verify(tmp_path, text, "out = x", "out = x")
    assert found.outcome in EQUAL, found.message
    assert found.equality is not None and found.equality.outcome is EqualityOutcome.BITWISE


@pytest.mark.parametrize("view", ["data[i][:, 1:]", "data[i].T", "data[i][:, 0]", "data[i][:1].expand(4, -1)"])
def test_a_moving_input_that_is_a_view_is_replayed(tmp_path: Path, view: str) -> None:
    text = program(f"""
    for i in range(60):
        x = {view}
        out = x * 2
        print(out)
    """)
    found = verify(tmp_path, text, "out = x", "out = x")
    assert found.outcome in EQUAL, found.message
    assert (found.replay_count, found.fallback_count) == (1 + 6 + 3 * 3, 0)


def test_a_frozen_dataclass_is_handed_out_with_new_tensors(tmp_path: Path) -> None:
    text = program("""
    import dataclasses
    @dataclasses.dataclass(frozen=True)
    class Pair:
        a: torch.Tensor
        b: torch.Tensor
    kept = []
    for i in range(60):
        x = data[i].clone()
        pair = Pair(x * 2, x + 1)
        kept.append(pair.a.sum())
        print(pair.b, kept[-1])
    """)
    found = verify(tmp_path, text, "pair = Pair", "pair = Pair")
    assert found.outcome in EQUAL, found.message


def test_a_return_at_the_end_of_a_function_body(tmp_path: Path) -> None:
    text = program("""
    def step(x, y):
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        return {"loss": loss, "size": len(x)}
    model = nn.Linear(8, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for i in range(60):
        found = step(data[i].clone(), target[i].clone())
        print(found["loss"].item(), found["size"])
    """)
    found = verify(tmp_path, text, "opt.zero_grad", "return {")
    assert found.outcome in EQUAL, found.message


def test_two_executions_in_a_step(tmp_path: Path) -> None:
    text = program("""
    model = nn.Linear(8, 8)
    for i in range(60):
        x = data[i].clone()
        for _ in range(3):
            with torch.no_grad():
                x = torch.tanh(model(x))
        print(x.sum())
    """)
    found = verify(tmp_path, text, "with torch", "x = torch.tanh", loop="for i in")
    assert found.outcome in EQUAL, found.message
    assert found.replay_count == 3 * 16


BLOCKED = {
    "sync-item": "value = out.sum().item()",
    "sync-bool": "flag = 1 if out.sum() > 0 else 0",
    "dyn-nonzero": "kept = out[out > 0]",
}


@pytest.mark.parametrize("blocker", BLOCKED)
def test_a_host_read_blocks_at_the_users_line(tmp_path: Path, blocker: str) -> None:
    text = program(f"""
    model = nn.Linear(8, 1)
    for i in range(60):
        x = data[i].clone()
        with torch.no_grad():
            out = model(x)
        {BLOCKED[blocker]}
        out = out * 2
        print(out)
    """)
    found = verify(tmp_path, text, "with torch", "out = out * 2")
    assert found.outcome is Outcome.BLOCKED and found.blocker is not None
    assert found.blocker.id in (blocker, "capture-unsupported" if blocker == "sync-bool" else blocker)
    assert found.blocker.location is not None and found.blocker.location.label == "prog.py:12"


def test_a_deferred_read_unblocks(tmp_path: Path) -> None:
    text = program("""
    model = nn.Linear(8, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    for i in range(60):
        x, y = data[i].clone(), target[i].clone()
        opt.zero_grad()
        output = model(x)
        D_x = output.mean().item()
        loss = nn.functional.mse_loss(output, y)
        loss.backward()
        output = model(x * 2)
        opt.step()
        print(D_x)
    """)
    assert verify(tmp_path / "a", text, "opt.zero_grad", "opt.step").outcome is Outcome.BLOCKED
    found = verify(tmp_path / "b", text, "opt.zero_grad", "opt.step", (fix("defer", text, "D_x = "),))
    assert found.outcome in EQUAL, found.message
    assert f"+    kept_{line_of(text, 'D_x = ')} = output.mean()" in found.fixes[0].diff
    assert f"+    D_x = kept_{line_of(text, 'D_x = ')}.item()" in found.fixes[0].diff


def test_control_flow_that_leaves_the_span_is_refused(tmp_path: Path) -> None:
    text = program("""
    for i in range(60):
        x = data[i].clone()
        out = x * 2
        if i > 70:
            break
        print(out)
    """)
    found = verify(tmp_path, text, "out = x", "break")
    assert found.outcome is Outcome.BLOCKED and "`break` leaves the span" in found.message


MODULE = program("""
net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)).eval()
kept = []
for i in range(60):
    x = data[i].clone()
    with torch.no_grad():
        out = net(x)
    kept.append(out)
""")


@pytest.mark.parametrize("path", ["Sequential", "0"])
def test_the_calls_of_a_module(tmp_path: Path, path: str) -> None:
    found = verify(tmp_path, MODULE, "", "", module=path)
    assert found.outcome in EQUAL, found.message
    assert found.replay_count == 16 and found.region_label == f"module {path}"


def test_no_such_module(tmp_path: Path) -> None:
    found = verify(tmp_path, MODULE, "", "", module="encoder")
    assert found.outcome is Outcome.BLOCKED and "no module 'encoder'" in found.message


def test_a_training_module_does_not_replay_because_gradients_end_at_its_edge(tmp_path: Path) -> None:
    text = MODULE.replace(".eval()", "").replace("with torch.no_grad():", "if True:")
    found = verify(tmp_path, text, "", "", module="Sequential")
    assert found.outcome is Outcome.NO_REPLAY


SLOTS = """
class Batch:
    __slots__ = ("x", "y")
    def __init__(self, x, y):
        self.x, self.y = x, y
class Mean:
    __slots__ = ("value", "weight")
    def __init__(self):
        self.value, self.weight = torch.zeros(()), torch.ones(8)
    def push(self, value):
        self.value = 0.9 * self.value + 0.1 * value
mean = Mean()
"""


def test_batches_with_slots_are_inputs(tmp_path: Path) -> None:
    text = program(
        dedent(SLOTS)
        + dedent("""
    for i in range(60):
        batch = Batch(data[i].clone(), target[i].clone())
        out = batch.x * 2 + batch.y
        print(out)
    """)
    )
    found = verify(tmp_path, text, "out = batch", "out = batch")
    assert found.outcome in EQUAL, found.message


def test_a_mean_in_slots_that_a_replay_leaves_out_is_seen(tmp_path: Path) -> None:
    text = program(
        dedent(SLOTS)
        + dedent("""
    for i in range(60):
        x = data[i].clone()
        out = x * 2
        mean.push(out.mean())
        print(out)
    """)
    )
    found = verify(tmp_path, text, "out = x", "mean.push")
    assert found.outcome is Outcome.DIFFERS, found.message


def test_a_slot_rebound_after_the_warm_up_falls_back(tmp_path: Path) -> None:
    text = program(
        dedent(SLOTS)
        + dedent("""
    for i in range(60):
        x = data[i].clone()
        if i == 8:
            mean.weight = torch.full((8,), 2.0)
        out = x * mean.weight
        print(out)
    """)
    )
    found = verify(tmp_path, text, "out = x", "out = x")
    assert found.replay_count == 3 and found.fallback_count == 4 + 9


@pytest.mark.parametrize("batch", ['{"x": data[i].clone()}', "types.SimpleNamespace(x=data[i].clone())"])
def test_what_is_put_into_a_moving_batch_arrives_in_the_capturing_step_too(tmp_path: Path, batch: str) -> None:
    item = '["out"]' if batch.startswith("{") else ".out"
    text = program(f"""
    import types
    def double(batch):
        return 2 * (batch["x"] if isinstance(batch, dict) else batch.x)
    for i in range(60):
        batch = {batch}
        batch{item} = double(batch)
        print(batch{item})
    """)
    found = verify(tmp_path, text, f"batch{item} = double", f"batch{item} = double")
    assert found.outcome in EQUAL, found.message


def test_a_name_the_span_is_done_with_says_nothing_about_the_loops_own(tmp_path: Path) -> None:
    text = program("""
    config = {"bias": 0.0}
    model = nn.Linear(8, 1)
    def bias():
        return config["bias"]
    def infer(x):
        y = model(x)
        return y.mean() + bias()
    with torch.no_grad():
        for i in range(60):
            x = data[i].clone()
            config["bias"] = i * 0.1
            y = infer(x)
            print(y)
    """)
    found = verify(tmp_path, text, "y = model", "return y", loop="for i in")
    assert found.outcome is Outcome.DIFFERS
    assert found.equality is not None and found.equality.first_name == "y"


def test_what_an_eager_step_left_behind_misleads_the_graph_and_is_seen(tmp_path: Path) -> None:
    """A replay writes where the captured step's attribute lay; an eager step binds the attribute to another tensor."""
    text = program("""
    class Encoder:
        def encode(self, x):
            self.code = x * 2
    encoder = Encoder()
    for i in range(60):
        x = data[i].clone()
        encoder.encode(x)
        out = encoder.code + 1
        print(out)
    """)
    found = verify(tmp_path, text, "encoder.encode(x)", "encoder.encode(x)", loop="for i in")
    assert found.outcome is Outcome.DIFFERS
    # 5 + 1 + 6 steps, then blocks of 3: replayed, eager, and the end of the second replayed one
    assert found.equality is not None and found.equality.first_step == 12 + 3 * 3 - 1


CHANGES = {
    "another function": ("act = torch.sin if i < 2 else torch.tanh if i != 8 else torch.cos", "act(x)"),
    "another function of the script": ("act = first if i < 2 else second if i != 8 else third", "act(x)"),
    "a leaf that wants its gradient": ("x.requires_grad_(i == 8)", "double(x)"),
    "gradients switched on": ("torch.set_grad_enabled(i == 8)", "x * (2 if torch.is_grad_enabled() else 3)"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_changes_once_after_the_warm_up_falls_back(tmp_path: Path, what: str) -> None:
    text = program(f"""
    def first(x): return x.sin()
    def second(x): return x.tanh()
    def third(x): return x.cos()
    def double(x): return x * 3 if x.requires_grad else x * 2
    for i in range(60):
        x = data[i].clone()
        {CHANGES[what][0]}
        out = {CHANGES[what][1]}
        out = out.detach()
        print(out)
    """)
    with torch.enable_grad():  # the script leaves it switched off
        found = verify(tmp_path, text, "out = " + CHANGES[what][1], "out = out.detach")
    assert found.outcome in EQUAL, found.message
    assert found.fallback_count == 1


NAMES = {
    "an attribute of the class": ("Net.weight", "weight", ""),
    "an attribute of a parent class": ("Net.weight", "weight", "class Net(Net): pass"),
    "a private attribute": ("self.__weight", "__weight", ""),
}


@pytest.mark.parametrize("what", NAMES)
@pytest.mark.parametrize("value", ["2.0", "torch.full((8,), 2.0)"])
def test_an_attribute_that_changes_after_the_warm_up_falls_back(tmp_path: Path, what: str, value: str) -> None:
    target, name, more = NAMES[what]
    text = (
        program(f"""
    class Net:
        {name} = torch.ones(8) if "torch" in "{value}" else 1.0
        def step(self, i):
            if i == 8:
                {target} = {value}
            out = data[i] * self.{name}
            return out
    {more}
    net = Net()
    for i in range(60):
        out = net.step(i)
        print(out)
    """)
        .replace("data[i] *", "x *")
        .replace("if i == 8", "x = data[i]; rare = i == 8\n        if rare")
    )
    found = verify(tmp_path, text, "out = x", "out = x", loop="for i")
    assert found.equality is not None and found.equality.outcome is EqualityOutcome.BITWISE
    assert (found.replay_count, found.fallback_count) == (3, 4 + 9)


def test_a_moving_attribute_of_the_class_stays_one(tmp_path: Path) -> None:
    text = program("""
    class Net:
        def step(self):
            out = self.batch * 2
            return out
    net = Net()
    for i in range(60):
        Net.batch = data[i].clone()
        out = net.step()
        print(out, "batch" in vars(net))
        assert "batch" not in vars(net)
    """)
    found = verify(tmp_path, text, "out = self", "out = self", loop="for i")
    assert found.outcome in EQUAL, found.message


def test_one_of_several_nets_is_replayed_for_itself_alone(tmp_path: Path) -> None:
    text = program("""
    nets = [nn.Linear(8, 8) for _ in range(3)]
    for i in range(60):
        x, net = data[i].clone(), nets[i % 3]
        with torch.no_grad():
            out = net(x)
        print(out)
    """)
    found = verify(tmp_path, text, "with torch", "out = net", loop="for i in")
    assert found.equality is not None and found.equality.outcome is EqualityOutcome.BITWISE
    assert (found.replay_count, found.fallback_count) == (6, 10)


def test_a_tensor_that_is_none_in_every_other_step_is_replayed_when_it_is_there(tmp_path: Path) -> None:
    text = program("""
    for i in range(60):
        x = data[i].clone()
        mask = target[i].clone() if i % 2 else None
        out = x * 2 if mask is None else x * mask
        print(out)
    """)
    found = verify(tmp_path, text, "out = x", "out = x")
    assert found.equality is not None and found.equality.outcome is EqualityOutcome.BITWISE
    assert (found.replay_count, found.fallback_count) == (7, 9)


@pytest.mark.parametrize("write", ["x.mul_(2.0)", "x[:, 1].mul_(2.0)", "x.view(-1)[2:4].zero_()"])
@pytest.mark.parametrize("inside", [True, False])
def test_an_inference_tensor_written_in_place_is_written_back(tmp_path: Path, write: str, inside: bool) -> None:
    text = program(f"""
    for i in range(60):
        with torch.inference_mode():
            x = data[i].clone()
        with torch.inference_mode():  # whole
            {write}
            out = x + 1
        print(out, x)
    """)
    first, last = (write, "out = x") if inside else ("    with torch.inference_mode():\n        " + write, "out = x")
    first = write if inside else "with torch.inference_mode():  #"
    if not inside:
        text = text.replace("with torch.inference_mode():\n        " + write, f"{first}\n        {write}")
    found = verify(tmp_path, text, first, last)
    assert found.outcome in EQUAL, found.message


TUPLES = {
    "its own constructor": "class Pair(tuple):\n    def __new__(cls, a, b): return super().__new__(cls, (a, b))",
    "a named tuple's": """
from collections import namedtuple
class Pair(namedtuple("Pair", "a b c")):
    def __new__(cls, a, b): return super().__new__(cls, a, b, 1)
""",
}


@pytest.mark.parametrize("kind", TUPLES)
def test_tuples_with_a_constructor_of_their_own(tmp_path: Path, kind: str) -> None:
    text = program(
        dedent(TUPLES[kind])
        + dedent("""
    def double(pair):
        return Pair(pair[0] * 2, pair[1])
    for i in range(60):
        pair = Pair(data[i].clone(), target[i].clone())
        out = double(pair)
        print(out[0] + out[1])
    """)
    )
    found = verify(tmp_path, text, "out = double", "out = double", loop="for i in")
    assert found.outcome in EQUAL, found.message


def test_an_input_that_cannot_be_copied_is_refused(tmp_path: Path) -> None:
    text = program("""
    import types
    def double(batch):
        return batch["x"] * 2
    for i in range(60):
        batch = types.MappingProxyType({"x": data[i].clone()})
        out = double(batch)
        print(out)
    """)
    found = verify(tmp_path, text, "out = double", "out = double")
    assert found.outcome is Outcome.BLOCKED and "cannot be copied" in found.message


def test_a_module_whose_calls_are_the_span_can_be_pickled_and_copied(tmp_path: Path) -> None:
    text = (
        MODULE
        + "    "
        + "; ".join(
            (
                "import copy, inspect, io",
                "torch.save(net, io.BytesIO())",
                "twin = copy.deepcopy(net)",
                "twin[0].bias.data.zero_()",
            )
        )
        + "\n    kept.append(twin(x).detach())\n    assert 'input' in inspect.signature(net.forward).parameters\n"
    )
    found = verify(tmp_path, text, "", "", module="Sequential")
    assert found.outcome in EQUAL, found.message
    assert found.replay_count == 16 and found.fallback_count == 0


ITEMS = {
    "a list": ("states = [torch.zeros(4, 8) for k in range(3)]", "states[k]"),
    "a dictionary": ("states = {k: torch.zeros(4, 8) for k in range(3)}", "states[k]"),
    "a list of an object": ("net = nn.Module(); net.states = [torch.zeros(4, 8) for k in range(3)]", "net.states[k]"),
}


@pytest.mark.parametrize("where", ITEMS)
def test_items_written_under_computed_keys_are_carried(tmp_path: Path, where: str) -> None:
    make, item = ITEMS[where]
    text = program(f"""
    {make}
    for i in range(60):
        x = data[i].clone()
        for k in range(3):  # each
            {item} = torch.tanh({item} + x)
            x = {item}
        print(x)
    """)
    found = verify(tmp_path, text, "# each", "x = " + item, loop="for i in")
    assert found.outcome in EQUAL, found.message
    assert found.fallback_count == 0


def test_numbers_under_computed_keys_are_refused(tmp_path: Path) -> None:
    text = program("""
    counts, place = [0, 0], 1
    for i in range(60):
        x = data[i].clone()
        out = x * 2
        counts[place] += 1
        print(out)
    """)
    found = verify(tmp_path, text, "out = x", "counts[place]", loop="for i in")
    assert found.outcome is Outcome.BLOCKED and found.blocker is not None
    assert found.blocker.id == "cpu-side-effect"


@pytest.mark.parametrize(("late", "replays"), [("pass", 16), ("state.weight = torch.full((8,), 2.0)", 3)])
def test_a_dictionary_whose_items_are_attributes(tmp_path: Path, late: str, replays: int) -> None:
    text = program(f"""
    class Items(dict):
        __getattr__ = dict.__getitem__
        __setattr__ = dict.__setitem__
    state = Items(h=torch.zeros(4, 8), weight=torch.ones(8))
    for i in range(60):
        x = data[i].clone()
        if i == 8:
            {late}
        state.h = torch.tanh(state.h + x * state.weight)
        print(state.h)
    """)
    found = verify(tmp_path, text, "state.h = torch", "state.h = torch", loop="for i in")
    assert found.equality is not None and found.equality.outcome is EqualityOutcome.BITWISE
    assert found.replay_count == replays


RARE = {
    "a slice": "slice(0, 4) if i != 8 else slice(4, 8)",
    "a set": "{1, 2} if i != 8 else {1, 5}",
    "a partial": "functools.partial(torch.mul, 2 if i != 8 else 3)",
    "a lambda": "(lambda k: lambda x: x * k)(2 if i != 8 else 3)",
    "a default": "lambda x, k=2 if i != 8 else 3: x * k",
    "a large array": "big if i != 8 else 2 * big",
}


@pytest.mark.parametrize("what", RARE)
def test_an_argument_that_is_no_tensor_and_changes_once_falls_back(tmp_path: Path, what: str) -> None:
    text = program(f"""
    import functools, numpy
    big = numpy.ones(300_000)
    def apply(x, by):
        if callable(by):
            return by(x)
        if isinstance(by, slice):
            return x[:, by] * 2
        return x * (float(by[0]) if len(by) > 2 else 2 if 2 in by else 3)
    for i in range(60):
        x, by = data[i].clone(), {RARE[what]}
        out = apply(x, by)
        print(out)
    """)
    found = verify(tmp_path, text, "out = apply", "out = apply", loop="for i")
    assert found.equality is not None and found.equality.outcome is EqualityOutcome.BITWISE, found.message
    assert found.fallback_count == 1


def test_a_number_that_is_none_is_the_same_number(tmp_path: Path) -> None:
    text = program("""
    best = float("nan")
    for i in range(60):
        x = data[i].clone()
        out = x * 2 if best != best else x
        print(out)
    """)
    found = verify(tmp_path, text, "out = x", "out = x")
    assert found.outcome in EQUAL and found.fallback_count == 0
