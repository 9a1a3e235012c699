"""Run folders: written whole or not at all, refused in one line when broken or newer."""

from __future__ import annotations

import pytest

from advisor.bundle import Bundle, load_artefact, write_atomically
from advisor.errors import BundleError
from advisor.model import Clock, Manifest, Measurement, Verification

MANIFEST = Manifest(tool_version="0.1.0", command=("cgadvisor", "profile", "t.py"), script="t.py", created_at="2026-01-01")


def test_round_trip(tmp_path):
    bundle = Bundle.create(tmp_path / "run")
    bundle.save(MANIFEST)
    clock = Clock(step_label="t.py:3", step_how="hot loop", host_step=Measurement(samples_ns=(5, 6)))
    bundle.save(clock)
    again = Bundle.open(tmp_path / "run")
    assert again.load(Manifest) == MANIFEST
    assert again.load(Clock) == clock
    assert again.load_if_present(Verification) is None


def test_no_temporary_file_stays(tmp_path):
    Bundle(tmp_path).save(MANIFEST)
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not readable as JSON"),
        ("{", "not readable as JSON"),
        ("[1]", "expected a JSON object"),
        ('{"format": 99}', "format 99 is newer"),
        ('{"format": "x"}', "not a format number"),
        ('{"format": true}', "not a format number"),
        ('{"tool_version": 3}', "not a valid manifest.json"),
        ("[" * 100_000, "not readable as JSON"),
        ("\xff\xfe", "not readable as JSON"),
    ],
)
def test_broken_artefacts_are_refused_in_one_line(tmp_path, text, said):
    path = tmp_path / "manifest.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(BundleError, match=said) as caught:
        load_artefact(path, Manifest)
    assert "\n" not in str(caught.value)


def test_not_a_run_folder(tmp_path):
    with pytest.raises(BundleError, match="no such run folder"):
        Bundle.open(tmp_path / "nosuch")
    with pytest.raises(BundleError, match="not a run folder"):
        Bundle.open(tmp_path)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(BundleError, match="cannot make the run folder"):
        Bundle.create(tmp_path / "file" / "run")


def test_a_failed_write_keeps_the_old_file(tmp_path):
    path = write_atomically(tmp_path / "a.json", b"old")
    with pytest.raises(TypeError):
        write_atomically(path, None)  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
