"""Which way rows go, and what a Spark must be like for it."""

import pytest

from anabranch import config
from anabranch.errors import AnabranchError
from anabranch.spark.executor import way_for
from anabranch.spark.private import Executor

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
