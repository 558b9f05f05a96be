"""What goes into a ring comes out of it, in order; nobody sleeps while there is something for him."""

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.engine.ring import (
    HEAD,
    RECEIVER_WAITS,
    SENDER_WAITS,
    TAIL,
    Receiver,
    RingClosed,
    Sender,
    new_ring,
)
from tests.ordering.interleaving import Case, Notes, Steps, explore, step


@pytest.fixture
def ring():
    """Makes rings, both ends in this process."""
    made = []

    def make(room):
        ours, theirs = new_ring(room)
        made.extend((ours.sender(), theirs.receiver()))
        return made[-2:]

    yield make
    for end in made:
        end.close()


# Step by step


@settings(max_examples=300)
@given(
    messages=st.lists(st.binary(max_size=100), max_size=8),
    room=st.integers(1, 64),
    turns=st.lists(st.booleans(), max_size=200),
)
def test_messages_come_out_as_they_went_in_whoever_has_the_next_turn(messages, room, turns):
    ours, theirs = new_ring(room)
    sender, receiver = ours.sender(), theirs.receiver()
    waiting, found, all_in = list(messages), [], True
    # Both in turn at the end, until nothing moves any more.
    for sends in [*turns, *[True, False] * sum(9 + len(each) for each in messages)]:
        if sends:
            if all_in and waiting:
                sender.begin(waiting.pop(0))
            all_in = sender.push()
        elif (message := receiver.pull()) is not None:
            found.append(bytes(message))

    assert messages == found
    sender.close()
    receiver.close()


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 15, 16, 17, 1000])
@pytest.mark.parametrize("before", range(17))
def test_a_message_of_any_length_at_any_place(ring, length, before):
    sender, receiver = ring(16)
    sender.begin(bytes(before))
    while not sender.push():
        receiver.pull()
    while receiver.pull() is not None:
        pass
    message = bytes(n % 251 for n in range(length))

    sender.begin(message)
    found = None
    while found is None:
        sender.push()
        found = receiver.pull()

    assert found in (message, bytes(before)), "behind the other, if that was still on its way"


# Every interleaving


class _Data:
    """The bytes of a ring; to read or write some is a step."""

    def __init__(self, size):
        self.bytes = bytearray(size)

    def __len__(self):
        return len(self.bytes)

    def __getitem__(self, at):
        return step(lambda: bytes(self.bytes[at]))

    def __setitem__(self, at, value):
        def write():
            self.bytes[at] = bytes(value)

        step(write)


class _Bell:
    """One side of a bell; whoever waits cannot go on before it is rung."""

    def __init__(self):
        self.rung, self.other = False, None

    def ring(self):
        step(lambda: setattr(self.other, "rung", True))

    def wait(self, seconds):
        step(lambda: setattr(self, "rung", False), lambda: self.rung)


class _Hasty(Receiver):
    """Looks first, and then says that it waits."""

    def _wait(self, ready, deadline):
        if not ready():
            self._words.store(self._waits, 1)
            self._bell.wait(None)
            self._words.store(self._waits, 0)


class _Quiet(Sender):
    """Looks whether somebody waits, and then lets him have what is there."""

    def _publish(self, at, value):
        waits = self._load(self._other_waits)
        self._words.store(at, value)
        if waits:
            self._bell.ring()


def exchanging(messages, room, sending=Sender, receiving=Receiver):
    def case():
        cells, notes = Steps(), Notes()
        words, data = cells.cells(SENDER_WAITS + 1), _Data(room)
        for at in (TAIL, HEAD, RECEIVER_WAITS, SENDER_WAITS):
            words.store(at, 0)
        mine, yours = _Bell(), _Bell()
        mine.other, yours.other = yours, mine
        sender, receiver = sending(words, data, mine), receiving(words, data, yours)
        found = []

        def send():
            for message in messages:
                sender.send(message)

        def receive():
            found.extend(bytes(receiver.receive()) for _ in messages)

        def check(_):
            assert messages == found

        return Case(
            [send, receive], notes, check, cells, lambda: (data.bytes, mine.rung, yours.rung)
        )

    return case


@pytest.mark.parametrize(
    ("messages", "room"),
    [([b"a", b"bc"], 32), ([b"", b""], 8), ([b"a"], 5)],
    ids=["room for both", "room for one", "room for a piece"],
)
def test_nobody_sleeps_for_ever_in_any_interleaving(messages, room):
    ended, states = explore(exchanging(messages, room))

    assert ended
    assert states > 50


@pytest.mark.parametrize("wrong", [{"receiving": _Hasty}, {"sending": _Quiet}])
def test_a_ring_that_looks_in_the_wrong_order_is_found(wrong):
    with pytest.raises(AssertionError, match="nobody can go on"):
        explore(exchanging([b"a", b"bc"], 32, **wrong))


# Threads, ends, deadlines


@pytest.mark.parametrize("room", [1000, 65536])
def test_messages_larger_than_the_ring_go_through_in_pieces(ring, room):
    sender, receiver = ring(room)
    messages = [os.urandom(length) for length in (200_000, 0, room, room - 8, room + 1, 100_000)]

    def send():
        for message in messages:
            sender.send(message)

    thread = threading.Thread(target=send)
    thread.start()
    found = [bytes(receiver.receive()) for _ in messages]
    thread.join()

    assert messages == found


def test_what_was_sent_before_the_end_comes_out_and_then_the_end_is_told(ring):
    sender, receiver = ring(64)
    sender.send(b"last words")
    sender.send(b"")
    sender.close()

    assert [b"last words", b""] == [receiver.receive(), receiver.receive()]
    with pytest.raises(RingClosed, match="the process at the other end of the ring is gone"):
        receiver.receive()


def test_half_a_message_is_none(ring):
    sender, receiver = ring(20)
    sender.begin(bytes(100))
    assert not sender.push()
    sender.close()

    with pytest.raises(RingClosed):
        receiver.receive()


def test_who_waits_for_room_is_told_that_nobody_will_make_any(ring):
    sender, receiver = ring(20)
    raised = []

    def send():
        try:
            sender.send(bytes(1000))
        except RingClosed as error:
            raised.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    while receiver.pull() is None and not receiver._filled:
        pass
    receiver.close()
    thread.join()

    assert 1 == len(raised)


def test_a_deadline_is_kept():
    class Passing:
        """A second passes whenever somebody looks."""

        time = 0

        def elapsed(self):
            self.time += 1
            return self.time

    class Patient:
        """Nobody ever rings."""

        waited = []

        def wait(self, seconds):
            self.waited.append(seconds)

    cells, bell = Steps().cells(SENDER_WAITS + 1), Patient()
    for at in (TAIL, HEAD, RECEIVER_WAITS, SENDER_WAITS):
        cells.store(at, 0)
    receiver = Receiver(cells, memoryview(bytearray(8)), bell, Passing())
    sender = Sender(cells, memoryview(bytearray(8)), bell, Passing())

    with pytest.raises(TimeoutError, match="took too long"):
        receiver.receive(deadline=4)
    with pytest.raises(TimeoutError, match="took too long"):
        sender.send(b"abc", deadline=3)

    assert [3, 2, 1, 2, 1] == bell.waited


def test_more_wake_ups_than_anybody_takes_hold_up_nobody(ring):
    sender, receiver = ring(64)
    for _ in range(100_000):
        sender._bell.ring()
    sender.send(b"a")

    assert b"a" == receiver.receive()
    receiver._bell.wait(None)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are counted in /proc")
def test_nothing_is_left_open():
    before = len(list(Path("/proc/self/fd").iterdir()))
    ours, theirs = new_ring(64)
    for end in (ours.sender(), theirs.receiver()):
        end.close()
    for end in new_ring(64):
        end.close()

    assert before == len(list(Path("/proc/self/fd").iterdir()))
