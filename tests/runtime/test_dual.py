"""Slices that are about to move are taken in both lanes: then nothing is left to read, and one counts."""

from dataclasses import replace

import polars as pl
import pytest

import anabranch as ab
from anabranch.runtime import tasks
from anabranch.runtime.aside import AtOnce
from anabranch.runtime.dual import DualCycle, digest
from anabranch.runtime.executor import JobFailed
from anabranch.runtime.payload import LaneDone, LaneItem, LaneJob, StageDone, StageJob
from anabranch.runtime.rescaling import Move
from anabranch.simulate.inline import KIND, UNKIND, Mischief
from anabranch.state.slices import Owners
from tests.runtime.programs import PROGRAMS
from tests.runtime.test_inline import made, widths_of, written
from tests.runtime.test_rescaling import Slow, Watched, check, run

WIDTHS = ((3, 3), (8, 1), (12, 4))


class Both(Watched):
    """Notes what was taken in both lanes, what came of it, and what was left to read at a turn."""

    def __init__(self, seed=0, mischief=KIND, aside=AtOnce, home=None):
        super().__init__(seed, mischief, aside)
        self.home, self.dual, self.taken, self.tails, self.made = home, 0, 0, [], 0
        self.same, self.others, self.gone_on_from = set(), set(), set()

    def run(self, heads, lanes, merges=()):
        self.dual += sum(len(job.dual) for job in lanes.values())
        # What a new lane takes over; one that had slices before has a part of its own.
        for job in lanes.values():
            for each in job.stages:
                self.gone_on_from |= {h.since for h in each.heritage}
                if each.heritage and all(h.since for h in each.heritage):
                    tails = [
                        part for h in each.heritage for some in h.tail.values() for part in some
                    ]
                    self.tails.append(len(tails))
        done = super().run(heads, lanes, merges)
        self._compare(lanes, done.lanes)
        return done

    def _compare(self, jobs, dones):
        told = {
            (asked.stage, slices): changed
            for lane, done in dones.items()
            for asked, each in zip(jobs[lane].stages, done.stages, strict=False)
            for slices, changed in zip(asked.told, each.digests, strict=True)
        }
        for lane, done in dones.items():
            for asked, (version, changed) in zip(jobs[lane].dual, done.dual, strict=True):
                self.taken += bool(version)
                same = told.get((asked.stage, asked.slices)) == changed
                (self.same if same else self.others).add(version)

    def _done(self, lane, payload):
        if not isinstance(payload, LaneJob) or not payload.dual or self.home is None:
            return super()._done(lane, payload)
        assert not payload.stages
        before = set(self.home.rglob("*.delta"))
        self._process(lane)._output = _refuse  # it neither stages nor sends
        done = super()._done(lane, payload)
        del self._process(lane)._output
        self.made += len(set(self.home.rglob("*.delta")) - before)
        return done


def _refuse(*_):
    message = "only state counts of what is taken besides"
    raise AssertionError(message)


@pytest.mark.parametrize("aside", [AtOnce, Slow])
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_left_to_read_when_new_lanes_get_slices(name, aside, tmp_path):
    program, executor = made(name, tmp_path, count=300), Both(aside=aside, home=tmp_path / "ckpt")
    run(program, tmp_path / "ckpt", executor, widths=WIDTHS, in_flight=8)

    check(program, tmp_path)
    assert [2, 3, 1, 4] == widths_of(tmp_path / "ckpt")
    assert executor.dual == executor.taken > 0
    assert not executor.others
    assert executor.same & executor.gone_on_from
    assert [0, 0, 0, 0] == executor.tails  # one lane, then three
    assert executor.read == 0
    assert executor.made == 0
    assert list((tmp_path / "ckpt").rglob("*.delta"))


def two_levels(source, sink):
    """Counts by word, then the sum of these by the word's first letter."""
    program = ab.Program("levels")
    words = program.read(source, name="words", event_time="at")
    counted = words.key_by("word").reduce(lambda old, new: {**new, "n": old["n"] + new["n"]})
    counted.key_by("letter").reduce(lambda old, new: {**new, "n": old["n"] + new["n"]}).write(
        sink, name="out"
    )
    return program


def test_every_level_is_taken_in_both_lanes(tmp_path):
    rows = [
        {"word": f"{'abcdef'[i % 6]}{i % 13}", "letter": "abcdef"[i % 6], "n": i, "at": i}
        for i in range(300)
    ]
    sink = ab.sinks.Files(tmp_path / "out", format="parquet")
    program, executor = two_levels(ab.sources.Records(rows), sink), Both()
    run(program, tmp_path / "ckpt", executor, widths=((4, 3),), in_flight=8)

    check(program, tmp_path)
    assert [2, 3] == widths_of(tmp_path / "ckpt")
    assert executor.dual == executor.taken > 0
    assert {0} == set(executor.tails)


def test_what_was_made_otherwise_is_not_taken(tmp_path, monkeypatch):
    """A lane that leaves rows out makes another state, as a function may that throws dice."""
    taken = tasks.Worker._as_well

    def less(self, asked):
        items = tuple(replace(each, parts={}) for each in asked.items)
        return taken(self, replace(asked, items=items))

    monkeypatch.setattr(tasks.Worker, "_as_well", less)
    program, executor = made("fraud", tmp_path, count=300), Both()
    run(program, tmp_path / "ckpt", executor, widths=WIDTHS, in_flight=8)

    check(program, tmp_path)
    assert [2, 3, 1, 4] == widths_of(tmp_path / "ckpt")
    assert executor.others
    assert not executor.others & executor.gone_on_from


def test_where_it_cannot_be_done_the_last_deltas_are_read(tmp_path, monkeypatch):
    def fail(*_):
        message = "it did not arrive"
        raise OSError(message)

    monkeypatch.setattr(tasks.Worker, "_as_well", fail)
    program, executor = made("fraud", tmp_path, count=300), Both()
    run(program, tmp_path / "ckpt", executor, widths=((3, 3),), in_flight=8)

    check(program, tmp_path)
    assert [2, 3] == widths_of(tmp_path / "ckpt")
    assert executor.taken == 0 < executor.dual
    assert max(executor.tails) > 0


class Deadly(Both):
    """In the first cycles with slices in both lanes one end dies, or the job, at a chosen moment."""

    def __init__(self, moment, times):
        super().__init__()
        self.moment, self.left = moment, times

    def run(self, heads, lanes, merges=()):
        new = [lane for lane, job in lanes.items() if job.dual]
        old = [lane for lane, job in lanes.items() if any(each.told for each in job.stages)]
        if not new or not self.left:
            return super().run(heads, lanes, merges)
        self.left -= 1
        ends = {"new": new, "old": old, "job": []}[self.moment.split()[0]]
        if self.moment.endswith("before"):
            self._die(ends)
        done = super().run(heads, lanes, merges)
        if self.moment.endswith("behind"):
            self._die(ends)
        if self.moment.startswith("job") or self.moment.endswith("failing"):
            self._die(ends)
            message = "the job failed when all of it was done"
            raise JobFailed(message)
        return done

    def _die(self, lanes):
        for lane in lanes:
            self._processes.pop(lane, None)


MOMENTS = [f"{who} {when}" for who in ("new", "old") for when in ("before", "behind", "failing")]


@pytest.mark.slow
@pytest.mark.parametrize("moment", [*MOMENTS, "job failing"])
def test_either_end_may_die_at_any_moment(moment, tmp_path):
    program, executor = made("fraud", tmp_path, count=300), Deadly(moment, times=2)
    run(program, tmp_path / "ckpt", executor, widths=((3, 3),), in_flight=8)

    check(program, tmp_path)
    assert [2, 3] == widths_of(tmp_path / "ckpt")
    assert executor.left < 2


@pytest.mark.slow
@pytest.mark.parametrize("aside", [AtOnce, Slow])
def test_whatever_fails_the_output_is_the_same(aside, tmp_path):
    dual = 0
    for seed in range(5):
        home, name = tmp_path / str(seed), list(PROGRAMS)[seed % len(PROGRAMS)]
        mischief = UNKIND if seed % 2 else Mischief(repeat=0.5)
        program, executor = made(name, home, count=200), Both(seed, mischief, aside)
        run(program, home / "ckpt", executor, widths=((3, 4), (7, 2), (9, 3)), in_flight=8)
        check(program, home)
        assert len(written(home / "out"))
        dual += executor.taken
    assert dual > 0


# The parts by themselves


def _asked(*, busy=False):
    move, other = Move(0, 0, 2, frozenset({1})), Move(0, 0, 3, frozenset({2}))
    item = LaneItem(4, 4, 0, {}, {})
    jobs = {0: LaneJob(0, (StageJob(0, "p", (item,)),))}
    if busy:
        jobs[2] = LaneJob(2, (StageJob(0, "q", ()),))
    cycle, owners = DualCycle(), Owners.spread(slices=4, lanes=2)
    found = [cycle.ask(jobs, each, "r", {}, owners) for each in (move, other)]
    return cycle, jobs, found, (move, other)


def test_both_ends_are_asked_and_only_what_they_agree_on_is_taken():
    cycle, jobs, found, (move, other) = _asked()
    assert [True, True] == found
    assert (move.slices, other.slices) == jobs[0].stages[0].told
    assert jobs[2].dual[0].items[0].routed is not None

    old = LaneDone(0, (StageDone(0, "v", digests=("one", "two")),))
    new, differs = LaneDone(2, dual=(("a", "one"),)), LaneDone(3, dual=(("b", "not two"),))
    (agreed,) = cycle.agreed({0: old, 2: new, 3: differs})
    assert (move, "a", "v") == (agreed.move, agreed.version, agreed.same_as)
    assert [] == list(cycle.agreed({0: old}))
    assert [] == list(cycle.agreed({2: new, 3: differs}))
    assert [] == list(cycle.agreed({0: old, 2: LaneDone(2, dual=(("", ""),))}))


def test_a_lane_that_has_work_is_not_given_more():
    cycle, jobs, found, _ = _asked(busy=True)
    assert [False, True] == found
    assert not jobs[2].dual
    assert cycle


def test_a_digest_tells_rows_order_and_columns_apart():
    def of(rows, **types):
        return digest({"op": pl.DataFrame(rows, schema_overrides=types)}, frozenset({1, 2}))

    rows = {"slice": [1, 2, 2, 3], "n": [1, 2, 3, 4]}
    assert of(rows) == of({"slice": [3, 2, 1, 2], "n": [0, 2, 1, 3]})  # by slice, others' left out
    assert of(rows) == of({**rows, "nothing": [None] * 4})
    assert of(rows) != of({"slice": [1, 2, 2, 3], "n": [1, 3, 2, 4]})
    assert of(rows) != of(rows, n=pl.Float64)
    assert of(rows) != of({"slice": [1, 2], "n": [1, 2]})
