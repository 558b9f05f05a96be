"""Slices change lanes as seldom as they can, and the load is even afterwards."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import ProgramError
from anabranch.state.balance import REBALANCE_ABOVE, REBALANCE_GAIN, shares
from anabranch.state.slices import MOST_SLICES, Owners


@st.composite
def some_owners(draw, most=24):
    """Any owners, also such as no move would have made."""
    slices = draw(st.integers(1, most))
    lanes = draw(st.integers(1, slices))
    of = draw(st.lists(st.integers(0, lanes - 1), min_size=slices, max_size=slices))
    return Owners(slices, lanes, tuple(of))


def some_costs(slices):
    """Like ones, any, and some that are far above the rest."""
    any_cost = st.floats(0, 1e6, allow_subnormal=False)
    cost = any_cost | st.sampled_from([0.0, 1.0, 10.0, 11.0, 100.0])
    return st.lists(cost, min_size=slices, max_size=slices)


@st.composite
def a_move(draw):
    """Owners, a width and costs."""
    owners = draw(some_owners())
    lanes = draw(st.integers(1, owners.slices))
    return owners, lanes, draw(st.none() | some_costs(owners.slices))


def counts(owners):
    return [owners.of.count(lane) for lane in range(owners.lanes)]


def loads(owners, costs):
    found = [0] * owners.lanes
    for number, cost in enumerate(shares(costs, owners.slices)):
        found[owners.of[number]] += cost
    return found


def fewest_moves(owners, lanes):
    """How many slices must move for counts that differ by at most one, by counting.

    Each lane keeps no more than its share; the shares that are one greater go to lanes that have
    so many.
    """
    share, greater = divmod(owners.slices, lanes)
    stay = [owners.of.count(lane) for lane in range(min(lanes, owners.lanes))]
    kept = sum(min(count, share) for count in stay)
    return owners.slices - kept - min(greater, sum(count > share for count in stay))


@given(a_move())
def test_every_slice_has_a_lane_of_the_new_width(move):
    owners, lanes, costs = move

    found = owners.moved_to(lanes, costs)

    assert (owners.slices, lanes) == (found.slices, found.lanes)
    assert set(found.of) <= set(range(lanes))


@given(some_owners(), st.data())
def test_equal_slices_are_spread_evenly_with_the_fewest_moves(owners, data):
    lanes = data.draw(st.integers(1, owners.slices).filter(lambda n: n != owners.lanes))
    costs = data.draw(st.none() | st.floats(0, 1e9).map(lambda cost: [cost] * owners.slices))

    found = owners.moved_to(lanes, costs)

    assert max(counts(found)) - min(counts(found)) <= 1
    assert fewest_moves(owners, lanes) == len(found.moves(owners))


@given(a_move())
def test_what_is_in_a_lane_that_ends_moves_and_nothing_goes_there(move):
    owners, lanes, costs = move
    moves = owners.moved_to(lanes, costs).moves(owners)

    ended = {number for number, lane in enumerate(owners.of) if lane >= lanes}
    assert ended <= set(moves)


@given(a_move())
def test_to_move_twice_is_to_move_once(move):
    owners, lanes, costs = move

    once = owners.moved_to(lanes, costs)

    assert once is once.moved_to(lanes, costs)


@given(a_move().filter(lambda move: move[1] != move[0].lanes))
def test_no_slice_could_go_from_the_most_to_the_least_loaded_lane_for_the_better(move):
    """But for hot slices, which keep their lanes, and differences below a twentieth of a share."""
    owners, lanes, costs = move
    found = owners.moved_to(lanes, costs)
    cost, load = shares(costs, owners.slices), loads(found, costs)
    fair = sum(cost) / lanes

    for number, lane in enumerate(found.of):
        gap = load[lane] - min(load)
        assert gap <= cost[number] or gap <= fair / 20 or cost[number] > fair / 2


@settings(max_examples=150)
@given(some_owners(most=8), st.data())
def test_the_hottest_slices_are_in_different_lanes_as_far_as_lanes_allow(owners, data):
    """Hot: above half of a fair share. The hottest slices of the lanes are the hottest of all."""
    lanes = data.draw(st.integers(1, owners.slices).filter(lambda n: n != owners.lanes))
    costs = data.draw(st.lists(st.integers(0, 9), min_size=owners.slices, max_size=owners.slices))
    found = owners.moved_to(lanes, costs)
    cost = shares(costs, owners.slices)
    hot = sum(cost) / lanes / 2

    hottest = sorted((each for each in cost if each > hot), reverse=True)[:lanes]
    tops = [max((cost[n] for n in found.slices_of(lane)), default=0) for lane in range(lanes)]
    assert hottest == sorted((each for each in tops if each > hot), reverse=True)


@given(some_owners(), st.data())
def test_at_the_same_width_nothing_moves_unless_it_is_worth_it(owners, data):
    costs = data.draw(st.none() | some_costs(owners.slices))
    before = loads(owners, costs)
    mean = sum(before) / owners.lanes

    found = owners.moved_to(owners.lanes, costs)

    if max(before) <= REBALANCE_ABOVE * mean:
        assert found is owners
    assert found is owners or max(loads(found, costs)) <= REBALANCE_GAIN * max(before)


@given(a_move(), st.floats(1e-3, 1e3))
def test_the_unit_of_costs_does_not_matter_for_equal_ones(move, unit):
    owners, lanes, _ = move
    expected = owners.moved_to(lanes)

    assert expected == owners.moved_to(lanes, [unit] * owners.slices)


@given(a_move())
def test_moves_are_what_changed_and_gains_are_moves_by_lane(move):
    owners, lanes, costs = move
    found = owners.moved_to(lanes, costs)

    moves = found.moves(owners)

    assert {n: (owners.of[n], found.of[n]) for n in moves} == moves
    assert all(owners.of[n] == found.of[n] for n in range(owners.slices) if n not in moves)
    gained = [found.gained(owners, lane) for lane in range(lanes)]
    assert sorted(moves) == sorted(number for each in gained for number in each)


def test_a_lane_more_takes_its_share_and_nothing_else_moves():
    before = Owners.spread(slices=128, lanes=3)

    after = before.moved_to(4)

    assert [32] * 4 == counts(after)
    assert 32 == len(after.moves(before))
    assert {3} == {target for _, target in after.moves(before).values()}


def test_a_lane_fewer_gives_its_slices_to_all_others():
    before = Owners.spread(slices=128, lanes=4)

    after = before.moved_to(3)

    assert [42, 43, 43] == sorted(counts(after))
    assert {3} == {source for source, _ in after.moves(before).values()}


def test_slices_without_load_are_spread_too():
    """One hot slice stays where it is, alone; what costs nothing today goes to the new lane."""
    before = Owners.spread(slices=128, lanes=1)

    after = before.moved_to(2, [1.0, *[0.0] * 127])

    assert (0,) == after.slices_of(0)


def test_slices_are_not_moved_for_differences_that_no_measure_shows():
    """The new lane takes 16 of the 64 dear slices; none of the cheap ones, for the last percent."""
    before = Owners.spread(slices=128, lanes=3)

    after = before.moved_to(4, [1 if number % 2 else 0.02 for number in range(128)])

    assert 16 == len(after.moves(before))


def test_a_load_that_is_a_fifth_above_the_mean_is_left_alone():
    """12 slices here and 8 there: moving two would lower the greatest load by a sixth."""
    uneven = Owners(20, 2, (*[0] * 12, *[1] * 8))
    more_uneven = Owners(20, 2, (*[0] * 13, *[1] * 7))

    assert uneven is uneven.moved_to(2)
    assert [10, 10] == counts(more_uneven.moved_to(2))


def test_a_slice_that_must_move_does_not_go_to_another_hot_one_though_least_is_there():
    """Lane 2 ends. Lane 0 has 4 + 4, lane 1 has 6: by load alone 8 would go to the 6."""
    before = Owners.spread(slices=4, lanes=3)
    assert (0, 0, 1, 2) == before.of

    after = before.moved_to(2, [4, 4, 6, 8])

    assert after.of[2] != after.of[3]


def test_two_hot_slices_part_at_the_same_width():
    before = Owners.spread(slices=8, lanes=2)

    after = before.moved_to(2, [50, 40, 1, 1, 1, 1, 1, 1])

    assert after.of[0] != after.of[1]


def test_a_slice_too_hot_for_a_lane_does_not_make_others_move_again_and_again():
    """Once it is alone nothing more can be won, whatever the others cost this time."""
    alone = Owners.spread(slices=128, lanes=2).moved_to(2, [500.0, *[1.0] * 127])
    assert (0,) == alone.slices_of(0)

    noisy = [500.0, *[1.0 + number % 7 / 7 for number in range(127)]]
    assert alone is alone.moved_to(2, noisy)


def test_as_many_slices_as_there_can_be_are_moved_at_once():
    before = Owners.spread(slices=MOST_SLICES, lanes=1)

    after = before.moved_to(8, [float(number % 5) for number in range(MOST_SLICES)])

    found = loads(after, [float(number % 5) for number in range(MOST_SLICES)])
    assert max(found) - min(found) <= sum(found) / MOST_SLICES


@pytest.mark.parametrize("lanes", [5, 0, -1])
def test_impossible_widths_are_refused(lanes):
    with pytest.raises(ProgramError):
        Owners.spread(slices=4, lanes=2).moved_to(lanes)


@pytest.mark.parametrize("costs", [[], [1.0] * 5, [1.0, -1.0, 1.0, 1.0], [float("nan")] * 4])
def test_impossible_costs_are_refused(costs):
    with pytest.raises(ValueError, match=r"^4 slices need as many costs from 0, got "):
        Owners.spread(slices=4, lanes=2).moved_to(3, costs)


def test_other_slices_are_no_move():
    with pytest.raises(ValueError, match=r"^4 slices cannot become 8$"):
        Owners.spread(slices=8).moves(Owners.spread(slices=4))
