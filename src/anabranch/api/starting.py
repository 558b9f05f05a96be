"""From a frozen program to a running query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.api.query import Company, Query
from anabranch.clock import Clock, SystemClock
from anabranch.compiler.compile import plan_of
from anabranch.engine.interpreter import free_threaded
from anabranch.observe.waits import Shape
from anabranch.observe.watching import watching
from anabranch.program.graph import Graph
from anabranch.runtime.assembly import Settings, assemble
from anabranch.runtime.continuous.placing import Placer
from anabranch.runtime.continuous.plain_python import PlainPython, told, workers_for
from anabranch.runtime.executor import Executor


def start_on_spark(  # noqa: PLR0913 - all that a query is started with
    graph: Graph,
    settings: Settings,
    spark: Any,
    master: str,
    conf: Mapping[str, str],
    explanation: str,
    *,
    pool: str | None = None,
    company: Company | None = None,
) -> Query:
    """Start a program on a Spark that is given, or on one of our own.

    `pool` is where Spark's fair scheduler is to have its jobs, `company` who is told of it.
    """
    from anabranch.spark.executor import SparkExecutor
    from anabranch.spark.long_task import LongTask
    from anabranch.spark.session import spark_context

    attached = spark_context(spark, master=master, app_name=f"anabranch: {graph.name}", conf=conf)
    try:
        resident = settings.trigger.checkpoint_every is not None
        where: LongTask | SparkExecutor
        if not resident:
            where = SparkExecutor(attached.sc, graph, pool=pool)
        else:
            where = LongTask(attached.sc, graph)
            plan = plan_of(graph)
            workers = settings.lanes or workers_for(PlainPython.of(plan), where.slots)
            explanation += told(plan, workers, free=free_threaded())
        return start(graph, settings, where, explanation, closing=attached.stop, company=company)
    except BaseException:
        attached.stop()
        raise


def start(  # noqa: PLR0913 - all that a query is started with
    graph: Graph,
    settings: Settings,
    executor: Executor | Placer,
    explanation: str = "",
    *,
    clock: Clock | None = None,
    closing: Any = None,
    company: Company | None = None,
) -> Query:
    """Start a program on an executor, or in a task that is placed."""
    clock = clock or SystemClock()
    assembled = assemble(graph, settings, executor, clock)

    def close() -> None:
        try:
            assembled.close()
        finally:
            if closing is not None:
                closing()

    shape = Shape.of(graph)
    return Query(
        graph.name,
        assembled.identity,
        assembled.loop,
        explanation,
        close,
        shape,
        assembled.notes,
        assembled.run_id,
        watching(graph.name, settings.outlets, assembled.loop.facts, clock),
        company,
    )
