"""The epoch machine under any interleaving: order is kept, nothing is lost, failures are repeated."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.epoch.machine import Machine, Rules
from anabranch.epoch.protocol import (
    Committed,
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
    StopAsked,
    WorkFailed,
)
from anabranch.epoch.watermarks import END_OF_TIME, SourceTime

NONE = frozenset()


def offer(start, end, *, finished=False, more=False):
    return Offer({0: (start, end)}, frozenset({0}) if finished else NONE, None, more)


def machine(**rules):
    return Machine(Rules(**rules), SourceTime((0,), lateness=0))


def planned(under_test, *offers):
    for at, each in enumerate(offers):
        for command in under_test.handle(Offered(each, float(at))):
            assert isinstance(command, PlanEpoch)
            under_test.handle(Planned(command.epoch))


def test_an_epoch_is_read_then_placed_then_taken_by_the_lanes_then_committed():
    m = machine(every=0)
    planned(m, offer(0, 5))
    assert [HeadWork(0, 0)] == m.ready()
    m.take(HeadWork(0, 0))
    m.handle(HeadsDone(0, {0: 70}, 5))
    assert [LaneWork(0, 0, None, 70)] == m.ready()
    m.take(*m.ready())
    m.handle(LanesDone((0,)))
    assert [] == m.ready()
    assert [] == m.handle(Committed(0))
    m.validate()


def test_stateless_work_of_a_later_epoch_overtakes_but_its_lanes_wait():
    m = machine(every=0)
    planned(m, offer(0, 5), offer(5, 9))
    m.take(HeadWork(0, 0), HeadWork(1, 0))
    m.handle(HeadsDone(1, {0: 90}, 4))
    assert [] == m.ready()
    m.handle(HeadsDone(0, {0: 70}, 5))
    assert [LaneWork(0, 0, None, 70), LaneWork(1, 0, 70, 90)] == m.ready()


def test_nothing_is_cut_before_it_is_due_unless_more_is_waiting():
    m = machine(every=10)
    assert [PlanEpoch(0, offer(0, 5))] == m.handle(Offered(offer(0, 5), 0.0))
    assert [] == m.handle(Offered(offer(5, 9), 3.0))
    assert [PlanEpoch(1, offer(5, 9, more=True))] == m.handle(Offered(offer(5, 9, more=True), 4.0))
    assert 20.0 == m.next_cut


def test_a_bounded_run_ends_when_all_it_planned_is_committed():
    m = machine(every=0, bounded=True)
    planned(m, offer(0, 5, finished=True))
    assert [] == m.handle(Offered(offer(5, 5, finished=True), 1.0))
    m.take(HeadWork(0, 0))
    m.handle(HeadsDone(0, {0: 70}, 5))
    assert [LaneWork(0, 0, None, END_OF_TIME)] == m.ready()
    m.take(*m.ready())
    m.handle(LanesDone((0,)))
    assert [Finish()] == m.handle(Committed(0))


def test_failed_lanes_are_repeated_with_a_new_attempt_and_the_same_watermarks():
    m = machine(every=0)
    planned(m, offer(0, 5))
    m.take(HeadWork(0, 0))
    m.handle(HeadsDone(0, {0: 70}, 5))
    m.take(*m.ready())
    assert [] == m.handle(WorkFailed((), (0,), "a lane died"))
    assert [LaneWork(0, 1, None, 70)] == m.ready()


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
    assert not m.wants_offer
    m.take(HeadWork(0, 0))
    m.handle(HeadsDone(0, {0: 1}, 5))
    m.take(*m.ready())
    m.handle(LanesDone((0,)))
    assert [Finish()] == m.handle(Committed(0))


def test_an_illegal_move_tells_the_story():
    m = machine(every=0)
    planned(m, offer(0, 5))
    with pytest.raises(AssertionError, match="Offered"):
        m.handle(LanesDone((0,)))


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_interleaving_commits_every_epoch_once_in_order(data):
    m = machine(every=0, bounded=True, in_flight=3, attempts=10_000)
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
        if move == "offer" and m.wants_offer:
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
            watermarks += [(w.epoch, w.before, w.after) for w in works if isinstance(w, LaneWork)]
        elif move == "heads":
            work = reading.pop(data.draw(st.integers(0, len(reading) - 1)))
            if data.draw(st.booleans()):
                commands = m.handle(HeadsDone(work.epoch, {0: work.epoch * 10}, 1))
            else:
                commands = m.handle(WorkFailed((work.epoch,), (), "x"))
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
