"""Spark's daemon of Python workers: a connection is a wish for a worker, and it brings one.

Spark starts one for each pool of workers, that is for each lane and for the heads, one after
another. So it loads next to nothing itself: workers are taken from the nursery (`nursery.py`),
where they are ready. Without a nursery, or when that has none left, it forks them as PySpark's own
daemon does: what PySpark loads starts no threads, so that is safe.

Workers end without a word when Spark has left them. Spark closes workers that were idle for a
minute, and all of them when it stops. Such a worker finds its input at an end, wants to say so to
whoever closed it, and would print a traceback about the broken pipe on the user's terminal, if it
gets to it before it is killed.

Run as `python -m anabranch.spark.daemon pyspark.worker`.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from anabranch.spark.adoption import NURSERY, ask

LEFT = 1


def worker(sock: socket.socket, authenticated: bool) -> int:  # noqa: FBT001 (called by Spark)
    """PySpark's worker: the code it ends with, `LEFT` if nobody reads what it has to say."""
    from pyspark import daemon

    try:
        return int(daemon.worker(sock, authenticated))
    except (BrokenPipeError, ConnectionResetError):
        return LEFT


def serve(sock: socket.socket) -> NoReturn:
    """Be the worker at this connection, task after task, and end with it.

    To be called in a process of its own whose environment is the daemon's, as PySpark's daemon
    does behind its fork.
    """
    from pyspark.util import enable_faulthandler

    try:
        with enable_faulthandler():
            _serve(sock)
    except BaseException:  # noqa: BLE001 - whatever it was, the process ends here
        import traceback

        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _serve(sock: socket.socket) -> None:
    reused, authenticated = _variable("SPARK_REUSE_WORKER"), on_unix_socket()
    while worker(sock, authenticated) == 0 and reused:
        authenticated = True
        gc.collect()
    # Spark closes the connection when it has noticed.
    with suppress(OSError):
        while sock.recv(1024):
            pass


class Daemon:
    """Listens for wishes of Spark's, and for its orders on standard input."""

    def __init__(self, nursery: str | None) -> None:
        """Listen, and tell Spark where."""
        os.setpgid(0, 0)
        self._nursery = nursery
        self._place: str | None = None
        self._listening = self._listen()

    def run(self) -> NoReturn:
        """Until Spark closes standard input or asks for the end."""
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        poller = select.poll()
        poller.register(0, select.POLLIN)
        poller.register(self._listening, select.POLLIN)
        try:
            while True:
                for descriptor, _ in poller.poll():
                    if descriptor == 0:
                        self._obey()
                    else:
                        self._bring()
        finally:
            self._shut_down(1)

    def _listen(self) -> socket.socket:
        if on_unix_socket():
            directory = _variable("PYTHON_WORKER_FACTORY_SOCK_DIR")
            self._place = f"{directory}/.{os.urandom(16).hex()}.sock"
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(self._place)
            name = self._place.encode()
            told = len(name).to_bytes(4, "big") + name
        else:
            sixth = _variable("SPARK_PREFER_IPV6").lower() == "true"
            listening = socket.socket(socket.AF_INET6 if sixth else socket.AF_INET)
            listening.bind(("::1" if sixth else "127.0.0.1", 0))
            told = int(listening.getsockname()[1]).to_bytes(4, "big")
        listening.listen(max(1024, socket.SOMAXCONN))
        os.write(1, told)
        return listening

    def _obey(self) -> None:
        """End the worker that Spark names; all of them at the end of its orders."""
        order = b""
        while len(order) < 4:
            more = os.read(0, 4 - len(order))
            if not more:
                self._shut_down(0)
            order += more
        with suppress(OSError):
            os.kill(int.from_bytes(order, "big"), signal.SIGKILL)

    def _bring(self) -> None:
        """One worker for one connection."""
        connection, _ = self._listening.accept()
        with connection:
            if self._nursery is not None and ask(self._nursery, connection):
                return
            self._nursery = None  # it has none left, and will have none
            self._fork(connection)

    def _fork(self, connection: socket.socket) -> None:
        load_before_fork()
        try:
            pid = os.fork()
        except OSError as error:
            # Spark takes what is less than nothing for a failure.
            refusal = -(error.errno or 1)
            connection.sendall(refusal.to_bytes(4, "big", signed=True))
            return
        if pid == 0:
            self._listening.close()
            no_input()
            connection.sendall(os.getpid().to_bytes(4, "big"))
            serve(connection)

    def _on_term(self, _number: int, _frame: FrameType | None) -> None:
        self._shut_down(1)

    def _shut_down(self, code: int) -> NoReturn:
        """End, and all workers with it: they are in this group, and do not ignore the signal."""
        if self._place is not None:
            with suppress(OSError):
                os.remove(self._place)  # noqa: PTH107 - pathlib is slow to load
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(0, signal.SIGHUP)
        sys.exit(code)


def load_before_fork() -> None:
    """Load what all workers need and what starts no threads."""
    if "pyspark.worker" not in sys.modules:
        import pyspark.daemon
        import pyspark.worker  # noqa: F401

        # What is loaded now is no garbage in any worker, and its pages stay shared.
        gc.collect()
        gc.freeze()


def no_input() -> None:
    """Give up standard input, which is the daemon's: a worker's functions read nothing there."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def on_unix_socket() -> bool:
    """Whether Spark connects through files."""
    return _variable("PYTHON_UNIX_DOMAIN_ENABLED").lower() == "true"


def _variable(name: str) -> str:
    return os.environ.get(name, "")  # noqa: TID251 - Spark speaks to its daemon by these


if __name__ == "__main__":
    Daemon(_variable(NURSERY) or None).run()
