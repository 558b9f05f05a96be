"""The bare work of the cases from a frame to a frame, in plain Polars and plain Python.

What has state is a class: an instance is called with one frame after the other, in order of time.
Rows come in any order: to keep that of the input, or to sort, is not among the bare work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import polars as pl

Record: TypeAlias = dict[str, Any]
Work: TypeAlias = Callable[[pl.DataFrame], pl.DataFrame]

SECOND = 1_000_000
START, END = "window_start", "window_end"


def stateless(frame: pl.DataFrame) -> pl.DataFrame:
    """Filter, compute, leave out: Polars one step at a time."""
    kept = frame.select("t", "name", "n", "x").filter(frame["kind"] == "view")
    return kept.select("t", "name", y=pl.col("x") * 2 + pl.col("n"))


def stateless_lazily(frame: pl.DataFrame) -> pl.DataFrame:
    """The same as a lazy query."""
    return _computed(frame).select("t", "name", "y").collect()


def looked_up(table: pl.DataFrame) -> Work:
    """Filter, compute, look up, leave out: Polars one step at a time."""

    def work(frame: pl.DataFrame) -> pl.DataFrame:
        return stateless(frame).join(table, on="name").select("t", "team", "y")

    return work


def looked_up_lazily(table: pl.DataFrame) -> Work:
    """The same as a lazy query."""

    def work(frame: pl.DataFrame) -> pl.DataFrame:
        joined = _computed(frame).join(table.lazy(), on="name")
        return joined.select("t", "team", "y").collect()

    return work


def _computed(frame: pl.DataFrame) -> pl.LazyFrame:
    viewed = frame.lazy().filter(pl.col("kind") == "view")
    return viewed.with_columns(y=pl.col("x") * 2 + pl.col("n"))


def window_count(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows per key and second; a frame begins and ends with one."""
    start = pl.col("t").to_physical() // SECOND * SECOND
    return _bounded(frame.group_by(start.alias(START), "k").agg(count=_length()), SECOND)


class Sliding:
    """Rows and sums per key of windows that begin every second; a frame ends with a second."""

    def __init__(self, seconds: int) -> None:
        """Windows of so many seconds."""
        self._seconds = seconds
        self._held: list[pl.DataFrame] = []

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Add up panes of a second, then those of each window that has ended."""
        times = frame["t"].to_physical()
        low, high = (int(x) // SECOND * SECOND for x in (times.min(), times.max()))  # type: ignore[arg-type]
        pane = pl.col("t").to_physical() // SECOND * SECOND
        total = pl.col("n").sum().alias("total")
        fresh = frame.group_by(pane.alias(START), "k").agg(_length(), total)
        panes = pl.concat([*self._held, fresh])
        back = (self._seconds - 1) * SECOND
        self._held = [panes.filter(pl.col(START) > high - back)]
        windows = pl.concat(
            panes.with_columns(pl.col(START) - at * SECOND) for at in range(self._seconds)
        ).filter(pl.col(START).is_between(low - back, high - back))
        added = windows.group_by(START, "k").agg(pl.col("count").sum(), pl.col("total").sum())
        return _bounded(added, self._seconds * SECOND)


def rows(functions: tuple[Callable[[Record], Any], ...], out: Mapping[str, Any]) -> Work:
    """Python functions over records, the last of which may give several."""
    *maps, last = functions

    def work(frame: pl.DataFrame) -> pl.DataFrame:
        made: list[Record] = []
        for record in frame.iter_rows(named=True):
            for each in maps:
                record = each(record)  # noqa: PLW2901 - one behind the other
            given = last(record)
            if isinstance(given, dict):
                made.append(given)
            else:
                made.extend(given)
        return _framed(made, out)

    return work


class _State:
    """What a function sees of a key."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Any = None


class Keyed:
    """A Python function over records with a state by key."""

    def __init__(self, function: Callable[..., Record], key: str, out: Mapping[str, Any]) -> None:
        """Begin with no keys."""
        self._function, self._key, self._out = function, key, out
        self._states: dict[Any, _State] = {}

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        """One record after the other."""
        made, states, function, key = [], self._states, self._function, self._key
        for record in frame.iter_rows(named=True):
            state = states.get(record[key])
            if state is None:
                state = states[record[key]] = _State()
            made.append(function(record, state))
        return _framed(made, self._out)


class Join:
    """Pairs of rows of two sides with one key, at most so far apart."""

    def __init__(self, within: int) -> None:
        """Microseconds apart."""
        self._within = within
        self._held: tuple[list[pl.DataFrame], list[pl.DataFrame]] = ([], [])

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        """New rows with those of the other side, and what can match later ones."""
        is_left = frame["side"] == 0
        left = frame.filter(is_left).select("k", "t", "v")
        right = frame.filter(~is_left).select("k", u="t", w="v")
        lefts, rights = self._held
        pairs = [self._near(left, pl.concat([*rights, right]))]
        pairs += [self._near(each, right) for each in lefts]
        horizon = frame["t"].max() - pl.duration(microseconds=self._within)
        self._held = (
            [pl.concat([*lefts, left]).filter(pl.col("t") >= horizon)],
            [pl.concat([*rights, right]).filter(pl.col("u") >= horizon)],
        )
        return pl.concat(pairs)

    def _near(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        apart = (pl.col("t").to_physical() - pl.col("u").to_physical()).abs()
        return left.join(right, on="k").filter(apart <= self._within)


def _length() -> pl.Expr:
    return pl.len().cast(pl.Int64).alias("count")


def _bounded(found: pl.DataFrame, size: int) -> pl.DataFrame:
    """Windows with both of their bounds, as times."""
    start = pl.col(START).cast(pl.Datetime("us"))
    end = (pl.col(START) + size).cast(pl.Datetime("us")).alias(END)
    return found.select(start, end, pl.exclude(START))


def _framed(made: list[Record], out: Mapping[str, Any]) -> pl.DataFrame:
    """Records as columns: a list a column is twice as fast as a frame of dicts."""
    return pl.DataFrame({name: [row[name] for row in made] for name in out}, schema=out)
