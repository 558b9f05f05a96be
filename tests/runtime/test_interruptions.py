"""Items of a `TestingSource` that end, kill and pause the run that reads them."""

import polars as pl
import pytest

import anabranch as ab
from anabranch.epoch.triggers import available_now, epochs
from anabranch.errors import RunError
from anabranch.runtime.assembly import Settings, assemble
from anabranch.simulate.inline import InlineExecutor
from anabranch.testing import ABORT, EOF, PAUSE, MockClock, TestingSource, run_sequential
from anabranch.testing.sequential.checkpoint import log_of
from tests.runtime.test_inline import written

NUMBERS = [{"t": n * 1_000, "k": n % 2} for n in range(9)]


def counted(record, state):
    state.value = (state.value or 0) + 1
    yield {"k": record["k"], "t": record["t"], "n": state.value}


class World:
    """A program over such a source, run by run in this process, with a clock that is moved by hand."""

    def __init__(self, home, items, **reading):
        self.home, self.clock = home, MockClock()
        self.items, self.reading = items, reading
        self.program = self.made(TestingSource(items))

    def made(self, source):
        program = ab.Program("interrupted")
        read = program.read(source, name="items", event_time="t", **self.reading)
        out = {"k": pl.Int64, "t": pl.Int64, "n": pl.Int64}
        counts = read.key_by("k").process(counted, out=out, name="counted")
        counts.write(ab.sinks.Files(self.home / "out", format="parquet"), name="out")
        ends = read.window(ab.tumbling("2 s")).agg(rows=ab.count())
        ends.write(ab.sinks.Files(self.home / "ends", format="parquet"), name="ends")
        return program

    def run(self, trigger=None, lanes=2):
        settings = Settings(
            trigger or available_now(), self.home / "ckpt", lanes, slices=8, keep=None
        )
        graph = self.program.freeze()
        return assemble(graph, settings, InlineExecutor(), self.clock)

    def live(self, trigger=None, lanes=2):
        """A run to its end, or as long as there is something to do."""
        assembled = self.run(trigger, lanes)
        try:
            while not assembled.loop.over and assembled.loop.step():
                pass
            return assembled.loop.over
        finally:
            assembled.loop.close()
            assembled.close()

    def finish(self, assembled):
        """Let a run come to its end as time passes."""
        while not assembled.loop.over:
            assembled.loop.step()
            self.clock.advance(1)
        assembled.loop.close()
        assembled.close()

    def counts(self):
        return len(written(self.home / "out")) if (self.home / "out").exists() else 0

    def require_the_whole(self):
        for sink in ("out", "ends"):
            rows = run_sequential(self.program, log=self.home / "ckpt")[sink]
            assert rows == written(self.home / sink)
        assert len(NUMBERS) == self.counts()


@pytest.mark.parametrize("trigger", [available_now(), available_now(2), epochs("1 s")], ids=str)
def test_a_run_ends_at_eof_and_the_next_goes_on_behind_it(trigger, tmp_path):
    world = World(tmp_path, [*NUMBERS[:4], EOF, *NUMBERS[4:5], EOF, EOF, *NUMBERS[5:]])

    seen = []
    for _ in range(4):
        assert world.live(trigger)
        seen.append(world.counts())

    assert [4, 5, 5, 9] == seen
    world.require_the_whole()


@pytest.mark.parametrize("rows", [None, 1, 3])
def test_abort_kills_a_run_once_when_all_before_it_is_committed(rows, tmp_path):
    world = World(tmp_path, [*NUMBERS[:4], EOF, *NUMBERS[4:6], ABORT, *NUMBERS[6:]])
    assert world.live(available_now(rows))
    behind = {None: 4, 1: 5, 3: 4}[rows]

    with pytest.raises(RunError, match="killed by its source"):
        world.live(available_now(rows), lanes=3)

    assert behind == world.counts()
    assert world.live(available_now(rows), lanes=1)
    world.require_the_whole()


def test_a_new_process_does_not_die_of_the_same_abort(tmp_path):
    """The epoch is in the log, and what is in the log is not cut again."""
    world = World(tmp_path, [*NUMBERS[:4], ABORT, *NUMBERS[4:]])
    with pytest.raises(RunError, match="ABORT"):
        world.live()
    assert 0 == world.counts()

    world.program = world.made(TestingSource(world.items))

    assert world.live()
    world.require_the_whole()


def test_without_a_log_an_abort_is_met_once_by_the_same_source(tmp_path):
    world = World(tmp_path, [*NUMBERS[:4], ABORT, *NUMBERS[4:]])
    with pytest.raises(RunError, match="ABORT"):
        world.live()

    other = World(tmp_path / "other", world.items)
    (source,) = [read.source for read in world.program.freeze().sources]
    other.program = other.made(source)

    assert other.live()
    other.require_the_whole()


def test_a_run_dies_though_another_source_never_ends(tmp_path):
    """Nobody waits for it: from the ABORT on nothing is cut of any source."""
    program = ab.Program("two")
    deadly = TestingSource([*NUMBERS[:2], ABORT, *NUMBERS[2:]])
    other = ab.sources.Records([{"t": n, "k": 7} for n in range(400)])
    both = program.read(deadly, name="deadly", event_time="t").union(
        program.read(other, name="other", event_time="t")
    )
    both.write(ab.sinks.Files(tmp_path / "out", format="parquet"), name="out")

    def run():
        settings = Settings(
            epochs("1 ms", 1), tmp_path / "ckpt", 2, slices=8, keep=None, in_flight=4
        )
        clock = MockClock()
        assembled = assemble(program.freeze(), settings, InlineExecutor(), clock)
        try:
            while not assembled.loop.over:
                assembled.loop.step()
                clock.advance(0.01)
        finally:
            assembled.loop.close()
            assembled.close()

    with pytest.raises(RunError, match="ABORT"):
        run()
    assert len(written(tmp_path / "out")) < 50

    run()
    assert 400 + len(NUMBERS) == len(written(tmp_path / "out"))
    expected = run_sequential(program, log=tmp_path / "ckpt")["out"]
    assert expected == written(tmp_path / "out")


@pytest.mark.parametrize("trigger", [available_now(), epochs("1 s")], ids=str)
def test_a_source_gives_nothing_while_it_pauses(trigger, tmp_path):
    world = World(tmp_path, [*NUMBERS[:4], PAUSE("30 s"), *NUMBERS[4:]])
    loop = (assembled := world.run(trigger)).loop

    while loop.step():
        pass
    assert 4 == world.counts()
    world.clock.advance(29)
    assert not loop.step()
    assert not loop.over
    world.clock.advance(2)

    world.finish(assembled)
    world.require_the_whole()


def test_a_source_that_pauses_for_long_is_idle(tmp_path):
    world = World(tmp_path, [*NUMBERS[:4], PAUSE("1 min"), *NUMBERS[4:]], idle_timeout="10 s")
    loop = (assembled := world.run(epochs("1 s"))).loop
    for seconds in (0, 9, 2, 20):
        world.clock.advance(seconds)
        while loop.step():
            pass
    idle = [cut.idle for cut in log_of(tmp_path / "ckpt", world.program.freeze())]
    assert [frozenset(), frozenset({0})] == idle

    world.clock.advance(30)

    world.finish(assembled)
    world.require_the_whole()
