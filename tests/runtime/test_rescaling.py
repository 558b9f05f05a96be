"""Lanes come and go while results keep coming: replicas are made where slices go, or files are read."""

from concurrent.futures import Future

import pytest

import anabranch as ab
from anabranch.epoch.triggers import available_now
from anabranch.runtime import tasks
from anabranch.runtime.aside import AtOnce
from anabranch.runtime.assembly import Settings, assemble
from anabranch.runtime.payload import LaneDone
from anabranch.simulate.inline import KIND, UNKIND, InlineExecutor
from anabranch.testing import MockClock, assert_same_rows, run_sequential
from tests.runtime.programs import CALLS, PROGRAMS, calls
from tests.runtime.test_inline import made, widths_of, written

WIDTHS = ((2, 3), (9, 1), (16, 4))


class Slow:
    """Does what it is asked for when it is looked at for the third time."""

    def __init__(self):
        self.waiting = []

    def submit(self, work):
        done = _Slowly(work)
        self.waiting.append(done)
        return done


class _Slowly(Future):
    def __init__(self, work):
        super().__init__()
        self.work, self.looks = work, 0

    def done(self):
        self.looks += 1
        if self.looks >= 3 and not super().done():
            try:
                self.set_result(self.work())
            except Exception as error:
                self.set_exception(error)
        return super().done()


class Watched(InlineExecutor):
    """Notes which states were made of files, and which of what processes had."""

    def __init__(self, seed=0, mischief=KIND, aside=AtOnce):
        super().__init__(seed, mischief)
        self.aside, self.read, self.inherited, self.replicas = aside, 0, 0, 0
        self.rerouted = 0

    def _process(self, lane):
        if lane not in self._processes:
            self._processes[lane] = tasks.Worker(self._deployment, aside=self.aside)
        return self._processes[lane]

    def run(self, heads, lanes, merges=()):
        for job in lanes.values():
            self.replicas += len(job.replicas)
            for each in job.stages:
                self.read += each.chain is not None or any(
                    given.chain is not None for given in each.heritage
                )
                self.rerouted += sum(item.routed is not None for item in each.items)
                self.inherited += any(given.chain is None for given in each.heritage)
        return super().run(heads, lanes, merges)


def run(program, checkpoint, executor, widths=WIDTHS, in_flight=2, told=None):
    settings = Settings(available_now(7), checkpoint, 2, slices=8, keep=None, in_flight=in_flight)
    assembled = assemble(program.freeze(), settings, executor, MockClock())
    if told is not None:
        assembled.loop.on_progress = told.append
    asked, steps = dict(widths), 0
    while not assembled.loop.over:
        if steps in asked:
            assembled.loop.rescale(asked[steps], lambda: None)
        assembled.loop.step()
        steps += 1
    assembled.loop.close()
    assembled.close()


def check(program, tmp_path):
    expected = run_sequential(program, log=tmp_path / "ckpt")["out"]
    assert expected
    assert_same_rows(expected, written(tmp_path / "out"))


@pytest.mark.parametrize("aside", [AtOnce, Slow])
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_read_from_files_when_slices_change_lanes(name, aside, tmp_path):
    program, executor = made(name, tmp_path, count=200), Watched(aside=aside)
    run(program, tmp_path / "ckpt", executor)

    check(program, tmp_path)
    assert [2, 3, 1, 4] == widths_of(tmp_path / "ckpt")
    assert executor.read == 0
    assert executor.inherited > 0
    assert executor.replicas > 0


def test_stages_of_later_levels_have_their_replicas_too(tmp_path):
    """Their first cycle at another width comes behind that of the stages before them."""
    program = ab.Program("levels")
    (
        program.read(ab.sources.Records(calls(200), schema=CALLS), name="calls", event_time="t")
        .window(ab.tumbling("1 s"), by="caller")
        .agg(n=ab.count())
        .window(ab.tumbling("5 s"), by="n")
        .agg(callers=ab.count())
        .write(ab.sinks.Files(tmp_path / "out", format="parquet"), name="out")
    )
    executor = Watched()
    run(program, tmp_path / "ckpt", executor)

    check(program, tmp_path)
    assert [2, 3, 1, 4] == widths_of(tmp_path / "ckpt")
    assert executor.read == 0
    assert executor.inherited > 0


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_rows_that_were_on_their_way_are_taken_by_the_lanes_of_another_width(name, width, tmp_path):
    """All epochs are cut and read before the first lane has taken one: none waits for the turn."""
    program, executor = made(name, tmp_path, count=200, partitions=2), Watched()
    run(program, tmp_path / "ckpt", executor, widths=((1, width),), in_flight=64)

    check(program, tmp_path)
    assert [width] == widths_of(tmp_path / "ckpt")
    assert executor.rerouted > 0
    assert executor.read == 0


@pytest.mark.parametrize("aside", [AtOnce, Slow])
@pytest.mark.parametrize("seed", range(12))
def test_lanes_that_die_meanwhile_make_their_state_of_files(seed, aside, tmp_path):
    program, executor = made("fraud", tmp_path, count=200), Watched(seed, UNKIND, aside)
    run(program, tmp_path / "ckpt", executor)

    check(program, tmp_path)
    assert executor.read > 0


def test_a_replica_that_cannot_be_made_is_done_without(tmp_path, monkeypatch):
    def fail(*_):
        message = "no memory is left"
        raise MemoryError(message)

    monkeypatch.setattr(tasks.Worker, "_replica", fail)
    program, executor = made("fraud", tmp_path, count=900), Watched()
    run(program, tmp_path / "ckpt", executor, widths=((2, 3),))

    check(program, tmp_path)
    assert [2, 3] == widths_of(tmp_path / "ckpt")
    assert executor.read > 0


def test_progress_says_where_state_came_from(tmp_path):
    """Slices that stay where they are come from memory, others from replicas; a new run has files."""
    program = made("fraud", tmp_path, count=200)
    settings = Settings(available_now(7), tmp_path / "ckpt", 2, slices=8, keep=None, in_flight=2)
    told = []
    for widths, stop in (({2: 3}, 12), ({}, 500)):
        assembled = assemble(program.freeze(), settings, InlineExecutor(), MockClock())
        assembled.loop.on_progress = told.append
        steps = 0
        while not assembled.loop.over and steps < stop:
            if steps in widths:
                assembled.loop.rescale(widths[steps], lambda: None)
            assembled.loop.step()
            steps += 1
        assembled.loop.close()
        assembled.close()

    found = [each["anabranch"]["slicesFrom"] for each in told]
    assert {"memory": 8, "shared": 0, "replica": 0, "backup": 0, "checkpoint": 0} == found[0]
    # The third lane got two slices of eight: those of others stay where they are.
    assert {"memory": 6, "shared": 0, "replica": 2, "backup": 0, "checkpoint": 0} in found
    assert {"memory": 0, "shared": 0, "replica": 0, "backup": 0, "checkpoint": 8} in found
    assert 3 <= sum(each["memory"] == 8 for each in found) == len(found) - 2


def test_the_last_width_that_was_asked_for_holds(tmp_path):
    program, executor = made("fraud", tmp_path, count=200), Watched(aside=Slow)
    run(program, tmp_path / "ckpt", executor, widths=((3, 4), (4, 1), (5, 3)))

    check(program, tmp_path)
    assert [2, 3] == widths_of(tmp_path / "ckpt")


def test_what_is_ready_comes_back_from_json():
    from anabranch.runtime.payload import lane_from_bytes, lane_to_bytes

    done = LaneDone(3, ready=("a", "b"))
    assert done == lane_from_bytes(lane_to_bytes(done))


def test_who_asks_twice_in_a_row_is_told_twice_and_has_the_last_width(tmp_path):
    program, told = made("fraud", tmp_path, count=200), []
    settings = Settings(available_now(7), tmp_path / "ckpt", 2, slices=8, keep=None, in_flight=2)
    assembled = assemble(program.freeze(), settings, Watched(aside=Slow), MockClock())
    loop, steps = assembled.loop, 0
    while not loop.over:
        if steps == 3:
            loop.rescale(4, lambda: told.append(4))
            loop.rescale(1, lambda: told.append(1))
        if steps == 4:  # and once more when its replicas are being made
            loop.rescale(3, lambda: told.append(3))
        loop.step()
        steps += 1
    loop.close()
    assembled.close()

    check(program, tmp_path)
    assert [4, 1, 3] == told
    assert [2, 3] == widths_of(tmp_path / "ckpt")
