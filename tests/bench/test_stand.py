from __future__ import annotations

import itertools

import pytest

from bench.harness.stand import Settings, Stand


class Watcher:
    def __init__(self):
        self.story = []

    def begin(self, case, steps):
        self.story.append((case, steps))

    def step(self, system):
        self.story.append(system)


def test_contenders_take_turns_and_warm_up_first():
    order = []
    numbers = itertools.count()

    def contender(name):
        def run():
            order.append(name)
            return float(next(numbers))

        return run

    stand = Stand(Settings(runs=2, warmups=1))
    samples = stand.race("case", {"a": contender("a"), "b": contender("b")})

    assert ["a", "b"] * 3 == order
    assert {"a": (2.0, 4.0), "b": (3.0, 5.0)} == samples


def test_the_watcher_hears_of_every_run():
    watcher = Watcher()

    stand = Stand(Settings(runs=1, warmups=1), progress=watcher)
    stand.race("case", {"a": lambda: 1.0, "b": lambda: 2.0})

    assert [("case", 4), "a", "b", "a", "b"] == watcher.story


def test_seconds_are_read_from_the_clock():
    ticks = iter([10.0, 12.5])

    assert 2.5 == Stand(clock=lambda: next(ticks)).seconds(lambda: None)()


def test_throughput_is_rows_a_second():
    ticks = iter([10.0, 12.0])

    assert 50.0 == Stand(clock=lambda: next(ticks)).throughput(100, lambda: None)()


@pytest.mark.parametrize("numbers", [{"runs": 0}, {"warmups": -1}])
def test_nothing_cannot_be_measured(numbers):
    with pytest.raises(ValueError, match=r"^at least one run is needed"):
        Settings(**numbers)
