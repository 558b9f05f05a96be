"""The epoch machine under any interleaving: order is kept, nothing is lost, failures are repeated."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.epoch.machine import Known, Machine, Rules
from anabranch.epoch.protocol import (
    Committed,
    Cut,
    Fail,
    Finish,
    HeadsDone,
    HeadWork,
    LanesDone,
    LaneWork,
    Offer,
    Offered,
    PlanEpoch,
    Planned,
    ReadAgain,
    StopAsked,
    WorkFailed,
)
from anabranch.epoch.watermarks import END_OF_TIME, SourceTime

NONE = frozenset()


def offer(start, end, *, finished=False, more=False):
    return Offer({0: (start, end)}, frozenset({0}) if finished else NONE, None, more)


def known(*names):
    return Known({name: SourceTime((0,), lateness=0) for name in names}, {}, {})


def machine(*names, **rules):
    return Machine(Rules(**rules), known(*(names or ("",))))


def planned(under_test, *offers):
    for at, each in enumerate(offers):
        for command in under_test.handle(Offered(each, float(under_test.last_cut + at + 2))):
            if isinstance(command, PlanEpoch):
                under_test.handle(Planned(command.epoch))


def head(ticket, attempt=0):
    return HeadWork(ticket, attempt)


def lane(epoch, before, after, *, attempt=0, level=1):
    return LaneWork(epoch, epoch, attempt, {"": (before, after)}, level)


def heads_done(ticket, greatest, rows, size=0):
    return HeadsDone(ticket, {0: greatest}, {0: rows}, size)


def test_an_epoch_is_read_then_placed_then_taken_by_the_lanes_then_committed():
    m = machine(every=0)
    planned(m, offer(0, 5))
    assert [HeadWork(0, 0)] == m.ready()
    m.take(HeadWork(0, 0))
    m.handle(heads_done(0, 70, 5))
    assert [lane(0, None, 70)] == m.ready()
    m.take(*m.ready())
    m.handle(LanesDone((0,)))
    assert [] == m.ready()
    assert [] == m.handle(Committed(0))
    m.validate()


def test_stateless_work_of_a_later_epoch_overtakes_but_its_lanes_wait():
    m = machine(every=0)
    planned(m, offer(0, 5), offer(5, 9))
    m.take(HeadWork(0, 0), HeadWork(1, 0))
    m.handle(heads_done(1, 90, 4))
    assert [] == m.ready()
    m.handle(heads_done(0, 70, 5))
    assert [lane(0, None, 70), lane(1, 70, 90)] == m.ready()


def test_nothing_is_cut_before_it_is_due_unless_more_is_waiting():
    m = machine(every=10)
    first, second = offer(0, 5), offer(5, 9, more=True)
    assert [Cut(0, "", first), PlanEpoch(0, 0, "", first)] == m.handle(Offered(first, 0.0))
    assert [] == m.handle(Offered(offer(5, 9), 3.0))
    assert [Cut(1, "", second), PlanEpoch(1, 1, "", second)] == m.handle(Offered(second, 4.0))
    assert 20.0 == m.next_cut


def test_a_bounded_run_ends_when_all_it_planned_is_committed():
    m = machine(every=0, bounded=True)
    planned(m, offer(0, 5, finished=True))
    assert [] == m.handle(Offered(offer(5, 5, finished=True), 1.0))
    m.take(HeadWork(0, 0))
    m.handle(heads_done(0, 70, 5))
    assert [lane(0, None, END_OF_TIME)] == m.ready()
    m.take(*m.ready())
    m.handle(LanesDone((0,)))
    assert [Finish()] == m.handle(Committed(0))


def test_failed_lanes_are_repeated_with_a_new_attempt_and_the_same_watermarks():
    m = machine(every=0)
    planned(m, offer(0, 5))
    m.take(HeadWork(0, 0))
    m.handle(heads_done(0, 70, 5))
    m.take(*m.ready())
    assert [] == m.handle(WorkFailed((), (0,), "a lane died"))
    assert [lane(0, None, 70, attempt=1)] == m.ready()


def test_work_that_fails_too_often_fails_the_query_with_the_reason():
    m = machine(every=0, attempts=2)
    planned(m, offer(0, 5))
    m.take(HeadWork(0, 0))
    assert [] == m.handle(WorkFailed((0,), (), "first"))
    m.take(HeadWork(0, 1))
    assert [Fail("second", 2)] == m.handle(WorkFailed((0,), (), "second"))


def test_draining_finishes_what_was_planned_and_plans_no_more():
    m = machine(every=0)
    planned(m, offer(0, 5))
    assert [] == m.handle(StopAsked(drain=True))
    assert not m.wants_offer("")
    m.take(HeadWork(0, 0))
    m.handle(heads_done(0, 1, 5))
    m.take(*m.ready())
    m.handle(LanesDone((0,)))
    assert [Finish()] == m.handle(Committed(0))


def test_an_illegal_move_tells_the_story():
    m = machine(every=0)
    planned(m, offer(0, 5))
    with pytest.raises(AssertionError, match="Offered"):
        m.handle(LanesDone((0,)))


# Several levels


def through_heads(m, *offers):
    planned(m, *offers)
    for ticket, each in enumerate(offers):
        m.take(head(ticket))
        m.handle(heads_done(ticket, 10 * (ticket + 1), each.offsets[0][1]))


def test_epochs_go_from_level_to_level_and_the_next_ones_follow():
    m = machine(every=0, levels=2)
    through_heads(m, offer(0, 5), offer(5, 9))
    assert [lane(0, None, 10), lane(1, 10, 20)] == m.ready()
    m.take(*m.ready())
    m.handle(LanesDone((0, 1)))
    planned(m, offer(9, 12))
    m.take(head(2))
    m.handle(heads_done(2, 30, 3))

    second = [lane(0, None, 10, level=2), lane(1, 10, 20, level=2)]
    assert [*second, lane(2, 20, 30)] == m.ready()
    m.take(*m.ready())
    m.handle(LanesDone((0, 1, 2)))
    m.handle(Committed(1))
    assert [lane(2, 20, 30, level=2)] == m.ready()
    m.validate()


def test_groups_stay_together_and_a_level_takes_one_at_a_time():
    m = machine(every=0, levels=3)
    through_heads(m, offer(0, 5))
    m.take(*m.ready())
    m.handle(LanesDone((0,)))
    planned(m, offer(5, 9), offer(9, 12))
    for ticket in (1, 2):
        m.take(head(ticket))
        m.handle(heads_done(ticket, 10 * (ticket + 1), 3))
    # The later ones go through the first level while the first fails at the second.
    m.take(*m.ready())
    m.handle(WorkFailed((), (0, 1, 2), "x"))
    m.take(*(work for work in m.ready() if work.level == 1))
    m.handle(LanesDone((1, 2)))

    ready = [(work.epoch, work.level) for work in m.ready()]
    assert [(0, 2)] == ready
    m.take(*m.ready())
    m.handle(LanesDone((0,)))
    assert [(0, 3), (1, 2), (2, 2)] == [(work.epoch, work.level) for work in m.ready()]
    m.validate()


# Several sources


def offered(m, source, each, at=0.0):
    return m.handle(Offered(each, at, source))


def test_of_epochs_whose_ends_are_known_the_one_with_the_least_watermark_goes_first():
    m = machine("a", "b", every=0)
    assert [Cut(0, "a", offer(0, 5))] == offered(m, "a", offer(0, 5))
    assert [Cut(1, "b", offer(0, 7))] == offered(m, "b", offer(0, 7))
    m.take(head(0), head(1))
    # Nobody waits for one that is not known.
    assert [PlanEpoch(0, 1, "b", offer(0, 7))] == m.handle(heads_done(1, 90, 7))
    assert [] == m.ready()
    m.handle(Planned(0))
    assert [LaneWork(0, 1, 0, {"a": (None, None), "b": (None, 90)})] == m.ready()
    offered(m, "b", offer(7, 9))
    m.take(head(2))
    m.handle(heads_done(0, 95, 5))
    m.handle(Planned(1))
    m.validate()
    assert [(0, 1), (1, 0)] == [(work.epoch, work.ticket) for work in m.ready()]
    assert {"a": (None, 95), "b": (90, 90)} == m.ready()[-1].marks


def test_ties_go_by_the_order_of_the_read_calls():
    m = machine("a", "b", every=0)
    offered(m, "b", offer(0, 7))
    offered(m, "a", offer(0, 5))
    offered(m, "a", offer(5, 6))
    m.take(head(0), head(1), head(2))
    assert [] == m.handle(heads_done(2, 50, 1))
    (first,) = m.handle(heads_done(0, 50, 7))
    assert (0, "b") == (first.epoch, first.source)
    # Both of a's are known now: the first of them before the second, whatever they say.
    second, third = m.handle(heads_done(1, 60, 5))
    assert [(1, 1), (2, 2)] == [(each.epoch, each.ticket) for each in (second, third)]


def test_what_is_known_is_that_of_the_place_in_the_log():
    m = machine("a", "b", every=0)
    offered(m, "a", offer(0, 5))
    offered(m, "b", offer(0, 7))
    m.take(head(0), head(1))
    m.handle(heads_done(0, 50, 5))
    m.handle(heads_done(1, 90, 7))
    first, second = m.container(0).after, m.container(1).after
    assert ({"a": {0: 5}}, {"a": {0: 5}}) == (first.positions, first.rows)
    assert {"a": {0: 5}, "b": {0: 7}} == second.positions == second.rows


def heads_of(m):
    return [work.ticket for work in m.ready() if isinstance(work, HeadWork)]


def test_no_more_is_read_than_there_is_room_for_until_something_is_committed():
    """Room for 100 bytes; epochs bring 40 each, which is known once the first was read."""
    m = machine(every=0, bytes_in_flight=100)
    planned(m, *(offer(at, at + 1, more=True) for at in range(5)))
    m.take(head(0))
    m.handle(heads_done(0, 10, 1, size=40))

    assert [1] == heads_of(m)

    m.take(head(1))
    assert [] == heads_of(m)
    m.handle(heads_done(1, 20, 1, size=40))
    assert [] == heads_of(m)

    m.take(lane(0, None, 10))
    m.handle(LanesDone((0,)))
    assert [] == heads_of(m)
    m.handle(Committed(0))
    assert [2] == heads_of(m)


def test_an_epoch_that_is_read_again_takes_back_the_times_of_those_behind_it():
    """The record with the greatest time of the first epoch is passed over: 10 becomes 4."""
    m = machine(every=0)
    planned(m, offer(0, 5, more=True), offer(5, 9))
    m.take(head(0), head(1))
    m.handle(heads_done(0, 10, 5), heads_done(1, 7, 4))
    assert [lane(0, None, 10), lane(1, 10, 10)] == m.ready()

    m.handle(ReadAgain(0))

    m.validate()
    assert [head(0)] == m.ready()
    m.take(head(0))
    m.handle(heads_done(0, 4, 5))
    assert [lane(0, None, 4), lane(1, 4, 7)] == m.ready()
    assert {0: 9} == m.known.rows[""]


def test_an_epoch_that_was_not_read_has_nothing_to_take_back():
    m = machine(every=0, attempts=3)
    planned(m, offer(0, 5))
    m.take(head(0))
    m.handle(WorkFailed((0,), (), "x"), ReadAgain(0))

    assert [head(0, 1)] == m.ready()
    assert 0 == m.statistics().failures


def test_an_epoch_that_is_larger_than_all_the_room_is_read_alone():
    m = machine(every=0, bytes_in_flight=100)
    planned(m, *(offer(at, at + 1, more=True) for at in range(3)))
    m.take(head(0))
    m.handle(heads_done(0, 10, 1, size=400))
    assert [] == heads_of(m)

    m.take(lane(0, None, 10))
    m.handle(LanesDone((0,)))
    m.handle(Committed(0))

    assert [1] == heads_of(m)


def test_what_an_earlier_epoch_waits_for_is_read_though_there_is_no_room():
    """Two sources, their order settled by an earlier run: the second was read first."""
    m = machine("a", "b", every=0, bytes_in_flight=100)
    m.adopt({0: ("a", offer(0, 1)), 1: ("b", offer(0, 1))})
    m.take(head(1))
    m.handle(heads_done(1, 10, 1, size=400))

    assert [0] == heads_of(m)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_interleaving_commits_every_epoch_once_in_order(data):
    m = machine(every=0, bounded=True, in_flight=3, attempts=10_000, bytes_in_flight=20)
    total = data.draw(st.integers(0, 6))
    at, clock = 0, 0.0
    reading, in_lanes, done, committed, watermarks, over = [], [], [], [], [], False
    for _ in range(200):
        if over:
            break
        moves = ["offer"]
        if m.ready():
            moves.append("take")
        if reading:
            moves.append("heads")
        if in_lanes:
            moves.append("lanes")
        if done:
            moves.append("commit")
        move = data.draw(st.sampled_from(moves)) if _ < 150 else moves[-1]
        commands = []
        if move == "offer" and m.wants_offer(""):
            clock += 1
            last = at >= total
            commands = m.handle(Offered(offer(at, min(at + 1, total), finished=last), clock))
            for command in [c for c in commands if isinstance(c, PlanEpoch)]:
                at += 1
                commands += m.handle(Planned(command.epoch))
        elif move == "take":
            works = m.ready()
            m.take(*works)
            reading += [w for w in works if isinstance(w, HeadWork)]
            in_lanes += [w for w in works if isinstance(w, LaneWork)]
            watermarks += [(w.epoch, *w.marks[""]) for w in works if isinstance(w, LaneWork)]
        elif move == "heads":
            work = reading.pop(data.draw(st.integers(0, len(reading) - 1)))
            if data.draw(st.booleans()):
                size = data.draw(st.sampled_from([0, 5, 15, 50]))
                commands = m.handle(heads_done(work.ticket, work.ticket * 10, 1, size))
            else:
                commands = m.handle(WorkFailed((work.ticket,), (), "x"))
        elif move == "lanes":
            epochs = tuple(w.epoch for w in in_lanes)
            in_lanes = []
            if data.draw(st.booleans()):
                done += epochs
                commands = m.handle(LanesDone(epochs))
            else:
                commands = m.handle(WorkFailed((), epochs, "x"))
        elif move == "commit":
            commands = m.handle(Committed(done[-1]))
            committed += done
            done = []
        m.validate()
        over = Finish() in commands
    assert committed == sorted(set(committed)) == list(range(len(committed)))
    by_epoch = {epoch: (before, after) for epoch, before, after in watermarks}
    for epoch, before, after in watermarks:
        assert by_epoch[epoch] == (before, after)
        assert before is None or after >= before


# Partitions without rows


def quiet(idle):
    return Offer({0: (5, 5), 1: (9, 9)}, NONE, None, more=False, idle=frozenset(idle))


def test_a_partition_that_goes_idle_is_told_once_and_holds_the_watermark_no_more():
    m = Machine(Rules(every=0), Known({"": SourceTime((0, 1), lateness=0)}, {}, {}))
    both = Offer({0: (0, 5), 1: (0, 9)}, NONE, None, more=False)
    planned(m, both)
    m.take(head(0))
    m.handle(HeadsDone(0, {0: 20, 1: 90}, {0: 5, 1: 9}))
    assert [] == m.handle(Offered(quiet([]), 10.0))
    commands = m.handle(Offered(quiet([0]), 11.0))
    assert [Cut, PlanEpoch] == [type(each) for each in commands]
    m.handle(Planned(1))
    assert [] == m.handle(Offered(quiet([0]), 12.0))
    m.take(head(1))
    m.handle(HeadsDone(1, {}, {}))
    assert [(None, 20), (20, 90)] == [work.marks[""] for work in m.ready()]
