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
