"""On a real Spark: what its pages call our jobs, and lanes that heartbeats keep."""

import pickle
import re

import pytest

import anabranch as ab
from anabranch.spark.lanes import Lanes
from anabranch.spark.shuffled import ShuffledLanes
from tests.runtime.test_inline import made
from tests.spark import lane_work, shuffled_work

pytestmark = pytest.mark.spark


def jobs(sc):
    """What the jobs that Spark remembers are called, by their numbers, newest first."""
    context = sc._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    listed = context.statusStore().jobsList(None)
    found = {job.jobId(): job.description() for job in map(listed.apply, range(listed.size()))}
    return {
        number: found[number].get()
        for number in sorted(found, reverse=True)
        if found[number].isDefined()
    }


def described(sc):
    """What all jobs that Spark remembers are called, newest first."""
    return list(jobs(sc).values())


@pytest.fixture
def lanes(spark_context):
    # It keeps nothing: whoever comes next has the same processes.
    with Lanes(spark_context, 2, lane=lane_work.hang, head=lane_work.hang) as made:
        yield made


@pytest.fixture
def shuffled(spark_context):
    made = ShuffledLanes(spark_context, 2, lane=shuffled_work.gather, head=shuffled_work.spread)
    made.deploy("plan", pickle.dumps(b" of the plan"))
    yield made
    made.close()


def test_a_job_is_called_as_it_was_asked_to_be(spark_context, lanes):
    lanes.run({0: b"?"}, label="campaign-views epochs 17-19")
    lanes.run({0: b"?"}, label="campaign-views epoch 20")

    assert ["campaign-views epoch 20", "campaign-views epochs 17-19"] == described(spark_context)[
        :2
    ]


def test_jobs_through_the_shuffle_say_whose_they_are(spark_context, shuffled):
    shuffled.warm_up()

    called = "anabranch: keeping lanes warm"
    assert {f"{called}: lanes", f"{called}: heads"} == set(described(spark_context)[:2])


def test_heartbeats_keep_the_same_processes(spark_context, lanes):
    lanes.warm_up()
    before = lanes.pids()

    lanes.warm_up()
    lanes.warm_up()

    assert before == lanes.pids()
    assert "anabranch: keeping lanes warm" == described(spark_context)[0]
    found, _ = lanes.run({0: b"?", 1: b"?"})
    assert before == {lane: int(each) for lane, each in found.items()}


def test_heartbeats_keep_the_same_processes_through_the_shuffle(shuffled):
    shuffled.warm_up()
    before = shuffled.pids()

    shuffled.warm_up()
    shuffled.warm_up()

    assert {0, 1} == before.keys()
    assert before == shuffled.pids()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["files", "shuffle"])
def test_sparks_pages_name_a_query_and_its_epochs(way, spark_context, tmp_path, monkeypatch):
    """Two epochs: first their heads, together, then their lanes."""
    monkeypatch.setenv("ANABRANCH_EXCHANGE", way)
    before = jobs(spark_context)
    query = made("campaign_views", tmp_path).start(
        spark_context, trigger=ab.available_now(30), checkpoint=tmp_path / "ckpt", parallelism=2
    )
    assert query.await_termination(90), query.why()

    new = [called for number, called in jobs(spark_context).items() if number not in before]
    pattern = re.compile(r"campaign-views epochs? ([0-9]+)(?:-([0-9]+))?(: lanes|: heads)?")
    named = [match.groups() for match in map(pattern.fullmatch, new) if match is not None]
    # How many epochs a cycle takes is a matter of time; that all are told, and by whom, is not.
    assert {0, 1} == {
        n for first, last, _ in named for n in range(int(first), int(last or first) + 1)
    }
    assert {"files": {None}, "shuffle": {": lanes", ": heads"}}[way] == {who for *_, who in named}


@pytest.mark.slow
def test_a_query_on_spark_says_where_its_time_went(spark_context, tmp_path):
    query = made("campaign_views", tmp_path).start(
        spark_context, trigger=ab.available_now(20), checkpoint=tmp_path / "ckpt", parallelism=2
    )
    assert query.await_termination(90), query.why()

    told = query.statistics()
    assert (60, 3) == (told["rows"], told["epochs"])
    assert all(told["timeMs"][where] > 0 for where in ("source", "kernel", "state", "spark"))
    assert "campaign-views: has stopped. Epoch 2 was committed last" in query.why()
