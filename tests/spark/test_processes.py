"""Where lanes are put, by what is known of executors, which lags behind what is so."""

import pytest

from anabranch.spark.private import Executor
from anabranch.spark.processes import HEAD, LANE, Processes


class Context:
    """Only has to be somebody."""


class KnownSpark:
    """What Spark says of its executors."""

    local = False

    def __init__(self, ids, hosts):
        self.sc, self.ids, self.hosts = Context(), ids, hosts

    def executor_ids(self):
        return ",".join(self.ids)

    def executors(self):
        return tuple(Executor(each, host) for each, host in self.hosts.items())


def where(processes):
    return {lane: executor.id for lane, executor in processes.where.items()}


def test_lanes_stay_where_nothing_changes():
    processes = Processes(KnownSpark("ab", {"a": "h", "b": "h"}), 2)

    assert processes.place()
    assert not processes.place()
    assert {0: "a", 1: "b"} == where(processes)


def test_an_executor_that_is_gone_is_not_wanted_though_it_is_still_listed():
    spark = KnownSpark("ab", {"a": "h", "b": "h"})
    processes = Processes(spark, 2)
    processes.place()
    spark.ids = "b"

    assert processes.place()
    assert {0: "b", 1: "b"} == where(processes)


def test_executors_are_looked_at_again_until_all_are_listed():
    spark = KnownSpark("ab", {"a": "h"})
    processes = Processes(spark, 2)
    processes.place()

    assert processes.place()
    spark.hosts["b"] = "h"
    assert processes.place()
    assert not processes.place()


def test_a_lane_stays_where_it_is_when_its_executor_tells_its_address():
    spark = KnownSpark("ab", {"a": "", "b": ""})
    processes = Processes(spark, 3)
    processes.place()
    before = where(processes)
    spark.hosts = {"b": "there", "a": "here"}

    assert processes.place()
    assert before == where(processes)
    assert {"here", "there"} == {executor.host for executor in processes.where.values()}
    assert not processes.place()


def test_a_lane_that_was_left_has_another_name():
    processes = Processes(KnownSpark("", {}), 2)
    before = [processes.lane(lane)[LANE] for lane in (0, 1)]

    processes.leave([1])

    assert before[0] == processes.lane(0)[LANE]
    assert before[1] != processes.lane(1)[LANE]
    assert processes.heads[HEAD] not in (*before, processes.lane(1)[LANE])


def test_names_are_given_back_and_go_on_where_they_were():
    spark = KnownSpark("", {})
    first = Processes(spark, 1)
    first.leave([0])
    name = first.lane(0)
    first.close()

    assert name == Processes(spark, 2).lane(0)


def test_no_lane_is_too_few():
    with pytest.raises(ValueError, match=r"^at least one lane is needed, got 0$"):
        Processes(KnownSpark("", {}), 0)
