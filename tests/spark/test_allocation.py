"""How many executors there are to be, who goes, and when; Spark is a list of executors here."""

import pytest

from anabranch.errors import AnabranchError
from anabranch.spark.allocation import (
    ALL_CORES,
    CORES,
    ENABLED,
    FEWEST,
    INITIAL,
    INSTANCES,
    MOST,
    Allocation,
    Bounds,
    decided_here,
)
from anabranch.spark.departures import Departures
from anabranch.spark.private import Executor


class Conf(dict):
    """As SparkConf has it."""

    def getAll(self):
        return list(self.items())


class Context:
    """Has settings, and can be weakly known."""

    def __init__(self, conf):
        self._conf = Conf(conf)

    def getConf(self):
        return self._conf


class KnownSpark:
    """A master that gives executors when the test says so, and writes down what it was asked."""

    local = False

    def __init__(self, conf, there=1, each=1, *, grants=True, allocates=False):
        self.sc, self.each = Context(conf), each
        self.grants, self.allocates = grants, allocates
        self.ids = [str(at) for at in range(there)]
        self.asked, self.sent, self.refuses = [], [], False

    def executor_ids(self):
        return ",".join(self.ids)

    def slots(self):
        return self.each * len(self.ids)

    def slots_by_executor(self):
        return dict.fromkeys(self.ids, self.each)

    def request(self, executors):
        self.asked.append(executors)
        return True

    def let_go(self, ids):
        if self.refuses:
            return False
        self.sent += ids
        self.ids = [each for each in self.ids if each not in ids]
        return True


class Tenants:
    """Lanes on these executors."""

    def __init__(self, ids):
        self.move(*ids)

    def move(self, *ids):
        self.where = {lane: Executor(each, "h") for lane, each in enumerate(ids)}


class Query:
    """Somebody who wants executors."""


def allocation(conf, **given):
    spark = KnownSpark(conf, **given)
    return spark, Allocation(spark, ask=lambda work: work())


RANGE = {FEWEST: "1", MOST: "4"}


def test_a_range_in_sparks_words_is_what_may_be_had():
    conf = {FEWEST: "2", MOST: "10", INITIAL: "3", INSTANCES: "4", ALL_CORES: "16"}

    assert Bounds(2, 8, 4) == Bounds.of(conf, cores=2)
    assert Bounds(1, 5, 1) == Bounds.of({FEWEST: "0", MOST: "5"}, cores=4)


@pytest.mark.parametrize(
    ("conf", "text"),
    [
        ({FEWEST: "3", MOST: "2"}, f"{FEWEST} is 3 and {MOST} is 2: there is no number between"),
        ({MOST: "many"}, f"{MOST} is 'many'\n  so    give a whole number"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(conf, text):
    with pytest.raises(AnabranchError) as refused:
        Bounds.of(conf, cores=1)

    assert str(refused.value).startswith(text)


def test_without_a_range_nothing_is_asked_for_and_nobody_is_sent_away():
    spark, found = allocation({INSTANCES: "2"}, there=2)

    assert not found.want(Query(), 9)
    assert (2, 2, 2) == (found.slots, found.most_slots, found.fewest_slots)
    assert ([], []) == (spark.asked, spark.sent)


@pytest.mark.parametrize("who", [{"grants": False}, {"allocates": True}])
def test_nobody_is_asked_where_the_master_cannot_be_or_spark_asks_by_itself(who):
    spark, found = allocation(RANGE, there=2, **who)

    assert not found.want(Query(), 4)
    assert 2 == found.most_slots
    assert [] == spark.asked


def test_what_is_wanted_is_asked_for_once_and_never_more_than_may_be_had():
    spark, found = allocation(RANGE, each=2)
    query = Query()

    for slots in (3, 3, 4, 100, 100):
        assert found.want(query, slots)

    assert [1, 2, 4] == spark.asked
    assert (2, 8, 2) == (found.slots, found.most_slots, found.fewest_slots)


def test_slots_are_those_that_are_there():
    spark, found = allocation(RANGE, each=2)
    found.want(Query(), 4)
    before = found.slots
    spark.ids.append("7")

    assert (2, 4) == (before, found.slots)


def test_who_is_too_many_at_the_start_goes_at_once():
    """A standalone master gives all it has."""
    spark, found = allocation({**RANGE, INITIAL: "2"}, there=4)

    assert [2, 2] == spark.asked
    assert ["2", "3"] == spark.sent
    assert 2 == found.slots


def test_before_anybody_is_there_those_who_were_asked_for_count():
    spark, found = allocation({**RANGE, INITIAL: "2", CORES: "3"}, there=0, each=3)
    before = found.slots
    spark.ids += ["0", "1", "2", "3"]

    assert (6, 6) == (before, found.slots)
    assert frozenset({"2", "3"}) == Departures.of(spark.sc).leaving


def test_who_comes_late_and_is_too_many_goes():
    spark, found = allocation({**RANGE, INITIAL: "2"}, there=1)
    spark.ids += ["1", "2"]

    assert 2 == found.slots
    found.let_go()
    assert ["2"] == spark.sent


def test_an_executor_goes_when_no_lane_is_on_it_whoevers_it_was():
    spark, found = allocation({**RANGE, INITIAL: "3"}, there=3)
    mine, other = Tenants(["0", "1"]), Tenants(["2"])
    for each in (mine, other):
        Departures.of(spark.sc).enter(each)

    found.want(Query(), 1)
    assert frozenset({"1", "2"}) == Departures.of(spark.sc).leaving
    assert 1 == found.slots, "no lane is to go where nobody stays"
    assert [] == spark.sent

    other.move("0")
    found.let_go()
    assert ["2"] == spark.sent
    mine.move("0", "0")
    found.let_go()
    assert ["2", "1"] == spark.sent
    assert frozenset() == Departures.of(spark.sc).leaving & set(spark.ids)


def test_who_was_to_go_stays_when_more_are_wanted_again():
    spark, found = allocation({**RANGE, INITIAL: "2"}, there=2)
    Departures.of(spark.sc).enter(lanes := Tenants(["0", "1"]))
    query = Query()
    found.want(query, 1)
    found.want(query, 2)
    found.let_go()

    assert [] == spark.sent
    assert 2 == found.slots
    assert frozenset() == Departures.of(spark.sc).leaving
    assert lanes


def test_who_cannot_be_sent_away_is_used_again():
    spark, found = allocation({**RANGE, INITIAL: "2"}, there=2)
    spark.refuses = True
    found.want(Query(), 1)

    assert frozenset() == Departures.of(spark.sc).leaving


def test_queries_have_what_the_one_that_wants_most_wants():
    spark, found = allocation(RANGE)
    one, other = Query(), Query()
    found.want(one, 3)
    found.want(other, 2)
    found.want(one, 1)
    assert [1, 3, 2] == spark.asked

    found.forget(other)
    found.want(one, 1)
    assert [1, 3, 2, 1] == spark.asked


def test_lanes_that_are_there_are_needed_and_nothing_is_given_back_for_them():
    spark, found = allocation(RANGE)
    query = Query()
    found.need(query, 3)
    found.need(query, 2)

    assert [1, 3] == spark.asked


def test_where_executors_have_as_many_cores_as_their_hosts_those_are_counted():
    """Standalone, without spark.executor.cores."""
    _, found = allocation({**RANGE, ALL_CORES: "12"}, there=1, each=4)

    assert 12 == found.most_slots


def test_dynamic_allocation_of_a_spark_of_ours_is_off_and_its_range_is_kept():
    found = decided_here({ENABLED: "true", FEWEST: "2", MOST: "6", CORES: "2"})

    assert "false" == found[ENABLED]
    assert "2" == found[INSTANCES]
    assert Bounds(2, 6, 2) == Bounds.of(found, cores=2)
    assert Bounds.of(decided_here({ENABLED: "true"}), cores=1).fewest == 1
