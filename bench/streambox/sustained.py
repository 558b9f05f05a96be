"""The highest rate at which results stay within a target, by halving, on Spark."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anabranch as ab
from bench.streambox.paced import Late, Paced, named

CORES = 2
HALVINGS, LOWEST = 4, 8
"""How often a rate is halved in; how often at most, where none was within the target yet."""
GRACE_S = 1.0
"""Before the first row is due: the query is being started."""


@dataclass(frozen=True, slots=True)
class Target:
    """How late results may be, and the trigger by which they are had."""

    system: str
    seconds: float
    every: str
    resident: bool = False

    def trigger(self) -> Any:
        """Of the query."""
        return ab.continuous(self.every, "2 s") if self.resident else ab.epochs(self.every)


TARGETS = (
    Target("anabranch", 1.0, "200 ms"),
    Target("anabranch, 100 ms", 0.1, "20 ms"),
    Target("continuous, 50 ms", 0.05, "5 ms", resident=True),
)


@dataclass(frozen=True, slots=True)
class Length:
    """Of a run, in seconds."""

    warm: float = 3.5
    counted: float = 4.0


FULL, QUICK = Length(), Length(3.0, 3.0)


def program(name: str, source: Paced, sink: Late) -> ab.Program:
    """One of the six between a source at a rate and a sink that notes latencies."""
    made = ab.Program(name)
    named(name).query(made.read(source, name="in", event_time="t")).write(sink, name="out")
    return made


def keeps_up(sc: Any, name: str, target: Target, rate: float, length: Length) -> bool:
    """Whether results of a rate stay within the target, all of them but one of a hundred."""
    sink = Late("at" if name == "join" else "window_end", early=target.resident)
    # It is stopped at once, and a task that was under way may still write: that must not cost what
    # was measured so far.
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-", ignore_cleanup_errors=True) as home:
        source = Paced(name, int(rate), length.warm + length.counted + 30.0, Path(home))
        # Before it starts: a resident task has a source of its own, and is told nothing later.
        begin = time.time() + GRACE_S
        source.go(begin)
        query = program(name, source, sink).start(
            sc, trigger=target.trigger(), checkpoint=Path(home) / "checkpoint", parallelism=CORES
        )
        end = begin + length.warm + length.counted
        try:
            # A result may be as late as the target; who is later has failed already.
            time.sleep(max(0.0, end + target.seconds + 0.2 - time.time()))
            if (error := query.exception()) is not None:
                raise error
        finally:
            query.stop(drain=False)
    found = sorted(sink.latencies(begin + length.warm, end))
    # Windows end each second; where some are missing they have not come in time.
    enough = length.counted - 1.5
    return len(found) >= enough and found[int(0.99 * (len(found) - 1))] <= target.seconds


def highest(
    sc: Any, name: str, target: Target, most: float, length: Length, tell: Callable[[], None]
) -> float:
    """The highest rate of both cores together, known to a sixteenth of `most`.

    Where it is less than that it is known to its half, and zero is less than a 256th.
    """
    low, high = 0.0, most
    for number in range(LOWEST):
        if number >= HALVINGS and low:
            break
        rate = (low + high) / 2
        if keeps_up(sc, name, target, rate, length):
            low = rate
        else:
            high = rate
        tell()
    return low
