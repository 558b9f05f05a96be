"""Rows of several inputs have the places that a sort of all their order columns gives (M5)."""

from unittest import mock

import hypothesis.strategies as st
import polars as pl
from hypothesis import given

from anabranch.kernels.bundle import OFFSET, PARTITION, PHASE, key_part, order_columns, sub
from anabranch.kernels.together import arrival

VALUES = {
    PHASE: st.sampled_from([None, 1]),
    PARTITION: st.integers(0, 2),
    OFFSET: st.sampled_from([-(2**62), -1, 0, 1, 2, 5, 2**40, 2**62, 2**63 - 1]),
    sub(3): st.integers(0, 3),
    key_part(4, 0): st.sampled_from([None, "", "a", "b"]),
}
TYPES = {
    PHASE: pl.Int8,
    PARTITION: pl.Int32,
    OFFSET: pl.Int64,
    sub(3): pl.Int64,
    key_part(4, 0): pl.String,
}


@st.composite
def bundles(draw, names):
    rows = draw(st.lists(st.tuples(*(VALUES[name] for name in names)), max_size=6))
    frame = pl.DataFrame(rows, schema={name: TYPES[name] for name in names}, orient="row")
    return frame.sort(order_columns(names), maintain_order=True)


@st.composite
def several(draw):
    """Inputs in order, some with fewer columns than others."""
    columns = st.lists(st.sampled_from(list(VALUES)), unique=True).map(lambda some: {*some, OFFSET})
    same = draw(st.none() | columns)
    return [
        draw(bundles([name for name in VALUES if name in (same or draw(columns))]))
        for _ in range(draw(st.integers(1, 3)))
    ]


@given(inputs=several(), dense=st.sampled_from([0, arrival._DENSE]))
def test_places_are_those_of_a_sort(inputs, dense):
    with mock.patch.object(arrival, "_DENSE", dense):
        found = arrival.places(inputs)

    expected = arrival._sorted(inputs)
    assert [each.tolist() for each in expected] == [each.tolist() for each in found]


def test_rows_of_several_partitions_need_no_sort(monkeypatch):
    monkeypatch.setattr(arrival, "_sorted", None)
    one = pl.DataFrame({PARTITION: [0, 0, 1], OFFSET: [5, 9, 2], sub(3): [0, 0, 0]})
    two = pl.DataFrame({PARTITION: [0, 1, 2], OFFSET: [7, 1, 0], sub(3): [0, 0, 0]})

    assert [[0, 2, 4], [1, 3, 5]] == [each.tolist() for each in arrival.places([one, two])]
