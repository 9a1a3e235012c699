"""Fingerprints: exact hashes, and what a comparison of two runs makes of them."""

from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import BundleError
from advisor.model import EqualityOutcome
from advisor.verify import states
from advisor.verify.states import Checkpoint, difference, judge
from advisor.workload import state
from advisor.workload.equality import Fingerprints, bit_hash, module_tensors


def hashed(*values: float, dtype: torch.dtype = torch.float32) -> int:
    return int(bit_hash(torch.tensor(values, dtype=dtype)))


def test_one_bit_changes_the_hash() -> None:
    assert hashed(1.0, 2.0) != hashed(1.0, float(np.nextafter(np.float32(2.0), np.float32(3.0))))


def test_order_counts_although_the_sum_does_not() -> None:
    assert hashed(1.0, 2.0) != hashed(2.0, 1.0)


def test_length_counts_even_for_zeros() -> None:
    assert hashed(0.0) != hashed(0.0, 0.0)


def test_the_sign_of_zero_does_not_count() -> None:
    assert hashed(-0.0, 1.0) == hashed(0.0, 1.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int64, torch.uint8])
def test_every_width(dtype: torch.dtype) -> None:
    assert hashed(1, 2, 3, dtype=dtype) == hashed(1, 2, 3, dtype=dtype) != hashed(1, 2, 4, dtype=dtype)


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20), st.data())
def test_equal_exactly_when_the_values_are(values: list[float], data: st.DataObject) -> None:
    other = list(values)
    place = data.draw(st.integers(0, len(values) - 1))
    other[place] = data.draw(st.floats(width=32, allow_nan=False))
    assert (hashed(*values) == hashed(*other)) == (values == other)


def test_chunks_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("advisor.workload.equality._CHUNK", 4)
    assert hashed(*range(10)) != hashed(*range(8), 9, 8)
    assert hashed(*range(10)) == hashed(*range(10))


def recorded(tmp_path: Path, name: str, local: dict[str, object], steps: int = 1) -> dict[int, Checkpoint]:
    prints = Fingerprints(lambda: ("seed",))
    for step in range(steps):
        prints.take(step, local)
    prints.write(tmp_path / name)
    return states.load(tmp_path / name)


def test_locals_of_every_shape_survive_the_file(tmp_path: Path) -> None:
    state.install()
    local: dict[str, object] = {
        "x": torch.ones(3),
        "pair": (torch.zeros(2, dtype=torch.bool), 1.5),
        "deep": {"a": [torch.arange(4)]},
        "n": 7,
        "text": "abc",
        "long": list(range(1000)),
        "complex": torch.ones(2, dtype=torch.complex64),
        "_cga_span": torch.ones(1),
        "__name__": "__main__",
        "torch": torch,
    }
    found = recorded(tmp_path, "a.npz", local)[0]
    assert set(found.hashes) == {"x", "pair[0]", "deep['a'][0]", "complex"}
    assert found.values["n"] == "7" and found.values["pair[1]"] == (1.5).hex()
    assert found.values["len(long)"] == "1000" and found.values["len(pair)"] == "2"
    assert found.norms["x"] == pytest.approx(3**0.5)
    assert {"rng:torch", "rng:python", "rng:numpy", "rng:device0"} <= found.values.keys()


def test_modules_optimizers_and_gradients_are_found_by_themselves(tmp_path: Path) -> None:
    state.install()
    model = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.BatchNorm1d(1))
    model.note = torch.ones(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()
    names = {name for name, _ in module_tensors()}
    assert {"Sequential[0].0.weight", "Sequential[0].0.weight.grad", "Sequential[0].1.running_mean"} <= names
    assert "Sequential[0].note" in names
    found = recorded(tmp_path, "a.npz", {})[0]
    assert "SGD[0].state[0].momentum_buffer" in found.hashes
    assert found.values["SGD[0].group[0].lr"] == "0.1"


def test_a_copied_module_is_known_too() -> None:
    import copy

    state.install()
    model = torch.nn.Linear(2, 1)
    kept = copy.deepcopy(model)
    assert [name for name, _ in state.REGISTRY.roots()] == ["Linear[0]", "Linear[1]"]
    del kept


# --- comparing runs -------------------------------------------------------------------------------------------------------------


def point(values: dict[str, float], python: dict[str, str] | None = None) -> Checkpoint:
    return Checkpoint(
        hashes={name: hash((name, value)) for name, value in values.items()},
        norms={name: abs(value) for name, value in values.items()},
        samples={name: np.array([value], dtype=np.float32) for name, value in values.items()},
        values=python or {},
    )


def test_equal_runs_are_bitwise() -> None:
    run = {3: point({"w": 1.0}), 4: point({"w": 2.0})}
    found = judge(run, run, (run, run)).equality
    assert (found.outcome, found.step_count, found.tensor_count) == (EqualityOutcome.BITWISE, 2, 1)


def test_a_deterministic_script_leaves_no_room() -> None:
    base = {3: point({"w": 1.0}), 4: point({"w": 1.0, "v": 4.0})}
    graph = {3: point({"w": 1.0}), 4: point({"w": 1.0, "v": 4.5})}
    found = judge(base, graph, (base, base)).equality
    assert (found.outcome, found.first_step, found.first_name) == (EqualityOutcome.DIFFERS, 4, "v")
    assert found.max_abs_difference == pytest.approx(0.5)


def test_within_four_times_the_noise() -> None:
    base, again = {3: point({"w": 1.0})}, {3: point({"w": 1.001})}
    # eager runs are 0.1 % apart: 0.3 % is noise, 0.5 % is not
    assert judge(base, {3: point({"w": 1.003})}, (base, again)).equality.outcome is EqualityOutcome.WITHIN_NOISE
    assert judge(base, {3: point({"w": 1.005})}, (base, again)).equality.outcome is EqualityOutcome.DIFFERS


def test_noise_in_one_tensor_does_not_excuse_another() -> None:
    base, again = {3: point({"w": 1.0, "v": 1.0})}, {3: point({"w": 1.01, "v": 1.0})}
    found = judge(base, {3: point({"w": 1.0, "v": 1.001})}, (base, again)).equality
    assert (found.outcome, found.first_name) == (EqualityOutcome.DIFFERS, "v")


def test_a_noisy_tensor_does_not_excuse_one_with_little_noise() -> None:
    base, again = {3: point({"w": 1.0, "v": 1.0})}, {3: point({"w": 1.01, "v": 1.0001})}
    # v: eager runs are 0.01 % apart, so 0.3 % is within 32 times that and 0.4 % is not, though 4 % is allowed of w
    assert (
        judge(base, {3: point({"w": 1.0, "v": 1.003})}, (base, again)).equality.outcome is EqualityOutcome.WITHIN_NOISE
    )
    found = judge(base, {3: point({"w": 1.0, "v": 1.004})}, (base, again)).equality
    assert (found.outcome, found.first_name) == (EqualityOutcome.DIFFERS, "v")


def test_runs_that_agree_on_nothing_prove_nothing() -> None:
    base, again = {3: point({"w": 1.0})}, {3: point({"w": 2.0})}
    assert judge(base, {3: point({"w": 1.5})}, (base, again)).equality.outcome is EqualityOutcome.NOT_CHECKED


def test_values_that_are_not_numbers_prove_nothing() -> None:
    nan = {3: point({"w": 1.0, "x": 1.0}), 4: point({"w": float("nan"), "v": float("nan"), "x": 1.0})}
    for step in nan.values():
        step.hashes.update(dict.fromkeys(step.hashes, 7))
    found = judge(nan, nan, (nan, nan))
    assert found.equality.outcome is EqualityOutcome.NOT_CHECKED and "NaN" in found.unproven
    assert judge({3: nan[3]}, {3: nan[3]}, None).equality.outcome is EqualityOutcome.BITWISE


def test_python_values_count_unless_they_are_noise() -> None:
    base = {3: point({}, {"n": "1", "t": "0.5"})}
    again = {3: point({}, {"n": "1", "t": "0.6"})}
    assert (
        judge(base, {3: point({}, {"n": "1", "t": "0.7"})}, (base, again)).equality.outcome is EqualityOutcome.BITWISE
    )
    found = judge(base, {3: point({}, {"n": "2", "t": "0.7"})}, (base, again)).equality
    assert (found.outcome, found.python_values) == (EqualityOutcome.DIFFERS, ("n",))


def test_a_missing_tensor_is_a_difference() -> None:
    base = {3: point({"w": 1.0, "w.grad": 1.0})}
    found = judge(base, {3: point({"w": 1.0})}, (base, base))
    assert found.equality.outcome is EqualityOutcome.DIFFERS and found.missing == ("w.grad",)


def test_not_a_number_against_a_number() -> None:
    found = difference(point({"w": 1.0}), point({"w": float("nan")}))
    assert found.absolute == float("inf")


def test_dead_names_and_the_tools_own_are_ignored() -> None:
    base, graph = point({"out[0]": 1.0}, {"len(out)": "1"}), point({"kept_0": 1.0}, {})
    found = difference(base, graph, frozenset({"out"}))
    assert not found.tensors and not found.missing and not found.values


def test_a_users_name_that_only_begins_like_the_tools_own_counts() -> None:
    assert list(difference(point({"kept_tokens": 1.0}), point({"kept_tokens": 2.0})).tensors) == ["kept_tokens"]


def test_the_end_of_a_long_value_counts(tmp_path: Path) -> None:
    array = np.zeros(1000)
    other = array.copy()
    other[-1] = 1.0
    one, two = (recorded(tmp_path, f"{i}.npz", {"a": a})[0] for i, a in enumerate((array, other)))
    assert difference(one, two).values == ("a",)
    texts = ("x" * 500, "x" * 499 + "y")
    one, two = (recorded(tmp_path, f"{i}.npz", {"text": text})[0] for i, text in enumerate(texts))
    assert difference(one, two).values == ("text",)


@pytest.mark.parametrize(
    "others", [(torch.zeros(2, 3), torch.zeros(3, 2)), (torch.zeros(4), torch.zeros(4, dtype=torch.int32))]
)
def test_the_same_bits_in_another_shape_or_dtype_differ(tmp_path: Path, others: tuple[torch.Tensor, ...]) -> None:
    one, two = (recorded(tmp_path, f"{i}.npz", {"x": x})[0] for i, x in enumerate(others))
    assert "x" in difference(one, two).tensors


@dataclass(slots=True)
class Slotted:
    x: torch.Tensor
    n: int = 1


def test_deques_and_slotted_dataclasses_are_looked_into(tmp_path: Path) -> None:
    values = {"queue": deque([torch.ones(1), 2.0]), "state": Slotted(torch.zeros(2))}
    found = recorded(tmp_path, "deque.npz", values)[0]
    assert found.hashes.keys() == {"queue[0]", "state.x"}
    assert (
        found.values["queue[1]"] == (2.0).hex() and found.values["len(queue)"] == "2" and found.values["state.n"] == "1"
    )


def test_float8_has_no_addition_and_is_hashed() -> None:
    values = torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn)
    assert int(bit_hash(values)) != int(bit_hash(torch.tensor([1.0, 4.0]).to(torch.float8_e4m3fn)))


def test_no_common_step() -> None:
    assert judge({3: point({})}, {4: point({})}, None).equality.outcome is EqualityOutcome.NOT_CHECKED


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "state.npz").write_bytes(b"nonsense")
    with pytest.raises(BundleError, match=r"state\.npz"):
        states.load(tmp_path / "state.npz")
