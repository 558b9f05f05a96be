"""How many lanes: simulated loads on simulated machines, one view a second of virtual time."""

from dataclasses import dataclass, replace
from itertools import pairwise
from math import log2, pi, sin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.scheduling.autoscaler import Autoscaler, Decision, Habits, View

SLOTS = 16


def linear(lanes):
    return 100.0 * lanes


def contended(contention, crosstalk):
    """Rows per second by width after Gunther's universal scalability law: more may be slower."""

    def rows(lanes):
        lost = contention * (lanes - 1) + crosstalk * lanes * (lanes - 1)
        return 100.0 * lanes / (1 + lost)

    return rows


@dataclass
class Run:
    """What happened: the width at each view, the reasons, the rows that waited."""

    widths: list
    reasons: list
    backlogs: list

    @property
    def changes(self):
        return sum(before != after for before, after in pairwise(self.widths))

    def story(self):
        """Each change with its reason."""
        told = zip(pairwise(self.widths), self.reasons, strict=False)
        return "".join(
            f"{at:4d}  {before:2d} -> {after:2d}  {why}\n"
            for at, ((before, after), why) in enumerate(told)
            if before != after
        )


def simulate(capacity, load, views, *, start=1, noise=lambda at: 1.0, habits=None):
    """A second at a time: rows come, as many are done as the width can, the rest waits."""
    policy, lanes, backlog, rates = Autoscaler(habits or Habits()), start, 0.0, {}
    run = Run([start], [], [])
    for at in range(views):
        able = capacity(lanes) * noise(at)
        backlog += load(at)
        needed, done = backlog / able, min(backlog, able)
        backlog -= done
        rates[lanes] = done
        view = View(lanes, SLOTS, 128, round(backlog), dict(rates), 1 - needed, done / able, 1.0)
        policy, decision = policy.decide(view)
        lanes = decision.lanes
        run.widths.append(lanes)
        run.reasons.append(decision.because)
        run.backlogs.append(backlog)
    return run


def peak(capacity):
    return max(capacity(lanes) for lanes in range(1, SLOTS + 1))


def test_a_step_is_followed_and_what_waited_is_caught_up_with():
    run = simulate(linear, lambda at: 50 if at < 50 else 700, 400)

    assert {1} == set(run.widths[:50])
    assert linear(run.widths[-1]) >= 700
    assert run.widths[-1] < SLOTS
    assert 0 == run.backlogs[-1]
    assert run.changes <= 6


def test_a_spike_of_a_view_or_two_is_left_alone():
    run = simulate(linear, lambda at: 250 if at in (50, 51) else 150, 200, start=3)

    assert {3} == set(run.widths)


def test_what_will_soon_be_caught_up_with_is_left_alone():
    """1,500 rows more than usual, worked off at 100 a second faster than rows come."""
    run = simulate(linear, lambda at: 1800 if at == 50 else 300, 200, start=4)

    assert {4} == set(run.widths)
    assert sum(backlog > 0 for backlog in run.backlogs) > Habits().lagging


def test_after_a_spike_lanes_become_fewer_again():
    run = simulate(linear, lambda at: 2000 if 50 <= at < 60 else 60, 400)

    assert max(run.widths) >= 8
    assert 1 == run.widths[-1]
    assert 0 == run.backlogs[-1]


def test_a_slow_wave_is_followed_up_and_down():
    """From 50 to 1,050 rows a second and back in 500 seconds, four times."""
    run = simulate(linear, lambda at: 550 - 500 * sin(2 * pi * at / 500 + pi / 2), 2000)

    for wave in range(4):
        high, low = run.widths[500 * wave + 250 : 500 * wave + 300], run.widths[500 * wave + 490]
        assert min(linear(width) for width in high) >= 1000
        assert low <= 4
    assert max(run.backlogs) < 5 * 1050
    assert run.changes <= 4 * 16


def test_a_wave_that_is_too_quick_to_follow_does_not_make_it_flap():
    run = simulate(linear, lambda at: 390 + 300 * sin(2 * pi * at / 8), 1000, start=4)

    assert run.changes <= 3
    assert run.backlogs[-1] < 1000


@pytest.mark.parametrize("start", [1, 2, 3, 5, 8, 16])
@pytest.mark.parametrize("crosstalk", [0.3, 0.1, 0.02, 0.01])
def test_where_more_lanes_are_slower_the_fastest_width_is_found_and_kept(start, crosstalk):
    capacity = contended(0.05, crosstalk)

    run = simulate(capacity, lambda at: 5000, 400, start=start)

    good = [capacity(width) >= peak(capacity) / 1.1 for width in run.widths]
    assert all(good[120:])


def test_where_one_lane_is_fastest_it_ends_with_one():
    run = simulate(lambda lanes: 100 / lanes, lambda at: 500, 300, start=16)

    assert 1 == run.widths[-1]


def test_where_all_lanes_are_not_enough_nothing_narrower_is_tried_on_the_way():
    run = simulate(linear, lambda at: 5000, 300)

    assert [1, 2, 4, 8, 16] == sorted(set(run.widths))
    assert 4 == run.changes


@settings(max_examples=30)
@given(
    st.floats(0, 0.3),
    st.floats(0, 0.3),
    st.floats(1, 3000),
    st.integers(1, SLOTS),
    st.integers(0, 97),
)
def test_for_a_constant_load_changes_are_few_and_become_fewer(
    contention, crosstalk, load, start, seed
):
    """A width is tried, and left again, once and then after 40, 80, 160 views and so on."""
    views, memory = 600, 40
    capacity = contended(contention, crosstalk)

    run = simulate(
        capacity,
        lambda at: load,
        views,
        start=start,
        noise=lambda at: 1 + ((at * 31 + seed) % 97 - 48) / 48 * 0.02,
        habits=Habits(memory=memory),
    )

    tried = len(set(run.widths))
    assert run.changes <= 2 * tried * (1 + log2(1 + views / memory))


@settings(max_examples=30)
@given(st.floats(0, 0.3), st.floats(0, 0.1), st.floats(0.05, 0.65), st.integers(1, SLOTS))
def test_a_constant_load_that_can_be_managed_is_managed_in_the_end(
    contention, crosstalk, part, start
):
    capacity = contended(contention, crosstalk)
    load = part * peak(capacity)

    run = simulate(capacity, lambda at: load, 800, start=start)

    assert capacity(run.widths[-1]) >= load
    assert run.backlogs[-1] < 4 * load
    assert 1 == len(set(run.widths[-200:]))


def test_what_was_slower_once_is_tried_again_when_it_may_have_changed():
    """Somebody else uses the machine for a while, just when four lanes are tried."""

    def capacity(lanes):
        return 100.0 * min(lanes, 2) if disturbed else 100.0 * lanes

    policy, lanes, widths = Autoscaler(Habits(memory=100)), 2, []
    for at in range(300):
        disturbed = at < 60
        able = capacity(lanes)
        policy, decision = policy.decide(View(lanes, 4, 128, 10**6, {lanes: able}, -1, 1.0, 1.0))
        lanes = decision.lanes
        widths.append(lanes)

    assert 2 == widths[59]
    assert 4 == widths[-1]


def test_what_is_found_as_before_is_believed_for_longer():
    """Else a width would be tried again every 40 views or so: 25 times in 1,000."""
    run = simulate(contended(0.05, 0.1), lambda at: 5000, 2000, start=2, habits=Habits(memory=40))

    later = sum(before != after for before, after in pairwise(run.widths[1000:]))
    assert 0 < later <= 12


def test_when_the_present_width_does_much_more_all_else_is_forgotten():
    """More were slower; now rows are cheap, and more are not: it does not wait until that is old."""
    policy, lanes, widths, faster = Autoscaler(), 2, [], 200
    for at in range(faster + 30):
        able = 300.0 * lanes if at >= faster else 100.0 * min(lanes, 2)
        policy, decision = policy.decide(View(lanes, 4, 128, 10**6, {lanes: able}, -1, 1.0, 1.0))
        lanes = decision.lanes
        widths.append(lanes)

    assert 2 == widths[faster - 1]
    assert 4 == widths[-1]


def test_lanes_that_wait_for_something_else_do_not_become_more():
    view = View(4, 16, 128, 10**6, {4: 100.0}, -2.0, busy=0.25, cycle_seconds=1.0)
    policy = Autoscaler()
    for _ in range(50):
        policy, decision = policy.decide(view)

    assert 4 == decision.lanes
    assert decision.because.endswith("but lanes were at work 25% of the time: more would not help")


LAGGING = View(4, 16, 128, 10**6, {4: 100.0}, -2.0, busy=1.0, cycle_seconds=1.0)


def decided(view, times, policy=None):
    policy = policy or Autoscaler()
    for _ in range(times):
        policy, decision = policy.decide(view)
    return policy, decision


def test_it_waits_for_several_views_and_rests_after_a_change():
    policy, before = decided(LAGGING, 2)
    policy, change = decided(LAGGING, 1, policy)
    wide = replace(LAGGING, lanes=8, rows_per_second={4: 100.0, 8: 150.0})
    _, resting = decided(wide, 5 + 2, policy)
    _, rested = decided(wide, 5 + 3, policy)

    assert [4, 8, 8, 16] == [each.lanes for each in (before, change, resting, rested)]


def test_a_view_that_says_otherwise_starts_the_count_anew():
    policy, _ = decided(LAGGING, 2)
    policy, _ = decided(replace(LAGGING, slack=0.5, backlog=0), 1, policy)

    assert 4 == decided(LAGGING, 2, policy)[1].lanes
    assert 8 == decided(LAGGING, 3, policy)[1].lanes


def test_when_somebody_else_changes_the_width_it_rests_too():
    policy, _ = decided(LAGGING, 2)

    other = replace(LAGGING, lanes=3, rows_per_second={3: 100.0})
    assert 3 == decided(other, 1 + 5 + 2, policy)[1].lanes
    assert 6 == decided(other, 1 + 5 + 3, policy)[1].lanes


def test_a_width_for_which_there_is_no_room_any_more_is_not_gone_back_to():
    policy, _ = decided(LAGGING, 3)
    wide = replace(LAGGING, lanes=8, rows_per_second={8: 150.0})
    policy, _ = decided(wide, 5 + 3, policy)
    few_slots = replace(LAGGING, slots=5)

    assert 5 == decided(few_slots, 1 + 5 + 3, policy)[1].lanes


def test_where_nothing_was_done_yet_nothing_is_decided():
    view = replace(LAGGING, rows_per_second={})

    found = decided(view, 50)[1]

    reason = "an epoch is 2.0 s overdue with 4 lanes, but nothing was done yet by which to judge"
    assert Decision(4, reason) == found


@pytest.mark.parametrize(("slots", "slices", "most"), [(2, 128, 2), (16, 3, 3), (0, 128, 1)])
def test_there_are_never_more_lanes_than_there_is_room_for(slots, slices, most):
    """At once: lanes that have no slot wait for those that have one."""
    found = decided(replace(LAGGING, slots=slots, slices=slices), 1)[1]

    noun = "lane" if most == 1 else "lanes"
    assert Decision(most, f"there is room for {most} {noun} only") == found


@settings(max_examples=50)
@given(
    st.lists(
        st.builds(
            View,
            st.integers(1, 20),
            st.integers(1, 20),
            st.integers(1, 20),
            st.integers(0, 10**9),
            st.dictionaries(st.integers(1, 20), st.floats(0, 1e9)),
            st.floats(-100, 100),
            st.floats(0, 1),
            st.floats(0, 100),
        ),
        max_size=40,
    )
)
def test_whatever_is_seen_the_answer_makes_sense_and_is_explained(views):
    policy = Autoscaler(Habits(lagging=1, idle=1, rest=0, memory=3))
    for view in views:
        policy, decision = policy.decide(view)

        assert 1 <= decision.lanes <= min(view.slots, view.slices)
        assert decision.because
        assert "\n" not in decision.because


def test_a_story_reads_well(golden):
    capacity = contended(0.05, 0.02)

    step = simulate(linear, lambda at: 50 if at < 20 else 700, 120)
    slower = simulate(capacity, lambda at: 5000, 120, start=2)

    golden("autoscaler.txt", f"a step\n{step.story()}\nmore are slower\n{slower.story()}")
