"""A key between columns and Python: as M6 compares it, as a user sees it, as it is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import polars as pl

from anabranch.kernels.bundle import SLICE
from anabranch.kernels.keys import canonical, canonical_type, is_canonical
from anabranch.state.codec import decode, encode

_NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a bundle's rows."""

    compared: list[Any]
    seen: list[Any]
    slices: list[int]


@dataclass(frozen=True)
class KeyForm:
    """The key columns of an operator; none: the whole stream is one key.

    A key of one column is its bare value, of several a tuple. *Compared* values are equal in a dict
    exactly when M6 says so: one NaN stands for all, times with a zone are numbers.
    """

    by: tuple[str, ...]
    types: tuple[pl.DataType, ...]

    def keys_of(self, frame: pl.DataFrame) -> Keys:
        """Each row's key as it is compared and as the user sees it, and its slice."""
        slices = frame[SLICE].to_list()
        if not self.by:
            return Keys([()] * frame.height, [()] * frame.height, slices)
        columns = self._canonical(frame)
        seen = [_one_nan(column.to_list(), column.dtype) for column in columns]
        # Python compares times of one zone by what the clock shows, and clocks go back.
        compared = [
            column.to_physical().to_list() if _is_zoned(column.dtype) else values
            for column, values in zip(columns, seen, strict=True)
        ]
        if len(self.by) == 1:
            return Keys(compared[0], seen[0], slices)
        return Keys(list(zip(*compared, strict=True)), list(zip(*seen, strict=True)), slices)

    def _canonical(self, frame: pl.DataFrame) -> list[pl.Series]:
        """The key columns in the form in which they are compared."""
        if all(is_canonical(dtype) for dtype in self.types):
            return [frame[name] for name in self.by]
        named = zip(self.by, self.types, strict=True)
        return frame.select(canonical(pl.col(n), t).alias(n) for n, t in named).get_columns()

    def code_of(self, compared: Any) -> bytes:
        """A compared key as it is kept."""
        return encode((compared,) if len(self.by) == 1 else compared)

    def compared_of(self, code: bytes) -> Any:
        """The compared key that was kept as this code."""
        parts = tuple(_NAN if each != each else each for each in decode(code))  # noqa: PLR0124
        return parts[0] if len(self.by) == 1 else parts

    def seen_of(self, compared: Any) -> Any:
        """A compared key as the user sees it."""
        if not any(map(_is_zoned, self.types)):
            return compared
        parts = [column.to_list()[0] for column in self.columns([compared])]
        return parts[0] if len(self.by) == 1 else tuple(parts)

    def order_of(self, compared: Any) -> tuple[tuple[int, Any], ...]:
        """A value that Python orders as M6 does: null first, NaN last."""
        return tuple(_order(each) for each in self._parts(compared))

    def named(self, seen: Any) -> dict[str, Any]:
        """A key that the user sees as columns of a record."""
        return dict(zip(self.by, self._parts(seen), strict=True))

    def columns(self, compared: Sequence[Any]) -> list[pl.Series]:
        """Compared keys as columns that Polars orders as M6 does."""
        rows = [self._parts(each) for each in compared]
        found = []
        for at, dtype in enumerate(map(canonical_type, self.types)):
            values = [row[at] for row in rows]
            if _is_zoned(dtype):
                found.append(pl.Series(values, dtype=pl.Int64).cast(dtype))
            else:
                found.append(pl.Series(values, dtype=dtype))
        return found

    def _parts(self, key: Any) -> tuple[Any, ...]:
        parts: tuple[Any, ...] = (key,) if len(self.by) == 1 else key
        return parts


def each_record(frame: pl.DataFrame, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A frame's rows as fresh dicts of these columns, each made when it is asked for.

    >>> list(each_record(pl.DataFrame({"a": [1, 2]}), ["a"]))
    [{'a': 1}, {'a': 2}]
    """
    if not names:
        return ({} for _ in range(frame.height))
    return map(_maker(tuple(names)), *(frame[name].to_list() for name in names))


@cache
def _maker(names: tuple[str, ...]) -> Callable[..., dict[str, Any]]:
    """A function from values to a record, which is what a user's function is given so often.

    Written out for its names, as `namedtuple` does, it takes half the time of `dict(zip(...))`.

    >>> _maker(("a", "it's"))(1, 2)
    {'a': 1, "it's": 2}
    """
    values = [f"v{at}" for at in range(len(names))]
    items = ", ".join(f"{name!r}: {value}" for name, value in zip(names, values, strict=True))
    made: Callable[..., dict[str, Any]] = eval(f"lambda {', '.join(values)}: {{{items}}}")  # noqa: S307 - names are quoted
    return made


def each_row(frame: pl.DataFrame, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The values of these columns, row by row."""
    return zip(*(frame[name].to_list() for name in names))  # noqa: B905 - one length, and hot


def _order(value: Any) -> tuple[int, Any]:
    if value is None:
        return (0, 0)
    return (1, value) if value == value else (2, 0)  # noqa: PLR0124 - NaN is not


def _one_nan(values: list[Any], dtype: pl.DataType) -> list[Any]:
    """The same object for every NaN, which then is equal to itself in a dict."""
    return [_NAN if each != each else each for each in values] if dtype.is_float() else values  # noqa: PLR0124


def _is_zoned(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.Datetime) and dtype.time_zone is not None
