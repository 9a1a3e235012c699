"""The Nsight Systems reader: real exports of seven schemas against SQL of their own, and each quirk in a file made here."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd
import pytest
from nsys_files import GRAPH, KERNEL, MAIN, MEMCPY, MEMSET, NVTX, OTHER, PROCESS, RUNTIME, api, kernel, nvtx, write

from advisor.errors import TraceError
from advisor.intervals import union
from advisor.marks import encode
from advisor.sources import load, nsight
from advisor.timeline import Timeline, build

TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the folder of real traces is not beside the repository")

# kernels, memcpys, memsets, whole graphs, API calls, NVTX ranges
REAL = {
    "nsys/h100_2gpu_ddp_1s.sqlite": (3442, 904, 22, 0, 5796, 16782),
    "nsys/rtx3080_two_kernels.sqlite": (2, 1, 0, 0, 9, 0),
    "nsys/a100_gpt27b_eager_cudaprofilerapi.sqlite": (18320, 0, 0, 0, 18322, 0),
    "nsys/a100_gpt27b_reduce_overhead_graph.sqlite": (30, 0, 0, 10, 62, 0),
    "nsys/a100_kokkos_cloverleaf.sqlite": (1312, 279, 0, 0, 3048, 0),
    # 38 of its 95 API rows are a backtrace layer's second row of the same call; 2 of 24 NVTX rows are no ranges.
    "nsys/a100_saxpy_mpi_old_schema.sqlite": (5, 15, 0, 0, 57, 22),
    "nsys/titanrtx_nvtx_only.sqlite": (0, 0, 0, 0, 0, 576),
    "nsys/rtx4060_runtime_no_kernel.sqlite": (0, 0, 1, 0, 23, 0),
    "h200/mlp_train_and_graph.sqlite": (2435, 46, 0, 0, 5165, 60),
}
# GPU span in ms and busy share, as the trace index has them (recomputed there by other code); kernels, copies, memsets only.
BUSY = {
    "nsys/h100_2gpu_ddp_1s.sqlite": (969.448, 0.998),
    "nsys/rtx3080_two_kernels.sqlite": (22.453, 0.000),
    "nsys/a100_gpt27b_eager_cudaprofilerapi.sqlite": (8434.737, 0.998),
    "nsys/a100_gpt27b_reduce_overhead_graph.sqlite": (7030.538, 0.000),
    "nsys/a100_kokkos_cloverleaf.sqlite": (342.408, 0.887),
    "nsys/a100_saxpy_mpi_old_schema.sqlite": (1097.328, 0.340),
    "h200/mlp_train_and_graph.sqlite": (5787.7, 9.22 / 5787.7),
}


def trace(name: str) -> Path:
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"{name} is not in the folder of real traces")
    return path


def read(path: Path) -> Timeline:
    return build(nsight.read(path, 0))


@cache
def loaded(name: str) -> Timeline:
    """A real trace, read once for all tests: they only look."""
    return load(trace(name))


def notes(timeline: Timeline) -> dict[str, int]:
    return {note.id: note.count for note in timeline.notes}


@needs_traces
@pytest.mark.parametrize("name", REAL)
def test_real_exports_have_the_known_counts(name):
    made = loaded(name)
    kinds = made.items["kind"].astype(str).value_counts()
    counts = tuple(int(kinds.get(kind, 0)) for kind in ("kernel", "memcpy", "memset", "graph"))
    named = int((made.ranges["kind"] != "overhead").sum())
    assert (*counts, len(made.calls), named) == REAL[name]
    assert made.info.source == "nsight" and made.info.format_detail.startswith("schema ")
    assert made.coarse_ns == 1 and "rows-without-times" not in notes(made)


@needs_traces
@pytest.mark.parametrize("name", BUSY)
def test_real_exports_have_the_known_span_and_busy_share(name):
    items = loaded(name).items
    items = items[items["kind"] != "graph"]
    span = int(items["end_ns"].max() - items["start_ns"].min())
    assert span / 1e6 == pytest.approx(BUSY[name][0], abs=0.06)
    assert union(items["start_ns"], items["end_ns"]).total_ns / span == pytest.approx(BUSY[name][1], abs=0.0006)


@needs_traces
@pytest.mark.parametrize("name", [name for name, counts in REAL.items() if any(counts[:4])])
def test_real_items_are_linked_exactly_where_sql_finds_a_call(name):
    made = loaded(name)
    connection = sqlite3.connect(f"{trace(name).as_uri()}?mode=ro&immutable=1", uri=True)
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    linked = sum(
        connection.execute(
            f"SELECT count(*) FROM {table} WHERE (correlationId, globalPid >> 24) IN "
            f"(SELECT correlationId, globalTid >> 24 FROM {RUNTIME})"
        ).fetchone()[0]
        for table in (KERNEL, MEMCPY, MEMSET, GRAPH)
        if table in tables
    )
    connection.close()
    assert int(made.items["launch_id"].notna().sum()) == linked
    assert int(made.calls["item_count"].sum()) == linked


@needs_traces
def test_steps_and_replays_of_the_h200_recording():
    made = loaded("h200/mlp_train_and_graph.sqlite")
    names = made.ranges["name"].astype(str)
    steps, forwards = np.flatnonzero(names == "step"), np.flatnonzero(names == "fwd")
    assert len(steps) == len(forwards) == 30
    assert made.ranges["parent_id"].to_numpy()[forwards].tolist() == steps.tolist()
    assert (made.ranges.loc[np.concatenate((steps, forwards)), "kind"] == "nvtx").all()

    replays = made.calls[made.calls["api"] == "cudaGraphLaunch"]
    assert list(replays["item_count"]) == [24] * 5
    inside = made.items[made.items["launch_id"].isin(replays.index)]
    assert (inside["kind"] == "kernel").all() and inside["graph_node_id"].notna().all()
    assert inside["graph_id"].nunique() == 1 and inside["graph_node_id"].nunique() == 24
    assert made.items["graph_node_id"].notna().sum() == 120

    # The backward pass is launched by autograd's own thread, which opens no ranges: it belongs to the step all the same.
    items, owner = made.items_of_ranges(steps)
    called = made.calls.loc[made.items["launch_id"][items].astype("int64")]
    assert called["tid"].nunique() == 2
    per_step = np.bincount(owner)
    assert len(per_step) == 30 and np.median(per_step) == 77 and len(np.unique(items)) == len(items)
    assert made.device_names == {(0, 0): "NVIDIA H200"}


@needs_traces
def test_graph_granularity_is_opaque_busy_time():
    made = loaded("nsys/a100_gpt27b_reduce_overhead_graph.sqlite")
    opaque = made.items[made.items["kind"] == "graph"]
    assert len(opaque) == 10
    assert made.calls.loc[opaque["launch_id"].astype("int64"), "api"].unique().tolist() == ["cudaGraphLaunch"]
    span = int(made.items["end_ns"].max() - made.items["start_ns"].min())
    assert union(opaque["start_ns"], opaque["end_ns"]).total_ns / span > 0.99


@needs_traces
def test_two_processes_are_two_ranks_and_a_full_command_buffer_is_not_the_profilers_doing():
    made = loaded("nsys/h100_2gpu_ddp_1s.sqlite")
    assert sorted(map(tuple, made.items[["rank", "device", "pid"]].drop_duplicates().to_numpy().tolist())) == [
        (0, 0, 111),
        (1, 1, 112),
    ]
    assert made.info.rank_count == 2 and notes(made)["processes-as-ranks"] == 2
    assert not (made.ranges["kind"] == "overhead").any()  # all 198 of its overhead rows are "Command Buffer Full"
    names = made.ranges["name"].astype(str)
    assert not names.str.contains("op_id").any()
    assert (made.ranges["kind"][names == "aten::view"] == "op").all()
    assert (made.ranges["kind"][names.str.startswith("FSDP::")] == "user").all()


@needs_traces
def test_an_export_without_cuda_is_refused_in_one_line():
    with pytest.raises(TraceError, match="CUDA was not traced; record again") as caught:
        load(trace("nsys/rtx4090_no_cuda_tables.sqlite"))
    assert "\n" not in str(caught.value)


@needs_traces
def test_reading_leaves_nothing_beside_the_file(tmp_path):
    copied = Path(shutil.copy(trace("nsys/rtx3080_two_kernels.sqlite"), tmp_path / "a b#1?.sqlite"))
    before = copied.read_bytes()
    copied.chmod(stat.S_IRUSR)
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert len(read(copied).items) == 3
        assert os.listdir(tmp_path) == [copied.name] and copied.read_bytes() == before
    finally:
        tmp_path.chmod(stat.S_IRWXU)


def test_names_links_and_times(tmp_path):
    made = read(
        write(
            tmp_path / "x.sqlite",
            {
                KERNEL: [
                    kernel(100, 110, 1),
                    kernel(120, 130, 2, demangledName=None),
                    kernel(140, 150, 3, shortName=99),
                ],
                RUNTIME: [api(10, 20, 1), api(30, 40, 2), api(50, 90, None, 4)],
            },
        )
    )
    assert list(made.items["name"]) == ["void gemm<float>(int)", "relu", "void gemm<float>(int)"]
    assert made.items["launch_id"].isna().tolist() == [False, False, True]
    assert list(made.calls["api"]) == ["cudaLaunchKernel", "cudaLaunchKernel", "cudaStreamSynchronize"]
    assert list(made.calls["kind"]) == ["kernel", "kernel", "sync"]
    assert (made.items["pid"] == 77).all() and (made.calls["tid"] == 77).all()
    assert made.info.format_detail == "schema 3.28.1, nsys 2026.4.1"


@pytest.mark.parametrize(
    ("columns", "kind", "host", "name"),
    [
        ((1, 0, 2), "h2d", "pageable", "Memcpy HtoD (Pageable -> Device)"),
        ((1, 1, 2), "h2d", "pinned", "Memcpy HtoD (Pinned -> Device)"),
        ((2, 2, 0), "d2h", "pageable", "Memcpy DtoH (Device -> Pageable)"),
        ((8, 2, 2), "d2d", None, "Memcpy DtoD (Device -> Device)"),
        ((10, 2, 2), "p2p", None, "Memcpy PtoP (Device -> Device)"),
        ((1, 4, 2), "h2d", None, "Memcpy HtoD (Managed -> Device)"),
        ((99, None, None), None, None, "Memcpy "),
    ],
)
def test_copies(tmp_path, columns, kind, host, name):
    row = kernel(100, 110, 1, bytes=64, **dict(zip(("copyKind", "srcKind", "dstKind"), columns, strict=True)))
    item = read(write(tmp_path / "x.sqlite", {MEMCPY: [row], RUNTIME: [api(10, 20, 1, 3)]})).items.iloc[0]
    found = [None if pd.isna(value) else value for value in (item["copy_kind"], item["host_memory"])]
    assert found == [kind, host] and item["name"] == name and item["bytes"] == 64 and item["kind"] == "memcpy"


def test_a_memset_and_a_table_without_optional_columns(tmp_path):
    bare = {"start": 5, "end": 6, "deviceId": 0, "correlationId": 1, "globalPid": PROCESS}
    items = read(write(tmp_path / "x.sqlite", {MEMSET: [bare], RUNTIME: [api(1, 2, 1, 11)]})).items
    assert items["kind"].tolist() == ["memset"] and items["bytes"].isna().all() and items["graph_node_id"].isna().all()


def test_graph_nodes_with_and_without_a_graph_id(tmp_path):
    node = (3 << 32) | 1
    made = read(
        write(
            tmp_path / "x.sqlite",
            {
                KERNEL: [
                    kernel(100, 110, 1, graphNodeId=node, graphId=9),
                    kernel(120, 130, 1, graphNodeId=node + 1, graphId=None),
                    kernel(140, 150, 2, graphNodeId=0, graphId=0),
                ],
                RUNTIME: [api(10, 20, 1, 2), api(30, 40, 2)],
            },
        )
    )
    assert [None if pd.isna(x) else int(x) for x in made.items["graph_id"]] == [9, 3, None]
    assert [None if pd.isna(x) else int(x) for x in made.items["graph_node_id"]] == [node, node + 1, None]
    assert list(made.calls["item_count"]) == [2, 1]


def test_whole_graph_executions_stand_beside_kernels(tmp_path):
    graph = {
        "start": 100,
        "end": 900,
        "deviceId": 0,
        "streamId": 7,
        "correlationId": 1,
        "globalPid": PROCESS,
        "graphId": 4,
    }
    made = read(
        write(tmp_path / "x.sqlite", {GRAPH: [graph], KERNEL: [kernel(950, 960, 2)], RUNTIME: [api(10, 20, 1, 2)]})
    )
    assert made.items["kind"].tolist() == ["graph", "kernel"] and made.items["name"][0] == "CUDA graph 4"
    assert made.items["graph_id"][0] == 4 and made.calls["kind"].tolist() == ["graph"]


def test_synchronisation_rows_are_no_gpu_work(tmp_path):
    sync = {"start": 0, "end": 10**9, "deviceId": 0, "streamId": 7, "correlationId": 5, "globalPid": PROCESS}
    tables = {"CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": [sync], KERNEL: [kernel(5, 6, 1)], RUNTIME: [api(1, 2, 1)]}
    assert len(read(write(tmp_path / "x.sqlite", tables)).items) == 1


def test_equal_correlations_of_two_processes_do_not_mix(tmp_path):
    other = PROCESS + (5 << 24)
    made = read(
        write(
            tmp_path / "x.sqlite",
            {
                KERNEL: [kernel(100, 110, 1, deviceId=1), kernel(200, 210, 1, globalPid=other)],
                RUNTIME: [api(10, 20, 1), api(30, 40, 1, globalTid=other | 82)],
            },
        )
    )
    # The process on device 0 is rank 0.
    assert made.items[["rank", "device", "pid"]].to_numpy().tolist() == [[0, 0, 82], [1, 1, 77]]
    launched = made.calls.loc[made.items["launch_id"].astype("int64")]
    assert launched["pid"].tolist() == [82, 77] and launched["rank"].tolist() == [0, 1]


def test_a_call_recorded_twice_counts_once(tmp_path):
    rows = [
        api(10, 30, 1, 1, eventClass=67),
        api(12, 28, 1, 1),
        api(12, 14, 1, 4),
        api(40, 50, None, 4),
        api(41, 49, None, 4),
    ]
    made = read(write(tmp_path / "x.sqlite", {KERNEL: [kernel(100, 110, 1)], RUNTIME: rows}))
    assert list(made.calls["api"]) == ["cudaLaunchKernel", *["cudaStreamSynchronize"] * 3]
    assert made.calls["start_ns"][0] == 10


@pytest.mark.parametrize(
    ("text", "kind", "name", "shapes"),
    [
        ("aten::mm, seq = 12, op_id = 3, sizes = [[8, 256], [256]]", "op", "aten::mm", "[[8, 256], [256]]"),
        ("aten::view, op_id = 9", "op", "aten::view", None),
        ("AddmmBackward0, seq = 4", "op", "AddmmBackward0", None),
        ("Optimizer.step#Adam.step, op_id = 7", "op", "Optimizer.step#Adam.step", None),
        ("autograd::engine::evaluate_function: AddBackward0, op_id = 7", "op",
         "autograd::engine::evaluate_function: AddBackward0", None),
        ("my region, op_id = 7", "user", "my region", None),
        ("FSDP::pre_forward (layer.0), op_id = 7", "user", "FSDP::pre_forward (layer.0)", None),
        ("ProfilerStep#3, op_id = 7", "step", "ProfilerStep#3", None),
        ("aten::mm", "op", "aten::mm", None),
        ("step 7, first half", "nvtx", "step 7, first half", None),
        (encode("train.py:12-17", "stmt", 7), "mark", encode("train.py:12-17", "stmt", 7), None),
        (None, "nvtx", "(no name)", None),
    ],
)  # fmt: skip
def test_kinds_of_ranges(tmp_path, text, kind, name, shapes):
    made = read(write(tmp_path / "x.sqlite", {NVTX: [nvtx(1, 9, text)]}))
    row = made.ranges.iloc[0]
    assert (row["kind"], row["name"]) == (kind, name)
    assert (None if pd.isna(row["shapes"]) else row["shapes"]) == shapes


def test_ranges_by_registered_text_domain_type_and_thread(tmp_path):
    made = read(
        write(
            tmp_path / "x.sqlite",
            {
                NVTX: [
                    nvtx(0, None, None, 8, eventType=75, domainId=3),  # creates the domain
                    nvtx(10, 90, None, 7),
                    nvtx(20, 30, "plain", domainId=3),
                    nvtx(25, 80, "across", eventType=60, globalTid=OTHER, endGlobalTid=MAIN),
                    nvtx(26, None, "a point", eventType=34),
                    nvtx(27, None, "a thread's name", eventType=39),
                ],
                RUNTIME: [api(40, 50, 1)],
            },
        )
    )
    assert list(made.ranges["name"]) == ["registered range", "plain", "across"]
    assert list(made.ranges["kind"]) == ["nvtx", "mark", "nvtx"]
    assert list(made.ranges["tid"]) == [77, 77, 78]
    assert made.calls["range_id"].tolist() == [0]


def test_a_range_that_never_ended_ends_with_the_recording_and_is_noted(tmp_path):
    tables = {
        NVTX: [nvtx(10, None, "open"), nvtx(20, 30, "closed")],
        KERNEL: [kernel(500, 600, 1)],
        RUNTIME: [api(40, 50, 1)],
    }
    made = read(write(tmp_path / "x.sqlite", tables))
    assert made.ranges["end_ns"].tolist() == [600, 30] and notes(made) == {"open-ranges": 1}


def test_overhead_is_the_profilers_only_and_only_where_a_gpu_worked(tmp_path):
    elsewhere = (PROCESS + (9 << 24)) | 86
    rows = [
        {"start": 1, "end": 2, "globalTid": MAIN, "nameId": 9},  # the driver's queue was full: no doing of the profiler
        {"start": 3, "end": 4, "globalTid": MAIN, "nameId": 10},
        {"start": 5, "end": 6, "globalTid": elsewhere, "nameId": 10},
    ]
    tables = {
        "CUPTI_ACTIVITY_KIND_OVERHEAD": rows,
        "PROFILER_OVERHEAD": rows[1:2],
        KERNEL: [kernel(7, 8, 1)],
        RUNTIME: [api(1, 2, 1)],
    }
    made = read(write(tmp_path / "x.sqlite", tables))
    assert made.ranges["kind"].tolist() == ["overhead"] * 2 and made.ranges["start_ns"].tolist() == [3, 3]
    assert made.calls["range_id"].isna().all()


def test_rows_without_times_are_left_out_and_counted(tmp_path):
    tables = {KERNEL: [kernel(5, 9, 1), kernel(9, 5, 2), kernel(7, None, 3)], RUNTIME: [api(1, 2, 1), api(None, 2, 2)]}
    made = read(write(tmp_path / "x.sqlite", tables))
    assert len(made.items) == len(made.calls) == 1 and notes(made) == {"rows-without-times": 3}


def test_lost_events_are_reported_without_paths(tmp_path):
    texts = [
        {"severity": 2, "text": "Not all CUDA events might have been collected by /home/someone/run."},
        {"severity": 1, "text": "Number of CUDA events collected: 5, none lost."},
        {"severity": 3, "text": "Unable to use perf events."},
    ]
    made = read(
        write(tmp_path / "x.sqlite", {"DIAGNOSTIC_EVENT": texts, KERNEL: [kernel(5, 9, 1)], RUNTIME: [api(1, 2, 1)]})
    )
    note = made.notes[0]
    assert (note.id, note.count, note.forbids) == ("recorder-lost-events", 1, ("estimate",))
    assert "Not all CUDA events" in note.message and "someone" not in note.message


def test_device_names_follow_the_process_mapping(tmp_path):
    gpus = [{"id": 0, "name": "big", "cuDevice": 1}, {"id": 1, "name": "small", "cuDevice": 0}]
    tables = {KERNEL: [kernel(5, 9, 1)], RUNTIME: [api(1, 2, 1)], "TARGET_INFO_GPU": gpus}
    assert read(write(tmp_path / "a.sqlite", tables)).device_names == {(0, 0): "small"}
    mapped = {
        **tables,
        "TARGET_INFO_CUDA_DEVICE": [{"gpuId": 0, "cudaId": 0, "pid": 77}, {"gpuId": 1, "cudaId": 0, "pid": 5}],
    }
    made = read(write(tmp_path / "b.sqlite", mapped))
    assert made.device_names == {(0, 0): "big"} and made.info.gpu_names == ("big",)


def test_the_old_name_of_the_meta_table(tmp_path):
    made = read(write(tmp_path / "x.sqlite", {RUNTIME: [api(1, 2, 1)]}, meta="EXPORT_META_DATA"))
    assert made.info.format_detail == "schema 3.28.1, nsys 2026.4.1" and len(made.items) == 0


def damaged_page(path: Path) -> Path:
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-2000]), "cut short"),
        (lambda path: path.write_bytes(b"SQLite format 3\0"), "not an SQLite database"),
        (lambda path: path.write_text("not a database, only text " * 20), "not an SQLite database"),
        (
            lambda path: path.with_name("x.sqlite-journal").write_bytes(b"pages"),
            "still being written or was interrupted",
        ),
        (damaged_page, "damaged SQLite file"),
    ],
)
def test_spoilt_files_are_refused_in_one_line(tmp_path, spoil, message):
    path = write(
        tmp_path / "x.sqlite", {KERNEL: [kernel(at, at + 1, at) for at in range(2000)], RUNTIME: [api(1, 2, 1)]}
    )
    spoil(path)
    with pytest.raises(TraceError, match=message) as caught:
        load(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


def test_text_where_numbers_belong_is_refused(tmp_path):
    path = write(tmp_path / "x.sqlite", {KERNEL: [kernel("soon", 9, 1)]})
    with pytest.raises(TraceError, match=f"table {KERNEL} holds something else than integers"):
        load(path)


def test_a_name_in_another_encoding_does_not_cost_the_trace(tmp_path):
    path = write(tmp_path / "x.sqlite", {NVTX: [nvtx(1, 9, "caf\u00e9")], RUNTIME: [api(1, 2, 1)]})
    path.write_bytes(path.read_bytes().replace("caf\u00e9".encode(), b"caf\xe9\xe9"))
    assert read(path).ranges["name"].tolist() == ["caf\ufffd\ufffd"]


def test_random_damage_is_read_or_refused_but_never_a_crash(tmp_path):
    """Bytes changed and pages wiped anywhere after the header: a timeline comes out, or one line."""
    rows = {
        KERNEL: [kernel(10 * at, 10 * at + 5, at) for at in range(60)],
        RUNTIME: [api(10 * at - 8, 10 * at - 4, at) for at in range(1, 60)],
        NVTX: [nvtx(10 * at, 10 * at + 9, f"aten::mm, op_id = {at}") for at in range(60)],
        "TARGET_INFO_GPU": [{"id": 0, "name": "gpu", "cuDevice": 0}],
    }
    path = write(tmp_path / "x.sqlite", rows)
    good, random = path.read_bytes(), Random(20)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(120):
        data = bytearray(good)
        for _ in range(random.choice((1, 5, 40))):
            data[random.randrange(100, len(data))] = random.randrange(256)
        path.write_bytes(data)
        try:
            load(path)
            outcomes["read"] += 1
        except TraceError as error:
            assert "\n" not in str(error)
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 5


def test_a_database_of_another_kind_is_refused(tmp_path):
    path = write(tmp_path / "x.sqlite", {"cookies": [{"host": "example.org"}]}, meta=None)
    with pytest.raises(TraceError, match="not of Nsight Systems"):
        load(path)


def test_a_file_locked_by_another_process_can_be_read(tmp_path):
    path = write(tmp_path / "x.sqlite", {KERNEL: [kernel(5, 9, 1)], RUNTIME: [api(1, 2, 1)]})
    holder = sqlite3.connect(path)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    try:
        assert len(load(path).items) == 1
    finally:
        holder.close()


def put_nsys_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    tool = folder / "nsys"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_a_report_is_exported_by_nsys_away_from_the_users_folder(tmp_path, monkeypatch):
    reports, tools = tmp_path / "reports", tmp_path / "tools"
    reports.mkdir(), tools.mkdir()
    ready = write(tools / "ready.sqlite", {KERNEL: [kernel(5, 9, 1)], RUNTIME: [api(1, 2, 1)]})
    report = reports / "run.nsys-rep"
    report.write_bytes(b"a report")
    check = '[ "$1 $2 $3" = "export --type sqlite" ] && [ "$4 $5 $6" = "--force-overwrite true --output" ]'
    put_nsys_on_path(tools, monkeypatch, f'{check} && [ "$8" = "{report}" ] && cp "{ready}" "$7"')
    made = load(report)
    assert len(made.items) == 1 and made.info.files == ("run.nsys-rep",)
    assert os.listdir(reports) == ["run.nsys-rep"]


def test_a_failing_export_says_what_nsys_said(tmp_path, monkeypatch):
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"a report")
    put_nsys_on_path(tmp_path, monkeypatch, "echo first >&2; echo 'report is newer than this nsys' >&2; exit 1")
    with pytest.raises(TraceError, match="`nsys export` failed: report is newer than this nsys"):
        load(report)


def test_without_nsys_the_command_is_named(tmp_path, monkeypatch):
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"a report")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        TraceError, match=r"run `nsys export --type sqlite --output run\.sqlite run\.nsys-rep` and give"
    ):
        load(report)


def test_an_export_under_a_reports_name_is_read_as_what_it_is(tmp_path):
    path = write(tmp_path / "run.nsys-rep", {KERNEL: [kernel(5, 9, 1)], RUNTIME: [api(1, 2, 1)]})
    assert len(load(path).items) == 1
