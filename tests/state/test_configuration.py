"""Who works where: versions follow each other, and nothing strange is read back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import CheckpointError, ProgramError
from anabranch.state.configuration import Configuration
from anabranch.state.slices import Owners

ONE_PLACE = Configuration(0, Owners.spread(slices=8, lanes=2))
TWO_PLACES = Configuration(4, Owners.spread(slices=8, lanes=2), ("a", "b"))


@st.composite
def configurations(draw):
    slices = draw(st.integers(1, 12))
    lanes = draw(st.integers(1, slices))
    of = draw(st.lists(st.integers(0, lanes - 1), min_size=slices, max_size=slices))
    names = draw(st.lists(st.text(max_size=3), min_size=lanes, max_size=lanes))
    version = draw(st.integers(0, 2**40))
    return Configuration(version, Owners(slices, lanes, tuple(of)), tuple(names))


@given(configurations())
def test_what_is_written_is_read_back(configuration):
    text = json.dumps(configuration.as_json())

    assert configuration == Configuration.from_json(json.loads(text))


@given(configurations())
def test_every_slice_is_on_one_executor(configuration):
    found = configuration.slices_by_executor()

    slices = [number for each in found.values() for number in each]
    assert list(range(configuration.owners.slices)) == sorted(slices)
    for name in configuration.executors:
        lanes = configuration.lanes_on(name)
        assert {configuration.owners.of[number] for number in found[name]} <= set(lanes)


@given(configurations(), st.data())
def test_a_next_version_comes_with_a_change_and_with_nothing_else(configuration, data):
    lanes = data.draw(st.none() | st.integers(1, configuration.owners.slices))

    after = configuration.next(lanes=lanes)

    changed = (after.owners, after.executors) != (configuration.owners, configuration.executors)
    assert configuration.version + changed == after.version
    assert changed or after is configuration


def test_slices_move_as_their_owners_do():
    after = TWO_PLACES.next(lanes=3, executors=("a", "b", "c"))

    assert TWO_PLACES.owners.moved_to(3) == after.owners
    assert ("a", "b", "c") == after.executors
    assert 5 == after.version


def test_costs_alone_move_slices_at_the_same_width():
    after = TWO_PLACES.next(costs=[9, 9, 1, 1, 1, 1, 1, 1])

    assert after.owners.of[0] != after.owners.of[1]
    assert TWO_PLACES is TWO_PLACES.next(costs=[1] * 8)


def test_where_there_is_one_place_none_is_named():
    assert ("", "") == ONE_PLACE.executors
    assert ("", "", "") == ONE_PLACE.next(lanes=3).executors
    assert ("a",) == TWO_PLACES.next(lanes=1).executors


def test_a_place_for_every_lane_is_needed():
    with pytest.raises(ValueError, match=r"^version 5: 2 executors named for 3 lanes$"):
        TWO_PLACES.next(lanes=3, executors=("a", "b"))


def test_more_lanes_than_slices_are_refused():
    with pytest.raises(ProgramError, match=r"^9 lanes cannot share 8 slices"):
        TWO_PLACES.next(lanes=9)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"version": -1}, "'version': below 0: -1"),
        ({"version": True}, "'version': not a whole number: True"),
        ({"lanes": 0, "executors": []}, "at least one of each is needed"),
        ({"lanes": 3}, "2 executors are named for 3 lanes"),
        ({"owners": [0, 2]}, "every one of 2 slices needs one of 2 lanes"),
        ({"owners": []}, "at least one of each is needed"),
        ({"owners": "01"}, "'owners': not a list"),
        ({"executors": ["a", 7]}, "'executors': not text: 7"),
        ({"latch": 1}, "unknown key 'latch'"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_file(change, why):
    content = {**TWO_PLACES.as_json(), **change}

    with pytest.raises(CheckpointError) as refused:
        Configuration.from_json(content, "epochs/4")

    assert "checkpoint file epochs/4 cannot be read" == refused.value.what
    assert why in refused.value.why


@pytest.mark.parametrize("key", ["version", "lanes", "owners", "executors"])
def test_every_key_is_needed(key):
    content = {name: value for name, value in TWO_PLACES.as_json().items() if name != key}

    with pytest.raises(CheckpointError, match=f"key '{key}' is missing"):
        Configuration.from_json(content)


@pytest.mark.parametrize("content", [None, [], "x", 1])
def test_anything_but_an_object_is_refused(content):
    with pytest.raises(CheckpointError, match="not an object"):
        Configuration.from_json(content)
