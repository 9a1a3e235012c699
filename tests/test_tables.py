"""Schemas make frames with exactly their columns, or refuse."""

import pandas as pd
import pytest

from advisor.tables import CALLS, GAPS, ITEMS, RANGES, Schema

SMALL = Schema("small", {"start_ns": "int64", "end_ns": "int64", "name": "category", "id": "Int64"})


def test_columns_dtypes_and_missing_values():
    frame = SMALL.build({"start_ns": [1, 2], "end_ns": [2, 3], "name": ["a", "b"]})
    assert [str(dtype) for dtype in frame.dtypes] == ["int64", "int64", "category", "Int64"]
    assert frame["id"].isna().all()


def test_extra_columns_are_dropped_and_order_is_the_schemas():
    frame = SMALL.build({"other": [1], "id": [5], "name": ["a"], "end_ns": [2], "start_ns": [1]})
    assert list(frame.columns) == ["start_ns", "end_ns", "name", "id"]


def test_what_cannot_be_missing_is_named():
    with pytest.raises(KeyError, match="start_ns"):
        SMALL.build({"end_ns": [1], "name": ["a"]})


def test_a_row_cannot_end_before_it_starts():
    with pytest.raises(ValueError, match="ends before it starts"):
        SMALL.build({"start_ns": [5], "end_ns": [4], "name": ["a"]})


@pytest.mark.parametrize("schema", [ITEMS, CALLS, RANGES, GAPS])
def test_empty_tables_keep_their_dtypes(schema):
    frame = schema.empty()
    assert len(frame) == 0
    assert {column: str(dtype) for column, dtype in frame.dtypes.items()} == dict(schema.columns)
    assert isinstance(frame, pd.DataFrame)
