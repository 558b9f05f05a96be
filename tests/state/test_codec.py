"""Kept values come back as they were, and bytes that nobody wrote are refused."""

import functools
import math
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import CheckpointError
from anabranch.state import classes
from anabranch.state.codec import DEEPEST, decode, encode

ZONES = [None, UTC, timezone(timedelta(hours=-3.5)), ZoneInfo("Europe/Berlin"), ZoneInfo("UTC")]

hashable = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**64), 2**64),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.datetimes(timezones=st.sampled_from(ZONES)),
    st.dates(),
    st.times(timezones=st.sampled_from([None, UTC])),
    st.timedeltas(),
    st.decimals(allow_nan=False),
)
values = st.recursive(
    hashable,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.sets(hashable),
        st.frozensets(hashable),
        st.dictionaries(hashable, inner),
    ),
    max_leaves=12,
)


def same(one, other):
    """Equal in value and in type, down to the sign of zero and the order of dicts."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return math.copysign(1, one) == math.copysign(1, other) and one == other
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, datetime | time):
        return (one, one.fold, str(one.tzinfo)) == (other, other.fold, str(other.tzinfo))
    return one == other


@settings(max_examples=400, deadline=None)
@given(values)
def test_what_is_kept_comes_back(value):
    assert same(value, decode(encode(value)))


@given(values)
def test_the_same_value_has_the_same_bytes(value):
    assert encode(value) == encode(decode(encode(value)))


@given(st.sets(st.integers()))
def test_a_set_has_one_encoding_whatever_its_order(members):
    assert encode(set(members)) == encode({*sorted(members, reverse=True)})


def test_nan_is_nan():
    assert math.isnan(decode(encode(math.nan)))
    assert encode(math.nan) == encode(-math.nan)


def test_an_hour_that_comes_twice_is_told_apart():
    berlin = ZoneInfo("Europe/Berlin")
    first = datetime(2025, 10, 26, 2, 30, tzinfo=berlin)
    second = first.replace(fold=1)
    assert first.utcoffset() == decode(encode(first)).utcoffset()
    assert second.utcoffset() == decode(encode(second)).utcoffset()


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (None, "014e"),
        (True, "0154"),
        (1, "01690100000000000000"),
        (2**63, "014909000000000000008000"),
        (-0.0, "01640000000000000080"),
        ("é", "017302c3a9"),
        (b"\x00", "01620100"),
        (date(1970, 1, 1), "01613bf90a00"),
        (datetime(1970, 1, 1), "016d0000000000000000004e"),
        (datetime(1970, 1, 1, tzinfo=UTC), "016d0000000000000000006f0000000000000000000000004e"),
        (datetime(1970, 1, 1, tzinfo=ZoneInfo("UTC")), "016d0000000000000000007a03555443"),
        (time(0, 0, 1), "017440420f0000000000004e"),
        (timedelta(-1), "016cffffffff0000000000000000"),
        (Decimal("1.50"), "016504312e3530"),
        ([1, "a"], "014c02690100000000000000730161"),
        (("a",), "015501730161"),
        ({"b", "a"}, "015302730161730162"),
        ({"k": None}, "014401" + "73016b" + "4e"),
    ],
)
def test_the_bytes_are_part_of_the_format(value, code):
    assert code == encode(value).hex()
    assert same(value, decode(bytes.fromhex(code)))


class Colour(IntEnum):
    RED = 1


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "value", [object(), Colour.RED, Point(1, 2), OrderedDict(a=1), bytearray(b"x"), 1j, print]
)
def test_other_types_are_refused_by_name(value):
    with pytest.raises(TypeError, match=f"^a {type(value).__name__} cannot be kept$"):
        encode([value])


def test_a_value_that_contains_itself_is_refused():
    loop: list = []
    loop.append(loop)
    with pytest.raises(TypeError, match=f"more than {DEEPEST} deep"):
        encode(loop)


@settings(max_examples=300)
@given(values, st.data())
def test_what_is_cut_short_or_has_a_tail_is_refused(value, data):
    code = encode(value)
    cut = data.draw(st.integers(0, len(code) - 1))
    for wrong in (code[:cut], code + b"N"):
        with pytest.raises(CheckpointError):
            decode(wrong)


@settings(max_examples=500)
@given(st.binary(max_size=40))
def test_any_bytes_are_a_value_or_refused(noise):
    try:
        value = decode(b"\x01" + noise)
    except CheckpointError:
        return
    encode(value)


@pytest.mark.parametrize(
    "code",
    [
        b"",
        b"\x02N",
        b"\x01?",
        b"\x01L\xff\xff\xff\xff\x0f",  # a count beyond the end
        b"\x01s\x80" + b"\x80" * 12,  # a length without an end
        b"\x01I\x01\x05",  # a small number in the long form
        b"\x01" + b"L\x01" * 1000 + b"N",
        b"\x01S\x02TT",
        b"\x01D\x02TNTN",
        b"\x01D\x01L\x00N",  # a list for a key
        b"\x01m" + b"\xff" * 7 + b"\x7f\x00N",  # beyond the last year
        b"\x01m" + bytes(8) + b"\x00z\x07Nowhere",
    ],
)
def test_nonsense_is_refused(code):
    with pytest.raises(CheckpointError, match=r"^a kept value "):
        decode(code)


# Dataclasses


@dataclass
class Spot:
    x: int
    tags: list = field(default_factory=list)

    def __post_init__(self):
        message = "never called to decode"
        if self.x == 7:
            raise AssertionError(message)


@dataclass(frozen=True, slots=True)
class Leg:
    begin: Spot | None
    end: "Spot"


@dataclass
class Words(dict):
    x: int


def test_a_dataclass_comes_back_field_by_field_and_none_of_its_code_runs():
    spot = Spot(1, ["a"])
    spot.x = 7
    leg = Leg(None, spot)
    found = decode(encode({"leg": [leg]}))
    assert found == {"leg": [leg]}
    assert type(found["leg"][0]) is Leg
    assert encode(leg) == encode(found["leg"][0])


def test_the_bytes_of_a_dataclass_are_part_of_the_format():
    made = make_dataclass("Spot", ["x", "tags"], namespace={"__module__": "m"})
    code = "01" + "43" + "066d2e53706f74" + "02" + "0178" + "4e" + "0474616773" + "4c00"
    assert code == encode(made(None, [])).hex()
    assert made(None, []) == decode(bytes.fromhex(code))


def test_a_class_that_the_program_does_not_have_is_never_looked_for():
    code = encode(Spot(1)).replace(b"Spot", b"Spqr")
    with pytest.raises(CheckpointError, match=r"Spqr, and no operator of this program refers to"):
        decode(code)
    evil = b"\x01C" + bytes([len(b"subprocess.Popen")]) + b"subprocess.Popen" + b"\x00"
    with pytest.raises(CheckpointError, match=r"a kept value is a subprocess\.Popen"):
        decode(evil)


def test_other_fields_than_the_class_has_are_refused():
    code = encode(Spot(1)).replace(b"\x04tags", b"\x04tugs")
    with pytest.raises(CheckpointError, match="has other fields than the class has now"):
        decode(code)


def test_a_dataclass_that_is_more_than_its_fields_is_refused():
    spot = Spot(1)
    spot.more = 2
    with pytest.raises(TypeError, match=r"^a Spot with an attribute 'more' cannot be kept$"):
        encode(spot)
    with pytest.raises(TypeError, match=r"^a Words cannot be kept$"):
        encode(Words(1))
    with pytest.raises(TypeError, match=r"^a type cannot be kept$"):
        encode(Spot)


def uses(record, state, *, given: "dict[str, Leg] | None" = None):
    def inner():
        return Leg(None, record)

    state.value = inner()
    return given


class Uses:
    made = Leg

    def method(self, record: Spot) -> None:
        """Name a class in an annotation only."""


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (uses, {"Leg", "Spot"}),
        (functools.partial(uses, state=None), {"Leg", "Spot"}),
        (Uses().method, {"Leg", "Spot"}),
        (Spot, {"Spot"}),
        (len, set()),
        (pl.col("x").sum, set()),
    ],
)
def test_the_classes_that_a_function_refers_to_are_known(monkeypatch, one, expected):
    monkeypatch.setattr(classes, "_KNOWN", {})
    classes.know_all(one)
    assert expected == {kind.__name__ for kind in classes._KNOWN.values()}
