"""A checkpoint whose state is as slow to read as from an object store, to the lanes that read it.

Here a local disk stands in for the durable store, and costs next to nothing to read. With `READ_MS`
in the environment of Spark's executors every file of state that a lane reads from the checkpoint
takes so many milliseconds more: where a lane makes its state again, and as much where it makes
replicas and copies. Copies on its own disk do not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from anabranch.program.graph import Graph
from anabranch.runtime import tasks
from anabranch.spark import file_executor
from anabranch.spark.executor import SparkExecutor
from anabranch.spark.lanes import Plans
from anabranch.state.store import Store
from anabranch.state.stores import store_at
from bench.elastic.checkpoints import with_lanes

READ_MS = "ANABRANCH_BENCH_READ_MS"
_STATE = "state/"


class Slow:
    """A store, but what is read of state comes late."""

    def __init__(self, store: Store, seconds: float, wait: Callable[[float], None]) -> None:
        """Wait so long before each read of state."""
        self._store, self._seconds, self._wait = store, seconds, wait

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, path: str) -> bytes:
        """All of a file, late."""
        if path.startswith(_STATE):
            self._wait(self._seconds)
        return self._store.read(path)


def remote(sc: Any, graph: Graph) -> SparkExecutor:
    """An executor whose lanes find the checkpoint as far away as their environment says."""
    return with_lanes(sc, graph, run_lane)


# In a worker


def run_lane(plans: Plans, number: int, payloads: Iterator[bytes]) -> Iterator[bytes]:
    """A lane's task."""
    setattr(tasks, "store_at", store_at_distance)  # noqa: B010 - it is a name of theirs
    yield from file_executor.run_lane(plans, number, payloads)


def store_at_distance(*given: Any) -> Any:
    """The store of a checkpoint, as far away as the environment says."""
    store, late = store_at(*given), float(os.environ.get(READ_MS, "0"))
    return Slow(store, late / 1000, time.sleep) if late else store
