"""Executors are lost and come: others take slices over from copies, lanes go to those who come."""

from collections import Counter

import polars as pl
import pytest

import anabranch as ab
from anabranch.epoch.triggers import available_now, epochs
from anabranch.runtime.assembly import Settings, assemble
from anabranch.runtime.backups import Backups
from anabranch.runtime.ground import Ground
from anabranch.scheduling.session_machine import Cycle
from anabranch.simulate.inline import KIND, Death, InlineExecutor, Mischief
from anabranch.state.recovery import committed_plans, recover
from anabranch.state.slices import Owners
from anabranch.state.store import LocalStore
from anabranch.testing import MockClock, assert_same_rows, run_sequential
from tests.runtime.programs import PROGRAMS
from tests.runtime.test_inline import made, written


def run(program, checkpoint, executor, events=(), *, lanes=3, seed=0, told=None, in_flight=2):
    """Run a program to its end; at some steps something is done to it."""
    settings = Settings(
        available_now(7), checkpoint, lanes, slices=8, keep=None, in_flight=in_flight
    )
    assembled = assemble(program.freeze(), settings, executor, MockClock())
    if told is not None:
        assembled.loop.on_progress = told.append
    steps, due = 0, dict(events)
    while not assembled.loop.over:
        if steps in due:
            due.pop(steps)(assembled.loop)
        assembled.loop.step()
        steps += 1
    assembled.loop.close()
    assembled.close()
    assert not due, f"it was over after {steps} steps"


def check(program, tmp_path):
    expected = run_sequential(program, log=tmp_path / "ckpt")["out"]
    assert expected
    assert_same_rows(expected, written(tmp_path / "out"))


def origins(told):
    found = Counter()
    for each in told:
        found.update(each["anabranch"]["slicesFrom"])
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_slices_of_a_lost_executor_come_from_copies_on_others(name, tmp_path, monkeypatch):
    """What was written before the loss cannot be read then: not where it is durable, either."""
    executor, told, lost = InlineExecutor(executors=3), [], []
    program = made(name, tmp_path, count=200)
    simple = []

    def lose(loop):
        loop._run(Cycle((), ()))  # as when nothing comes: a cycle for copies alone
        assert 0 == loop._shape.backups["behind"]
        simple.append(not loop._deployment.undivided and loop._deployment.levels == 1)
        executor.lose(executor.ground().of[1])
        if simple[0]:
            lost.extend(LocalStore(tmp_path / "ckpt").list("state/"))
        for _ in range(3):
            loop.step()
        lost.clear()

    read = LocalStore.read

    def refuse(self, path):
        assert path not in lost or self.root != str(tmp_path / "ckpt"), f"{path} was read"
        return read(self, path)

    monkeypatch.setattr(LocalStore, "read", refuse)
    run(program, tmp_path / "ckpt", executor, {9: lose}, told=told)
    monkeypatch.undo()

    check(program, tmp_path)
    if simple[0]:
        assert origins(told)["backup"] > 0
        assert 0 == origins(told)["checkpoint"]


def test_slices_come_from_copies_though_the_newest_file_is_not_copied_yet(tmp_path):
    executor, told = InlineExecutor(executors=3), []
    program = made("fraud", tmp_path, count=200)

    def lose(loop):
        had = loop._under_way.files_of(frozenset(range(8)))
        while had == loop._under_way.files_of(frozenset(range(8))):
            loop.step()
        executor.lose(executor.ground().of[1])
        while 8 == told[-1]["anabranch"]["slicesFrom"]["memory"]:
            loop.step()
        assert 0 == told[-1]["anabranch"]["slicesFrom"]["checkpoint"]
        assert told[-1]["anabranch"]["slicesFrom"]["backup"]

    run(program, tmp_path / "ckpt", executor, {9: lose}, told=told)
    check(program, tmp_path)


def test_all_who_are_left_take_a_part_over_and_give_it_back(tmp_path):
    """The lane itself is there again at once, elsewhere; when it is up it gets slices back."""
    executor, owners = InlineExecutor(executors=4), []
    program = made("fraud", tmp_path, count=300)

    def lose(loop):
        owners.append(loop._deployment.owners)
        executor.lose(executor.ground().of[2])
        loop.step()
        owners.append(loop._deployment.owners)

    def last(loop):
        owners.append(loop._deployment.owners)

    run(program, tmp_path / "ckpt", executor, {9: lose, 24: last}, lanes=4)

    check(program, tmp_path)
    before, amid, after = owners
    assert {0, 1, 3} == set(amid.of)
    moved = amid.moves(before)
    assert {2} == {source for source, _ in moved.values()}
    assert 2 == len({target for _, target in moved.values()})  # it had two slices of eight
    assert {0, 1, 2, 3} == set(after.of)


def test_a_lane_goes_to_who_has_come_with_a_replica(tmp_path):
    executor, told = InlineExecutor(executors=1), []
    executor._came = 2  # there was another before
    program = made("fraud", tmp_path, count=300)

    run(program, tmp_path / "ckpt", executor, {6: lambda _: executor.join()}, lanes=4, told=told)

    check(program, tmp_path)
    assert [2, 2] == sorted(Counter(executor.ground().of.values()).values())
    assert origins(told)["replica"] > 0
    assert 0 == origins(told)["checkpoint"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_executors_come_and_go_all_the_time(seed, tmp_path):
    name = list(PROGRAMS)[seed % len(PROGRAMS)]
    mischief = Mischief(fail=0.03, kill=0.05, repeat=0.05, die=0.03, lose=0.15)
    executor = InlineExecutor(seed, mischief, executors=1 + seed % 4)
    program = made(name, tmp_path, count=200)
    widths = {
        4 + seed % 5: lambda loop: loop.rescale(4, lambda: None),
        10: lambda loop: loop.rescale(2, lambda: None),
    }

    run(program, tmp_path / "ckpt", executor, widths, in_flight=(2, 5)[seed % 2])

    check(program, tmp_path)


def test_nothing_is_kept_where_there_is_one_place(tmp_path):
    told, executor = [], InlineExecutor(0, KIND)
    run(made("fraud", tmp_path, count=60), tmp_path / "ckpt", executor, told=told)

    assert {"files": 0, "behind": 0} == told[-1]["anabranch"]["backups"]


def test_copies_are_spread_over_all_others():
    """Of six slices on each of three executors each other one keeps three."""
    backups, owners = Backups(), Owners.spread(slices=18, lanes=3)
    backups.place(owners, Ground(("a", "b", "c"), {0: "a", 1: "b", 2: "c"}))

    heirs = backups.heirs(frozenset({1}), owners)

    assert {0: 9, 2: 9} == dict(Counter(heirs.of))


def test_a_lane_that_is_not_there_any_more_is_not_told_to_let_go_of_copies(tmp_path):
    executor, loops, asked = InlineExecutor(executors=2), [], []
    program = made("fraud", tmp_path, count=200)
    usual = executor.run

    def watched(heads, lanes, merges=()):
        asked.extend(max(lanes) for loop in loops if lanes and loop._deployment.lanes == 1)
        return usual(heads, lanes, merges)

    def narrow(loop):
        assert loop._shape.backups["files"] > 0
        loops.append(loop)
        loop.rescale(1, lambda: None)

    executor.run = watched
    run(program, tmp_path / "ckpt", executor, {9: narrow}, lanes=2)

    check(program, tmp_path)
    assert {0} == set(asked)


def test_plans_and_commits_say_which_configuration_holds(tmp_path):
    """It is another one when slices or lanes are elsewhere, and never one of before."""
    executor = InlineExecutor(executors=2)
    program = made("fraud", tmp_path, count=200)
    changes = {5: lambda loop: loop.rescale(3, lambda: None), 12: lambda _: executor.join()}
    run(program, tmp_path / "ckpt", executor, changes, lanes=4)

    found = recover(LocalStore(tmp_path / "ckpt")).history
    versions = [each.version for each in found if not each.is_opening]
    assert versions == sorted(versions)
    assert 3 <= len(set(versions))
    by_version = {each.version: each.owners for each in found if not each.is_opening}
    assert 2 <= len(set(by_version.values()))
    store = LocalStore(tmp_path / "ckpt")
    plans = [plan for each in found for plan in committed_plans(store, each)]
    assert {plan.owners for plan in plans} <= {1, *range(versions[-1] + 1)}
    assert all(
        plan.owners <= each.version for each in found for plan in plans if plan.path in each.plans
    )


class Silent:
    """A query that has taken all there is, and is left alone."""

    def __init__(self, tmp_path, executor, lanes=3):
        make, rows, schema = PROGRAMS["fraud"]
        sink = ab.sinks.Files(tmp_path / "out", format="parquet")
        home = tmp_path / "in"
        home.mkdir(exist_ok=True)
        pl.DataFrame(rows(60), schema=schema).write_parquet(home / "rows.parquet")
        self.program = make(ab.sources.Files(home, format="parquet", schema=schema), sink)
        settings = Settings(epochs("1 s", 7), tmp_path / "ckpt", lanes, slices=8, keep=None)
        self.clock = MockClock()
        self.assembled = assemble(self.program.freeze(), settings, executor, self.clock)
        self.loop, self.jobs = self.assembled.loop, 0
        run = executor.run

        def counted(*given):
            self.jobs += 1
            return run(*given)

        executor.run = counted
        self.steps(60)

    def steps(self, count):
        for _ in range(count):
            if not self.loop.step():
                self.clock.advance(1.0)

    def stop(self):
        self.loop.stop(drain=True)
        while not self.loop.over:
            self.steps(1)
        self.loop.close()
        self.assembled.close()


def test_a_width_is_reached_though_nothing_comes_also_after_a_restart(tmp_path):
    for lanes, width in ((3, 2), (2, 4)):
        silent, reached = Silent(tmp_path, InlineExecutor(), lanes), []
        silent.loop.rescale(width, lambda reached=reached: reached.append(True))
        silent.steps(60)

        assert [True] == reached
        assert width == silent.loop._deployment.lanes
        silent.stop()
    check(silent.program, tmp_path)


def test_a_query_that_is_idle_rests_after_a_loss(tmp_path):
    executor = InlineExecutor(executors=3)
    silent = Silent(tmp_path, executor)
    executor.lose(executor.ground().of[1])
    silent.steps(100)
    before = silent.jobs
    silent.steps(200)

    assert before + 10 > silent.jobs
    assert {0, 1, 2} == set(silent.loop._deployment.owners.of)
    silent.stop()
    check(silent.program, tmp_path)


class Frail(InlineExecutor):
    """The process of a lane dies at each of its tasks."""

    frail = 99

    def _done(self, lane, payload):
        if lane == self.frail:
            raise Death
        return super()._done(lane, payload)


@pytest.mark.parametrize("asked", [True, False])
def test_who_only_makes_replicas_may_die_and_nobody_is_disturbed(asked, tmp_path):
    executor, told = Frail(executors=1), []
    executor._came, executor.frail = 2, 4
    program = made("fraud", tmp_path, count=900)

    def begin(loop):
        if asked:
            loop.rescale(5, lambda: None)
        else:
            executor.join()

    def mend(_):
        executor.frail = 99

    run(program, tmp_path / "ckpt", executor, {6: begin, 40: mend}, lanes=4, told=told)

    check(program, tmp_path)
    assert {0} == {each["anabranch"]["failures"] for each in told}


def test_what_cannot_be_is_not_tried_all_the_time(tmp_path):
    executor = Frail(executors=1)
    executor._came, executor.frail = 2, 4
    silent = Silent(tmp_path, executor, lanes=4)
    executor.join()
    silent.steps(400)
    before = silent.jobs
    silent.steps(400)

    assert silent.jobs < before + 300
    silent.stop()
    check(silent.program, tmp_path)


def test_what_is_not_divided_is_written_anew_once_in_a_round(tmp_path):
    program = ab.Program("one")
    rows = ab.sources.Records([{"n": n} for n in range(400)])
    program.read(rows).process(counted, out={"n": pl.Int64}).write(
        ab.sinks.Files(tmp_path / "out", format="parquet"), name="out"
    )
    settings = Settings(available_now(4), tmp_path / "ckpt", 1, slices=128, keep=None, in_flight=1)
    assembled = assemble(program.freeze(), settings, InlineExecutor(), MockClock())
    while not assembled.loop.over:
        assembled.loop.step()
    assembled.loop.close()
    assembled.close()

    found = recover(LocalStore(tmp_path / "ckpt")).history
    assert 100 == sum(each.first <= each.last for each in found)
    assert 3 == sum(len(some) for each in found for some in each.snapshots.values())


def counted(record, state):
    state.value = (state.value or 0) + 1
    yield {"n": state.value}
