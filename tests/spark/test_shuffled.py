"""Rows through Spark's shuffle, on one host, where every step can be looked at."""

import pickle
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.errors import AnabranchError
from anabranch.spark import shuffle_executor
from anabranch.spark.private import JobFailed
from anabranch.spark.shuffle_executor import ShuffleExecutor
from anabranch.spark.shuffled import PartsLost, ShuffledLanes, Take, Unfit
from tests.runtime.programs import PROGRAMS
from tests.spark import shuffled_work
from tests.spark.test_spine import Schedule, check, ended

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def lanes(spark_context):
    made = ShuffledLanes(spark_context, 2, lane=shuffled_work.gather, head=shuffled_work.spread)
    made.deploy("plan", pickle.dumps(b" of the plan"))
    yield made
    made.close()


@pytest.fixture
def through_shuffle(monkeypatch):
    monkeypatch.setenv("ANABRANCH_EXCHANGE", "shuffle")


def headed(lanes, *payloads, plan=None):
    return lanes.run({}, {}, payloads, plan=plan)[1]


def own(*made):
    """Each lane takes its own partition."""
    return {lane: [Take(each.shuffle, (lane,)) for each in made] for lane in range(2)}


@contextmanager
def hanging(lanes, heads=()):
    """A job of lane 0 is under way, and cancelled in the end; gives what it raised then."""
    raised = []

    def run():
        try:
            lanes.run({0: b"hang"}, {}, heads)
        except JobFailed as failed:
            raised.append(failed)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: not lanes._idle.is_set())
    yield raised
    lanes.cancel()
    thread.join()


def told(result):
    text = result.decode().replace(", ", ",").replace("[", "").replace("]", "")
    payload, pieces, values, total = text.split()
    return payload, int(pieces), values, int(total)


def shuffle_files(spark_context):
    home = Path(spark_context.getConf().get("spark.local.dir"))
    return {file.name for file in home.rglob("shuffle_*") if file.is_file()}


def test_heads_answer_in_the_order_of_payloads_and_know_the_plan(lanes):
    made = headed(lanes, b"1", b"2", b"3")

    assert [b"%d of the plan" % at for at in (1, 2, 3)] == made.results


def test_each_lane_gets_its_own_from_several_shuffles_in_its_process(lanes):
    first, second = headed(lanes, b"10", b"20"), headed(lanes, b"300")

    one, _ = lanes.run({0: b"a", 1: b"b"}, own(first), [])
    pids = lanes.pids()
    two, _ = lanes.run({0: b"c", 1: b"d"}, own(first, second), [])

    assert [("a", 2, "0", 30), ("b", 2, "1", 30)] == [told(one[lane]) for lane in (0, 1)]
    assert [("c", 3, "0", 330), ("d", 3, "1", 330)] == [told(two[lane]) for lane in (0, 1)]
    assert pids == lanes.pids()


def test_lanes_and_heads_go_together(lanes):
    first = headed(lanes, b"5")

    taken, made = lanes.run({0: b"a", 1: b"b"}, own(first), [b"7"])

    assert {0, 1} == set(taken)
    assert [b"7 of the plan"] == made.results


def test_lanes_of_another_width_take_what_was_made_for_others(lanes):
    made = headed(lanes, b"5", b"7")
    lanes.run({0: b"a"}, {}, [])
    pids = lanes.pids()
    lanes.deploy("narrow", pickle.dumps(b" of another"), lanes=1)

    taken, _ = lanes.run({0: b"b"}, {0: [Take(made.shuffle, (0, 1))]}, [])

    assert ("b", 4, "0,1", 24) == told(taken[0])
    assert pids == lanes.pids()


def test_a_plan_goes_with_the_last_that_was_made_by_it(lanes):
    first = headed(lanes, b"5")
    lanes.deploy("wide", pickle.dumps(b" of another"), lanes=3)
    assert [b"6 of another"] == headed(lanes, b"6").results

    again = headed(lanes, b"5", plan="plan")
    lanes.forget(first.shuffle)
    taken, _ = lanes.run({2: b"a"}, {2: [Take(again.shuffle, (1,))]}, [])

    assert [b"5 of the plan"] == again.results
    assert ("a", 1, "1", 5) == told(taken[2])
    assert {"plan", "wide"} == lanes.plans
    lanes.forget(again.shuffle)
    assert {"wide"} == lanes.plans


def test_a_plan_of_which_nothing_was_made_goes_with_the_next(lanes):
    with pytest.raises(JobFailed, match="as it should"):
        headed(lanes, b"fail")

    lanes.deploy("other", pickle.dumps(b" of another"))

    assert {"other"} == lanes.plans


def test_lanes_start_beside_a_job_of_others(lanes):
    lanes.reserve(3)
    with hanging(lanes) as raised:
        lanes.start([2]).result()

    assert raised[0].cancelled


def test_a_lane_that_starts_is_waited_for_and_left_if_it_did_not(lanes):
    lanes.reserve(3)
    started = lanes.start([2])
    lanes.run({2: b"a"}, {}, [])
    assert started.done()
    before = lanes.pids()[2]

    failed = Future()
    failed.set_exception(JobFailed("it did not"))
    lanes._starting[2] = failed
    lanes.run({2: b"a"}, {}, [])

    assert before != lanes.pids()[2]


def test_large_pieces_arrive(lanes):
    made = headed(lanes, b"80000000")  # more than one buffer of Spark's serializer

    taken, _ = lanes.run({1: b"a"}, own(made), [])

    assert ("a", 1, "1", 80_000_000) == told(taken[1])


def test_what_is_forgotten_is_gone(lanes, spark_context):
    before = shuffle_files(spark_context)
    made = headed(lanes, b"1000")
    # Not a superset: Spark may have removed an older one by now.
    assert shuffle_files(spark_context) - before

    lanes.forget(made.shuffle)

    wait_until(lambda: shuffle_files(spark_context) <= before)


@pytest.mark.parametrize("heads", [[], [b"1"]])
def test_an_error_in_a_lane_tells_why_and_costs_no_process(lanes, heads, spark_context):
    before = shuffle_files(spark_context)
    lanes.run({0: b"a"}, {}, [])
    pid = lanes.pids()[0]

    with pytest.raises(JobFailed, match="as it should"):
        lanes.run({0: b"fail"}, {}, heads)

    lanes.run({0: b"b"}, {}, [])
    assert pid == lanes.pids()[0]
    wait_until(lambda: shuffle_files(spark_context) <= before)


def test_an_error_in_a_head_tells_why(lanes):
    with pytest.raises(JobFailed, match="as it should"):
        headed(lanes, b"1", b"fail")


def test_what_no_attempt_can_do_is_told_in_its_own_words(lanes):
    with pytest.raises(Unfit, match=r"^no such place\n.*it is elsewhere\n.*look there"):
        headed(lanes, b"unfit")


def test_lost_parts_are_told_from_other_failures(lanes):
    with pytest.raises(PartsLost, match="it is not there"):
        lanes.run({0: b"lost"}, {}, [])


def test_a_killed_lane_comes_back_in_another_process(lanes):
    lanes.run({0: b"a", 1: b"b"}, {}, [])
    before = lanes.pids()

    taken, _ = lanes.run({0: b"die", 1: b"b"}, {}, [])
    assert taken[0] is None
    assert taken[1].startswith(b"b ")
    assert before[1] == lanes.pids()[1]

    made = headed(lanes, b"9")
    taken, _ = lanes.run({0: b"c"}, own(made), [])
    assert ("c", 1, "0", 9) == told(taken[0])
    assert before[0] != lanes.pids()[0]


def test_jobs_under_way_are_cancelled_and_their_lanes_go_on_elsewhere(lanes):
    lanes.run({0: b"a"}, {}, [])
    before = lanes.pids()[0]
    with hanging(lanes, [b"1"]) as raised:
        pass

    assert raised[0].cancelled
    lanes.run({0: b"b"}, {}, [])
    assert before != lanes.pids()[0]


# Queries


@pytest.mark.parametrize("at", range(3))
def test_a_program_gives_what_it_means(at, through_shuffle, spark_context, tmp_path):
    before = shuffle_files(spark_context)
    schedule = replace(Schedule.of(3 + at), forever=False)  # at two lanes
    assert list(PROGRAMS)[at] == schedule.name
    query = schedule.program(tmp_path).start(
        spark_context, trigger=schedule.trigger, checkpoint=tmp_path / "ckpt", parallelism=2
    )
    assert isinstance(query._loop._executor._inner, ShuffleExecutor)
    ended(query)

    check(schedule.program(tmp_path), tmp_path, ordered=schedule.ordered)
    wait_until(lambda: shuffle_files(spark_context) <= before)


def test_a_program_without_keys_goes_the_same_way(through_shuffle, spark_context, tmp_path):
    make = PROGRAMS["fraud"]
    program = ab.Program("calls")
    source = ab.sources.Records(make[1](40), schema=make[2])
    sink = ab.sinks.Files(tmp_path / "out", format="parquet")
    program.read(source, name="calls", event_time="t").write(sink, name="out")
    ended(program.start(spark_context, trigger=ab.available_now(9), checkpoint=tmp_path / "ckpt"))

    check(program, tmp_path)


def test_what_lanes_did_not_get_is_made_again(
    through_shuffle, spark_context, tmp_path, monkeypatch
):
    """As when Spark has made a part again and it came out otherwise: its reference is wrong."""
    keep, replaced, spoilt = ShuffleExecutor._keep, [], []

    def spoiling(self, name, tasks, made):
        dones = keep(self, name, tasks, made)
        places = dones[0].parts[0]["places"]
        if not spoilt:
            lane = next(iter(places))
            places[lane][1] ^= 1
            spoilt.append(name)
        return dones

    substitute = ShuffleExecutor._replace
    monkeypatch.setattr(ShuffleExecutor, "_keep", spoiling)
    monkeypatch.setattr(
        ShuffleExecutor,
        "_replace",
        lambda self, old, dones: (replaced.append(old), substitute(self, old, dones)),
    )
    schedule = Schedule(1, "fraud", 2, 15, 1, ordered=True, forever=False)
    ended(
        schedule.program(tmp_path).start(
            spark_context, trigger=schedule.trigger, checkpoint=tmp_path / "ckpt", parallelism=2
        )
    )

    assert spoilt == replaced
    check(schedule.program(tmp_path), tmp_path)


def test_a_host_without_the_checkpoint_is_named_with_what_to_do(
    through_shuffle, spark_context, tmp_path, monkeypatch
):
    # The driver sends another file's bytes, as if workers saw another directory by that name.
    monkeypatch.setattr(shuffle_executor, "lease_path", lambda _: "metadata")
    schedule = Schedule(1, "fraud", 2, 15, 1, ordered=True, forever=False)
    query = schedule.program(tmp_path).start(
        spark_context, trigger=schedule.trigger, checkpoint=tmp_path / "ckpt", parallelism=2
    )

    with pytest.raises(AnabranchError) as caught:
        query.await_termination(90)

    text = str(caught.value)
    assert "does not see the checkpoint" in text
    assert str(tmp_path / "ckpt") in text
    assert "on a file system that all hosts see" in text


def wait_until(holds):
    """Some things Spark does in its own time."""
    moment = threading.Event()
    assert any(holds() or moment.wait(0.02) for _ in range(1000))
