"""Who works where: versions follow each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import ProgramError
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


@given(configurations(), st.data())
def test_a_next_version_comes_with_a_change_and_with_nothing_else(configuration, data):
    lanes = data.draw(st.integers(1, configuration.owners.slices))
    same = lanes == configuration.lanes

    after = configuration.then(
        configuration.owners.moved_to(lanes), configuration.executors if same else ()
    )

    changed = (after.owners, after.executors) != (configuration.owners, configuration.executors)
    assert configuration.version + changed == after.version
    assert changed or after is configuration


def test_where_there_is_one_place_none_is_named():
    assert ("", "") == ONE_PLACE.executors
    assert ("", "", "") == ONE_PLACE.then(ONE_PLACE.owners.moved_to(3)).executors


def test_a_place_for_every_lane_is_needed():
    with pytest.raises(ValueError, match=r"^version 5: 2 executors named for 3 lanes$"):
        TWO_PLACES.then(TWO_PLACES.owners.moved_to(3), ("a", "b"))


def test_more_lanes_than_slices_are_refused():
    with pytest.raises(ProgramError, match=r"^9 lanes cannot share 8 slices"):
        TWO_PLACES.then(TWO_PLACES.owners.moved_to(9))
