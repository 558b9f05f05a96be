"""Spark's daemon of Python workers, for workers that end without a word when Spark has left them.

Spark closes workers that were idle for a minute, and all of them when it stops. Such a worker
finds its input at an end, wants to say so to whoever closed it, and prints a traceback about the
broken pipe on the user's terminal, if it gets to it before it is killed.

Run as `python -m anabranch.spark.daemon`: what is imported here is imported before every fork, so
nothing that starts threads may be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pyspark import daemon

if TYPE_CHECKING:
    import socket

_worker = daemon.worker

LEFT = 1


def worker(sock: socket.socket, authenticated: bool) -> int:  # noqa: FBT001 (called by Spark)
    """Spark's worker: the code it ends with, `LEFT` if nobody reads what it has to say."""
    try:
        return cast("int", _worker(sock, authenticated))
    except (BrokenPipeError, ConnectionResetError):
        return LEFT


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
