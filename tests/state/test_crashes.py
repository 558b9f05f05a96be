"""Crash at every call of the store and around every publication, once and twice in a row.

Scenarios 1, 2 and 5 of the reliability notes, on the simulated store.
"""

import copy
import random

import pytest

from anabranch.errors import RunError
from anabranch.simulate.store import SimulatedCrash, SimulatedStore
from tests.state import workload

MOMENTS = ("before", "within", "after")


class World:
    """A store, a sink and a witness; masters come and go."""

    def __init__(self, durability="power", **options):
        self.store, self.options = SimulatedStore(durability), options
        self.sink = workload.RecordingSink()
        # A publication is two more places to die at: before the sink has done it, and after.
        self.sink.on_call = self.tick
        self.witness = workload.Witness()

    def tick(self):
        self.store.exists("sink")

    def master(self, **options):
        return workload.Master(self.store, self.sink, self.witness, **self.options | options)

    def run(self):
        """Whether a master got through."""
        try:
            self.master().run()
        except SimulatedCrash:
            return False
        return True

    def crash(self, call, moment, seed):
        """Run until the call, and die there; whether it did."""
        self.store.crash_at(self.store.calls + call, moment)
        survived = self.run()
        self.store.reopen(None if seed is None else random.Random(seed))
        return not survived

    def finish(self):
        assert self.run()
        workload.check_finished(self.store, self.sink, self.witness)


def calls_of_a_run():
    world = World()
    assert world.run()
    return world.store.calls


CALLS = calls_of_a_run()


def test_a_run_without_crashes():
    world = World()
    world.finish()

    assert list(range(6)) == list(world.witness.committed)
    assert 50 < CALLS < 150


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("seed", [None, 0, 1, 2, 3])
def test_a_crash_at_any_call(moment, seed):
    for call in range(1, CALLS + 1):
        world = World()
        assert world.crash(call, moment, seed)
        world.finish()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [None, 5])
def test_a_second_crash_while_recovering_from_a_crash_at_any_call(seed):
    for first in range(1, CALLS + 1):
        # Recovery is some fifteen calls; a few more, and the first of the work after it is hit too.
        crashed = World()
        assert crashed.crash(first, MOMENTS[first % 3], seed)
        for second in range(1, 25):
            world = copy.deepcopy(crashed)
            world.crash(second, MOMENTS[second % 3], None if seed is None else seed + second)
            world.finish()


@pytest.mark.parametrize("seed", range(30))
def test_crash_after_crash_after_crash(seed):
    rng = random.Random(seed)
    world = World()
    for _ in range(12):
        if not world.crash(rng.randint(1, 60), rng.choice(MOMENTS), rng.choice([None, seed])):
            break
    world.finish()


@pytest.mark.slow
def test_a_process_may_die_between_a_name_and_its_sync_and_power_be_lost_later():
    """The record is seen by the next run, which publishes it: so it must have become durable."""
    for call in range(1, CALLS + 1):
        world = World()
        world.crash(call, "within", None)
        world.crash(25, "before", 1)
        world.finish()


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_without_syncs_nothing_is_lost_when_processes_die(moment):
    for call in range(1, CALLS + 1):
        world = World("process")
        assert world.crash(call, moment, None)
        world.finish()


@pytest.mark.slow
def test_other_groups_after_a_crash_change_nothing():
    for call in range(1, CALLS + 1):
        world = World()
        world.crash(call, "after", 1)
        world.master(group=1 + call % 4).run()
        workload.check_finished(world.store, world.sink, world.witness)


@pytest.mark.slow
@pytest.mark.parametrize("together", [2, 3, 5])
@pytest.mark.parametrize("seed", [None, 1])
def test_plans_of_several_epochs_may_be_one_file_wherever_commits_end(together, seed):
    for call in range(1, CALLS + 1):
        world = World(together=together, group=1 + call % 3)
        world.crash(call, MOMENTS[call % 3], seed)
        world.master(group=1 + call % 4, together=1 + call % 2).run()
        workload.check_finished(world.store, world.sink, world.witness)


@pytest.mark.slow
@pytest.mark.parametrize("together", [1, 2, 5])
@pytest.mark.parametrize("seed", [None, 1])
def test_plans_may_be_folded_when_they_are_committed(together, seed):
    """Of all epochs of a commit in one file, whoever planned them; none else is left of them."""
    for call in range(1, CALLS + 12):
        world = World(together=together, group=1 + call % 3, fold=True)
        world.crash(call, MOMENTS[call % 3], seed)
        world.master(group=1 + call % 4, together=1 + call % 2, fold=call % 3 > 0).run()
        workload.check_finished(world.store, world.sink, world.witness)


def test_what_is_not_next_to_be_committed_is_not_folded():
    world = World(together=3)
    master = world.master()
    master.open()
    master.plan(0, 0)

    with pytest.raises(RunError, match="does not allow this: folding the plans of epochs 1 to 2"):
        master.commits.fold(master.plans[1], master.plans[2])
