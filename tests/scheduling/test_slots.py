"""How many slots: loads on machines that give executors late, in part, or never; virtual time."""

from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.scheduling.autoscaler import Autoscaler, Habits, View
from anabranch.scheduling.slots import Patience, Slots

FEWEST, MOST = 1, 16


@dataclass
class Master:
    """Gives executors of some slots after a while, up to what it has; takes them at once."""

    has: int = MOST
    each: int = 1
    takes: int = 5
    """Views until an executor is there."""
    slots: int = 1
    wanted: int = 1
    coming: int = 0

    def want(self, slots):
        self.wanted = self.each * ceil(slots / self.each)
        self.coming = self.takes
        self.slots = min(self.slots, self.wanted)

    def pass_by(self):
        self.coming -= 1
        if self.coming <= 0:
            self.slots = max(self.slots, min(self.wanted, self.has))


@dataclass
class Run:
    widths: list
    slots: list
    asked: list
    """At which view, how many."""
    told: list
    backlogs: list

    def story(self):
        return "".join(f"{at:4d}  {why}\n" for at, why in self.told)


def simulate(load, views, master, *, lanes=1, capacity=lambda n: 100.0 * n, head=0.0, policy=None):
    """A second a view; a row costs some of a lane's time, and `head` seconds of a head's."""
    policy = policy or Autoscaler(Habits(memory=40), slots=Slots(Patience(20, 30, 100)))
    backlog, rates, run = 0.0, {}, Run([lanes], [master.slots], [], [], [])
    for at in range(views):
        master.pass_by()
        cost = lanes / capacity(lanes) + head
        able = min(capacity(lanes), master.slots / cost)
        backlog += load(at)
        needed, done = backlog / able, min(backlog, able)
        backlog -= done
        rates[lanes] = done
        busy = done / capacity(lanes)
        view = View(
            lanes=lanes,
            slots=master.slots,
            slices=128,
            backlog=round(backlog),
            rows_per_second=dict(rates),
            slack=min(0.0, 1 - needed),
            busy=busy,
            cycle_seconds=1.0,
            fewest_slots=FEWEST,
            most_slots=MOST,
            at_work=done * cost,
        )
        policy, decision = policy.decide(view)
        assert FEWEST <= decision.lanes <= master.slots
        if decision.slots is not None:
            assert FEWEST <= decision.slots <= MOST
            assert decision.slots >= decision.lanes
            assert decision.slots != master.slots
            run.asked.append((at, decision.slots))
            run.told.append((at, decision.because))
            master.want(decision.slots)
        elif decision.lanes != lanes:
            run.told.append((at, decision.because))
        lanes = decision.lanes
        run.widths.append(lanes)
        run.slots.append(master.slots)
        run.backlogs.append(backlog)
    return run


def test_slots_are_asked_for_and_the_width_follows_when_they_are_there():
    run = simulate(lambda at: 350, 200, Master())

    assert [2, 4] == [slots for _, slots in run.asked][:2]
    assert all(lanes <= slots for lanes, slots in zip(run.widths, run.slots, strict=True))
    assert run.widths[-1] >= 4
    assert 0 == run.backlogs[-1]


def test_when_the_load_is_gone_slots_are_let_go_long_after_lanes():
    run = simulate(lambda at: 700 if at < 100 else 50, 500, Master())

    given_back = [each for each in run.asked if each[0] > 100]
    for at, slots in given_back:
        assert max(run.widths[at - 30 : at]) <= slots
    assert given_back
    assert (1, 1) == (run.widths[-1], run.slots[-1])


def test_a_request_that_is_never_met_stops_nothing_and_is_made_ever_more_rarely():
    run = simulate(lambda at: 5000, 1000, Master(has=3, slots=3), lanes=1)

    assert run.widths[-1] == 3, "what there is is used"
    asked = [at for at, _ in run.asked]
    assert all(later - before >= 100 for before, later in pairwise(asked))
    assert len(asked) <= 2 + log2(1000 / 100)


def test_a_request_that_is_met_in_part_is_used_in_part():
    run = simulate(lambda at: 5000, 300, Master(has=5, slots=4), lanes=4)

    assert 8 == run.asked[0][1]
    assert 5 == run.widths[-1]


def test_where_nobody_can_be_asked_nothing_is():
    view = View(4, 4, 128, 10**6, {4: 100.0}, -2.0, busy=1.0, cycle_seconds=1.0)
    policy = Autoscaler()
    for _ in range(500):
        policy, decision = policy.decide(view)
        assert decision.slots is None


def test_heads_that_lack_slots_have_more_asked_for_though_lanes_have_time():
    """A row costs twenty times as much where it is read as in its lane."""
    run = simulate(
        lambda at: 300, 300, Master(slots=2), lanes=1, capacity=lambda n: 2000, head=0.01
    )

    assert "and all 2 slots are at work: asking for 4" in run.told[0][1]
    assert {1} == set(run.widths), "lanes are not what is slow"
    assert 0 == run.backlogs[-1]
    assert run.slots[-1] >= 4


def test_what_was_too_few_of_late_is_not_gone_back_to():
    """At 3 slots it lagged: of 4, 3 are enough for all that is seen later, and all 4 stay."""
    slots = Slots(Patience(20, 30, 100)).ask(4, view(3))
    slots = slots.seen(view(4), 2)
    kept = []
    for _ in range(150):
        slots = slots.seen(view(4), 2)
        if (found := slots.keep(view(4))) is not None:
            kept.append((slots.now, found))
    assert kept[0] == (100.0, 2), "until that is long ago"


def view(slots, lanes=1, **more):
    given = View(lanes, slots, 128, 0, {}, 0.0, busy=0.1, cycle_seconds=1.0, most_slots=MOST)
    return replace(given, **more)


def test_an_executor_that_is_lost_is_not_asked_for_again():
    """Spark replaces it by itself."""
    policy = Autoscaler()
    for slots in (4, 4, 2, 2, 4, 4):
        policy, decision = policy.decide(view(slots, lanes=2))
        assert decision.slots is None


@settings(max_examples=25)
@given(
    st.floats(1, 3000),
    st.builds(
        Master,
        has=st.integers(1, MOST),
        each=st.sampled_from([1, 2, 4]),
        takes=st.integers(1, 40),
        slots=st.integers(1, MOST),
    ),
    st.floats(0, 0.02),
    st.booleans(),
)
def test_for_a_steady_load_slots_change_seldom_and_ever_more_rarely(load, master, head, slower):
    """Whatever the master gives, and when."""
    views = 1000
    capacity = (lambda n: 100.0 * n / (1 + 0.05 * n * n)) if slower else lambda n: 100.0 * n

    run = simulate(lambda at: load, views, master, capacity=capacity, head=head)

    assert len(run.asked) <= 2 * (1 + log2(MOST))
    assert len([at for at, _ in run.asked if at > views / 2]) <= 4


@settings(max_examples=60)
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
            st.integers(1, 5),
            st.integers(0, 30),
            st.floats(0, 20),
        ),
        max_size=40,
    )
)
def test_whatever_is_seen_what_is_asked_for_makes_sense(views):
    policy = Autoscaler(Habits(lagging=1, idle=1, rest=0, memory=3), slots=Slots(Patience(3, 2, 2)))
    for each in views:
        policy, decision = policy.decide(each)

        assert 1 <= decision.lanes <= min(each.slots, each.slices)
        if decision.slots is not None:
            assert decision.slots != each.slots
            assert decision.slots <= max(each.slots, each.most_slots)
            assert decision.slots >= min(each.slots, max(each.fewest_slots, decision.lanes))


@pytest.mark.parametrize("each", [1, 4])
def test_a_story_reads_well(golden, each):
    run = simulate(lambda at: 700 if 20 <= at < 120 else 50, 400, Master(each=each, slots=each))

    golden(f"slots-{each}.txt", run.story())
