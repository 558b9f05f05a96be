"""Which way rows go, and what a Spark must be like for it."""

import pytest

import anabranch as ab
from anabranch import config
from anabranch.errors import AnabranchError
from anabranch.spark.executor import SparkExecutor, way_for
from anabranch.spark.private import Executor, Spark

HERE = [Executor("0", "here"), Executor("1", "localhost"), Executor("2", "")]
THERE = [Executor("0", "here"), Executor("1", "there")]


@pytest.mark.parametrize(
    ("wanted", "executors", "known", "way"),
    [
        ("auto", [], True, "files"),
        ("auto", HERE, True, "files"),
        ("auto", THERE, True, "shuffle"),
        ("auto", [], False, "shuffle"),
        ("files", HERE, True, "files"),
        ("shuffle", HERE, True, "shuffle"),
        ("shuffle", THERE, True, "shuffle"),
    ],
)
def test_rows_go_the_fastest_way_there_is(wanted, executors, known, way):
    assert way == way_for(wanted, "here", executors, known=known)


def test_files_are_refused_where_hosts_are_several():
    with pytest.raises(AnabranchError, match=r"^Spark has executors on other hosts: there\n"):
        way_for("files", "here", THERE)


def test_an_unknown_way_is_refused_with_those_there_are():
    with pytest.raises(AnabranchError, match=r"(?s)'pigeon'.*auto, files, shuffle"):
        config.exchange({"ANABRANCH_EXCHANGE": "pigeon"})


@pytest.mark.spark
@pytest.mark.slow
def test_where_spark_allocates_executors_itself_it_is_said_what_to_set(spark_context, monkeypatch):
    monkeypatch.setattr(Spark, "allocates", property(lambda _: True))
    program = ab.Program("p")
    program.read(ab.sources.Records([{"a": 1}])).write(ab.sinks.Memory("out"))

    with pytest.warns(RuntimeWarning, match=r"^Spark's dynamic allocation is on: .* by itself$"):
        executor = SparkExecutor(spark_context, program.freeze())

    assert not executor.want(5)
    assert 2 == executor.slots == executor.most_slots
