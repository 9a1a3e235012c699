"""cgadvisor.toml: every default visible, every unknown key named with its nearest neighbour."""

import pytest

from advisor.config import Config, load_config
from advisor.errors import UsageError


def write(tmp_path, text):
    path = tmp_path / "cgadvisor.toml"
    path.write_text(text)
    return path


def test_defaults_and_values(tmp_path):
    assert load_config(None) == Config()
    made = load_config(write(tmp_path, "[analyze]\nmin_saved_ratio = 0.1\n[[gate.budget]]\nmetric = 'syncs_per_step'\nmax = 0\n"))
    assert made.analyze.min_saved_ratio == 0.1
    assert made.gate.budget[0].metric == "syncs_per_step"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[gates]\n", "unknown key gates; did you mean gate"),
        ("[gate]\nalpa = 1\n", r"unknown key gate.alpa; did you mean gate.alpha"),
        ("[[gate.budget]]\nmetrik = 'x'\n", "unknown key gate.budget.metrik; did you mean gate.budget.metric"),
        ("[analyze]\nmin_items = 'x'\n", "min_items"),
        ("[analyze\n", "not readable as TOML"),
    ],
)
def test_mistakes_are_named(tmp_path, text, said):
    with pytest.raises(UsageError, match=said):
        load_config(write(tmp_path, text))


def test_missing_file(tmp_path):
    with pytest.raises(UsageError, match="no such configuration file"):
        load_config(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[gate.budget]]\nmetric = "launches_per_step"\nmax = nan', "gate.budget 1 max is nan"),
        ('[[gate.budget]]\nmetric = "launches_per_step"\nmax = inf', "gate.budget 1 max is inf"),
        ('[[gate.budget]]\nmetric = "launches_per_step"\nmin = -inf', "gate.budget 1 min is -inf"),
        ('[[gate.budget]]\nmetric = "launches_per_step"\nmax = 9\nwarn = nan', "gate.budget 1 warn is nan"),
        ("[gate]\nalpha = nan", "gate.alpha is nan; expected 0 to 1"),
        ("[gate]\nprocess_alpha = 5.0", "gate.process_alpha is 5"),
        ("[gate]\nmin_effect_ratio = -1.0", "gate.min_effect_ratio is -1"),
        ("[gate]\nmax_unseen_ratio = nan", "gate.max_unseen_ratio is nan"),
        ("[gate]\nmin_effect_ns = -1", "gate.min_effect_ns is -1"),
        ("[gate]\nbudget = 5", "Expected `array`"),
        ("a = 1" + "0" * 6000, "not readable as TOML"),
        ("a = " + "[" * 5000 + "]" * 5000, "not readable as TOML"),
        ('"a\\nb" = 1', "unknown key 'a\\nb'"),
    ],
)
def test_a_file_that_would_judge_nothing_or_break_the_reader_is_refused_in_one_line(tmp_path, text, said):
    path = tmp_path / "cgadvisor.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as found:
        load_config(path)
    assert said in str(found.value) and "\n" not in str(found.value)
