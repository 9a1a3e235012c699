"""Discovery is loud: a feature file without its constant, or with a taken id, stops the program."""

import sys

import pytest

from advisor.registry import members


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "features_for_test"
    folder.mkdir()
    (folder / "__init__.py").write_text("class Thing:\n    def __init__(self, id):\n        self.id = id\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "features_for_test", raising=False)

    def load(**files):
        for name, text in files.items():
            (folder / f"{name}.py").write_text(f"from features_for_test import Thing\n{text}\n")
        for name in [name for name in sys.modules if name.startswith("features_for_test")]:
            del sys.modules[name]
        import features_for_test

        return members(features_for_test, "THING", features_for_test.Thing)

    return load


def test_members_are_sorted_by_id_and_helpers_skipped(package):
    found = package(b="THING = Thing('2')", a="THING = Thing('9')", _help="x = 1")
    assert [one.id for one in found] == ["2", "9"]


def test_a_file_without_its_constant_is_an_error(package):
    with pytest.raises(TypeError, match=r"features_for_test.a must define THING"):
        package(a="other = 1")


def test_a_taken_id_is_an_error(package):
    with pytest.raises(TypeError, match="taken"):
        package(a="THING = Thing('1')", b="THING = Thing('1')")
