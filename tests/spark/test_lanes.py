import os
import select
import signal
import threading
from contextlib import suppress

import pytest

from anabranch.spark.lanes import MOST_IN_PROPERTIES, Lanes
from anabranch.spark.private import JobFailed
from tests.spark import lane_work

pytestmark = pytest.mark.spark


@pytest.fixture
def counting(spark_context):
    return Lanes(spark_context, 2, lane=lane_work.count, head=lane_work.count)


def test_closed_lanes_leave_their_processes_to_the_next(spark_context):
    with Lanes(spark_context, 1, lane=lane_work.hang, head=lane_work.hang) as first:
        first.run({0: b"?"})
        pids = first.pids()

    with Lanes(spark_context, 2, lane=lane_work.hang, head=lane_work.hang) as second:
        second.run({0: b"?", 1: b"?"})

    assert pids[0] == second.pids()[0] != second.pids()[1]


def test_closed_lanes_run_nothing(spark_context):
    lanes = Lanes(spark_context, 1, lane=lane_work.count, head=lane_work.count)
    lanes.close()

    with pytest.raises(RuntimeError):
        lanes.run({0: b"1"})


def text(results):
    return {lane: result.decode().rsplit(" ", 1)[0] for lane, result in results.items()}


def test_state_stays_in_its_lane(counting):
    counting.run({0: b"1", 1: b"10"})
    counting.run({1: b"20"})

    results, _ = counting.run({0: b"2", 1: b"30"})

    assert {0: "0 3", 1: "1 60"} == text(results)


def test_results_are_in_the_order_of_payloads(counting):
    _, heads = counting.run({}, [b"1"] * 5)

    assert [0, 1, 2, 3, 4] == [int(each.split()[0]) for each in heads]


def test_large_payloads_and_many_heads_are_a_job_of_their_own(counting):
    lanes, heads = counting.run({0: b" " * MOST_IN_PROPERTIES + b"7"}, [b"1"] * 100)

    assert {0: "0 7"} == text(lanes)
    assert 100 == len(heads)
    assert 1 == counting.statistics().jobs_made_anew


def test_nothing_to_do_is_no_job(counting):
    assert ({}, []) == counting.run({}, [])
    assert 0 == counting.statistics().jobs


def test_warm_up_starts_every_lane_and_does_no_work(counting):
    counting.warm_up()

    assert {0, 1} == set(counting.pids())
    assert {0: "0 1"} == text(counting.run({0: b"1"})[0])


def test_plan_is_sent_once_to_each_process(spark_context):
    from pyspark import cloudpickle

    lanes = Lanes(spark_context, 2, lane=lane_work.use_plans, head=lane_work.use_plans)
    lanes.deploy("a", cloudpickle.dumps(lambda index: index + 100))

    assert {0: b"0 100", 1: b"1 101"} == lanes.run({0: b"a", 1: b"a"})[0]
    assert {0: b"0 100", 1: b"1 101"} == lanes.run({0: b"a", 1: b"a"})[0]
    seen = lanes.statistics()
    assert (2, 2, 1) == (seen.tasks_sent_plans, seen.jobs, seen.jobs_made_anew)


def test_withdrawn_plan_is_forgotten(spark_context):
    from pyspark import cloudpickle

    lanes = Lanes(spark_context, 1, lane=lane_work.know_plans, head=lane_work.know_plans)
    lanes.deploy("a", cloudpickle.dumps(1))
    lanes.deploy("b", cloudpickle.dumps(2))
    assert {0: b"a,b"} == lanes.run({0: b"?"})[0]

    lanes.withdraw("a")

    assert {0: b"b"} == lanes.run({0: b"?"})[0]


def test_two_plans_of_one_id_are_refused(counting):
    counting.deploy("a", b"1")

    with pytest.raises(ValueError, match=r"^another plan is deployed as 'a'"):
        counting.deploy("a", b"2")


def test_error_of_the_work_is_told_and_costs_no_state(counting):
    counting.run({0: b"5"})

    with pytest.raises(JobFailed, match=r"invalid literal for int") as failed:
        counting.run({0: b"five"})

    assert not failed.value.died
    assert {0: "0 6"} == text(counting.run({0: b"1"})[0])


def test_killed_lane_comes_back_empty(counting):
    counting.run({0: b"5", 1: b"6"})
    os.kill(counting.pids()[0], signal.SIGKILL)

    with suppress(JobFailed):  # it may be noticed only by the task that is sent to it
        counting.run({1: b"1", 0: b"0"})
    results, _ = counting.run({0: b"1", 1: b"1"})

    assert "0 1" == text(results)[0]


def test_cancelled_job_leaves_no_task_in_its_lanes(spark_context):
    lanes = Lanes(spark_context, 1, lane=lane_work.hang, head=lane_work.hang)
    before = lanes.run({0: b"?"})[0][0]
    end = os.pidfd_open(int(before))
    failures = []

    def run():
        try:
            lanes.run({0: b"hang"})
        except JobFailed as failed:
            failures.append(failed)

    thread = threading.Thread(target=run)
    thread.start()
    while lanes._idle.is_set():
        pass  # the job has yet to begin
    lanes.cancel()
    thread.join(30)

    assert [True] == [failed.cancelled for failed in failures]
    assert before != lanes.run({0: b"?"})[0][0]
    assert select.select([end], [], [], 60)[0], "its process lives on"
    os.close(end)


def test_one_job_at_a_time(counting):
    counting._busy.acquire()

    with pytest.raises(RuntimeError, match=r"^one job at a time"):
        counting.run({0: b"1"})


def test_no_lanes_are_refused(spark_context):
    with pytest.raises(ValueError, match=r"^at least one lane is needed, got 0$"):
        Lanes(spark_context, 0, lane=lane_work.count, head=lane_work.count)
