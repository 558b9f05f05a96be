"""Files of deltas: read back as they were written, or refused."""

import random
import struct

import polars as pl
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import CheckpointError
from anabranch.state.delta import Delta, check_chain, pack, unpack


def frame(slices, **columns):
    series = [pl.Series("slice", slices, pl.UInt16)]
    return pl.DataFrame([*series, *(pl.Series(name, each) for name, each in columns.items())])


def delta(rows=None, **changes):
    values = {"lane": 1, "run": 2, "first": 4, "last": 6, "id": "0a", "watermark": 99}
    rows = frame([2, 2, 9], n=[1, 2, 3], name=["a", None, "ü"]) if rows is None else rows
    return Delta("count", frame=rows, **(values | changes))


def test_what_is_packed_is_unpacked():
    packed = delta(parent="09", kind="snapshot")

    found = unpack(pack(packed))

    assert packed == found
    assert packed.frame.equals(found.frame)
    assert packed.frame.schema == found.frame.schema
    assert "state/count/0000000006_2_1_0a.snap" == found.path


def test_packing_is_deterministic():
    assert pack(delta()) == pack(delta())


def test_rows_are_sorted_by_slice_and_stay_in_order_within():
    found = delta(frame([9, 2, 9, 0], n=[1, 2, 3, 4]))

    assert [0, 2, 9, 9] == found.frame["slice"].to_list()
    assert {0: (0, 1), 2: (1, 1), 9: (2, 2)} == found.index
    assert [1, 3] == found.of_slice(9)["n"].to_list()
    assert 0 == len(found.of_slice(5))


@given(st.lists(st.integers(0, 65535)))
def test_the_index_finds_every_row(slices):
    found = unpack(pack(delta(frame(slices, n=list(range(len(slices)))))))

    for each in set(slices):
        expected = [row for row, slice_ in enumerate(slices) if slice_ == each]
        assert expected == found.of_slice(each)["n"].to_list()
    assert set(slices) == found.index.keys()


@pytest.mark.parametrize("rows", [frame([]), frame([], n=[]), frame([1] * 1000, n=range(1000))])
def test_empty_and_long_frames(rows):
    assert rows.equals(unpack(pack(delta(rows))).frame)


def test_every_length_but_its_own_is_refused():
    data = pack(delta())

    for length in range(len(data)):
        with pytest.raises(CheckpointError, match=r"^checkpoint file d cannot be read"):
            unpack(data[:length], "d")
    with pytest.raises(CheckpointError):
        unpack(data + b"\0", "d")


def test_every_flipped_bit_is_refused():
    data = pack(delta())

    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CheckpointError):
            unpack(bytes(flipped), "d")


@settings(max_examples=300)
@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_any_other_damage_is_refused(rng: random.Random, length):
    data = bytearray(pack(delta()))
    at = rng.randrange(len(data) - length)
    damage = rng.choice([b"\0" * length, rng.randbytes(length), bytes(data[:length])])
    before = bytes(data)
    data[at : at + length] = damage

    if bytes(data) != before:
        with pytest.raises(CheckpointError):
            unpack(bytes(data), "d")


@given(st.binary())
def test_anything_else_is_refused(data):
    with pytest.raises(CheckpointError):
        unpack(data, "d")


def test_another_version_is_told_from_damage():
    data = pack(delta()).replace(b"delta v2\n", b"delta v3\n", 1)

    with pytest.raises(CheckpointError, match=r"^checkpoint file d was written by a newer version"):
        unpack(data, "d")


def forged(body, trailer):
    body = b"anabranch delta v2\n" + body
    trailer = trailer.replace(b"LENGTH", b"%d" % len(body)).replace(b"CRC", b"%d" % crc32c(body))
    return body + trailer + struct.pack("<II8s", len(trailer), crc32c(trailer), b"ABDELTA1")


@pytest.mark.parametrize("body", [b"", b"\x80\x04K\x01.", b"\xff" * 64, b"ARROW1\0\0" * 10])
def test_rows_that_are_not_arrow_are_refused(body):
    trailer = (
        b'{"operator":"count","lane":0,"run":1,"epochs":[0,0],"id":"a","parent":null,'
        b'"watermark":null,"kind":"delta","index":[],"length":LENGTH,"crc32c":CRC}'
    )

    with pytest.raises(CheckpointError):
        unpack(forged(body, trailer), "d")


def test_a_frame_without_slices_is_no_delta():
    for rows in (pl.DataFrame({"n": [1]}), pl.DataFrame({"slice": [1]}), frame([None])):
        with pytest.raises(ValueError, match="delta"):
            delta(rows)


def test_a_chain_is_of_deltas_that_follow_each_other():
    first = delta(first=0, last=1, id="a")
    second = delta(first=2, last=2, id="b", parent="a")
    loser = delta(first=2, last=2, id="c", parent="x")

    check_chain([first, second])
    with pytest.raises(CheckpointError, match="it follows 'x'"):
        check_chain([first, loser])
    with pytest.raises(CheckpointError):
        check_chain([second, first])


def test_an_older_format_is_refused_by_its_name():
    data = pack(delta()).replace(b"delta v2\n", b"delta v1\n", 1)
    with pytest.raises(CheckpointError, match="its format is v1, this version reads v2 alone"):
        unpack(data)


def test_what_divides_the_slices_is_kept():
    for key in (None, ("k",), ("k", "n")):
        assert key == unpack(pack(delta(slice_key=key))).slice_key
