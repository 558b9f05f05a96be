"""Several queries on one Spark: each gives what it would give alone, and none harms another."""

import threading

import polars as pl
import pytest

import anabranch as ab
from anabranch.errors import AnabranchError, ProgramError, RunError
from anabranch.scheduling.query_policies import QUERY_POLICIES, SPARKS
from anabranch.testing import assert_same_rows, run_sequential

pytestmark = pytest.mark.spark

SCHEMA = {"n": pl.Int64, "k": pl.Int64, "t": pl.Int64}


def numbers(rows=None, rate=None):
    return ab.sources.Generator(
        lambda n: pl.DataFrame({"n": n, "k": n % 7, "t": n * 10}),
        schema=SCHEMA,
        rows=rows,
        rate=rate,
        vectorized=True,
    )


def windows(name, source, sink, size="200 ms"):
    program = ab.Program(name)
    (
        program.read(source, name="in", event_time="t", lateness="20 ms")
        .filter(pl.col("n") % 5 != 0)
        .window(ab.tumbling(size), by="k")
        .agg(last=ab.max("n"), rows=ab.count())
        .write(sink, name="out")
    )
    return program


@pytest.fixture
def session(spark_context):
    with ab.Session(spark_context) as found:
        yield found


@pytest.mark.parametrize("policy", [*QUERY_POLICIES, *SPARKS])
def test_no_policy_changes_any_output(policy, spark_context, tmp_path):
    outs = [ab.sinks.Memory(f"out-{at}") for at in range(3)]
    programs = [windows(f"query-{at}", numbers(400 + 100 * at), out) for at, out in enumerate(outs)]

    with ab.Session(spark_context, policy=policy) as session:
        queries = [
            session.start(
                program, trigger=ab.epochs("1 ms", 60), checkpoint=tmp_path / program.name
            )
            for program in programs
        ]
        for query in queries:
            query.await_termination()

    for program, out in zip(programs, outs, strict=True):
        expected = run_sequential(program, log=tmp_path / program.name)["out"]
        assert expected
        assert_same_rows(expected, out.rows)


def failing(name, sink):
    program = ab.Program(name)
    program.read(numbers(500), name="in").map(
        lambda record: {"n": 10 // (record["n"] - 70)}, out={"n": pl.Int64}
    ).write(sink, name="out")
    return program


def test_a_query_that_fails_harms_no_other(session, tmp_path):
    out = ab.sinks.Memory("out")
    whole = windows("whole", numbers(2_000), out)
    good = session.start(whole, trigger=ab.epochs("1 ms", 100), checkpoint=tmp_path / "ckpt")
    bad = session.start(failing("bad", ab.sinks.Memory("none")), trigger=ab.epochs("1 ms", 50))

    with pytest.raises(RunError, match="ZeroDivisionError"):
        bad.await_termination()
    good.await_termination()

    assert_same_rows(run_sequential(whole, log=tmp_path / "ckpt")["out"], out.rows)
    with pytest.raises(RunError, match="ZeroDivisionError"):
        session.await_any_termination()
    session.await_any_termination()


class Heard:
    def __init__(self):
        self.started, self.progress, self.ended = [], [], []
        self.over = threading.Event()

    def onQueryStarted(self, event):
        self.started.append(event.name)

    def onQueryProgress(self, event):
        self.progress.append(event.progress)

    def onQueryTerminated(self, event):
        self.ended.append((event.name, event.exception))
        self.over.set()
        message = "a listener's own fault"
        raise ValueError(message)


def test_listeners_are_told_and_do_no_harm(session):
    heard, told = Heard(), []
    session.add_listener(heard)
    session.add_listener(told.append)

    query = session.start(windows("heard", numbers(300), ab.sinks.Memory("out")))
    query.await_termination()
    heard.over.wait()

    assert ["heard"] == heard.started
    assert [("heard", None)] == heard.ended
    assert told == heard.progress
    assert 300 == sum(each["numInputRows"] for each in told)
    assert "klink" == told[0]["anabranch"]["session"]["policy"]


def test_queries_come_and_go(session):
    first = session.start(windows("first", numbers(rate=2_000), ab.sinks.Memory("a")))
    second = session.start(windows("second", numbers(rate=2_000), ab.sinks.Memory("b")))
    first.process_all_available()

    assert [first, second] == session.queries
    first.stop()
    assert [second] == session.queries
    third = session.start(windows("third", numbers(rate=2_000), ab.sinks.Memory("c")))
    third.process_all_available()
    second.process_all_available()
    assert {"second", "third"} == {query.name for query in session.queries}


def test_a_continuous_query_beside_others_takes_no_turns(session, tmp_path):
    out = ab.sinks.Memory("out")
    program = windows("resident", numbers(1_000), out)
    beside = session.start(windows("beside", numbers(500), ab.sinks.Memory("b")))
    resident = session.start(program, trigger=ab.continuous(), checkpoint=tmp_path / "ckpt")
    resident.await_termination()
    beside.await_termination()

    assert "1 worker\n" in resident.explain(), "as many as it would have alone"
    assert_same_rows(run_sequential(program, log=tmp_path / "ckpt")["out"], out.rows)


def test_there_is_one_session_for_a_spark(session, spark_context):
    with pytest.raises(AnabranchError, match="this Spark has a session already"):
        ab.Session(spark_context)
    session.stop()
    with ab.Session(spark_context) as another:
        assert another.is_active
    with pytest.raises(AnabranchError, match="the session is stopped"):
        session.start(windows("late", numbers(5), ab.sinks.Memory("out")))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"policy": "klnk"}, "did you mean 'klink'"),
        ({"lanes": 0}, "lanes must be a whole number"),
        ({"memory_limit": "much"}, "memory_limit must be a number of bytes"),
    ],
)
def test_what_makes_no_sense_is_refused(given, says):
    with pytest.raises(ProgramError, match=says):
        ab.Session(**given)


def test_live_streams_have_slack_and_goals(session):
    """Their windows fire by the wall clock: what is expected of them is told."""
    program, enough, told = ab.Program("live"), threading.Event(), []
    (
        program.read(ab.sources.Rate(2_000), name="in", event_time="timestamp")
        .window(ab.tumbling("200 ms"), by="value")
        .agg(rows=ab.count())
        .write(ab.sinks.Callback(lambda rows, epoch: None), name="out")
    )

    def hear(progress):
        told.append(progress["anabranch"])
        if told[-1]["session"]["nextFiring"] is not None and told[-1]["session"]["firings"] > 3:
            enough.set()

    session.add_listener(hear)
    query = session.start(program, trigger=ab.epochs("50 ms"), goal="1 us")
    enough.wait()
    why = query.why()
    query.stop()

    last = told[-1]["session"]
    assert last["slackMs"] < 200, "of a window that is still open, the time until its end at most"
    assert last["firings"] == last["goalMisses"] > 3, "nobody meets a goal of a microsecond"
    assert sum(len(each["firingsMs"]) for each in told) == last["firings"]
    assert "the next window is expected to fire" in why


def test_memory_is_bounded_by_what_frees_it(spark_context, tmp_path):
    """A limit of next to nothing: all goes on, one read at a time."""
    out = ab.sinks.Memory("out")
    program = windows("small", numbers(3_000), out)
    with ab.Session(spark_context, memory_limit=1_000) as session:
        beside = session.start(
            windows("beside", numbers(3_000), ab.sinks.Memory("o2")), trigger=ab.epochs("1 ms", 50)
        )
        query = session.start(program, trigger=ab.epochs("1 ms", 50), checkpoint=tmp_path / "ckpt")
        query.await_termination()
        beside.await_termination()
        known = session.statistics()

    assert known["memoryModes"] > 0
    assert_same_rows(run_sequential(program, log=tmp_path / "ckpt")["out"], out.rows)


def test_a_goal_without_a_session(spark_context):
    query = windows("alone", numbers(300), ab.sinks.Memory("out")).start(spark_context, goal="2 s")
    query.await_termination()

    assert 2000.0 == query.last_progress["anabranch"]["session"]["goalMs"]
