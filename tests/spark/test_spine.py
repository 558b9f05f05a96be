"""The whole path on a real Spark: equal to the oracle on the run's own log.

A schedule is drawn from its seed; a failure says which one, and its test is run again by that number.
"""

import random
import threading
from dataclasses import dataclass

import polars as pl
import pytest

import anabranch as ab
from anabranch.errors import RunError
from anabranch.runtime import rescaling
from anabranch.state.recovery import recover
from anabranch.state.store import LocalStore
from anabranch.testing import assert_same_rows, run_sequential
from tests.recovery.test_savepoint import behind
from tests.runtime.programs import CALLS, PROGRAMS, calls, fraud
from tests.runtime.test_inline import written

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PATIENCE_S = 90
"""A query that takes longer is taken to hang."""


@dataclass(frozen=True)
class Schedule:
    """All that a seed decides; the first nine go through every program at every width."""

    seed: int
    name: str
    lanes: int
    rows: int
    partitions: int
    ordered: bool
    forever: bool

    @classmethod
    def of(cls, seed):
        draw = random.Random(seed)
        names = list(PROGRAMS)
        return cls(
            seed,
            names[seed % 3] if seed < 9 else draw.choice(names),
            (1, 2, 4)[seed // 3] if seed < 9 else draw.choice((1, 2, 4)),
            draw.choice((4, 7, 15, 60)),
            draw.choice((1, 2, 3)),
            draw.random() < 0.7,
            draw.random() < 0.4,
        )

    @property
    def trigger(self):
        return ab.epochs("20 ms", self.rows) if self.forever else ab.available_now(self.rows)

    def program(self, tmp_path):
        make, rows, schema = PROGRAMS[self.name]
        source = ab.sources.Records(rows(60), schema=schema, partitions=self.partitions)
        return make(source, files(tmp_path), ordered=self.ordered)


def files(tmp_path):
    return ab.sinks.Files(tmp_path / "out", format="parquet")


def check(program, tmp_path, *, ordered=True):
    expected = run_sequential(program, log=tmp_path / "ckpt")["out"]
    assert expected, "nothing came out: nothing is proved"
    assert_same_rows(expected, written(tmp_path / "out"), ordered=ordered)


def ended(query):
    assert query.await_termination(PATIENCE_S), f"it hangs: {query}"


def promptly(call, *given, patience=PATIENCE_S, **named):
    """A call that would wait for ever if something went wrong, but then fails."""
    raised = []

    def run():
        try:
            call(*given, **named)
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(patience)
    assert not thread.is_alive(), f"{call} hangs"
    if raised:
        raise raised[0]


def cut_off(query, *, drain=False):
    """Stop a query at a commit, by its own thread: the rest is still to do, however slow we are."""
    note, left = query._loop.on_progress, []

    def noted(progress):
        note(progress)
        if not left:
            left.append(progress["anabranch"]["epochsUnderWay"])
            query.stop(drain=drain)

    query._loop.on_progress = noted
    ended(query)
    assert any(left), "nothing was left to do when it was stopped"


class Growing:
    """A directory that a query reads while files are put into it."""

    def __init__(self, tmp_path, name="fraud"):
        self.home, self.name, self._files = tmp_path / "in", name, 0
        self.home.mkdir()
        self._rows = PROGRAMS[name][1](2000)

    def add(self, count):
        at, self._files = self._files, self._files + 1
        rows, self._rows = self._rows[:count], self._rows[count:]
        draft = self.home / f"_{at:05d}"
        pl.DataFrame(rows, schema=PROGRAMS[self.name][2]).write_parquet(draft)
        draft.rename(self.home / f"{at:05d}.parquet")

    def program(self, tmp_path):
        make, _, schema = PROGRAMS[self.name]
        source = ab.sources.Files(self.home, format="parquet", schema=schema)
        return make(source, files(tmp_path))


@pytest.mark.parametrize(
    "seed", [*range(9), *(pytest.param(seed, marks=pytest.mark.chaos) for seed in range(9, 20))]
)
def test_a_schedule_gives_what_its_log_means(seed, spark_context, tmp_path):
    schedule = Schedule.of(seed)
    print(f"repeat {schedule}: -k 'its_log_means and [{seed}]'")  # noqa: T201 - shown on failure
    query = schedule.program(tmp_path).start(
        spark_context,
        trigger=schedule.trigger,
        checkpoint=tmp_path / "ckpt",
        parallelism=schedule.lanes,
        slices=16,
    )
    if schedule.forever:
        promptly(query.process_all_available)
        promptly(query.stop)
    else:
        ended(query)

    check(schedule.program(tmp_path), tmp_path, ordered=schedule.ordered)


@pytest.mark.parametrize(
    "name",
    [
        "fraud",
        *(pytest.param(each, marks=pytest.mark.chaos) for each in ("campaign_views", "word_count")),
    ],
)
def test_lanes_come_and_go_while_rows_come_in(name, spark_context, tmp_path):
    growing = Growing(tmp_path, name)
    query = growing.program(tmp_path).start(
        spark_context, trigger=ab.epochs("20 ms", 5), checkpoint=tmp_path / "ckpt", parallelism=1
    )
    for width in (2, 1):
        growing.add(20)
        promptly(query.process_all_available)
        growing.add(20)  # some of it is under way when the width changes
        promptly(query.rescale, width)
        assert width == query.last_progress["anabranch"]["lanes"]
    growing.add(20)
    promptly(query.process_all_available)
    promptly(query.stop)

    check(growing.program(tmp_path), tmp_path)
    origins = [each["anabranch"]["slicesFrom"] for each in query.recent_progress]
    assert 2 <= sum(each["replica"] > 0 for each in origins), "once for each change of width"
    assert not any(each["checkpoint"] for each in origins)


def test_lanes_without_memory_for_state_have_it_on_disk_and_map_each_other_s(
    spark_context, tmp_path, monkeypatch
):
    monkeypatch.setenv("ANABRANCH_STATE_MEMORY", "0 B")
    monkeypatch.setattr(rescaling, "SHARED", -1)
    growing = Growing(tmp_path, "campaign_views")
    query = growing.program(tmp_path).start(
        spark_context, trigger=ab.epochs("20 ms", 5), checkpoint=tmp_path / "ckpt", parallelism=1
    )
    for width in (2, 1):
        growing.add(20)
        promptly(query.process_all_available)
        growing.add(20)
        promptly(query.rescale, width)
    growing.add(20)
    promptly(query.process_all_available)
    promptly(query.stop)

    check(growing.program(tmp_path), tmp_path)
    told = query.recent_progress
    origins = [each["anabranch"]["slicesFrom"] for each in told]
    assert 2 <= sum(each["shared"] > 0 for each in origins), "once for each change of width"
    operators = [each for progress in told for each in progress["stateOperators"]]
    assert any(each["customMetrics"]["diskBytes"] for each in operators)


def test_all_available_is_committed_and_visible(spark_context, tmp_path):
    growing = Growing(tmp_path)
    program = growing.program(tmp_path)
    query = program.start(spark_context, trigger=ab.epochs("20 ms"), checkpoint=tmp_path / "ckpt")
    for _ in range(3):
        growing.add(10)
        promptly(query.process_all_available)
        check(growing.program(tmp_path), tmp_path)
    promptly(query.process_all_available)  # also when there is nothing new
    promptly(query.stop)

    assert not query.is_active


def test_all_available_is_reached_though_more_comes_in(spark_context, tmp_path):
    growing = Growing(tmp_path)
    query = growing.program(tmp_path).start(
        spark_context, trigger=ab.epochs("5 ms"), checkpoint=tmp_path / "ckpt", parallelism=2
    )
    over = threading.Event()

    def pour():
        while not over.wait(0.01):
            growing.add(1)

    pouring = threading.Thread(target=pour)
    pouring.start()
    try:
        for _ in range(5):
            promptly(query.process_all_available)
    finally:
        over.set()
        pouring.join()
        query.stop(drain=False)


@pytest.mark.parametrize("drain", [True, False])
def test_a_stopped_query_goes_on_from_its_checkpoint(drain, spark_context, tmp_path):
    growing = Growing(tmp_path)
    for width in (2, 1):
        growing.add(30)
        query = growing.program(tmp_path).start(
            spark_context,
            trigger=ab.epochs("20 ms", 4),
            checkpoint=tmp_path / "ckpt",
            parallelism=width,
        )
        cut_off(query, drain=drain)
        assert "Stopped" == query.status["message"]
    query = growing.program(tmp_path).start(
        spark_context, trigger=ab.available_now(9), checkpoint=tmp_path / "ckpt", parallelism=2
    )
    ended(query)

    check(growing.program(tmp_path), tmp_path)


def test_a_savepoint_is_taken_of_a_running_query_and_another_goes_on_from_it(
    spark_context, tmp_path
):
    growing, there = Growing(tmp_path), tmp_path / "there"
    growing.add(40)
    query = growing.program(tmp_path).start(
        spark_context, trigger=ab.epochs("20 ms", 4), checkpoint=tmp_path / "ckpt", parallelism=2
    )
    promptly(query.process_all_available)
    growing.add(40)  # some of it is under way when the savepoint is taken
    promptly(query.savepoint, tmp_path / "saved")
    last = recover(LocalStore(tmp_path / "saved")).commit.last
    promptly(query.process_all_available)
    promptly(query.stop)
    check(growing.program(tmp_path), tmp_path)

    growing.add(20)
    ended(
        growing.program(there).start(
            spark_context,
            trigger=ab.available_now(9),
            checkpoint=tmp_path / "saved",
            parallelism=3,
        )
    )

    program, merged = growing.program(there), tmp_path / "merged"
    expected = behind(program, tmp_path / "ckpt", tmp_path / "saved", last, merged)
    assert len(expected) >= 20, "it had little to do"
    assert_same_rows(expected, written(there / "out"))


def test_a_query_at_its_end_ends_again_at_once(spark_context, tmp_path):
    schedule = Schedule.of(1)
    for width in (2, 1):
        ended(
            schedule.program(tmp_path).start(
                spark_context,
                trigger=ab.available_now(20),
                checkpoint=tmp_path / "ckpt",
                parallelism=width,
            )
        )

    check(schedule.program(tmp_path), tmp_path, ordered=schedule.ordered)


def refuse(place, state):
    state.value = place["x"]
    if place["x"] > 90:
        raise ValueError("no such place")
    yield place


def refusing(source, sink):
    program = ab.Program("refusing")
    row = {"phone": pl.String, "t": pl.Int64, "x": pl.Int64}
    (
        program.read(source, name="calls", event_time="t")
        .select(phone=pl.col("caller"), t=pl.col("t"), x=pl.col("x"))
        .key_by("phone")
        .process(refuse, out=row, name="placing")
        .write(sink, name="out")
    )
    return program


def test_an_error_of_the_users_says_operator_record_and_line(spark_context, tmp_path):
    source = ab.sources.Records(calls(60), schema=CALLS)
    query = refusing(source, files(tmp_path)).start(
        spark_context, trigger=ab.available_now(10), checkpoint=tmp_path / "ckpt", parallelism=2
    )

    with pytest.raises(RunError) as caught:
        query.await_termination(PATIENCE_S)

    told = str(caught.value)
    assert "placing" in told
    assert "no such place" in told
    assert '"x": 91' in told
    line = refuse.__code__.co_firstlineno + 3
    assert f"test_spine.py:{line}   raise ValueError" in told
    assert caught.value is query.exception()
    assert query.status["message"].startswith("Failed")
    assert not query.is_active

    # The same context is as good as new.
    again = fraud(source, ab.sinks.Files(tmp_path / "other", format="parquet"))
    ended(
        again.start(
            spark_context, trigger=ab.available_now(10), checkpoint=tmp_path / "c2", parallelism=2
        )
    )
    expected = run_sequential(again, log=tmp_path / "c2")["out"]
    assert_same_rows(expected, written(tmp_path / "other"))


def test_two_queries_share_a_context(spark_context, tmp_path):
    started = []
    for at, name in enumerate(("fraud", "word_count")):
        home = tmp_path / name
        home.mkdir()
        schedule = Schedule(at, name, 2, 6, 1, ordered=True, forever=False)
        query = schedule.program(home).start(
            spark_context, trigger=schedule.trigger, checkpoint=home / "ckpt", parallelism=2
        )
        started.append((schedule, home, query))
    for schedule, home, query in started:
        ended(query)
        check(schedule.program(home), home)


def test_what_is_committed_before_an_error_stays_and_a_mended_program_goes_on(
    spark_context, tmp_path
):
    rows = calls(60)
    assert not any(row["x"] > 90 for row in rows[:6]), "some epochs come before it"
    query = refusing(ab.sources.Records(rows, schema=CALLS), files(tmp_path)).start(
        spark_context, trigger=ab.available_now(3), checkpoint=tmp_path / "ckpt", parallelism=2
    )
    with pytest.raises(RunError, match="no such place"):
        query.await_termination(PATIENCE_S)

    global refuse  # noqa: PLW0603 - a user mends the function under its name
    before, refuse = refuse, mended
    try:
        program = refusing(ab.sources.Records(rows, schema=CALLS), files(tmp_path))
        ended(
            program.start(
                spark_context,
                trigger=ab.available_now(3),
                checkpoint=tmp_path / "ckpt",
                parallelism=1,
            )
        )
    finally:
        refuse = before
    check(program, tmp_path)


def mended(place, state):
    state.value = place["x"]
    yield place
