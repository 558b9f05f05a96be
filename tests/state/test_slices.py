"""The slice of a key never changes, and equal keys have one."""

import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import ProgramError
from anabranch.state.slices import MOST_SLICES, Owners, key_hash, slice_of, slices_for


def hashes(values, dtype):
    return [int(h) for h in key_hash(pl.DataFrame({"k": pl.Series(values, dtype=dtype)}), ["k"])]


OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000123))[0]


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        (
            pl.Int64,
            [0, 1, -1, None],
            [0x33C05415474018A, 0xF3370F0CD5FEAA21, 0xAEC28F9FFF788BEF, 0x296892082658FADB],
        ),
        (pl.UInt64, [2**64 - 1], [0xAEC28F9FFF788BEF]),
        (
            pl.Float64,
            [0.0, 1.5, float("nan"), float("inf")],
            [0x33C05415474018A, 0xF8DFC95F9FB4A542, 0x4389903FEFA1D639, 0xAABD9344AEE9061B],
        ),
        (pl.Boolean, [False, True], [0x33C05415474018A, 0xF3370F0CD5FEAA21]),
        (
            pl.String,
            ["", "a", "abcdefgh", "abcdefghi", "é", "x" * 256, "x" * 257],
            [
                0x33C05415474018A,
                0x7389FBADA04B8C71,
                0xCD2886DEF48D7C3,
                0x16B75D423E4EE0A1,
                0x411554531D721941,
                0xAB2B8FF2C6B4C680,
                0x74D9A5C67A1B125C,
            ],
        ),
        (pl.Binary, [b"a"], [0x7389FBADA04B8C71]),
        (pl.Date, [date(2025, 1, 1)], [0x3952FDC2EF100FAB]),
        (pl.Datetime("us"), [datetime(2025, 1, 1)], [0x5C3616E52D33A9F]),
        (pl.Datetime("us", "UTC"), [datetime(2025, 1, 1, tzinfo=UTC)], [0x5C3616E52D33A9F]),
        (pl.Time, [time(12)], [0x9C391DFA2AE4EC31]),
        (pl.Duration("ms"), [timedelta(1)], [0x2A067E9EE404B0F1]),
        (pl.Decimal(10, 2), [Decimal("1.50")], [0xE1FCED2B304FBDC2]),
        (pl.Null, [None], [0x296892082658FADB]),
    ],
)
def test_hashes_are_part_of_the_format(dtype, values, expected):
    assert expected == hashes(values, dtype)


def test_equal_keys_are_in_one_slice():
    floats = hashes([0.0, -0.0, float("nan"), OTHER_NAN, None, None], pl.Float64)
    assert floats[0] == floats[1]
    assert floats[2] == floats[3]
    assert floats[4] == floats[5]
    assert 3 == len(set(floats))


def test_the_width_of_a_number_does_not_matter():
    assert hashes([1, -5], pl.Int8) == hashes([1, -5], pl.Int64)
    assert hashes([1.5], pl.Float32) == hashes([1.5], pl.Float64)
    noon = [datetime(2025, 1, 1, 12)]
    assert hashes(noon, pl.Datetime("ms")) == hashes(noon, pl.Datetime("us"))


def test_texts_of_one_kind_are_equal_to_those_of_another():
    expected = hashes(["a", None], pl.String)
    assert expected == hashes(["a", None], pl.Categorical)
    assert expected == hashes(["a", None], pl.Enum(["b", "a"]))


@settings(max_examples=200)
@given(st.lists(st.none() | st.text(max_size=40) | st.just("x" * 300), min_size=1))
def test_a_texts_hash_is_its_own_whatever_is_beside_it(texts):
    together = hashes(texts, pl.String)
    assert together == [hashes([text], pl.String)[0] for text in texts]
    assert len(set(texts)) == len(set(together))


@given(st.lists(st.text(max_size=20), min_size=4, max_size=8))
def test_a_slice_of_a_column_hashes_like_a_column(texts):
    frame = pl.DataFrame({"k": texts})
    assert hashes(texts, pl.String)[2:] == [int(h) for h in key_hash(frame[2:], ["k"])]


def test_the_order_of_columns_counts():
    frame = pl.DataFrame({"a": [1], "b": [2]})
    assert key_hash(frame, ["a", "b"])[0] != key_hash(frame, ["b", "a"])[0]


def test_keys_spread_evenly():
    frame = pl.DataFrame({"k": range(12_800)})
    counts = slice_of(frame, ["k"], 128).value_counts()["count"]
    assert 128 == len(counts)
    assert max(counts.to_list()) < 160


def test_no_columns_are_one_slice():
    assert [0, 0] == slice_of(pl.DataFrame({"k": [1, 2]}), [], 128).to_list()


def test_no_rows_have_no_slices():
    for dtype in (pl.String, pl.Int64, pl.Null):
        assert [] == slice_of(pl.DataFrame({"k": []}, schema={"k": dtype}), ["k"], 128).to_list()


def test_owners_are_contiguous_and_even():
    owners = Owners.spread(slices=128, lanes=3)
    assert sorted(owners.of) == list(owners.of)
    assert {42, 43} == {len(owners.slices_of(lane)) for lane in range(3)}
    assert [0, 2] == owners.lane_of(pl.Series([0, 127], dtype=pl.UInt16)).to_list()


@pytest.mark.parametrize(("slices", "lanes"), [(4, 5), (0, 1), (4, 0), (2**16 + 1, 1)])
def test_impossible_owners_are_refused(slices, lanes):
    with pytest.raises(ProgramError):
        Owners.spread(slices=slices, lanes=lanes)


def test_owners_that_leave_a_slice_out_are_refused():
    with pytest.raises(ProgramError, match=r"^every one of 2 slices needs one of 1 lanes"):
        Owners(2, 1, (0,))


def test_nested_keys_are_refused():
    with pytest.raises(ProgramError, match="has no order"):
        slice_of(pl.DataFrame({"k": [[1]]}), ["k"], 128)


@given(st.lists(st.integers(0, 128), min_size=1, max_size=20).filter(sum))
def test_there_are_enough_slices_for_all_cores_and_finding_one_is_cheap(cores):
    slices = slices_for(cores)

    assert 0 == slices & (slices - 1)
    assert 128 <= slices <= MOST_SLICES
    assert slices >= 16 * sum(cores) or slices == MOST_SLICES
    assert slices < 32 * sum(cores) or slices == 128
    assert slices == Owners.spread(slices, sum(cores)).slices


def test_no_more_slices_are_chosen_than_are_allowed():
    assert 100 == slices_for([4, 4], most=100)
    assert 8 == slices_for([4, 4], most=8)


@pytest.mark.parametrize(
    ("cores", "most"),
    [([4, 5], 8), ([40_000, 40_000], MOST_SLICES), ([1], 0), ([1], 2 * MOST_SLICES)],
)
def test_more_cores_than_slices_are_refused(cores, most):
    with pytest.raises(ProgramError, match=r"^[0-9]+ lanes cannot share [0-9]+ slices"):
        slices_for(cores, most)


@pytest.mark.parametrize("cores", [[], [0, 0], [3, -1]])
def test_nodes_without_cores_are_refused(cores):
    with pytest.raises(ProgramError, match=r"cores have no lanes"):
        slices_for(cores)
