"""What the tool writes into a trace it reads back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.marks import KINDS, Mark, Span, decode, encode, parse_span, span_label


@given(st.text(max_size=30), st.sampled_from(KINDS), st.integers(0, 10_000))
def test_round_trip(label, kind, number):
    assert decode(encode(label, kind, number)) == Mark(label, kind, number)


@pytest.mark.parametrize("text", ["", "aten::add", "train.py:12 [cga:nosuch:1]", "train.py:12 [cga:stmt:x]", "[cga:stmt:1]"])
def test_other_ranges_are_not_the_tools(text):
    assert decode(text) is None


def test_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="nosuch"):
        encode("x", "nosuch", 1)


def test_spans():
    assert span_label("a/train.py", 12, 17) == "a/train.py:12-17"
    assert span_label("train.py", 12, 12) == "train.py:12"
    assert parse_span("a/train.py:12-17") == Span("a/train.py", 12, 17)
    assert parse_span("train.py:12") == Span("train.py", 12, 12)
    assert parse_span("decode") is None
