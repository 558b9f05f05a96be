import pickle
from datetime import date, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import ProgramError
from anabranch.testing.sources import ABORT, EOF, PAUSE, TestingSource

ITEMS = st.lists(
    st.one_of(
        st.integers(0, 99).map(lambda n: {"n": n}), st.sampled_from([EOF, ABORT, PAUSE("1 s")])
    ),
    max_size=12,
)
N = {"n": pl.Int64}


def rows(source, start, end):
    return [
        row
        for split in source.plan({0: start}, {0: end})
        for batch in source.read(split)
        for row in batch.to_pylist()
    ]


def epochs(source, max_rows):
    """Where a driver would cut."""
    at, end = 0, source.latest()[0]
    while at < end:
        after = source.limit(0, at, end, max_rows)
        yield at, after
        at = after


@settings(deadline=None)  # how fast the machine is says nothing
@given(ITEMS, st.data())
def test_two_ranges_are_the_range_of_both(items, data):
    source = TestingSource(items, schema=N)
    a, b, c = sorted(data.draw(st.integers(0, len(items))) for _ in range(3))

    assert rows(source, a, c) == rows(source, a, b) + rows(source, b, c)
    assert rows(source, a, c) == rows(source, a, c)


@settings(deadline=None)  # how fast the machine is says nothing
@given(ITEMS, st.none() | st.integers(1, 4))
def test_each_control_item_ends_an_epoch(items, max_rows):
    source = TestingSource(items, schema=N)

    cuts = list(epochs(source, max_rows))

    assert [item for item in items if isinstance(item, dict)] == [
        row for start, end in cuts for row in rows(source, start, end)
    ]
    assert all(start < end for start, end in cuts)
    assert all(max_rows is None or len(rows(source, *cut)) <= max_rows for cut in cuts)
    ends = {end for _, end in cuts}
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            assert index + 1 in ends
            assert item == source.control(index + 1)


def test_a_control_item_behind_the_last_of_the_rows_makes_no_epoch_of_its_own():
    source = TestingSource([{"n": 1}, {"n": 2}, EOF, {"n": 3}])

    assert [(0, 3), (3, 4)] == list(epochs(source, 2))


def test_a_row_has_no_control_item():
    source = TestingSource([{"n": 1}, EOF])

    assert [None, None, EOF, None] == [source.control(offset) for offset in range(4)]


def test_an_abort_is_met_once_and_still_ends_its_epoch():
    source = TestingSource([{"n": 1}, ABORT, {"n": 2}])

    assert ABORT is source.control(2)
    source.spend(2)

    assert source.control(2) is None
    assert [(0, 2), (2, 3)] == list(epochs(source, None))


def test_only_an_abort_is_spent():
    source = TestingSource([EOF, PAUSE("1 s")], schema=N)

    source.spend(1)
    source.spend(2)

    assert [EOF, PAUSE("1 s")] == [source.control(1), source.control(2)]


def test_the_control_items_are_attributes_too():
    assert (EOF, ABORT, PAUSE) == (TestingSource.EOF, TestingSource.ABORT, TestingSource.PAUSE)
    assert ["EOF", "ABORT"] == [repr(EOF), repr(ABORT)]


def test_a_pause_takes_a_text_or_a_timedelta():
    assert 500_000 == PAUSE("500 ms").duration
    assert PAUSE("1 s") == PAUSE(timedelta(seconds=1))
    with pytest.raises(ProgramError, match=r"^PAUSE is no duration: 5\n"):
        PAUSE(5)


def test_control_items_keep_their_identity_in_another_process():
    source = pickle.loads(pickle.dumps(TestingSource([{"n": 1}, EOF, PAUSE("1 s")])))

    assert EOF is source.control(2)
    assert PAUSE("1 s") == source.control(3)


def test_it_finishes():
    source = TestingSource([{"n": 1}])

    assert (True, {0: 1}, {0: 1}) == (source.finished(0), source.latest(), source.end())


@pytest.mark.parametrize(
    ("items", "dtype"),
    [
        ([{"v": 1}, {"v": 2.5}], pl.Float64()),
        ([{"v": None}, {"v": 1}], pl.Int64()),
        ([{"v": "a"}, {}], pl.String()),
        ([{"v": [1, 2]}], pl.List(pl.Int64)),
        ([{"v": date(2024, 1, 1)}], pl.Date()),
        ([{"v": None}], pl.Null()),
    ],
)
def test_types_are_those_of_the_values(items, dtype):
    assert pl.Schema({"v": dtype}) == TestingSource([*items, EOF]).schema


def test_a_column_may_come_late():
    source = TestingSource([{"a": 1}, {"b": "x"}])

    assert [{"a": 1, "b": None}, {"a": None, "b": "x"}] == rows(source, 0, 2)


@pytest.mark.parametrize("wrong", [True, 1.5, "1", 2**63, [1]])
def test_a_value_of_another_type_is_refused_by_its_item(wrong):
    with pytest.raises(
        ProgramError, match=r"^TestingSource: item 2 does not fit the schema\n"
    ) as refused:
        TestingSource([{"n": 1}, EOF, {"n": wrong}], schema=N)

    assert f"column 'n' is Int64, got {type(wrong).__name__} {wrong!r}" == refused.value.why


def test_an_unknown_column_is_refused():
    with pytest.raises(ProgramError, match=r"has a column 'm' that the schema has not$"):
        TestingSource([{"m": 1}], schema=N)


def test_something_else_than_a_row_is_refused():
    with pytest.raises(ProgramError, match=r"^TestingSource: item 1 does not fit") as refused:
        TestingSource([{"n": 1}, 7])

    assert "it is a int, not a dict" == refused.value.why


def test_values_of_no_one_type_are_refused():
    with pytest.raises(ProgramError, match=r"^TestingSource: the values of 'v' have no one type\n"):
        TestingSource([{"v": 1}, {"v": "a"}])


def test_no_rows_need_a_schema():
    with pytest.raises(ProgramError, match=r"^TestingSource: no rows and no schema\n"):
        TestingSource([EOF])
    assert pl.Schema(N) == TestingSource([EOF], schema=N).schema
