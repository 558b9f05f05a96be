"""Turns between threads: who waits is told, who leaves holds nobody up."""

import threading

from anabranch.clock import SystemClock
from anabranch.runtime.turns import Alone, SharedTurns
from anabranch.scheduling.klink import klink
from anabranch.scheduling.prospect import Prospect


def prospect():
    return Prospect(0.0)


def test_one_at_a_time_and_all_get_theirs():
    turns, at_work, most, done = SharedTurns("klink", klink, 1, SystemClock()), [0], [0], []
    lock = threading.Lock()

    def work(seat):
        for _ in range(50):
            with seat.turn(prospect, lambda: None):
                with lock:
                    at_work[0] += 1
                    most[0] = max(most[0], at_work[0])
                with lock:
                    at_work[0] -= 1
        seat.leave()
        done.append(seat)

    threads = [
        threading.Thread(target=work, args=(turns.enter(f"q{at}"),), daemon=True) for at in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (1, 4) == (most[0], len(done))
    assert turns.decisions >= 200


def test_who_leaves_while_he_waits_goes_on_and_others_too():
    turns, meanwhile = SharedTurns("klink", klink, 1, SystemClock()), []
    first, second, third = (turns.enter(name) for name in ("first", "second", "third"))
    waiting, over = threading.Event(), threading.Event()

    def wait():
        with second.turn(prospect, lambda: (meanwhile.append("done"), waiting.set())) as turn:
            assert turn.none
            over.set()

    with first.turn(prospect, lambda: None) as turn:
        assert not turn.waited
        threading.Thread(target=wait, daemon=True).start()
        waiting.wait()
        assert second.standing().waiting_since is not None
        assert ("first",) == second.standing().at_work
        second.leave()
        over.wait()
    with third.turn(prospect, lambda: None) as turn:
        assert not turn.waited

    assert ["done"] == meanwhile
    assert second.standing() is None


def test_a_turn_that_fails_is_over():
    turns = SharedTurns("klink", klink, 1, SystemClock())
    seat, other = turns.enter("fails"), turns.enter("other")
    try:
        with seat.turn(prospect, lambda: None):
            raise ValueError
    except ValueError:
        pass

    with other.turn(prospect, lambda: None) as turn:
        assert not turn.waited


def test_alone_every_turn_is_there():
    with Alone().turn(prospect, lambda: None) as turn:
        assert turn.read
    assert Alone().standing() is None
