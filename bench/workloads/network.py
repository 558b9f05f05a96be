"""Network monitoring: users who do suspiciously much, from the logs of many servers.

After Schneider et al., "Auto-Parallelizing Stateful Distributed Streaming Applications" (PACT
2012): `suspects` is the program of figure 1, `monitored` the kernel of section 5.3, which first
looks at each server by itself and then at each user over all servers. The paper does not say what
the kernel's thresholds are, nor what its logs are like; chosen here, as are the logs: every user is
at every server, and few users do most of it all.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

import anabranch as ab
from anabranch.program.stream import Stream
from bench.workloads import mixer

SERVERS, USERS = 64, 100_000
EXPONENT = 1.1
"""The user of rank r is r ** 1.1 times as rare as the first, who has 13 of a hundred entries."""
MESSAGES = (
    "session opened",
    "session closed",
    "password accepted",
    "password refused",
    "connection reset",
)
WINDOW = "5 s"
SUSPICIOUS = 100
"""Entries of a user in a window; more are suspicious (figure 1)."""
SUSPICIOUS_AT_ONE = 1
"""Entries of a user at one server. A 64th of the above: who is suspicious is so at some server."""

SCHEMA = pl.Schema(
    {"time": pl.Int64(), "server": pl.String(), "uid": pl.UInt32(), "msg": pl.String()}
)
"""An entry of a server's log; `time` is in ms."""

Left: TypeAlias = Literal["server", "server and user"]
"""By what the left stage is divided."""


def entries(numbers: pl.Series, *, rate: int, seed: int = 0) -> pl.DataFrame:
    """The entries of these sequence numbers, `rate` of them a second at all servers together.

    >>> entries(pl.Series([0, 50]), rate=10)["time"].to_list()
    [0, 5000]
    """
    i = numbers.to_numpy().astype(np.uint64)
    below = partial(mixer.below, numbers=i, seed=seed)
    rank = np.searchsorted(_shares(), mixer.fractions(i, seed=seed, field=1), side="right")
    return pl.DataFrame(
        {
            "time": pl.Series((i * np.uint64(1000) // np.uint64(rate)).astype(np.int64)),
            "server": _servers().gather(below(SERVERS, field=0)),
            "uid": rank.astype(np.uint32),
            "msg": pl.Series(MESSAGES).gather(below(len(MESSAGES), field=2)),
        },
        schema=SCHEMA,
    )


@cache
def _shares() -> npt.NDArray[np.float64]:
    """What the users up to each rank have of all entries."""
    weights = np.arange(1, USERS + 1, dtype=np.float64) ** -EXPONENT
    shares: npt.NDArray[np.float64] = np.cumsum(weights) / weights.sum()
    shares[-1] = 1.0  # rounding must not leave a draw without a user
    return shares


@cache
def _servers() -> pl.Series:
    return pl.Series([f"server-{number:02}" for number in range(SERVERS)])


def source(rows: int, *, rate: int, seed: int = 0, partitions: int = 1) -> ab.sources.Source:
    """The first so many entries as a source, made as fast as they are asked for."""
    make = partial(entries, rate=rate, seed=seed)
    return ab.sources.Generator(
        make, schema=SCHEMA, rows=rows, partitions=partitions, vectorized=True
    )


def suspects(
    given: ab.sources.Source,
    *,
    above: int = SUSPICIOUS,
    lateness: str = "0 s",
    sink: ab.sinks.Sink | None = None,
) -> ab.Program:
    """Who has more than `above` entries in a window, in order, as in figure 1.

    The sink is `Memory("out")` if none is given.
    """
    program = ab.Program("suspects")
    (
        program.read(given, name="entries", event_time="time", lateness=lateness)
        .window(ab.tumbling(WINDOW), by="uid")
        .agg(total=ab.count(), name="count")
        .filter(pl.col("total") > above, name="filter")
        .write(sink or ab.sinks.Memory("out"), name="out")
    )
    return program


def monitored(
    given: ab.sources.Source,
    *,
    at_one: int = SUSPICIOUS_AT_ONE,
    above: int = SUSPICIOUS,
    left: Left = "server",
    lateness: str = "0 s",
    sink: ab.sinks.Sink | None = None,
) -> ab.Program:
    """Who has more than `above` entries, of those with more than `at_one` at a server.

    Entries of a user at servers where there are no more of them do not count. Rows leave in any
    order. The sink is `Memory("out")` if none is given.
    """
    program = ab.Program("network-monitoring")
    read = program.read(given, name="entries", event_time="time", lateness=lateness)
    (
        _LEFT[left](read)
        .filter(pl.col("total") > at_one, name="left")
        .window(ab.tumbling(WINDOW), by="uid")
        .agg(total=ab.sum("total"), servers=ab.count(), name="users")
        .filter(pl.col("total") > above, name="right")
        .write(sink or ab.sinks.Memory("out"), name="out", ordered=False)
    )
    return program


def _by_server(read: Stream) -> Stream:
    """The users of each server and window, as one state of that server.

    There are no more than `USERS` of them, so the most frequent ones are all of them.
    """
    user = pl.col("user").struct
    return (
        read.window(ab.tumbling(WINDOW), by="server")
        .agg(user=ab.top_k("uid", USERS), name="servers")
        .explode("user")
        .select("server", uid=user.field("value"), total=user.field("count"))
    )


def _by_server_and_user(read: Stream) -> Stream:
    """The same, as a state of each pair: what is by the user anyway need not be exchanged again."""
    counted = read.window(ab.tumbling(WINDOW), by=["server", "uid"])
    return counted.agg(total=ab.count(), name="servers").select("server", "uid", "total")


_LEFT = {"server": _by_server, "server and user": _by_server_and_user}
