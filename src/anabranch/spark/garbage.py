"""A worker's garbage, collected when we say so and not after each task."""

from __future__ import annotations

import gc

# How often a worker looks for cyclic garbage among all it holds (10 to 50 ms each).
TASKS_BETWEEN_COLLECTIONS = 256

_tasks_done = 0


def settle() -> None:
    """Keep what this process holds out of the full collection that Spark does after each task.

    That collection takes 10 ms with nothing but PySpark and Polars loaded, more with state. To
    freeze takes none; what is garbage by then is found at the next of our own collections.
    """
    global _tasks_done  # noqa: PLW0603 - of this process, like the garbage collector
    if _tasks_done % TASKS_BETWEEN_COLLECTIONS == 1:
        gc.unfreeze()
        gc.collect()
    gc.freeze()
    _tasks_done += 1
