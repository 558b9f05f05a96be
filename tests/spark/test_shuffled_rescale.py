"""Lanes come and go while rows go through Spark's shuffle, on one host: nothing is drained."""

from dataclasses import replace

import pytest

import anabranch as ab
from tests.runtime.programs import PROGRAMS
from tests.spark.backlog import Backlog, Watching
from tests.spark.test_shuffled import shuffle_files, through_shuffle, wait_until
from tests.spark.test_spine import check, promptly

__all__ = ["through_shuffle"]

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("through_shuffle")]


def start(backlog, spark_context, tmp_path):
    query = backlog.program(tmp_path).start(
        spark_context,
        trigger=ab.epochs("1 ms", 5),
        checkpoint=tmp_path / "ckpt",
        parallelism=1,
        slices=16,
    )
    backlog.follow(query)
    promptly(query.process_all_available)  # what was there: now it has state
    return query


@pytest.mark.parametrize("name", PROGRAMS)
def test_lanes_take_rows_that_were_made_for_others(name, spark_context, tmp_path):
    files, backlog = shuffle_files(spark_context), Backlog(tmp_path, name)
    with Watching() as watching:
        query = start(backlog, spark_context, tmp_path)
        for width in (3, 1):
            promptly(query.rescale, width)
            assert width == query.last_progress["anabranch"]["lanes"]
        backlog.enough()
        promptly(query.process_all_available)
        executor = query._loop._executor._inner
        kept = executor._lanes.plans, {executor._deployed.id}
        promptly(query.stop)

    check(backlog.program(tmp_path), tmp_path)
    origins = [each["anabranch"]["slicesFrom"] for each in query.recent_progress]
    assert 2 <= sum(each["replica"] > 0 for each in origins), "once for each change of width"
    assert {(1, 3), (3, 1)} == set(watching.widths), "something was under way at each of them"
    assert kept[0] == kept[1], "what nobody asks for is not kept"
    wait_until(lambda: shuffle_files(spark_context) <= files)


class Losing(Watching):
    """Loses all that heads have made when the width has changed."""

    def deploy(self, executor, deployment, was=None):
        super().deploy(executor, deployment, was)
        for name, shipment in executor._shipments.items():
            executor._shipments[name] = replace(shipment, lost=True)


def test_what_is_lost_after_a_change_is_made_again_as_it_was(spark_context, tmp_path):
    backlog = Backlog(tmp_path)
    with Losing() as losing:
        query = start(backlog, spark_context, tmp_path)
        for width in (2, 1):
            promptly(query.rescale, width)
        backlog.enough()
        promptly(query.process_all_available)
        promptly(query.stop)

    check(backlog.program(tmp_path), tmp_path)
    assert losing.remade
    assert all(deployed != plan for deployed, plan in losing.remade), "by the plan of its time"
