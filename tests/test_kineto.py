"""The Kineto reader: exact times, the same tables from every layout, what each category becomes, and all real traces."""

from __future__ import annotations

import gzip
import json
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kineto_text import document, flow, kernel, launch, note_ids, number, op, read_text, spelled

from advisor.calls import normalise
from advisor.errors import TraceError
from advisor.intervals import union
from advisor.marks import encode
from advisor.sources import _json_stream
from advisor.sources._kineto_columns import MISSING, TimeColumn
from advisor.sources.kineto import SOURCE, read
from advisor.tables import CALLS, ITEMS, RANGES

TRACES = Path(__file__).parents[2] / "shared" / "traces"


def texts(column):
    return [None if missing else str(value) for value, missing in zip(column, column.isna(), strict=True)]


def ids(column):
    return [None if missing else int(value) for value, missing in zip(column, column.isna(), strict=True)]


def times(frame):
    return frame[["start_ns", "end_ns"]].to_numpy().tolist()


# --- time --------------------------------------------------------------------------------------------------------------

BASE = ', "baseTimeNanoseconds": 1790857026000000000'


@pytest.mark.parametrize(
    ("ts", "dur", "extra", "expected", "coarse"),
    [
        # Kineto since 2.4: µs relative to the quarter, base in ns.
        ("5236568768864.483", "3808.585", BASE, [1796093594768864483, 1796093594772673068], 1),
        ("7889237999999.999", "0.001", BASE, [1798746263999999999, 1798746264000000000], 1),
        # Absolute µs with three decimals, 2024: float64 steps by 250 ns there.
        ("1712195495505582.988", "0.013", "", [1712195495505582988, 1712195495505583001], 1),
        # The same dumped again through float64: what is left is not exact, and said so.
        ("1712195495505582.8", "2.5", "", [1712195495505582800, 1712195495505585300], 250),
        # Whole microseconds, before 2024.
        ("1669783687464181", "45", "", [1669783687464181000, 1669783687464226000], 1000),
        ("12", "3", BASE, [1790857026000012000, 1790857026000015000], 1000),
        # Trailing zeros lost in a re-dump; exponents; a base in a string.
        ("12.5", "0.25", BASE, [1790857026000012500, 1790857026000012750], 1),
        ("1.2505e3", "1E-3", ', "baseTimeNanoseconds": "7"', [1250507, 1250508], 1),
        ("-2.001", "1.002", "", [-2001, -999], 1),
    ],
)
def test_times_are_exact_nanoseconds(tmp_path, ts, dur, extra, expected, coarse):
    raw = read_text(tmp_path, document([spelled(kernel("k", ts, dur, 1))], tail=extra))
    assert times(raw.items) == [expected]
    assert raw.coarse_ns == coarse


@given(
    st.lists(
        st.tuples(st.integers(0, 2**52), st.integers(0, 10**6), st.integers(0, 3)).map(
            lambda parts: f"{parts[0]}.{parts[1] % 10 ** parts[2]:0{parts[2]}d}" if parts[2] else str(parts[0])
        ),
        min_size=1,
        max_size=40,
    )
)
def test_any_mix_of_decimals_is_read_as_decimal_arithmetic_has_it(numbers):
    column = TimeColumn()
    column.extend([text.encode() for text in numbers])
    assert column.array().tolist() == [int(Decimal(text) * 1000) for text in numbers]


@given(st.lists(st.integers(-(2**70), 2**70), min_size=1, max_size=5), st.sampled_from(["", ".0", ".5", ".125"]))
def test_times_beyond_64_bits_are_missing_and_never_wrap(numbers, fraction):
    column = TimeColumn()
    column.extend([f"{number}{fraction}".encode() for number in numbers])
    exact = [int(Decimal(f"{number}{fraction}") * 1000) for number in numbers]
    assert column.array().tolist() == [value if abs(value) < 2**62 else MISSING for value in exact]


@given(st.floats(-1e12, 1e12, allow_nan=False))
def test_what_python_dumps_is_rounded_to_the_nearest_nanosecond(value):
    column = TimeColumn()
    column.extend([json.dumps(value).encode()])
    assert abs(Decimal(column.array().tolist()[0]) - Decimal(repr(value)) * 1000) <= Decimal("0.5")


# --- layout ------------------------------------------------------------------------------------------------------------

EVENTS = [
    op("aten::mm", "1.000", "20.250", **{"Input Dims": [[64, 256], [256, 8], []], "External id": 3, "Call stack": "a;b"}),
    op("aten::mm", "30.000", "2.000", **{"Input Dims": [], "kernel_kwargs": "a}, {\\b\"],"}),
    {"ph": "s", "id": 1, "pid": 100, "tid": 101, "ts": number("2.000"), "cat": "ac2g", "name": "ac2g"},
    launch("2.000", "3.125", 1),
    launch("2.500", "1.000", 1, "cuLaunchKernelEx", "cuda_driver"),
    kernel("void f<int, {lambda(}, {)#1}>(x)", "8.001", "2.002", 1, **{"graph id": 4, "graph node id": 7}),
    {"name": "process_name", "ph": "M", "ts": number("1.000"), "pid": 100, "tid": 0, "args": {"name": "}, {"}},
    op("train.py(3): main", "0.500", "40.000", "python_function", **{"Python parent id": None, "Python id": 1}),
    {"ph": "X", "cat": "Trace", "ts": number("0.100"), "dur": number("99.000"), "pid": "Spans", "tid": "P", "name": "P (0)"},
    {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": number("99.000")},
]  # fmt: skip
HEADER = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}, {"id": 1, "name": "NVIDIA H200"}],
    "distributedInfo": {"backend": "nccl", "rank": 3, "pg_config": [{"pg_name": "0"}, {"pg_name": "1"}]},
    "baseTimeNanoseconds": number("1790857026000000000"),
}
TAIL = {"traceName": "a ], }, {.json", "cuda_runtime_version": 12080}


def kineto_layout(events):
    """As Kineto's C++ writes: an event a few lines, `},` and `{` on lines of their own."""
    made = ",\n".join(re.sub(r'("args"|"pid"|"ts")', r"\n    \1", spelled(event)) for event in events)
    return f'\n  {spelled(HEADER)[:-1]},\n  "traceEvents": [\n  {made}\n  ],\n  {spelled(TAIL)[1:]}\n'


LAYOUTS = {
    "kineto": kineto_layout,
    "indented": lambda events: spelled(HEADER | {"traceEvents": events} | TAIL, indent=2),
    "deep": lambda events: spelled({"traceEvents": events} | HEADER | TAIL, indent=7),
    "one line": lambda events: spelled(HEADER | TAIL | {"traceEvents": events}),
    "compact": lambda events: spelled({"traceEvents": events} | TAIL | HEADER, separators=(",", ":")),
    "crlf": lambda events: kineto_layout(events).replace("\n", "\r\n"),
}


def assert_same(one, other):
    for frame in ("items", "calls", "ranges"):
        pd.testing.assert_frame_equal(getattr(one, frame), getattr(other, frame))
    assert (one.info, one.coarse_ns, one.device_names, one.notes) == (
        other.info, other.coarse_ns, other.device_names, other.notes,
    )  # fmt: skip


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 300 bytes, so that cuts fall everywhere."""
    monkeypatch.setattr(_json_stream, "BLOCK_BYTES", 300)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("packed", [False, True])
def test_every_layout_gives_the_same_tables(tmp_path, small_blocks, layout, packed):
    expected = read_text(tmp_path, LAYOUTS["kineto"](EVENTS * 4))
    text = LAYOUTS[layout](EVENTS * 4).encode()
    made = read_text(tmp_path, gzip.compress(text) if packed else text)
    assert made.notes == ()
    assert_same(made, expected)


def test_the_tables_of_those_layouts_are_right(tmp_path):
    raw = read_text(tmp_path, LAYOUTS["one line"](EVENTS))
    base = 1790857026000000000
    assert times(raw.items) == [[base + 8_001, base + 10_003]]
    assert texts(raw.items["name"]) == ["void f<int, {lambda(}, {)#1}>(x)"]
    assert ids(raw.items["graph_id"]) + ids(raw.items["graph_node_id"]) == [4, 7]
    assert raw.items["rank"].tolist() == [3]
    assert texts(raw.calls["api"]) == ["cudaLaunchKernel", "cuLaunchKernelEx"]
    assert ids(raw.calls["correlation"]) == [1, None], "the driver call lies in the runtime call, which is the launch"
    assert texts(raw.ranges["shapes"]) == ["[[64, 256], [256, 8], []]", "[]", None]
    assert raw.info.event_count == len(EVENTS)
    assert (raw.info.gpu_names, raw.info.cuda_version) == (("NVIDIA H200",), "12.8")
    assert raw.device_names == {(3, 0): "NVIDIA H200"}


NASTY = st.text(st.sampled_from('ab{}[],:"\\ \n\té\u2028\U0001f600'), max_size=12)
SOME_EVENT = st.one_of(
    st.builds(
        lambda name, ts, nested: kernel(name, f"{ts}.125", "1.500", ts + 1, x=nested),
        NASTY, st.integers(1, 10**6),
        st.lists(st.dictionaries(st.sampled_from(["name", "ph", "q"]), NASTY, max_size=2), max_size=3),
    ),
    st.builds(lambda name, ts: op(name, f"{ts}.125", "1.500", **{"Input Dims": [[ts, 2]]}), NASTY, st.integers(1, 10**6)),
    st.builds(lambda ts: flow(f"{ts}.125", ts), st.integers(1, 10**6)),
)  # fmt: skip


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(events=st.lists(SOME_EVENT, min_size=1, max_size=30), block=st.integers(1, 2000))
def test_layout_and_block_size_never_matter(tmp_path, monkeypatch, events, block):
    monkeypatch.setattr(_json_stream, "BLOCK_BYTES", block)
    events = [op("anchor", "1.000", "1.000"), *events]
    made = [read_text(tmp_path, layout(events)) for name, layout in LAYOUTS.items() if name not in ("kineto", "crlf")]
    assert made[0].notes == ()
    assert made[0].info.event_count == len(events)
    assert texts(made[0].items["name"]) == [event["name"] for event in events if event.get("cat") == "kernel"]
    for other in made[1:]:
        assert_same(made[0], other)


# --- what becomes what -------------------------------------------------------------------------------------------------


def test_what_is_gpu_work_and_what_is_not(tmp_path):
    events = [
        kernel("k", "1.000", "1.000", 1),
        kernel("Memcpy HtoD (Pageable -> Device)", "2.000", "1.000", 2, bytes=64) | {"cat": "gpu_memcpy"},
        kernel("Memset (Device)", "3.000", "1.000", 3, bytes="128") | {"cat": "gpu_memset"},
        kernel("Stream Sync", "4.000", "1.000", 4) | {"cat": "cuda_sync", "tid": 1000007},
        kernel("step", "0.500", "9.000", 5) | {"cat": "gpu_user_annotation"},
        op("PyTorch Profiler (0)", "0.100", "9.000", "Trace"),
        flow("1.000", 1),
        {"ph": "C", "name": "GPU 0", "pid": "GPU 0 Counters", "tid": 0, "ts": number("1.000"), "args": {"": 3}},
    ]
    raw = read_text(tmp_path, document([spelled(event) for event in events]))
    assert texts(raw.items["kind"]) == ["kernel", "memcpy", "memset"]
    assert ids(raw.items["bytes"]) == [None, 64, 128]
    assert (len(raw.calls), len(raw.ranges), raw.notes) == (0, 0, ())


@pytest.mark.parametrize(
    ("old", "new"),
    [("Kernel", "kernel"), ("Memcpy", "memcpy"), ("Memset", "memset")],
)
def test_categories_of_2021(tmp_path, old, new):
    event = kernel("Memcpy DtoH (Device -> Pinned)", "1.000", "1.000", 9) | {"cat": old, "tid": "stream 7"}
    event["args"].pop("stream")
    calls = launch("0.500", "0.100", 9, "cudaMemcpyAsync", "Runtime") | {"tid": "4093687616"}
    operator = op("aten::copy_", "0.400", "0.500", "Operator", **{"Input dims": [[3]]}) | {"tid": "4093687616"}
    step = op("ProfilerStep#5", "0.300", "0.900", "Operator") | {"tid": "4093687616"}
    raw = read_text(tmp_path, "[" + ",".join(spelled(one) for one in (event, calls, operator, step)) + "]", rank=5)
    assert (texts(raw.items["kind"]), raw.items["stream"].tolist(), raw.items["rank"].tolist()) == ([new], [7], [5])
    assert (texts(raw.calls["api"]), raw.calls["tid"].tolist()) == (["cudaMemcpyAsync"], [4093687616])
    assert (texts(raw.ranges["kind"]), texts(raw.ranges["shapes"])) == (["op", "step"], ["[[3]]", None])


@pytest.mark.parametrize(
    ("name", "kind", "memory"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "h2d", "pageable"),
        ("Memcpy HtoD (Pinned -> Device)", "h2d", "pinned"),
        ("Memcpy DtoH (Device -> Pinned)", "d2h", "pinned"),
        ("Memcpy DtoH (Device -> Pageable)", "d2h", "pageable"),
        ("Memcpy DtoD (Device -> Device)", "d2d", None),
        ("Memcpy PtoP (Device -> Device)", "p2p", None),
        ("Memcpy HtoH (Pageable -> Pinned)", "h2h", "pageable"),
        ("Memcpy HtoA (Pinned -> Array)", "h2d", "pinned"),
        ("Memcpy HtoD (Host -> Device)", "h2d", None),  # HIP does not say which
        ("Memcpy DtoH", "d2h", None),
        ("Memcpy Unknown (Unknown -> Unknown)", None, None),
    ],
)
def test_copies_by_name(tmp_path, name, kind, memory):
    raw = read_text(tmp_path, document([spelled(kernel(name, "1.000", "1.000", 1) | {"cat": "gpu_memcpy"})]))
    assert (texts(raw.items["copy_kind"]), texts(raw.items["host_memory"])) == ([kind], [memory])


def test_a_kernel_named_like_a_copy_is_a_kernel(tmp_path):
    raw = read_text(
        tmp_path, document([spelled(kernel("Memcpy HtoD (Pinned -> Device)", "1.000", "1.000", 1, bytes=7))])
    )
    assert (texts(raw.items["kind"]), texts(raw.items["copy_kind"]), ids(raw.items["bytes"])) == (
        ["kernel"],
        [None],
        [None],
    )


def test_kinds_of_ranges(tmp_path):
    mark = encode("train.py:12-17", "stmt", 7)
    events = [
        op("aten::add", "1.000", "1.000"),
        op("forward", "2.000", "1.000", "user_annotation"),
        op("ProfilerStep#12", "3.000", "1.000", "user_annotation"),
        op(mark, "4.000", "1.000", "user_annotation"),
        op("train.py(3): main", "5.000", "1.000", "python_function"),
        op("nn.Module: Linear_0", "6.000", "1.000", "python_function"),
        op("Buffer Flush", "7.000", "1.000", "overhead") | {"pid": -1, "tid": 0},
        op("ProfilerStep#twelve", "8.000", "1.000", "user_annotation"),
        op("ProfilerStep#3", "9.000", "1.000", "python_function"),
    ]
    raw = read_text(tmp_path, document([spelled(event) for event in events]))
    assert texts(raw.ranges["kind"]) == ["op", "user", "step", "mark", "python", "module", "overhead", "user", "python"]
    assert texts(raw.ranges["name"])[3] == mark
    assert raw.ranges.loc[6, ["pid", "tid"]].tolist() == [-1, 0]


def test_begin_and_end_pairs_become_ranges_by_thread(tmp_path):
    def edge(phase, name, ts, tid):
        return {"ph": phase, "name": name, "pid": 0, "tid": tid, "ts": number(ts)}

    events = [
        edge("B", "outer", "1.000", 15514734831341844875),
        edge("B", "other", "1.500", 2),
        edge("B", "inner", "2.000", 15514734831341844875),
        edge("E", "inner", "3.250", 15514734831341844875),
        edge("E", "other", "4.000", 2),
        edge("E", "outer", "5.000", 15514734831341844875),
        edge("B", "op", "6.000", 2) | {"cat": "cpu_op", "args": {"Input Dims": [[2]]}},
        edge("E", "op", "7.000", 2),
    ]
    raw = read_text(tmp_path, document([spelled(event) for event in events]))
    assert texts(raw.ranges["kind"]) == ["user", "user", "user", "op"]
    found = dict(zip(texts(raw.ranges["name"]), times(raw.ranges), strict=True))
    assert found == {"inner": [2_000, 3_250], "other": [1_500, 4_000], "outer": [1_000, 5_000], "op": [6_000, 7_000]}
    assert raw.ranges["tid"].nunique() == 2
    assert set(texts(raw.ranges["shapes"])) == {None, "[[2]]"}


def test_unknown_categories_are_named(tmp_path):
    events = [op("a", "1.000", "1.000"), *[op("x", "2.000", "1.000", "mtia_ccp_events")] * 3]
    raw = read_text(tmp_path, document([spelled(event) for event in events]))
    assert [(note.id, note.count) for note in raw.notes] == [("ignored-categories", 3)]
    assert "3 mtia_ccp_events" in raw.notes[0].message


def test_ids_of_hip_and_versioned_names(tmp_path):
    events = [
        launch("1.000", "1.000", 5, "hipExtModuleLaunchKernel")
        | {"args": {"cid": 1, "correlation": 5, "bytes": "9216"}},
        launch("3.000", "1.000", 6, "cudaLaunchKernel_v7000"),
        launch("5.000", "1.000", 0, "cudaStreamSynchronize"),
    ]
    raw = read_text(tmp_path, document([spelled(event) for event in events]))
    assert texts(raw.calls["api"]) == ["hipExtModuleLaunchKernel", "cudaLaunchKernel", "cudaStreamSynchronize"]
    assert texts(raw.calls["kind"]) == ["kernel", "kernel", "sync"]
    assert ids(raw.calls["correlation"]) == [5, 6, None]


def test_the_outermost_call_keeps_the_correlation(tmp_path):
    events = [
        launch("2.000", "1.000", 4, "cuMemcpyHtoDAsync_v2", "cuda_driver"),
        launch("1.000", "5.000", 4, "cudaMemcpyAsync"),
        launch("9.000", "1.000", 8, "cudaLaunchKernel"),
        launch("20.000", "1.000", 8, "cudaLaunchKernel"),
    ]
    raw = read_text(tmp_path, document([spelled(event) for event in events]))
    assert ids(raw.calls["correlation"]) == [None, 4, 8, None]
    assert [(note.id, note.count) for note in raw.notes] == [("repeated-correlations", 1)]


def test_ids_shared_by_processes_of_a_merged_file_forbid_claims(tmp_path):
    events = [launch("1.000", "1.000", 4), launch("1.500", "1.000", 4) | {"pid": 200}]
    raw = read_text(tmp_path, document([spelled(event) for event in events]))
    assert ids(raw.calls["correlation"]) == [4, 4]
    assert [(note.id, note.count) for note in raw.notes] == [("shared-correlations", 1)]
    assert "causes" in raw.notes[0].forbids


@pytest.mark.parametrize(
    ("first", "second", "end_us"),
    [
        # (start, duration, correlation) in µs of two items on one stream, the second 10 µs long
        (("100", "900", 1), ("110", "10", 2), 110),  # encloses its successor by far: cut back
        (("100", "900", 1), ("110", "10", 1), 1000),  # one graph launch: branches may overlap
        (("100", "900", 1), ("110", "950", 2), 1000),  # dependent launch: the second ends later
        (("100", "60", 1), ("110", "10", 2), 160),  # 50 µs are tolerated
        (("100", "900", 1), ("600", "10", 2), 1000),  # less than half its length
    ],
)
def test_a_duration_that_runs_over_the_next_item_is_cut_back(tmp_path, first, second, end_us):
    events = [
        spelled(kernel("a", *first)),
        spelled(kernel("b", *second)),
        spelled(kernel("c", "120", "400", 9, stream=8)),
    ]
    raw = read_text(tmp_path, document(events))
    assert times(raw.items)[0] == [100_000, end_us * 1000]
    cut = end_us * 1000 != (int(first[0]) + int(first[1])) * 1000
    assert [(note.id, note.count) for note in raw.notes] == ([("overrunning-items", 1)] if cut else [])


@pytest.mark.parametrize(
    ("info", "rank"),
    [
        ('{"rank": 7}', 7),
        ('{"rank": "7"}', 7),
        ('{"rank": -1}', 2),
        ('{"backend": "nccl"}', 2),
        ("null", 2),
        ('"x"', 2),
    ],
)
def test_rank_from_the_file_else_the_given_one(tmp_path, info, rank):
    raw = read_text(
        tmp_path, document([spelled(kernel("k", "1.000", "1.000", 1))], tail=f', "distributedInfo": {info}'), rank=2
    )
    assert raw.items["rank"].tolist() == [rank]


def test_nothing_of_the_environment_is_carried_on(tmp_path):
    head = '"host_name": "secret-host", "username": "secret-user", "PT_PROFILER_JOB_NAME": "secret-job",'
    raw = read_text(tmp_path, document([spelled(kernel("k", "1.000", "1.000", 1))], head=head))
    assert "secret" not in repr(raw.info)
    assert raw.info.files == ("trace.json",)


def test_accepts_by_content_then_by_name(tmp_path):
    packed = gzip.compress(b' \n{"traceEvents": []}')
    assert SOURCE.id == "kineto"
    assert SOURCE.accepts(Path("trace"), packed[:4096])
    assert SOURCE.accepts(Path("trace.txt"), b"\xef\xbb\xbf [")
    assert SOURCE.accepts(Path("trace.json"), b"")
    assert not SOURCE.accepts(Path("report.sqlite"), b"SQLite format 3\0")
    assert not SOURCE.accepts(Path("x.gz"), gzip.compress(b"hello"))


def test_frames_have_the_columns_of_the_schemas(tmp_path):
    raw = read_text(tmp_path, document([spelled(op("a", "1.000", "1.000"))]))
    for frame, schema in ((raw.items, ITEMS), (raw.calls, CALLS), (raw.ranges, RANGES)):
        assert frame.columns.tolist() == list(schema.columns)
    assert len(raw.items) == 0
    assert note_ids(raw) == []


# --- real traces ---------------------------------------------------------------------------------------------------------

_ROW = re.compile(r"^\| (?P<file>[\w.-]+/[\w.-]+\.json\.gz) \|.*$", re.MULTILINE)
_COUNTS = re.compile(r"(\d+) events, (\d+) kernels \((\d+) GPU events\), (\d+) stream")


def index_rows() -> dict[str, str]:
    index = TRACES / "INDEX.md"
    return {found["file"]: found[0] for found in _ROW.finditer(index.read_text())} if index.exists() else {}


INDEX = index_rows()
needs_traces = pytest.mark.skipif(not INDEX, reason="the recorded traces are not beside the repository")


def without_launch(raw) -> int:
    """Items whose correlation is there, and no call's: what the index counts."""
    known = set(raw.calls["correlation"].dropna())
    wanted = raw.items["correlation"].dropna()
    return int((~wanted.isin(known)).sum())


@needs_traces
@pytest.mark.parametrize("file", sorted(INDEX))
def test_every_recorded_trace_has_the_counts_of_the_index(file):
    row = INDEX[file]
    if "nodes" in row and "keys schema" in row:
        with pytest.raises(TraceError, match="ExecutionTrace"):
            read(TRACES / file, 0)
        return
    raw = read(TRACES / file, 0)
    kinds = raw.items["kind"].astype(str).value_counts()
    assert not {note.id for note in raw.notes} - {"ignored-categories"}, "no recorded trace is damaged"
    if counts := _COUNTS.search(row):
        events, kernels, items, streams = map(int, counts.groups())
        assert (raw.info.event_count, kinds.get("kernel", 0), len(raw.items)) == (events, kernels, items)
        assert len(raw.items[["device", "stream"]].drop_duplicates()) == streams
    elif found := re.search(r"(\d+) events, .*?(\d+) items", row):
        assert (raw.info.event_count, len(raw.items)) == tuple(map(int, found.groups()))
    else:
        assert (raw.info.event_count, len(raw.items)) == (2388, 1140), "the replay's row names its events first"
    missing = re.search(r"(\d+) GPU events without launch", row)
    # large_integer's one kernel names no correlation, so the index does not count it.
    assert without_launch(raw) == (int(missing[1]) if missing else 0)
    if graphs := re.search(r"(\d+) graph launches -> (\d+) kernels", row):
        launches = raw.calls[raw.calls["kind"] == "graph"]
        inside = raw.items["correlation"].isin(launches["correlation"].dropna()) & (raw.items["kind"] == "kernel")
        assert (len(launches), int(inside.sum())) == tuple(map(int, graphs.groups()))


@needs_traces
@pytest.mark.parametrize("file", sorted(file for file in INDEX if "GPU span" in INDEX[file]))
def test_busy_and_span_equal_the_index(file):
    found = re.search(r"GPU span ([\d.]+) ms, busy ([\d.]+) %", INDEX[file])
    if found is None:
        pytest.skip("the row states them in another form")
    items = read(TRACES / file, 0).items
    span = int(items["end_ns"].max() - items["start_ns"].min())
    busy = union(items["start_ns"], items["end_ns"]).total_ns
    assert span / 1e6 == pytest.approx(float(found[1]), abs=0.00051)
    assert 100 * busy / span == pytest.approx(float(found[2]), abs=0.051)


@needs_traces
@pytest.mark.parametrize(
    "file",
    ["hta/a100_ddp_nccl_rank.json.gz", "tracelens/mi300_sd35_large.json.gz", "param/rtx2080ti_linear_train.json.gz"],
)
def test_every_value_equals_what_a_plain_parse_says(file):
    """Against json and Decimal: order, times, threads, correlations and names of all calls and ranges."""
    with gzip.open(TRACES / file) as opened:
        loaded = json.loads(opened.read(), parse_float=Decimal)
    base = int(loaded.get("baseTimeNanoseconds", 0))
    raw = read(TRACES / file, 0)
    for frame, categories, name in (
        (raw.calls, ("cuda_runtime", "cuda_driver"), "api"),
        (raw.ranges, ("cpu_op", "user_annotation", "python_function", "overhead"), "name"),
    ):
        events = [event for event in loaded["traceEvents"] if event["ph"] == "X" and event.get("cat") in categories]
        start = [int(event["ts"] * 1000) + base for event in events]
        expected = pd.DataFrame(
            {
                "start_ns": start,
                "end_ns": [begin + int(event["dur"] * 1000) for begin, event in zip(start, events, strict=True)],
                "tid": [event["tid"] for event in events],
                name: [normalise(event["name"]) if name == "api" else event["name"] for event in events],
            }
        )
        made = frame[["start_ns", "end_ns", "tid", name]].copy()
        made[name] = made[name].astype(str)
        keys = ["start_ns", "end_ns", "tid", name]
        assert sorted(map(tuple, made[keys].to_numpy().tolist())) == sorted(
            map(tuple, expected[keys].to_numpy().tolist())
        )
    events = [
        event
        for event in loaded["traceEvents"]
        if event["ph"] == "X" and event.get("cat") in ("cuda_runtime", "cuda_driver")
    ]
    assert int(raw.calls["correlation"].sum()) == sum(event["args"]["correlation"] for event in events)
    assert np.all(raw.items["end_ns"] >= raw.items["start_ns"])


@needs_traces
def test_one_broken_duration_in_a_real_trace_does_not_become_busy_time(tmp_path):
    with gzip.open(TRACES / "tracelens/h100_bert_small_bs1.json.gz") as opened:
        loaded = json.load(opened)
    kernels = [event for event in loaded["traceEvents"] if event.get("cat") == "kernel"]
    kernels[20]["dur"] *= 10_000
    raw = read_text(tmp_path, json.dumps(loaded))
    assert [(note.id, note.count) for note in raw.notes] == [("overrunning-items", 1)]
    span = int(raw.items["end_ns"].max() - raw.items["start_ns"].min())
    assert span / 1e6 == pytest.approx(3.908, abs=0.001), "the index's span, without the broken item"
    assert union(raw.items["start_ns"], raw.items["end_ns"]).total_ns / span < 0.13
