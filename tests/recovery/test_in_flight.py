"""Epochs in flight: one fails while later ones are read already, or are a level behind it.

Scenarios 9 and 10 of the reliability notes. What a failed attempt made is void, also the state that
its lanes still have: what counts in the end follows from version to version, without a gap, and no
version of a void attempt is in between.
"""

import polars as pl
import pytest

import anabranch as ab
from anabranch.epoch.triggers import available_now
from anabranch.runtime.assembly import Settings, assemble
from anabranch.runtime.executor import JobFailed
from anabranch.simulate.inline import InlineExecutor
from anabranch.state.delta import check_chain
from anabranch.state.recovery import read_delta, recover
from anabranch.state.store import LocalStore
from anabranch.testing import MockClock, assert_same_rows, run_sequential
from tests.runtime.programs import CALLS, calls
from tests.runtime.test_inline import written

COUNT, ROWS, LANES = 40, 4, 2
EPOCHS = COUNT // ROWS
COUNTED = {"caller": pl.String, "callee": pl.String, "n": pl.Int64}
SEEN = {"callee": pl.String, "n": pl.Int64, "before": pl.Int64}


def count(call, state):
    state.value = (state.value or 0) + 1
    yield {"caller": call["caller"], "callee": call["callee"], "n": state.value}


def remember(call, state):
    before, state.value = state.value, call["n"]
    yield {"callee": call["callee"], "n": call["n"], "before": before}


def program(levels, home):
    made = ab.Program("in-flight")
    read = made.read(ab.sources.Records(calls(COUNT), schema=CALLS), name="in", event_time="t")
    stream = read.key_by("caller").process(count, out=COUNTED, name="first")
    if levels == 2:
        stream = stream.key_by("callee").process(remember, out=SEEN, name="second")
    stream.write(ab.sinks.Files(home / "out", format="parquet"), name="out")
    return made


class Failing(InlineExecutor):
    """Fails the first job in which lanes take epoch `at` at `level`, in one of four ways.

    "before" and "after" its tasks ran; "forget": a lane's process has died, so that one lane takes its
    epochs and the other does not; "twice": the job is done and its answer is lost, again and again.
    """

    def __init__(self, at, level, how):
        super().__init__()
        self.at, self.level, self.how = at, level, how
        self.left = 3 if how == "twice" else 1
        self.read, self.then = set(), None
        self.void, self.parents = set(), []

    def run(self, heads, lanes, merges=()):
        hit = self.left and any(
            item.epoch == self.at and self._deployment.stages[each.stage].level == self.level
            for job in lanes.values()
            for each in job.stages
            for item in each.items
        )
        if not hit:
            return self.noted(heads, lanes, super().run(heads, lanes, merges))
        self.left -= 1
        self.then = frozenset(self.read) if self.then is None else self.then
        if self.how == "before":
            raise JobFailed("nothing was done")
        if self.how == "forget":
            self._processes.pop(max(lanes), None)
            return self.noted(heads, lanes, super().run(heads, lanes, merges))
        done = super().run(heads, lanes, merges)
        self.void |= {each.version for lane in done.lanes.values() for each in lane.stages}
        raise JobFailed("the answer was lost")

    def noted(self, heads, lanes, done):
        self.read |= {item.ticket for items in heads for item in items}
        if any(each.missing for each in done.lanes.values()):
            self.void |= {each.version for lane in done.lanes.values() for each in lane.stages}
        else:
            self.parents += [
                (lane, job.stage, job.parent, result.version)
                for lane, given in lanes.items()
                for job, result in zip(given.stages, done.lanes[lane].stages, strict=True)
            ]
        return done


def run(levels, home, executor, in_flight=4):
    settings = Settings(
        available_now(ROWS), home / "ckpt", LANES, slices=8, keep=None, in_flight=in_flight
    )
    assembled = assemble(program(levels, home).freeze(), settings, executor, MockClock())
    try:
        while not assembled.loop.over:
            assembled.loop.step()
    finally:
        assembled.loop._pool.shutdown(wait=True)
        assembled.close()


def check(levels, home, executor, *, runs=1):
    expected = run_sequential(program(levels, home), log=home / "ckpt")["out"]
    assert_same_rows(expected, written(home / "out"))
    store = LocalStore(home / "ckpt")
    found = recover(store)
    ranges = [(each.first, each.last) for each in found.history if not each.is_opening]
    epochs = [epoch for first, last in ranges for epoch in range(first, last + 1)]
    assert list(range(len(epochs))) == epochs, "commits are in order, without a gap"
    for name in found.chains:
        for lane in range(LANES):
            deltas = [read_delta(store, path) for path in found.chain(name, lane)]
            if runs == 1:
                check_chain(deltas)
            assert not executor.void & {delta.id for delta in deltas}
    # What a lane was told to go on from is what it had made before, of what counted.
    at = {}
    for lane, stage, parent, version in executor.parents:
        assert parent == at.get((lane, stage), "begin")
        assert parent not in executor.void
        at[lane, stage] = version


WAYS = ["before", "after", "forget", "twice"]


@pytest.mark.slow
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize(("levels", "level"), [(1, 1), (2, 1), (2, 2)])
def test_an_epoch_fails_while_later_ones_are_under_way(levels, level, how, tmp_path):
    overtaken = 0
    for at in range(EPOCHS):
        home, executor = tmp_path / str(at), Failing(at, level, how)
        run(levels, home, executor)
        assert executor.then is not None, "nothing failed"
        overtaken += any(ticket > at for ticket in executor.then)
        check(levels, home, executor)
        if how in ("after", "twice"):
            assert executor.void
    assert overtaken >= EPOCHS // 2, "later epochs were hardly ever read by then"


@pytest.mark.parametrize("how", ["before", "after"])
def test_the_next_run_goes_on_from_what_counted(how, tmp_path):
    """A driver that gives up after failed attempts leaves void deltas behind: nobody takes them."""
    executor = Failing(4, 1, how)
    executor.left = 100
    with pytest.raises(ab.RunError, match="failed 5 times in a row"):
        run(1, tmp_path, executor)

    fresh = Failing(-1, 1, how)
    run(1, tmp_path, fresh)

    executor.parents = []
    check(1, tmp_path, executor, runs=2)
