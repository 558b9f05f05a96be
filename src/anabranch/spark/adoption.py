"""How a connection of Spark's gets from its daemon to a worker in the nursery, between processes.

The daemon sends a *wish*: what a worker that it forked would have of it, and three descriptors,
the connection and the daemon's standard output and error. One byte comes back. Loaded by every
daemon, so next to nothing is loaded here.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

NURSERY = "ANABRANCH_NURSERY"
"""The variable that says where the nursery listens."""

TAKEN, NONE_LEFT = b"t", b"n"

# The nursery loads PySpark before it listens to anyone: 0.2 s, and much more on a machine that is
# starved of CPU. A worker that is forked instead has to load as much.
PATIENCE_S = 20.0

# Variables that Spark gives to each of its processes, or that are ours; none is looked at while
# modules are loaded.
_OF_A_PROCESS = ("ANABRANCH_", "PYTHON_", "PYSPARK_", "SPARK_", "_PYSPARK_")
# What a shell sets; there may be one before the JVM.
_OF_A_SHELL = ("_", "OLDPWD", "PWD", "SHLVL")


def wish() -> dict[str, Any]:
    """What a worker that this process forks would have of it."""
    return {
        "environment": dict(os.environ),  # noqa: TID251 - to be passed on as it is
        "path": sys.path,
        "arguments": sys.argv,
        "directory": os.getcwd(),  # noqa: PTH109 - pathlib is slow to load
        "group": os.getpgid(0),
    }


def ask(nursery: str, connection: socket.socket) -> bool:
    """Let a worker of the nursery serve a connection; whether there was one."""
    try:
        with socket.socket(socket.AF_UNIX) as channel:
            channel.settimeout(PATIENCE_S)
            channel.connect(nursery)
            send(channel, json.dumps(wish()).encode(), (connection.fileno(), 1, 2))
            return channel.recv(1) == TAKEN
    except OSError:
        return False


def fits(mine: Mapping[str, str], theirs: Mapping[str, str]) -> bool:
    """Whether modules that were loaded in one environment would be the same in another.

    >>> mine = {"PYTHONPATH": "/tmp", "PYTHONHASHSEED": "0"}
    >>> fits(mine, mine | {"ANABRANCH_LANE": "1", "PYTHONPATH": "/nowhere/x.zip:/tmp"})
    True
    >>> fits(mine, mine | {"OMP_NUM_THREADS": "8"}), fits(mine, mine | {"PYTHONHASHSEED": "1"})
    (False, False)
    """
    return _lasting(mine) == _lasting(theirs) and _places(mine) == _places(theirs)


def _lasting(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name not in {"PYTHONPATH", *_OF_A_SHELL} and not name.startswith(_OF_A_PROCESS)
    }


def _places(environment: Mapping[str, str]) -> list[str]:
    """Where modules are looked for; Spark adds archives that are not there, and a jar."""
    given = environment.get("PYTHONPATH", "").split(os.pathsep)
    return list(dict.fromkeys(each for each in given if os.path.isdir(each)))  # noqa: PTH112


def send(channel: socket.socket, message: bytes, descriptors: Sequence[int]) -> None:
    """Send a message and descriptors with it."""
    socket.send_fds(channel, [len(message).to_bytes(4, "big")], list(descriptors))
    channel.sendall(message)


def receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    """A message and its descriptors; none of either at the end of the channel.

    Raises:
        EOFError: The other side ended in the middle of it.
    """
    head, descriptors, _, _ = socket.recv_fds(channel, 4, 3)
    if not head:
        return b"", []
    left, pieces = int.from_bytes(head, "big"), []
    while left:
        piece = channel.recv(min(left, 1 << 16))
        if not piece:
            raise EOFError
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces), list(descriptors)
