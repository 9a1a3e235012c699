"""Statistics against answers worked out by hand or by brute force."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.compare import (
    Change,
    ModeShift,
    Rule,
    bootstrap_median_interval,
    bootstrap_ratio,
    can_reach,
    distribution,
    drift,
    hodges_lehmann,
    is_different,
    mann_whitney,
    median,
    mode_shift,
    quantiles,
    theil_sen,
    two_modes,
    welch,
)
from advisor.compare.ranks import paired_t, student_p

MS = 1_000_000
positive = st.lists(st.floats(1.0, 1e12), min_size=1, max_size=60)


def noise(seed: int, count: int = 30, level: float = MS, cv: float = 0.05) -> np.ndarray:
    return np.random.default_rng(seed).normal(level, cv * level, count)


# --- order statistics ------------------------------------------------------------------------------------------------


def test_median_and_quantiles() -> None:
    assert median([3, 1, 2]) == 2
    assert median([4, 1, 2, 3]) == 2.5
    assert quantiles([0, 10, 20, 30, 40], [0, 0.25, 0.5, 1]) == (0, 10, 20, 40)


@pytest.mark.parametrize("function", [median, lambda values: quantiles(values, [0.5]), bootstrap_median_interval])
def test_statistics_of_nothing_are_refused(function) -> None:
    with pytest.raises(ValueError, match="no values"):
        function([])


def test_a_value_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        median([1.0, float("nan")])


def test_distribution_by_hand() -> None:
    found = distribution([1, 10, 100, 1000])
    assert found is not None
    assert (found.count, found.minimum, found.median, found.maximum, found.mean) == (4, 1, 55, 1000, 277.75)
    assert len(found.bin_edges) == 25  # three decades, eight bins each
    assert found.bin_edges[0] == 1 and found.bin_edges[-1] == 1000


def test_distribution_of_nothing_is_none() -> None:
    assert distribution([]) is None


def test_negative_values_share_a_bin_in_front() -> None:
    found = distribution([-5, 0, 2, 4])
    assert found is not None
    assert found.bin_edges[:2] == (-5, 2)
    assert found.bin_counts[0] == 2


@settings(deadline=None)
@given(st.lists(st.floats(-1e9, 1e15), min_size=1, max_size=80))
def test_every_value_lies_in_a_bin(values: list[float]) -> None:
    found = distribution(values)
    assert found is not None
    assert sum(found.bin_counts) == found.count == len(values)
    assert len(found.bin_edges) == len(found.bin_counts) + 1
    assert found.bin_edges[0] <= found.minimum and found.maximum <= found.bin_edges[-1]


# --- bootstrap -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [9, 10])
def test_bootstrap_agrees_with_resampling_by_hand(count: int) -> None:
    values = noise(3, count, 100, 0.1)
    rng = np.random.default_rng(0)
    by_hand = np.quantile(np.median(rng.choice(values, (40_000, count)), axis=1), [0.025, 0.975])
    assert bootstrap_median_interval(values) == pytest.approx(by_hand, rel=0.01)


def test_bootstrap_interval_covers_the_true_median() -> None:
    covered = 0
    for seed in range(300):
        low, high = bootstrap_median_interval(noise(seed, 25, 100, 0.1))
        covered += low <= 100 <= high
    assert 0.90 <= covered / 300 <= 0.995


def test_ratio_is_of_the_first_over_the_second_and_seeded() -> None:
    eager, graph = noise(1, level=8 * MS), noise(2, level=2 * MS)
    found = bootstrap_ratio(eager, graph, seed=5)
    assert found.ratio == pytest.approx(np.median(eager) / np.median(graph))
    assert found.low < found.ratio < found.high
    assert found == bootstrap_ratio(eager, graph, seed=5)


def test_a_ratio_of_times_that_are_not_positive_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        bootstrap_ratio([1, 2], [0, 1])


@settings(deadline=None)
@given(positive, positive)
def test_ratio_lies_within_its_interval_range(a: list[float], b: list[float]) -> None:
    found = bootstrap_ratio(a, b)
    assert min(a) / max(b) * 0.999 <= found.low <= found.high <= max(a) / min(b) * 1.001


# --- tests -----------------------------------------------------------------------------------------------------------


def test_mann_whitney_of_three_against_three() -> None:
    found = mann_whitney([1, 2, 3], [4, 5, 6])
    assert found.statistic == 9  # every pair
    assert found.p_value == pytest.approx(2 / 20)


def test_mann_whitney_is_exact_against_all_orders() -> None:
    a, b = [1.0, 5.0, 6.0, 9.0], [2.0, 3.0, 7.0]
    observed = mann_whitney(a, b)
    pooled = sorted(a + b)
    centre, extreme = len(a) * len(b) / 2, 0
    for chosen in combinations(range(7), 3):
        second = [pooled[index] for index in chosen]
        first = [value for index, value in enumerate(pooled) if index not in chosen]
        u = sum(two > one for one in first for two in second)
        extreme += abs(u - centre) >= abs(observed.statistic - centre)
    assert observed.p_value == pytest.approx(extreme / comb(7, 3))


def test_normal_approximation_with_ties_by_hand() -> None:
    # 1,1,2 | 1,2,2: mid-ranks 2,2,5 | 2,5,5; U = 12 - 6 = 6; ties 2 * (27 - 3) / 30 = 1.6; variance 9 / 12 * 5.4
    # = 4.05; z = (1.5 - 0.5) / 2.0125 = 0.4969, two-sided p = 0.6193
    found = mann_whitney([1, 1, 2], [1, 2, 2])
    assert found.statistic == 6
    assert found.p_value == pytest.approx(0.6193, abs=2e-4)


def test_equal_samples_have_p_one() -> None:
    assert mann_whitney([7] * 30, [7] * 30).p_value == 1


def test_which_sample_sizes_can_reach_a_threshold() -> None:
    assert not can_reach(3, 3, 0.05)  # 2 / 20
    assert can_reach(4, 4, 0.05)  # 2 / 70
    assert not can_reach(6, 6, 0.002) and can_reach(7, 7, 0.002)
    assert not can_reach(0, 50, 0.05)


def test_hodges_lehmann_is_the_median_of_differences() -> None:
    assert hodges_lehmann([1, 2, 3], [11, 12, 13]) == 10
    assert hodges_lehmann([0, 0, 100], [1, 1, 1]) == 1  # an outlier does not move it


@pytest.mark.parametrize(
    ("t", "freedom", "p"), [(2.776445, 4, 0.05), (12.7062, 1, 0.05), (8.6103, 4, 0.001), (0, 7, 1)]
)
def test_student_against_tables(t: float, freedom: float, p: float) -> None:
    assert student_p(t, freedom) == pytest.approx(p, rel=1e-4)


def test_welch_by_hand() -> None:
    # means 2 and 5, variances 1 and 1: t = 3 / sqrt(2/3) = 3.674, 4 degrees of freedom
    found = welch([1, 2, 3], [4, 5, 6])
    assert found.statistic == pytest.approx(3.6742, abs=1e-4)
    assert found.p_value == pytest.approx(0.02131, abs=1e-4)
    assert welch([1, 1], [2, 2]).p_value == 0
    assert welch([1, 1], [1, 1]).p_value == 1
    assert paired_t([1, 1, 1]).p_value == 0


# --- series ----------------------------------------------------------------------------------------------------------


def test_theil_sen_ignores_an_outlier() -> None:
    series = [10.0 + 2 * index for index in range(20)]
    series[7] = 1000
    assert theil_sen(series) == 2


def test_a_linear_drift_is_seen_and_noise_is_not() -> None:
    ramp = noise(1, 40, cv=0.02) * np.linspace(1, 1.15, 40)
    assert drift(ramp).is_drift and drift(ramp).ratio == pytest.approx(0.11, abs=0.03)
    assert sum(drift(noise(seed, 40)).is_drift for seed in range(500)) <= 8
    assert not drift([1, 2, 3]).is_drift
    assert drift([5.0] * 30) == (0.0, 1.0, False)
    # 12 rising values: rho = 1, p = erfc(sqrt(11 / 2)) = 0.00091
    assert drift(range(100, 112)).p_value == pytest.approx(0.00091, abs=1e-5)


def test_two_modes() -> None:
    found = two_modes([26, 33, 26.2, 33.1, 25.9, 32.8, 33, 26])
    assert found is not None
    assert found.low == pytest.approx(26, abs=0.2) and found.high == pytest.approx(33, abs=0.2)
    assert found.high_share_ratio == 0.5
    assert two_modes(noise(4, 200)) is None
    assert two_modes(np.random.default_rng(0).uniform(1, 2, 200)) is None
    assert two_modes([1, 1, 1, 1]) is None


# --- is it different? ------------------------------------------------------------------------------------------------


def test_ten_percent_slower_is_slower_and_reversed_is_faster() -> None:
    base, head = noise(1), noise(2, level=1.1 * MS)
    assert is_different([base], [head]).change == Change.SLOWER
    assert is_different([head], [base]).change == Change.FASTER


def test_two_percent_is_below_the_minimum_effect() -> None:
    found = is_different([noise(1, 3000)], [noise(2, 3000, 1.02 * MS)])
    assert found.p_value < 0.001 and found.change == Change.SAME


def test_forty_percent_of_three_microseconds_is_below_the_floor() -> None:
    found = is_different([noise(1, level=3_000)], [noise(2, level=4_200)])
    assert found.change == Change.BELOW_FLOOR


def test_noise_of_the_same_code_widens_the_band() -> None:
    base, head = noise(1, cv=0.01), noise(2, level=1.10 * MS, cv=0.01)
    found = is_different([base], [head], Rule(noise_ratio=0.08))
    assert found.required_ratio == 0.16 and found.change == Change.SAME


def test_few_samples_cannot_accuse() -> None:
    found = is_different([[1.0 * MS] * 3], [[2.0 * MS] * 3])
    assert found.change == Change.TOO_FEW and found.change.is_inconclusive
    assert is_different([[2.503 * MS]], [[2.571 * MS]]).change == Change.SAME


def test_drift_that_explains_a_difference_is_not_a_slow_down() -> None:
    base = noise(1, 40, cv=0.01) * np.linspace(1.0, 1.15, 40)
    head = noise(2, 40, cv=0.01) * np.linspace(1.12, 1.20, 40)
    found = is_different([base], [head])
    assert found.change == Change.DRIFTING and found.drift_ratio > 0.08
    assert any("drift" in note for note in found.notes)


def test_interleaving_cancels_a_drift_of_both_sides() -> None:
    heat = np.linspace(1.0, 1.4, 6)
    base = [noise(seed, cv=0.02) * factor for seed, factor in enumerate(heat)]
    same = [noise(50 + seed, cv=0.02) * factor for seed, factor in enumerate(heat)]
    slower = [samples * 1.10 for samples in same]
    assert is_different(base, same, Rule(paired=True)).change == Change.SAME
    assert is_different(base, slower, Rule(paired=True)).change == Change.SLOWER
    assert is_different(base, slower).change != Change.SLOWER  # unpaired, the heat hides it


def test_the_process_is_the_unit_of_replication() -> None:
    def processes(levels: list[float], seed: int) -> list[np.ndarray]:
        return [noise(seed + index, 200, level * MS, 0.01) for index, level in enumerate(levels)]

    one_mode_more = is_different(processes([26, 33, 33], 1), processes([33, 33, 26], 9))
    assert one_mode_more.change == Change.SAME
    # Pooled samples say p < 1e-6; two of three processes in the slow mode is still luck.
    unlucky = is_different(processes([26, 26, 33], 1), processes([33, 33, 26], 9))
    assert unlucky.p_value < 1e-6 and unlucky.change != Change.SLOWER
    assert unlucky.between_process_ratio == pytest.approx(33 / 26 - 1, abs=0.03)


def test_one_new_process_is_judged_by_the_spread_of_the_baseline() -> None:
    base = [noise(seed, 100, level * MS, 0.01) for seed, level in enumerate([10, 11, 10.2, 10.9, 10.4])]
    assert is_different(base, [noise(9, 100, 10.95 * MS, 0.01)]).change == Change.SAME
    assert is_different(base, [noise(9, 100, 11.4 * MS, 0.01)]).change == Change.TOO_FEW
    assert is_different(base, [noise(9, 100, 20 * MS, 0.01)]).change == Change.SLOWER


def test_an_interval_that_hides_a_large_slow_down_is_too_noisy() -> None:
    base = noise(1, 8, cv=0.01)
    head = np.concatenate((noise(2, 4, cv=0.01), noise(3, 4, 2 * MS, 0.01)))
    assert is_different([base], [head]).change.is_inconclusive


def two_paths(seed: int, level: float = MS, count: int = 60) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return level * rng.choice([1.0, 1.2], count) * rng.normal(1, 0.05, count)


def test_a_shift_within_two_modes_by_hand() -> None:
    base = [1.0] * 6 + [2.0] * 6
    found = mode_shift(base, [value * 1.1 for value in base])
    assert found is not None and found.ratio == pytest.approx(1.1)
    other_shares = mode_shift([1.0] * 6 + [2.0] * 6, [1.0] * 9 + [2.0] * 3)
    assert other_shares is not None and other_shares.ratio == pytest.approx(1)  # more fast samples are no shift
    assert mode_shift([1, 2], [1, 2]) is None


def test_a_slow_down_of_both_modes_is_seen_and_luck_with_the_modes_is_not() -> None:
    caught = sum(
        is_different([two_paths(s)], [two_paths(s + 999, 1.1 * MS)]).change == Change.SLOWER for s in range(60)
    )
    alarms = sum(is_different([two_paths(s)], [two_paths(s + 999)]).change == Change.SLOWER for s in range(60))
    assert caught >= 57 and alarms == 0


def test_thirty_samples_of_two_modes_suffice() -> None:
    pairs = [(two_paths(s, count=30), two_paths(s + 999, 1.1 * MS, 30)) for s in range(60)]
    assert sum(is_different([a], [b]).change == Change.SLOWER for a, b in pairs) >= 54
    assert all(is_different([a], [b / 1.1]).change != Change.SLOWER for a, b in pairs)


def test_one_mode_is_never_asked_as_two() -> None:
    rng = np.random.default_rng(5)
    for _ in range(30):
        wide = mode_shift(rng.normal(1, 0.1, 60), rng.normal(1.2, 0.1, 60))
        assert wide is not None and wide.p_within is None
    apart = mode_shift([1.0, 1.01] * 8 + [2.0, 2.02] * 8, [1.1, 1.111] * 8 + [2.2, 2.222] * 8)
    assert apart is not None and apart.p_within is not None and apart.p_within < 0.001


def test_the_sharper_mode_test_needs_the_exact_ones_support() -> None:
    assert ModeShift(1.1, 0.0005, None).is_significant(0.001)
    assert ModeShift(1.1, 0.019, 0.0003).is_significant(0.001)
    assert not ModeShift(1.1, 0.021, 0.0003).is_significant(0.001)
    assert not ModeShift(1.1, 0.019, 0.0006).is_significant(0.001)
    assert not ModeShift(1.1, 0.019, None).is_significant(0.001)


@settings(deadline=None)
@given(positive, positive, st.floats(0.001, 1000))
def test_the_answer_does_not_depend_on_the_unit(a: list[float], b: list[float], scale: float) -> None:
    rule = Rule(min_effect_ns=0)
    one = is_different([a], [b], rule)
    other = is_different([[value * scale for value in a]], [[value * scale for value in b]], rule)
    assert one.ratio == pytest.approx(other.ratio)


def test_samples_that_are_missing_or_not_positive_are_refused() -> None:
    with pytest.raises(ValueError, match="both sides"):
        is_different([[]], [[1.0]])
    with pytest.raises(ValueError, match="positive"):
        is_different([[0.0]], [[1.0]])
