"""What a query on the inline executor says of itself while it runs; time passes when a test says so."""

import polars as pl
import pytest

import anabranch as ab
from anabranch.api.starting import start
from anabranch.epoch.machine import Known, Machine, Rules
from anabranch.epoch.protocol import HeadsDone, Offer, Offered, Planned, WorkFailed
from anabranch.epoch.triggers import available_now, epochs
from anabranch.epoch.watermarks import SourceTime
from anabranch.errors import RunError
from anabranch.observe.checkpoint import why_of
from anabranch.observe.waits import Shape, Wait
from anabranch.observe.why import why
from anabranch.program.windows import Tumbling
from anabranch.runtime.assembly import Settings, assemble
from anabranch.runtime.executor import CycleResult, JobFailed
from anabranch.runtime.loop import HEARTBEAT_S
from anabranch.runtime.payload import LaneDone
from anabranch.simulate.inline import InlineExecutor, Mischief
from anabranch.testing import MockClock
from tests.runtime.programs import PROGRAMS
from tests.runtime.test_inline import made

PATIENCE_S = 60
SCHEMA = {"t": pl.Int64, "k": pl.Int64}
MS = 1000


class Growing(ab.sources.Source):
    """Partitions of rows {t, k} to which a test adds; it never ends."""

    schema = pl.Schema(SCHEMA)

    def __init__(self, partitions=2):
        self.rows = [[] for _ in range(partitions)]

    def give(self, partition, *times):
        self.rows[partition] += [{"t": t, "k": t % 3} for t in times]

    def partitions(self):
        return range(len(self.rows))

    def latest(self):
        return {at: len(rows) for at, rows in enumerate(self.rows)}

    def plan(self, start, end):
        return [(at, start[at], end[at]) for at in start if start[at] < end[at]]

    def read(self, split):
        at, low, high = split
        frame = pl.DataFrame(self.rows[at][low:high], schema=self.schema)
        yield from frame.to_arrow().to_batches()


class Counting(InlineExecutor):
    """Counts its warm-ups."""

    warmed = 0

    def warm_up(self):
        self.warmed += 1


class Running:
    """A program of windows over a growing source, driven by hand."""

    def __init__(self, checkpoint, *, executor=None, idle_timeout=None, every="1 s", partitions=2):
        self.clock, self.source = MockClock(), Growing(partitions)
        program = ab.Program("views")
        read = program.read(self.source, name="clicks", event_time="t", idle_timeout=idle_timeout)
        out = read.window(ab.tumbling("10 s"), by="k").agg(n=ab.count())
        out.write(ab.sinks.Memory("out"), name="out")
        self.shape = Shape.of(program.freeze())
        settings = Settings(epochs(every), checkpoint, 2, slices=8, keep=None)
        self.executor = executor or Counting()
        self.assembled = assemble(program.freeze(), settings, self.executor, self.clock)
        self.loop, self.progress = self.assembled.loop, []
        self.loop.on_progress = self.progress.append

    def rest(self):
        """Work until there is nothing more to do now."""
        while self.loop.step():
            pass

    def why(self):
        return why(self.loop.facts(), self.shape)

    def close(self):
        self.loop.close()
        self.assembled.close()


@pytest.fixture
def running(tmp_path):
    made = []

    def run(**given):
        made.append(Running(tmp_path / "ckpt", **given))
        return made[-1]

    yield run
    for each in made:
        each.close()


# Why


def test_a_silent_partition_is_named_with_what_it_blocks_and_what_would_release_it(running):
    query = running()
    query.source.give(0, 1 * MS, 25 * MS)
    query.rest()
    query.clock.advance(42)
    query.rest()

    assert [
        "views: waits for data: no source has new rows. Epoch 0 was committed last, 42 s ago.",
        "source clicks: watermark none yet, held by partition 1",
        "  partition 1 of clicks has not spoken, and has been empty for 42 s: it holds the watermark until it does or is idle; pass idle_timeout= to read",
        "  partition 0 is further, up to 1970-01-01 00:00:25",
        "operator window-1: keeps its windows until clicks has a watermark",
    ] == query.why().splitlines()


def test_what_it_said_would_release_the_watermark_releases_it(running):
    query = running()
    query.source.give(0, 25 * MS)
    query.rest()
    assert query.why().count("partition 1 of clicks has not spoken") == 1

    query.clock.advance(1)
    query.source.give(1, 12 * MS)
    query.rest()

    assert "source clicks: watermark 1970-01-01 00:00:12, held by partition 1" in query.why()
    assert "may end at 1970-01-01 00:00:20" in query.why()


def test_a_partition_that_becomes_idle_is_no_longer_waited_for(running):
    query = running(idle_timeout="30 s")
    query.source.give(0, 25 * MS)
    query.rest()
    assert "or is idle, which is after 30 s without rows" in query.why()

    query.clock.advance(30)
    query.source.give(0, 26 * MS)
    query.rest()

    told = query.why()
    assert "source clicks: watermark 1970-01-01 00:00:26, held by partition 0" in told
    assert "partition 1 is idle and not waited for" in told


def test_rows_that_wait_for_the_trigger_are_told_with_the_time_that_is_left(running):
    query = running(partitions=1)
    query.source.give(0, 1 * MS)
    query.rest()

    query.source.give(0, 2 * MS)
    query.clock.advance(0.25)
    query.rest()

    assert "clicks has rows, and the next epoch is cut in 750 ms." in query.why().splitlines()[0]


def test_a_running_query_tells_and_so_does_one_that_has_ended(tmp_path):
    settings = Settings(available_now(7), tmp_path / "ckpt", 2, slices=8, keep=None)
    query = start(made("campaign_views", tmp_path).freeze(), settings, InlineExecutor())
    assert query.await_termination(PATIENCE_S)

    assert "campaign-views: has stopped. Epoch 8 was committed last, " in query.why()
    assert {
        "message": "Stopped",
        "isDataAvailable": False,
        "isTriggerActive": False,
    } == query.status


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("seed", range(5))
def test_it_can_be_asked_between_any_two_steps_whatever_goes_wrong(name, seed, tmp_path):
    program = made(name, tmp_path, partitions=2)
    settings = Settings(available_now(7), tmp_path / "ckpt", 2, slices=8, keep=None)
    executor = InlineExecutor(seed, Mischief(fail=0.1, kill=0.2, repeat=0.1))
    assembled = assemble(program.freeze(), settings, executor, MockClock())
    shape, said = Shape.of(program.freeze()), []
    while not assembled.loop.over:
        assembled.loop.step()
        said.append(why(assembled.loop.facts(), shape))
    assembled.loop.close()
    assembled.close()

    (source,) = assembled.deployment.inputs
    assert all(f"source {source.name}: " in each for each in said)
    assert f"source {source.name}: at its end, it holds nothing back" in said[-1]


class Refusing(InlineExecutor):
    """None of its jobs succeeds."""

    def run(self, heads, lanes, merges=()):
        message = "a worker process died"
        raise JobFailed(message)


def test_work_that_fails_is_told_with_what_failed(running):
    query = running(executor=Refusing(), partitions=1)
    query.source.give(0, 1 * MS)

    query.loop.step()
    query.loop.step()

    first, second, third, *_ = query.why().splitlines()
    assert "views: its work has failed 2 times in a row, and is tried again." in first
    assert "  epoch 0 is cut and not yet read, attempt 3; it was cut 0 ms ago" == second
    assert "  what failed last (2 of 5 failures in a row): a worker process died" == third


def test_a_checkpoint_tells_what_it_can(running, tmp_path):
    query = running()
    query.source.give(0, 1 * MS, 25 * MS)
    query.rest()
    query.clock.advance(3600)

    assert [
        "views: this is what its checkpoint says; whether it runs is not known here. Epoch 0 was committed last, 1 h ago.",
        "source clicks: watermark none yet, held by partition 1",
        "  partition 1 of clicks has not spoken: it holds the watermark until it does or is idle; pass idle_timeout= to read",
        "  partition 0 is further, up to 1970-01-01 00:00:25",
    ] == why_of(tmp_path / "ckpt", query.clock).splitlines()


def test_a_checkpoint_tells_of_epochs_that_were_planned_and_not_committed(running, tmp_path):
    query = running(executor=Refusing(), partitions=1)
    query.source.give(0, 1 * MS)
    query.loop.step()

    told = why_of(tmp_path / "ckpt", query.clock).splitlines()

    assert "Nothing was committed." in told[0]
    assert "  epoch 0 is planned and not committed" == told[1]


def test_what_is_no_checkpoint_is_refused(tmp_path):
    with pytest.raises(ab.CheckpointError, match=r"is no checkpoint: it has no metadata"):
        why_of(tmp_path)
    with pytest.raises(ab.CheckpointError, match=r"is no checkpoint: there is no such directory"):
        why_of(tmp_path / "none")
    assert [] == list(tmp_path.iterdir())


def test_checkpoints_in_a_directory_that_is_none_are_named(tmp_path):
    for name in ("views", "orders", "other"):
        (tmp_path / name).mkdir()
        if name != "other":
            (tmp_path / name / "metadata").touch()

    with pytest.raises(ab.CheckpointError) as refused:
        why_of(tmp_path)

    assert f"{tmp_path / 'orders'}, {tmp_path / 'views'}" == refused.value.have
    assert "pass one of these" == refused.value.so


def test_a_query_that_goes_on_does_not_know_when_the_run_before_committed(running):
    query = running()
    query.source.give(0, 1 * MS)
    query.rest()
    query.close()

    again = running()

    assert "Epoch 0 was committed last.\n" in again.why()


# Who waits


def test_who_waits_is_read_off_the_program():
    """The window is behind an outer join, whose output is behind by what may still match."""

    class Alarm(ab.KeyedOperator):
        out = {"k": pl.Int64}

        def on_record(self, record, state):
            state.timer_at(record["t"] + 1)

        def on_timer(self, at, state):
            yield {"k": state.key}

    program = ab.Program("all")
    a, b = (
        program.read(ab.sources.Records([], schema=SCHEMA), name=name, event_time="t")
        for name in "ab"
    )
    joined = a.join(b, on="k", within="5 s", how="left")
    joined.window(ab.tumbling("10 s")).agg(n=ab.count()).write(ab.sinks.Memory("1"))
    a.window(ab.rows(3), by="k").agg(n=ab.count()).write(ab.sinks.Memory("2"))
    b.key_by("k").process(Alarm).write(ab.sinks.Memory("3"))
    a.merge(b).write(ab.sinks.Memory("4"))
    a.join(b, on="k", within="5 s").write(ab.sinks.Memory("5"))

    five = 5_000_000
    assert (
        Wait("join-1", "rows without a partner", {"a": 0, "b": 0}),
        Wait("window-1", "windows", {"a": five, "b": five}, Tumbling(10_000_000)),
        Wait("process-1", "timers", {"b": 0}),
        Wait("merge-1", "rows in order of time", {"a": 0, "b": 0}),
    ) == Shape.of(program.freeze()).waits


# Warm lanes


def test_a_query_without_work_keeps_its_lanes_warm(running):
    query = running()
    query.source.give(0, 1 * MS)
    query.rest()
    assert 0 == query.executor.warmed

    for beat in (1, 2, 3):
        query.clock.advance(HEARTBEAT_S - 1)
        query.rest()
        assert beat - 1 == query.executor.warmed
        query.clock.advance(1)
        query.rest()
        assert beat == query.executor.warmed
        query.rest()
        assert beat == query.executor.warmed


def test_a_query_that_works_anyway_needs_no_heartbeat(running):
    query = running()
    for at in range(1, 6):
        query.clock.advance(HEARTBEAT_S - 1)
        query.source.give(0, at * MS)
        query.rest()

    assert 0 == query.executor.warmed


def test_lanes_are_kept_warm_for_less_than_spark_waits():
    """Spark ends workers that were idle for a minute; the loop looks every 20 ms."""
    assert HEARTBEAT_S < 50


class Failing(Counting):
    """Its warm-ups come to nothing."""

    def warm_up(self):
        super().warm_up()
        message = "a worker process died"
        raise JobFailed(message)


def test_a_heartbeat_that_fails_does_not_end_a_query_nor_is_it_tried_at_once(running):
    query = running(executor=Failing())
    query.clock.advance(HEARTBEAT_S)

    query.rest()
    query.rest()

    assert 1 == query.executor.warmed
    assert not query.loop.over


# No progress


class Forgetful(InlineExecutor):
    """Its lanes say they have lost their state, whatever they are sent."""

    def run(self, heads, lanes, merges=()):
        lost = {
            lane: LaneDone(lane, missing=tuple(each.stage for each in job.stages))
            for lane, job in lanes.items()
        }
        return CycleResult(super().run(heads, {}).heads, lost)


def test_cycles_that_succeed_and_bring_nothing_end_with_the_story(running):
    query = running(executor=Forgetful(), partitions=1)
    query.source.give(0, 1 * MS)

    with pytest.raises(RunError) as caught:
        query.rest()

    told = str(caught.value)
    assert told.startswith("the query makes no progress: epoch 0 has not moved\n")
    assert (
        "it was placed after each of 50 cycles; what failed last: a process lost its state" in told
    )
    assert "WorkFailed(heads=(), lanes=(0,), reason='a process lost its state'" in told


def offered(at, end):
    return Offered(Offer({0: (end - 1, end)}, frozenset(), None, more=False), float(at))


def a_machine(**rules):
    time = SourceTime((0,), lateness=0)
    machine = Machine(Rules(patience=3, **rules), Known({"": time}, {}, {}))
    machine.handle(offered(1, 1))
    machine.handle(Planned(0))
    return machine


def test_the_machine_says_what_stands_still_and_since_when():
    machine = a_machine()

    found = [machine.cycle_over() for _ in range(4)]

    assert [None, None, None] == found[:3]
    assert (0, "open", 3) == (found[3].epoch, found[3].stage.value, found[3].cycles)


def test_an_epoch_that_moves_is_no_standstill():
    machine = a_machine()
    for _ in range(3):
        assert machine.cycle_over() is None

    machine.take(*machine.ready())
    machine.handle(HeadsDone(0, {0: 5}, {0: 1}))

    for _ in range(3):
        assert machine.cycle_over() is None


def test_a_machine_without_work_stands_still_for_ever():
    machine = Machine(Rules(patience=3), Known({"": SourceTime((0,), lateness=0)}, {}, {}))

    assert [None] * 10 == [machine.cycle_over() for _ in range(10)]


def test_failures_that_do_not_count_are_remembered():
    machine = a_machine()
    machine.take(*machine.ready())

    machine.handle(WorkFailed((0,), (), "a process lost its state", counts=False))

    assert (0, "a process lost its state") == (
        machine.statistics().failures,
        machine.statistics().failure,
    )


def test_the_story_is_of_what_happened_and_no_longer_than_it_must_be():
    """A query without data looks fifty times a second, for days."""
    machine = a_machine()
    nothing = Offer({0: (1, 1)}, frozenset(), None, more=False)
    before = machine.story()

    for at in range(1000):
        machine.handle(Offered(nothing, float(at)))
    assert before == machine.story()

    for _ in range(300):
        machine.take(*machine.ready())
        machine.handle(WorkFailed((0,), (), "a process lost its state", counts=False))
    assert 200 == len(machine.story().splitlines())
