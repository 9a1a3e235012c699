"""The dispatch: which reader takes a file, and how a folder becomes ranks."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from nsys_files import KERNEL, PROCESS, RUNTIME, api, kernel, write

from advisor.errors import TraceError
from advisor.sources import Source, _sources, load
from advisor.timeline import Timeline

TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"


def kineto(path: Path, *, rank: int | None = None, start: int = 10, device: int = 0) -> Path:
    """A Chrome trace of one launch and one kernel that starts at `start` µs."""
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 5, "tid": 5, "ts": 1.0, "dur": 2.0,
              "args": {"correlation": 3}}  # fmt: skip
    item = {"ph": "X", "cat": "kernel", "name": "k", "pid": device, "tid": 7, "ts": float(start), "dur": 4.0,
            "args": {"correlation": 3, "device": device, "stream": 7}}  # fmt: skip
    trace: dict[str, object] = {"schemaVersion": 1, "baseTimeNanoseconds": 0, "traceEvents": [launch, item]}
    if rank is not None:
        trace["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 4}
    text = json.dumps(trace).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def nsight(path: Path, **other: object) -> Path:
    return write(path, {KERNEL: [kernel(100, 110, 1, **other)], RUNTIME: [api(10, 20, 1)]})


def starts(timeline: Timeline) -> dict[int, int]:
    """Rank -> start of its one kernel in µs."""
    return {
        int(rank): int(start) // 1000
        for rank, start in zip(timeline.items["rank"], timeline.items["start_ns"], strict=True)
    }


def ids(timeline: Timeline) -> list[str]:
    return [note.id for note in timeline.notes]


def test_both_formats_are_registered():
    assert [source.id for source in _sources()] == ["kineto", "nsight"]
    assert all(isinstance(source, Source) for source in _sources())


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz", "trace", "trace.sqlite.txt"])
def test_content_decides_not_the_name(tmp_path, name):
    assert load(kineto(tmp_path / name)).info.source == "kineto"


def test_an_sqlite_file_is_known_whatever_its_name(tmp_path):
    assert load(nsight(tmp_path / "report.json")).info.source == "nsight"
    assert load(str(nsight(tmp_path / "report"))).info.source == "nsight"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.json", b"", "the file is empty"),
        ("notes.txt", b"hello", "not a trace; expected Kineto"),
        ("picture.png", b"\x89PNG\r\n", "not a trace"),
    ],
)
def test_files_that_are_no_trace_are_refused_in_one_line(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TraceError, match=message) as caught:
        load(path)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def test_a_missing_path_is_named(tmp_path):
    with pytest.raises(TraceError, match="no such file or folder"):
        load(tmp_path / "gone.json")


def test_ranks_come_from_the_files_that_name_them(tmp_path):
    for name, rank, start in (("a", 2, 20), ("b", 0, 30), ("c", 1, 40)):
        kineto(tmp_path / f"{name}.json", rank=rank, start=start)
    made = load(tmp_path)
    assert starts(made) == {2: 20, 0: 30, 1: 40}
    assert made.info.rank_count == 3 and made.info.files == ("a.json", "b.json", "c.json")
    assert made.items["launch_id"].notna().all() and list(made.calls["item_count"]) == [1, 1, 1]
    assert ids(made) == []


def test_files_without_a_rank_are_numbered_in_human_order(tmp_path):
    for number in (10, 2, 1):
        kineto(tmp_path / f"worker{number}.json", start=100 + number)
    assert starts(load(tmp_path)) == {0: 101, 1: 102, 2: 110}


def test_numbers_given_out_avoid_those_that_files_name(tmp_path):
    kineto(tmp_path / "a.json", start=20)
    kineto(tmp_path / "b.json", start=30, rank=0)
    kineto(tmp_path / "c.json", start=40)
    assert starts(load(tmp_path)) == {1: 20, 0: 30, 2: 40}


def test_two_files_of_one_rank_stay_apart_with_a_note(tmp_path):
    kineto(tmp_path / "a.json", start=20, rank=0)
    kineto(tmp_path / "b.json", start=30, rank=0)
    made = load(tmp_path)
    assert starts(made) == {0: 20, 1: 30} and ids(made) == ["rank-clash"]


def test_processes_of_several_reports_become_ranks_in_turn(tmp_path):
    other = PROCESS + (5 << 24)
    rows = {
        KERNEL: [kernel(100_000, 110_000, 1), kernel(200_000, 210_000, 1, globalPid=other, deviceId=1)],
        RUNTIME: [api(10, 20, 1), api(30, 40, 1, globalTid=other | 82)],
    }
    write(tmp_path / "node1.sqlite", rows)
    write(tmp_path / "node2.sqlite", {KERNEL: [kernel(300_000, 310_000, 1)], RUNTIME: [api(10, 20, 1)]})
    made = load(tmp_path)
    assert starts(made) == {0: 100, 1: 200, 2: 300} and made.info.rank_count == 3
    assert made.items["launch_id"].nunique() == 3


def test_what_is_no_trace_in_a_folder_is_skipped_with_a_note(tmp_path):
    kineto(tmp_path / "a.json")
    (tmp_path / "README.md").write_text("about these traces")
    (tmp_path / "empty.json").touch()
    (tmp_path / ".hidden.json").write_text("{}")
    (tmp_path / "sub").mkdir()
    made = load(tmp_path)
    note = next(note for note in made.notes if note.id == "skipped-files")
    assert note.count == 2 and "README.md (not a trace)" in note.message and "empty.json" in note.message


def test_a_report_beside_its_own_export_is_read_once(tmp_path):
    nsight(tmp_path / "run.sqlite")
    (tmp_path / "run.nsys-rep").write_bytes(b"a report")
    made = load(tmp_path)
    assert len(made.items) == 1 and ids(made) == []


def test_a_folder_without_traces_says_what_it_holds(tmp_path):
    with pytest.raises(TraceError, match="no trace in this folder; expected one file a rank"):
        load(tmp_path)
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text("text")
    with pytest.raises(TraceError, match=r"it holds 0\.txt \(not a trace\), 1\.txt .* and 2 more"):
        load(tmp_path)


def test_two_profilers_in_one_folder_are_not_ranks_of_one_run(tmp_path):
    kineto(tmp_path / "a.json")
    nsight(tmp_path / "b.sqlite")
    with pytest.raises(TraceError, match="one profiler only"):
        load(tmp_path)


@pytest.mark.skipif(not TRACES.is_dir(), reason="the folder of real traces is not beside the repository")
def test_eight_real_ranks():
    made = load(TRACES / "param-dlrm-8rank")
    # Ranks, and items without a launch, as the trace index has them.
    assert made.items.groupby("rank").size().to_dict() == {
        0: 261,
        1: 326,
        2: 262,
        3: 337,
        4: 273,
        5: 261,
        6: 262,
        7: 262,
    }
    lost = made.items[made.items["launch_id"].isna()].groupby("rank").size().to_dict()
    assert lost == {1: 64, 3: 64}
    launches = made.calls.loc[made.items["launch_id"].dropna().astype("int64")]
    assert (launches["rank"].to_numpy() == made.items["rank"][made.items["launch_id"].notna()].to_numpy()).all()
    assert made.info.rank_count == 8 and len(made.info.files) == 8
