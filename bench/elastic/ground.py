"""What the cases share: Spark, a place for checkpoints, sizes, and how long to look."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from anabranch.spark.session import spark_context
from bench.elastic.arriving import keys_for
from bench.elastic.watched import Watched, throughput
from bench.harness.stand import Stand

CORES = 2
SHARE = 0.5
"""Of what the machine can do rows come."""
_UNITS = {"kb": 10**3, "mb": 10**6, "gb": 10**9}
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is run."""

    sizes: tuple[str, ...] = ("64mb", "256mb", "1gb")
    checkpoint: str = "1gb"
    """State of the cases that have one size alone."""
    cotenant: str = "256mb"
    recover: tuple[str, ...] = ("64mb", "256mb", "1gb")
    window: float = 10.0
    """Seconds of a steady stretch, at least."""
    probe: float = 5.0
    """Seconds of a backlog that tells what the machine can do."""
    epochs: int = 70
    """Of a run of `checkpoint`: the baseline that writes all at once does so twice."""
    commits: int = 300
    """Of a run of `memory-2`."""
    survivors: tuple[int, ...] = (1, 2, 3)
    """Executors that are left when one is lost, of `recover-executor-*`."""
    slices: tuple[int, ...] = (16, 1024)
    slice_keys: int = 100_000
    slice_rows: int = 20_000_000
    few_keys: int = 10_000
    rounds: tuple[int, ...] = (8, 32, 128)
    """Deltas in which each slice is written anew once, of `recover-interval`."""


FULL = Scale()
QUICK = Scale(
    sizes=("8mb", "32mb"),
    checkpoint="32mb",
    cotenant="8mb",
    recover=("8mb", "32mb"),
    window=2.0,
    probe=2.0,
    epochs=36,
    commits=100,
    slice_keys=20_000,
    slice_rows=2_000_000,
    few_keys=1_000,
    rounds=(8, 32),
)
TINY = Scale(
    sizes=("64kb",),
    checkpoint="64kb",
    cotenant="64kb",
    recover=("64kb",),
    window=0.2,
    probe=0.1,
    epochs=3,
    commits=5,
    survivors=(1,),
    slices=(16,),
    slice_keys=500,
    slice_rows=5_000,
    few_keys=100,
    rounds=(2, 32),
)


def bytes_of(size: str) -> int:
    """How much a size is.

    >>> bytes_of("64mb"), bytes_of("1gb")
    (64000000, 1000000000)
    """
    found = re.fullmatch(r"(\d+)(kb|mb|gb)", size)
    if found is None:
        message = f"{size!r} is no size: give one such as 64mb or 1gb"
        raise ValueError(message)
    return int(found[1]) * _UNITS[found[2]]


@dataclass(frozen=True, slots=True)
class Ground:
    """Spark, a place, and how much to run."""

    sc: Any
    home: Path
    scale: Scale

    @contextmanager
    def watched(self, keys: int, *, lanes: int, **options: Any) -> Iterator[Watched]:
        """A query with its state loaded; it is over afterwards, and its files are gone."""
        with tempfile.TemporaryDirectory(dir=self.home) as home:
            found = Watched(self.sc, Path(home), keys, **options)
            found.load(lanes)
            try:
                yield found
            finally:
                found.end()

    @contextmanager
    def sized(self, size: str, *, lanes: int, **options: Any) -> Iterator[Watched]:
        """A query with a state of this size."""
        with self.watched(keys_for(bytes_of(size)), lanes=lanes, **options) as found:
            yield found

    def rate(self, query: Watched) -> float:
        """Half of what the machine can do with this query now, in rows a second."""
        begin, end = query.flood(self.scale.probe)
        return SHARE * throughput(query.commits, begin, end)


@contextmanager
def ground(
    scale: Scale, master: str = f"local[{CORES}]", conf: Mapping[str, str] | None = None
) -> Iterator[Ground]:
    """Spark and a place for checkpoints, for as long as they are needed."""
    attached = spark_context(master=master, conf=conf)
    try:
        with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as home:
            yield Ground(attached.sc, Path(home), scale)
    finally:
        attached.stop()


def in_turns(
    stand: Stand, case: str, systems: Mapping[str, Callable[[], _T]]
) -> tuple[dict[str, list[_T]], dict[str, list[_T]]]:
    """All that the systems' runs gave, taking turns; and what the warm-up rounds gave."""
    found: dict[str, list[_T]] = {name: [] for name in systems}

    def contender(name: str) -> Callable[[], float]:
        def one() -> float:
            found[name].append(systems[name]())
            return 0.0

        return one

    stand.race(case, {name: contender(name) for name in systems})
    warm = stand.settings.warmups
    return (
        {name: runs[warm:] for name, runs in found.items()},
        {name: runs[:warm] for name, runs in found.items()},
    )
