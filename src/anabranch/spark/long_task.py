"""A resident task on Spark: one long task of one job, in a process that is its own.

Spark places it, and tells when it is over or its executor is lost; whether it is started again is
the driver's to decide: what Spark itself runs again does nothing but say so. It has one of Spark's
slots for as long as the query runs, and as many workers as the query has lanes.
"""

from __future__ import annotations

import pickle
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any

from anabranch.clock import SystemClock
from anabranch.engine.requests import Tasks
from anabranch.program.graph import Graph
from anabranch.runtime.continuous.channel import Address, Channel
from anabranch.runtime.continuous.messages import Orders
from anabranch.runtime.continuous.resident_task import reside
from anabranch.runtime.executor import JobFailed
from anabranch.spark.executor import telling
from anabranch.spark.private import Spark, is_repeated
from anabranch.spark.shipping import shipped

RESIDENT = "ANABRANCH_RESIDENT"
"""The variable by which Spark keeps the process of each task apart from all others."""

_DONE, _REPEATED = b"d", b"r"
_LOST = "the process of the resident task ended, or its executor was lost"


class LongTask:
    """Places resident tasks of one query on one SparkContext."""

    def __init__(self, sc: Any, graph: Graph) -> None:
        """Use this context; the graph says whose functions travel by value."""
        self._spark, self._graph = Spark(sc), graph
        self._host = sc.getConf().get("spark.driver.host", "localhost")
        self._tag = f"anabranch-resident-{secrets.token_hex(6)}"
        self._busy: Future[None] | None = None

    @property
    def slots(self) -> int:
        """How many cores the largest executor has: a task uses those of one."""
        return self.most_workers or 1

    @property
    def most_workers(self) -> int | None:
        """How many cores the largest executor has, once there is one."""
        if self._spark.local:
            return self._spark.slots()  # the driver is the executor, and is listed as none
        return max(self._spark.slots_by_executor().values(), default=None)

    @property
    def host(self) -> str:
        """Where executors reach the driver."""
        return "localhost" if self._spark.local else self._host

    def place(self, orders: Orders, address: Address) -> Future[None]:
        """Start a job of one task."""
        done: Future[None] = Future()
        self._busy = done
        threading.Thread(
            target=self._run, args=(orders, address, done), name="anabranch-long-task", daemon=True
        ).start()
        return done

    def cancel(self) -> None:
        """Cancel the job, if there is one, and wait for its end.

        Asks again and again: Spark knows nothing of a job that it has not quite been given yet.
        """
        busy = self._busy
        while busy is not None and not busy.done():
            with suppress(Exception):  # Spark may be gone, and its jobs with it
                self._spark.cancel(self._tag)
            with suppress(Exception):
                busy.exception(timeout=0.1)

    def close(self) -> None:
        """Nothing is placed any more."""
        self.cancel()

    def _tasks(self, orders: Orders) -> bytes | None:
        """What evaluators are sent, if there are to be some."""
        if not orders.plain:
            return None
        deployment = orders.deployment
        heads = tuple(each.head for each in deployment.inputs)
        stages = tuple(stage.task for stage in deployment.stages)
        return shipped(Tasks(stages, heads, deployment.owners), self._graph)

    def _run(self, orders: Orders, address: Address, done: Future[None]) -> None:
        try:
            environment = {
                RESIDENT: f"{self._tag}-{orders.attempt}",
                # Queries are then done by who asks, those of two workers beside each other. With
                # two threads they are in each other's way: 17,000 rows a second, not 35,000.
                "POLARS_MAX_THREADS": "1",
            }
            orders = replace(orders, tasks=self._tasks(orders))
            item = shipped((orders, address), self._graph)
            spark = self._spark
            with telling():
                function = spark.function(_resident, environment)
                spark.label(self._tag, f"anabranch: {orders.deployment.program}, resident")
                answers = spark.collect(spark.apply(spark.source([item]), function))
            if answers != [_DONE]:
                raise JobFailed(_LOST, died=True)
        except BaseException as error:  # noqa: BLE001 - it belongs to who waits for the task
            done.set_exception(error)
        else:
            done.set_result(None)


def _resident(number: int, items: Iterator[bytes]) -> Iterator[bytes]:
    """What runs in the worker."""
    del number
    (item,) = items
    if is_repeated():
        yield _REPEATED
        return
    orders, address = pickle.loads(item)  # noqa: S301 - the driver's own
    channel = Channel.to(address)
    try:
        reside(orders, channel, SystemClock())
    finally:
        channel.close()
    yield _DONE
