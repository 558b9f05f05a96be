"""Sources of rows that are made before a run, so that it is not measured how they are made.

A buffer may be played again and again; then the time of a row goes by its number.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import polars as pl

import anabranch as ab
from bench.workloads import mapped


def source(name: str, make: Callable[[int], pl.DataFrame], rows: int) -> ab.sources.Source:
    """All of the rows that `make` makes of a number, kept under a name."""
    path = _kept(name, make, rows)
    return _generator(partial(_part, path=str(path)), path, rows)


def replayed(
    name: str,
    make: Callable[[int], pl.DataFrame],
    rows: int,
    *,
    size: int,
    time: str,
    rate: int,
) -> ab.sources.Source:
    """A buffer of so many rows, again and again; `time` is in ms, with `rate` rows a second."""
    path = _kept(name, make, min(size, rows))
    return _generator(partial(_timed, path=str(path), time=time, rate=rate), path, rows)


def _generator(
    part: Callable[[pl.Series], pl.DataFrame], path: Path, rows: int
) -> ab.sources.Source:
    schema = mapped.kept(str(path)).schema
    return ab.sources.Generator(part, schema=schema, rows=rows, vectorized=True)


@cache
def _home() -> tempfile.TemporaryDirectory[str]:
    """Gone when this process ends."""
    return tempfile.TemporaryDirectory(prefix="anabranch-bench-")


def _kept(name: str, make: Callable[[int], pl.DataFrame], size: int) -> Path:
    path = Path(_home().name) / f"{name}-{size}.arrow"
    if not path.exists():
        mapped.keep(make(size), path)
    return path


def _part(numbers: pl.Series, path: str) -> pl.DataFrame:
    """The rows of consecutive numbers."""
    if not len(numbers):
        return mapped.played(path, 0, 0)
    return mapped.played(path, int(numbers[0]), int(numbers[-1]) + 1)


def _timed(numbers: pl.Series, path: str, time: str, rate: int) -> pl.DataFrame:
    times = (numbers.cast(pl.Int64) * 1000 // rate).alias(time)
    return _part(numbers, path).with_columns(times)
