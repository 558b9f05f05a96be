"""Workers that are ready before Spark asks for them.

A worker loads PySpark, Polars, PyArrow and our kernels: 0.4 s of CPU each. Spark starts workers
when the first job wants them, their daemons one after another. The nursery is a process that is
started together with Spark's JVM and has that done by the time the JVM is up: it loads what may be
loaded before a fork, forks as many children as there will be workers, and lets each load the rest.
A daemon of Spark's that wants a worker hands its connection over (`adoption.py`), and a child
becomes that worker: with the daemon's environment, paths and process group.

Nothing that starts threads is loaded before the fork. Polars is such a thing: it has a thread and a
directory for what it spills, and children that shared them would write over each other's files.

A child is handed out only where it is what the daemon itself would have forked: `fits` compares
their environments. Whatever goes wrong here goes wrong silently, since the daemon then forks a
worker of its own, and that one tells.

Run as `python -m anabranch.spark.nursery PLACE CHILDREN`; ends with its standard input.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

from anabranch.spark.adoption import NONE_LEFT, TAKEN, fits, receive, send
from anabranch.spark.daemon import load_before_fork, no_input, serve

# The system's limit for the path of a socket is 108, its end included.
LONGEST_PLACE = 100
# As long as Spark keeps a worker without work.
IDLE_S = 60.0


@dataclass(frozen=True, slots=True)
class Nursery:
    """The driver's hold on a nursery: `place` is where daemons find it."""

    place: Path
    process: subprocess.Popen[bytes]

    @classmethod
    def start(
        cls, directory: Path, children: int, python: str, environment: Mapping[str, str]
    ) -> Nursery | None:
        """Start one in a private directory, if that can be done; it ends with this process."""
        place = directory / f"n{secrets.token_hex(3)}"
        if len(str(place)) > LONGEST_PLACE:
            return None
        try:
            process = subprocess.Popen(
                [python, "-m", "anabranch.spark.nursery", str(place), str(children)],
                stdin=subprocess.PIPE,  # it ends when this is closed
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                process_group=0,  # Ctrl-C is for this process alone
            )
        except OSError:
            return None
        return cls(place, process)

    def end(self) -> None:
        """Let it end; workers that came out of it are Spark's. A second time does nothing."""
        if self.process.stdin:
            with suppress(OSError):
                self.process.stdin.close()
        self.process.wait()


# In the nursery


@dataclass(frozen=True, slots=True)
class Child:
    """A worker to be, and the way to it."""

    pid: int
    channel: socket.socket


def main(place: str, children: int) -> None:
    """Bring up children, and hand them out until standard input ends."""
    with socket.socket(socket.AF_UNIX) as listening, Path(f"{place}.turns").open("wb") as turns:
        # Whoever finds the place finds somebody who listens.
        listening.bind(f"{place}~")
        listening.listen(children + 1)
        Path(f"{place}~").rename(place)
        load_before_fork()
        load_early()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        ready = bear(children, turns, listening) if not has_threads() else []
        hand_out(listening, ready)


def load_early() -> None:
    """Load more that starts no threads; whether that holds is looked at before the first fork."""
    import anabranch.compiler.proof
    import anabranch.spark.lanes
    import anabranch.state.layout
    import anabranch.state.store  # noqa: F401

    # Where its algebra has a thread for each core, they are started as it is loaded.
    if _environment().get("OMP_NUM_THREADS") == "1":
        with suppress(ImportError):
            import numpy.ma  # noqa: F401


def load() -> None:
    """Load the rest, in a child."""
    import polars as pl  # noqa: F401
    import pyarrow.compute as pc  # noqa: F401

    import anabranch.connectors.file_sink
    import anabranch.connectors.file_source
    import anabranch.spark.file_executor  # noqa: F401


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def has_threads() -> bool:
    """Whether this process has more than its main thread, so that it must not fork."""
    try:
        return len(os.listdir("/proc/self/task")) > 1  # noqa: PTH208 - names alone
    except OSError:
        import threading

        return threading.active_count() > 1


def bear(count: int, turns: IO[bytes], listening: socket.socket) -> list[Child]:
    """Fork children, each of which loads the rest and waits to be adopted."""
    ready: list[Child] = []
    for number in range(count):
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            for each in (listening, ours, *(child.channel for child in ready)):
                each.close()
            grow(number, turns, theirs)
        theirs.close()
        ready.append(Child(pid, ours))
    return ready


def grow(number: int, turns: IO[bytes], channel: socket.socket) -> NoReturn:
    """Be a child: load, wait for the wish of a daemon, and be its worker."""
    try:
        no_input()
        load_in_turn(number, turns)
        message, descriptors = receive(channel)
        channel.close()
        if not descriptors:
            os._exit(0)
        become(json.loads(message), descriptors)
    except BaseException:  # noqa: BLE001 - nobody listens; the daemon sees the connection's end
        os._exit(1)
    serve(socket.socket(fileno=descriptors[0]))


def load_in_turn(number: int, turns: IO[bytes]) -> None:
    """Load, but not all at once: the JVM, which everyone waits for, is left a core of its own.

    A turn is a lock of the system's, which is free again if its holder dies.
    """
    at = number % max(1, cores() - 1)
    with turns:
        fcntl.lockf(turns, fcntl.LOCK_EX, 1, at)
        load()


def become(wish: Mapping[str, Any], descriptors: list[int]) -> None:
    """Be as if the daemon had forked this process."""
    os.environ.clear()  # noqa: TID251 - it is set
    os.environ.update(wish["environment"])  # noqa: TID251
    sys.path[:], sys.argv[:] = wish["path"], wish["arguments"]
    os.chdir(wish["directory"])
    with suppress(OSError):  # the daemon has ended
        os.setpgid(0, wish["group"])
    for standard, descriptor in ((1, descriptors[1]), (2, descriptors[2])):
        os.dup2(descriptor, standard)
        os.close(descriptor)


def hand_out(listening: socket.socket, ready: list[Child]) -> None:
    """Give a child to each daemon that asks, until nobody can ask any more.

    Children that nobody has wanted for a while are let go.
    """
    poller = select.poll()
    poller.register(0, select.POLLIN)
    poller.register(listening, select.POLLIN)
    while True:
        events = poller.poll(IDLE_S * 1000 if ready else None)
        if not events:
            _let_go(ready)
        for fd, _ in events:
            if fd == 0:
                return
            asking, _ = listening.accept()
            with asking, suppress(OSError, EOFError, ValueError):
                asking.sendall(TAKEN if give(asking, ready) else NONE_LEFT)


def give(asking: socket.socket, ready: list[Child]) -> bool:
    """Let the next child that lives have what is asked for."""
    message, descriptors = receive(asking)
    try:
        if not descriptors or not fits(_environment(), json.loads(message)["environment"]):
            return False
        while ready:
            child = ready.pop(0)
            with child.channel, suppress(OSError):
                send(child.channel, message, descriptors)
                # What Spark waits for; the child may still be loading.
                os.write(descriptors[0], child.pid.to_bytes(4, "big"))
                return True
        return False
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _let_go(ready: list[Child]) -> None:
    while ready:
        ready.pop().channel.close()


def _environment() -> Mapping[str, str]:
    return os.environ  # noqa: TID251 - as it was when modules were loaded


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
    os._exit(0)  # there is nothing to clear up, and somebody waits
