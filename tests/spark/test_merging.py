"""Rows of several lanes put into one order by Spark's tasks."""

import pytest

from anabranch.api.starting import start
from anabranch.epoch.triggers import available_now
from anabranch.runtime.assembly import Settings
from anabranch.spark.executor import SparkExecutor
from anabranch.testing import assert_same_rows, run_sequential
from tests.runtime.test_inline import made, written

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_tasks_merge_what_is_large(spark_context, tmp_path):
    program = made("campaign_views", tmp_path, count=200)
    graph = program.freeze()
    settings = Settings(available_now(20), tmp_path / "ckpt", 2, slices=8, keep=None, merge_above=0)

    query = start(graph, settings, SparkExecutor(spark_context, graph, "files"))

    assert query.await_termination(90), query.why()
    expected = run_sequential(program, log=tmp_path / "ckpt")["out"]
    assert expected
    assert_same_rows(expected, written(tmp_path / "out"))
