"""Where lanes are put, by what is known of executors, which lags behind what is so."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.spark.departures import Departures
from anabranch.spark.private import Executor
from anabranch.spark.processes import HEAD, LANE, Processes, places


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


def test_lanes_that_come_are_put_where_few_are_and_those_that_stay_keep_place_and_name():
    processes = Processes(KnownSpark("ab", {"a": "h", "b": "h"}), 1)
    processes.place()
    processes.leave([0])
    stays = processes.lane(0)

    processes.resize(3)
    assert {0: "a", 1: "b", 2: "a"} == where(processes)
    processes.leave([2])
    comes_and_goes = processes.lane(2)
    processes.resize(1)
    assert {0: "a"} == where(processes)
    processes.resize(3)

    assert [stays, comes_and_goes] == [processes.lane(0), processes.lane(2)]


def test_no_lane_is_too_few():
    with pytest.raises(ValueError, match=r"^at least one lane is needed, got 0$"):
        Processes(KnownSpark("", {}), 0)


EXECUTORS = [Executor(each, "h") for each in "abcd"]


@given(
    st.integers(1, 9),
    st.sets(st.sampled_from(EXECUTORS), min_size=1).map(list),
    st.dictionaries(st.integers(0, 12), st.sampled_from(EXECUTORS)),
    st.sets(st.sampled_from("abcd")),
)
def test_lanes_stay_where_they_are_and_others_go_where_fewest_are(lanes, there, before, leaving):
    found = places(lanes, there, before, leaving)

    assert list(range(lanes)) == list(found)
    kept = {lane for lane in range(lanes) if before.get(lane) in there}
    assert all(found[lane] == before[lane] for lane in kept)
    staying = [each for each in there if each.id not in leaving] or there
    placed = [found[lane] for lane in range(lanes) if lane not in kept]
    assert set(placed) <= set(staying)
    load = Counter(found.values())
    for each in placed:
        assert all(load[each] <= load[other] + 1 for other in staying)


def test_lanes_stay_when_an_executor_comes():
    spark = KnownSpark("a", {"a": "h"})
    processes = Processes(spark, 4)
    processes.place()
    spark.ids, spark.hosts = "ab", {"a": "h", "b": "h"}

    assert processes.place()
    assert {0: "a", 1: "a", 2: "a", 3: "a"} == where(processes)
    assert 3 == processes.ground().misplaced(4)


def test_lanes_are_told_to_leave_an_executor_that_is_to_go():
    spark = KnownSpark("ab", {"a": "h", "b": "h"})
    processes = Processes(spark, 2)
    processes.place()
    departures = Departures.of(spark.sc)
    departures.announce("b")

    assert {0: "a", 1: "b"} == where(processes)
    assert 1 == processes.ground().misplaced(2)
    processes.resize(3)
    assert {0: "a", 1: "b", 2: "a"} == where(processes)
    processes.renumber([0, 2])
    assert {0: "a", 1: "a"} == where(processes)
    assert {"a": 2} == departures.lanes()

    departures.announce("")
    assert 1 == processes.ground().misplaced(2)
    processes.close()
    assert {} == departures.lanes()


def test_where_all_are_to_go_lanes_stay_where_they_are():
    spark = KnownSpark("a", {"a": "h"})
    processes = Processes(spark, 1)
    processes.place()
    Departures.of(spark.sc).announce("a")

    assert not processes.place()


def test_whoever_gets_a_name_finds_its_lanes_where_they_were():
    spark = KnownSpark("ab", {"a": "h", "b": "h"})
    first = Processes(spark, 3)
    first.place()
    first.where = {0: first.where[1], 1: first.where[0]}
    first.close()

    second = Processes(spark, 3)
    second.place()
    assert {0: "b", 1: "a"} == {lane: each for lane, each in where(second).items() if lane < 2}
