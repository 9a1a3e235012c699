"""Broken traces: every damage seen in the wild is mended to the right value, or counted and reported; never silent.

Each case is one odd event between two sound kernels, `first` (10-12 µs) and `last` (30-32 µs).
"""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kineto_text import document, flow, kernel, launch, note_ids, number, op, read_text, spelled

from advisor.errors import TraceError
from advisor.sources import _json_stream
from advisor.sources.kineto import SOURCE, read

FIRST = spelled(kernel("first", "10.000", "2.000", 1))
LAST = spelled(kernel("last", "30.000", "2.000", 3))
ODD = spelled(kernel("odd", "20.000", "2.500", 2))
ODD_ROW = ("odd", 20_000, 22_500, 7, 2)


def with_odd(event: str | bytes) -> bytes:
    text = event.encode() if isinstance(event, str) else event
    return document([FIRST, "@", LAST]).encode().replace(b"@", text)


def rows(raw):
    """(name, start, end, stream, correlation) of every item, in file order."""
    items = raw.items
    ids = [
        None if missing else value
        for value, missing in zip(items["correlation"], items["correlation"].isna(), strict=True)
    ]
    return list(zip(items["name"].astype(str), items["start_ns"], items["end_ns"], items["stream"], ids, strict=True))


def odd_row(raw):
    names = [row[0] for row in rows(raw)]
    assert (names[0], names[-1], len(names)) == ("first", "last", 3), "the sound neighbours are read"
    return rows(raw)[1]


MENDED = {
    "non-UTF-8 bytes in a name": (ODD.encode().replace(b"odd", b"od\xe9d"), "od\ufffdd"),
    "a truncated UTF-8 sequence": (ODD.encode().replace(b"odd", b"odd\xe2\x82"), "odd\ufffd"),
    "a raw control character": (ODD.replace("odd", "od\x01d"), "od d"),
    "a raw newline in a name": (ODD.replace("odd", "od\nd"), "od d"),
    "a bad escape": (ODD.replace("odd", r"C:\foo\qux"), r"C:\foo\qux"),
    "a bad unicode escape": (ODD.replace("odd", r"C:\users\x"), r"C:\users\x"),
    "a lone high surrogate": (ODD.replace("odd", r"odd\ud800"), "odd\ufffd"),
    "a lone low surrogate": (ODD.replace("odd", r"\udc00odd"), "\ufffdodd"),
    "nan and inf in args": (ODD.replace('"context": 1', '"context": nan, "w": [inf, -inf]'), "odd"),
    "NaN in args": (ODD.replace('"context": 1', '"bw": NaN, "w": -Infinity'), "odd"),
    "a NaN inside a name stays": (ODD.replace('"odd"', '"NaN, x"').replace('"context": 1', '"bw": NaN'), "NaN, x"),
    "quotes in a name, an even number": (ODD.replace("odd", 'op "x" y'), 'op "x" y'),
    "quotes in a name, an odd number": (ODD.replace("odd", 'operator"" _s" y'), 'operator"" _s" y'),
    "one quote in a name": (ODD.replace("odd", 'a"b'), 'a"b'),
    "a comma behind the last argument": (ODD.replace("[4, 1, 1]", "[4, 1, 1,]"), "odd"),
    "a comma behind the last field": (ODD.replace("[4, 1, 1]}", "[4, 1, 1],},"), "odd"),
    "two commas between fields": (ODD.replace('"context": 1,', '"context": 1, ,'), "odd"),
    "a comma before the first field": (ODD.replace('{"ph"', '{, "ph"', 1), "odd"),
    "NUL bytes between fields": (ODD.replace('"context": 1,', '"context": 1,\0\0'), "odd"),
}


@pytest.mark.parametrize(("event", "name"), MENDED.values(), ids=MENDED)
def test_broken_text_is_mended_and_counted(tmp_path, event, name):
    raw = read_text(tmp_path, with_odd(event))
    assert odd_row(raw) == (name, *ODD_ROW[1:])
    assert note_ids(raw) == ["mended-events"]
    (note,) = raw.notes
    assert note.count == 1
    offset = with_odd(event).index(event if isinstance(event, bytes) else event.encode())
    assert f"at byte {offset:,}" in note.message
    assert note.forbids == ()


TOLERATED = {
    "an unused integer beyond 64 bits": (ODD.replace('"context": 1', '"Comms Id": 101599708867660844230'), ODD_ROW),
    "correlation in a string": (ODD.replace('"correlation": 2', '"correlation": "2"'), ODD_ROW),
    "correlation as a float": (ODD.replace('"correlation": 2', '"correlation": 2.0'), ODD_ROW),
    "correlation null": (ODD.replace('"correlation": 2', '"correlation": null'), (*ODD_ROW[:4], None)),
    "correlation 0 is none": (ODD.replace('"correlation": 2', '"correlation": 0'), (*ODD_ROW[:4], None)),
    "no correlation": (ODD.replace('"correlation": 2', '"queued": 0'), (*ODD_ROW[:4], None)),
    "a stream given twice: the last counts": (
        ODD.replace('"grid"', '"stream": 9, "original_stream": 7, "grid"'), ("odd", 20_000, 22_500, 9, 2),
    ),
    "no stream: the thread says it": (ODD.replace('"stream": 7', '"queued": 0').replace('"tid": 7', '"tid": "stream 11"'),
                                      ("odd", 20_000, 22_500, 11, 2)),
    "args null": (ODD[: ODD.index('"args"')] + '"args": null}', ("odd", 20_000, 22_500, 7, None)),
    "ts in a string": (ODD.replace("20.000", '"20.000"'), ODD_ROW),
    "ts with an exponent": (ODD.replace("20.000", "2e1"), ODD_ROW),
    "ts with more digits than ns": (ODD.replace("20.000", "19.99999996"), ODD_ROW),
    "a name that is a number": (ODD.replace('"odd"', "17"), ("17", *ODD_ROW[1:])),
    "objects in a list that look like events": (
        ODD.replace('"context": 1', '"x": [{"name": 1}, {"name": 2}, {"ph": "]"}]'), ODD_ROW,
    ),
    "brackets and commas in a name": (ODD.replace("odd", "a}, {b], \\\"c"), ('a}, {b], "c', *ODD_ROW[1:])),
}  # fmt: skip


@pytest.mark.parametrize(("event", "row"), TOLERATED.values(), ids=TOLERATED)
def test_odd_but_legible_values(tmp_path, event, row):
    raw = read_text(tmp_path, with_odd(event))
    assert odd_row(raw) == row
    assert note_ids(raw) == []


@pytest.mark.parametrize("value", ["18446744073709551617", "9223372036854775808", '"twelve"', "2.5", "1e300"])
def test_a_correlation_that_is_no_64_bit_integer_is_missing_and_counted(tmp_path, value):
    raw = read_text(tmp_path, with_odd(ODD.replace('"correlation": 2', f'"correlation": {value}')))
    assert odd_row(raw)[4] is None
    assert [(note.id, note.count) for note in raw.notes] == [("unusable-correlations", 1)]


UNTIMED = {
    "no ts": ODD.replace('"ts": 20.000, ', ""),
    "ts null": ODD.replace("20.000", "null"),
    "ts words": ODD.replace("20.000", '"soon"'),
    "dur Infinity": ODD.replace("2.500", "Infinity"),
    "dur NaN": ODD.replace("2.500", "NaN"),
    "dur negative": ODD.replace("2.500", "-2.500"),
    "no dur": ODD.replace('"dur": 2.500, ', ""),
    "ts beyond 64 bits": ODD.replace("20.000", "2e30"),
}


@pytest.mark.parametrize("event", UNTIMED.values(), ids=UNTIMED)
def test_an_event_without_usable_times_is_left_out_and_counted(tmp_path, event):
    raw = read_text(tmp_path, with_odd(event))
    assert [row[0] for row in rows(raw)] == ["first", "last"]
    assert [(note.id, note.count) for note in raw.notes if note.id != "mended-events"] == [("untimed-events", 1)]


@pytest.mark.parametrize(
    ("event", "note"),
    [
        (ODD.replace("20.000", "0"), "unstarted-items"),
        (ODD.replace("20.000", "0.000"), "unstarted-items"),
        (ODD.replace("2.500", "700000000000.000"), "endless-events"),  # eight days
    ],
)
def test_gpu_rows_stamped_zero_and_rows_of_days_are_left_out(tmp_path, event, note):
    raw = read_text(tmp_path, with_odd(event))
    assert [row[0] for row in rows(raw)] == ["first", "last"]
    assert [(made.id, made.count) for made in raw.notes] == [(note, 1)]
    assert "idle" in raw.notes[0].forbids, "one event of three is no small share"


LOST = {
    "a hole in the middle": ODD.replace('20.000, "dur"', '20."dur"'),
    "no phase": ODD.replace('"ph": "X", ', ""),
    "an unknown phase": ODD.replace('"X"', '"?"'),
    "not an object": "17",
    "a bare word": "oops",
    "args as text": ODD[: ODD.index('"args"')] + '"args": "none"}',
    "a second colon": ODD.replace('"pid":', '"pid"::'),
}


@pytest.mark.parametrize("event", LOST.values(), ids=LOST)
def test_what_cannot_be_mended_costs_that_event_only(tmp_path, event):
    raw = read_text(tmp_path, with_odd(event))
    assert [row[0] for row in rows(raw)] == ["first", "last"]
    dropped = [note for note in raw.notes if note.id == "dropped-events"]
    assert [note.count for note in dropped] == [1]
    assert f"at byte {with_odd(event).index(event.encode()):,}" in dropped[0].message
    assert "idle" in dropped[0].forbids


@pytest.mark.parametrize("closing", ["}]", "}]}", '}], "k": {}', "}, ]"])
@pytest.mark.parametrize("block", [64, 1 << 19])
def test_a_bracket_amid_an_event_does_not_end_the_list(tmp_path, monkeypatch, closing, block):
    monkeypatch.setattr(_json_stream, "BLOCK_BYTES", block)
    raw = read_text(tmp_path, with_odd(ODD.replace('"odd"', f'"odd"{closing}')))
    assert [row[0] for row in rows(raw)] == ["first", "last"]
    # The part before the bracket is an event without times, the part behind it is none.
    assert {note.id: note.count for note in raw.notes if note.id != "mended-events"} == {
        "dropped-events": 1, "untimed-events": 1,
    }  # fmt: skip


def test_many_broken_events_among_many_are_each_counted(tmp_path):
    # 40,000 events over several blocks; every hundredth cannot be mended, every hundredth has a control character.
    events = [spelled(kernel(f"k{i % 7}", f"{i}.000", "0.500", i + 1)) for i in range(1, 40_001)]
    for i in range(0, 40_000, 100):
        events[i] = events[i].replace('"pid":', '"pid"::')
        events[i + 50] = events[i + 50].replace('"name": "', '"name": "\x02')
    raw = read_text(tmp_path, document(events))
    assert len(raw.items) == 40_000 - 400
    assert {note.id: note.count for note in raw.notes} == {"dropped-events": 400, "mended-events": 400}
    assert raw.items["correlation"].sum() == sum(range(2, 40_002)) - sum(i + 2 for i in range(0, 40_000, 100))
    assert raw.info.event_count == 39_600
    assert next(note for note in raw.notes if note.id == "dropped-events").forbids == (), (
        "one in a hundred is a small share"
    )


def test_lists_nested_without_end_are_no_way_to_crash(tmp_path):
    deep = "[" * 200_000 + "]" * 200_000
    raw = read_text(tmp_path, with_odd(ODD.replace('"context": 1', f'"x": {deep}')))
    assert [row[0] for row in rows(raw)] in (["first", "last"], ["first", "odd", "last"])
    assert len(rows(raw)) == 3 or "dropped-events" in note_ids(raw)


SOUND = [FIRST, ODD, LAST]


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        (document(SOUND).replace("\n]", ",\n]"), ["mended-events"]),
        (document(SOUND).replace(",\n", ",,\n", 1), ["mended-events"]),
        (document(SOUND).replace(",\n", "\n", 1), ["mended-events"]),
        (document(SOUND) + "\0" * 5000, []),
        (document(SOUND) + "\n\n", []),
        ("\ufeff" + document(SOUND), []),
        ("\0\n " + document(SOUND), []),
        ("[" + ",".join(SOUND) + "]", []),
        ("[" + ",".join(SOUND) + "]" + "\0" * 10, []),
        ("[" + ",\n".join(SOUND) + ",\n", ["truncated-file"]),
        (document(SOUND)[: -len('\n], "traceName": "t.json"}')], ["truncated-file"]),
        (document(SOUND)[: -len('\n], "traceName": "t.json"}')] + "\0" * 70_000, ["truncated-file"]),
        (document(SOUND)[:-10], ["unreadable-header"]),
        (document(SOUND, tail=', "traceName": "a ], } [ {"'), []),
        (document(SOUND, tail=r', "traceName": "C:\tmp\qux"'), []),
        (document(SOUND, head=r'"trace_id": "C:\tmp\qux", "x": NaN,'), []),
    ],
)  # fmt: skip
def test_edges_of_the_document(tmp_path, text, notes):
    raw = read_text(tmp_path, text)
    assert rows(raw) == [("first", 10_000, 12_000, 7, 1), ODD_ROW, ("last", 30_000, 32_000, 7, 3)]
    assert note_ids(raw) == notes


@pytest.mark.parametrize("gone", [1, 30, 60, len(LAST) - 1])
def test_a_file_cut_inside_an_event_keeps_all_before_it(tmp_path, gone):
    text = document(SOUND).removesuffix('\n], "traceName": "t.json"}')[:-gone]
    raw = read_text(tmp_path, text)
    assert [row[0] for row in rows(raw)] == ["first", "odd"]
    (note,) = raw.notes
    assert note.id == "truncated-file"
    assert f"at byte {len(text) - (len(LAST) - gone):,} is cut" in note.message
    assert "estimate" in note.forbids


@pytest.fixture(params=["isal", "zlib"])
def gunzip(request, monkeypatch):
    if request.param == "isal":
        module = pytest.importorskip("isal.isal_zlib")
    else:
        import zlib as module
    monkeypatch.setattr(_json_stream, "_zlib", module)


def many(count: int) -> str:
    return document([spelled(kernel(f"name {i * 7919 % 1000}", f"{i}.000", "0.500", i)) for i in range(1, count + 1)])


def test_a_gzip_cut_short_keeps_the_readable_part(tmp_path, gunzip):
    packed = gzip.compress(many(20_000).encode(), mtime=0)
    raw = read_text(tmp_path, packed[: len(packed) // 2])
    assert 5_000 < len(raw.items) < 15_000
    assert raw.items["correlation"].tolist() == list(range(1, len(raw.items) + 1))
    (note,) = raw.notes
    assert (note.id, note.forbids) == ("truncated-file", ("estimate",))
    assert "gzip file is cut short" in note.message


def test_a_gzip_damaged_in_the_middle_keeps_what_comes_before(tmp_path, gunzip):
    packed = bytearray(gzip.compress(many(40_000).encode(), mtime=0))
    middle = len(packed) // 2
    packed[middle : middle + 400] = bytes(400)
    raw = read_text(tmp_path, bytes(packed))
    assert len(raw.items) > 1_000
    assert raw.items["correlation"].iloc[:1000].tolist() == list(range(1, 1001))
    assert "truncated-file" in note_ids(raw)


@pytest.mark.parametrize("padding", [b"", b"\0" * 100_000])
def test_gzip_members_one_after_the_other_are_one_text(tmp_path, gunzip, padding):
    text = many(3_000).encode()
    packed = gzip.compress(text[:100_000]) + gzip.compress(text[100_000:]) + padding
    raw = read_text(tmp_path, packed)
    assert (len(raw.items), raw.notes) == (3_000, ())


REFUSED = {
    "empty": (b"", "empty"),
    "empty gzip": (gzip.compress(b""), "empty"),
    "blanks": (b" \n\0\0", "nothing but blanks"),
    "text": (b"loss 0.31\nloss 0.30\n", "not JSON"),
    "text in gzip": (gzip.compress(b"hello"), "not JSON"),
    "half a gzip header": (b"\x1f\x8b\x08\x00", "no readable byte"),
    "damaged gzip": (b"\x1f\x8b\x08\x00" + bytes(30), "no readable byte"),
    "object without events": (b'{"a": 1}', "no list named traceEvents"),
    "events that are no list": (b'{"traceEvents": {"a": 1}}', "no list named traceEvents"),
    "cut in the header": (b'{"schemaVersion": 1, "deviceProp', "not JSON, or cut"),
    "an ExecutionTrace": (b'{"schema": "1.0.1", "pid": 1, "nodes": [{"id": 2, "name": "x"}]}', "ExecutionTrace"),
    "no events": (b'{"traceEvents": []}', "not one trace event"),
    "a list of numbers": (b"[1, 2, 3]", "not one trace event"),
    "a list of other objects": (b'[{"a": 1}, {"a": 2}]', "not one trace event"),
    "flows only": (document([spelled(flow("1.000", 1))]).encode(), "no kernel, call, op or range"),
    "UTF-16": (document(SOUND).encode("utf-16"), "not JSON"),
}


@pytest.mark.parametrize(("content", "reason"), REFUSED.values(), ids=REFUSED)
def test_refused_in_one_line(tmp_path, content, reason):
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    assert SOURCE.accepts(path, content[:4096]), "a file that calls itself .json is this reader's to refuse"
    with pytest.raises(TraceError, match=reason) as caught:
        read(path, 0)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert caught.value.exit_code == 3


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(TraceError, match="cannot be read"):
        read(tmp_path / "none.json", 0)
    with pytest.raises(TraceError, match="cannot be read"):
        read(tmp_path, 0)


def test_begin_and_end_without_partner_are_counted(tmp_path):
    def edge(phase: str, name: str, ts: str) -> str:
        return spelled({"ph": phase, "name": name, "pid": 1, "tid": 2, "ts": number(ts)})

    events = [
        edge("E", "stray", "1.000"),
        edge("B", "outer", "2.000"),
        edge("B", "inner", "3.000"),
        edge("E", "inner", "4.5"),
    ]
    raw = read_text(tmp_path, document(events))
    assert raw.ranges[["start_ns", "end_ns"]].to_numpy().tolist() == [[3_000, 4_500]]
    assert [(note.id, note.count) for note in raw.notes] == [("unpaired-events", 2)]


def test_broken_text_in_every_block_is_still_linear(tmp_path):
    # A quote in one name of each hundred shifts strings and braces up to the next event; the neighbours must survive.
    events = [spelled(op(f"op{i}", f"{i}.000", "0.500")) for i in range(1, 20_001)]
    for i in range(0, 20_000, 100):
        events[i] = events[i].replace('"op', '"a"op')
    raw = read_text(tmp_path, document(events))
    assert len(raw.ranges) == 20_000
    assert [(note.id, note.count) for note in raw.notes] == [("mended-events", 200)]
    assert raw.ranges["name"].astype(str).iloc[100] == 'a"op101'


def test_the_calls_of_a_mended_file_are_right(tmp_path):
    events = [spelled(launch(f"{i}.000", "0.500", i)).replace('"cbid": 211', '"cbid": NaN') for i in range(1, 50)]
    raw = read_text(tmp_path, document(events))
    assert raw.calls["correlation"].tolist() == list(range(1, 50))
    assert raw.calls["api"].astype(str).unique().tolist() == ["cudaLaunchKernel"]
    assert json.loads(json.dumps([note.count for note in raw.notes])) == [49]


TWENTY = [spelled(kernel(f"k{i}", f"{i}.000", "0.500", i)) for i in range(1, 21)]
WHOLE = document(TWENTY).encode()


@pytest.mark.parametrize("block", [64, 1 << 19])
def test_a_cut_at_any_byte_keeps_every_event_before_it(tmp_path, monkeypatch, block):
    monkeypatch.setattr(_json_stream, "BLOCK_BYTES", block)
    ends = [WHOLE.index(event.encode()) + len(event) for event in TWENTY]
    for at in range(ends[0], len(WHOLE), 29):
        raw = read_text(tmp_path, WHOLE[:at])
        complete = sum(end <= at for end in ends)
        assert [row[4] for row in rows(raw)] == list(range(1, complete + 1)), at
        assert note_ids(raw)[:1] == (["truncated-file"] if at <= WHOLE.rindex(b"]") else ["unreadable-header"]), at


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    where=st.lists(
        st.tuples(st.integers(0, len(WHOLE) - 1), st.binary(min_size=0, max_size=2)), min_size=1, max_size=3
    ),
    block=st.sampled_from([64, 700, 1 << 19]),
)
def test_any_bytes_overwritten_cost_at_most_their_events_and_are_reported(tmp_path, monkeypatch, where, block):
    monkeypatch.setattr(_json_stream, "BLOCK_BYTES", block)
    text = bytearray(WHOLE)
    for at, new in where:
        text[at : at + 2] = new
    try:
        raw = read_text(tmp_path, bytes(text))
    except TraceError as error:
        assert min(at for at, _ in where) <= WHOLE.index(b"["), f"refused only for damage before the events: {error}"
        return
    intact = {i for i, event in enumerate(TWENTY, 1) if event.encode() in bytes(text)}
    found = {row[4] for row in rows(raw)}
    touched = 20 - len(intact)
    assert len(intact - found) <= len(where), "a broken border may take one neighbour with it"
    if intact - found:
        assert {"dropped-events", "truncated-file"} & set(note_ids(raw))
    assert len(rows(raw)) <= 20 + touched
