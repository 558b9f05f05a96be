"""Python functions over records: columns to records, and what the functions give back to columns.

Rows are checked, never coerced (api: `out`): a missing key is null; an unknown one, or a value of
another type, is an error of the record that it was made of. What fails is data: the place of the
record and the exception.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from anabranch.connectors.rows import Misfit, frame_of
from anabranch.kernels.failures import BadRow
from anabranch.kernels.stateless.held_values import held_values, is_exact

Record: TypeAlias = dict[str, Any]
Values: TypeAlias = tuple[Any, ...]

_NONE = type(None)
_MICROSECONDS = pl.Datetime("us")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_INSTANT = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_LAST_INSTANT = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_PLAIN: Mapping[type[pl.DataType], frozenset[type]] = {
    pl.Boolean: frozenset({bool, _NONE}),
    pl.Float64: frozenset({float, int, _NONE}),
    pl.Float32: frozenset({float, int, _NONE}),
    pl.String: frozenset({str, _NONE}),
    pl.Binary: frozenset({bytes, _NONE}),
}
"""Types of values that fit a column as they are, so that one set tells for all of them."""


def records_of(frame: pl.DataFrame, names: Sequence[str]) -> list[Record]:
    """A frame's rows as fresh dicts of these columns.

    >>> records_of(pl.DataFrame({"a": [1, 2], "b": ["x", None]}), ["a", "b"])
    [{'a': 1, 'b': 'x'}, {'a': 2, 'b': None}]
    """
    return [dict(zip(names, values)) for values in rows_of(frame, names)]  # noqa: B905 - hot


def rows_of(frame: pl.DataFrame, names: Sequence[str]) -> list[Values]:
    """A frame's rows as tuples of these columns.

    >>> rows_of(pl.DataFrame({"a": [1, 2], "b": ["x", None]}), ["a", "b"])
    [(1, 'x'), (2, None)]
    """
    if not names:
        return [()] * frame.height
    return list(zip(*(_values(frame[name]) for name in names)))  # noqa: B905 - one length, and hot


def _values(column: pl.Series) -> list[Any]:
    """A column's values in Python."""
    if column.dtype == _MICROSECONDS:
        whole = column.cast(pl.Int64)
        low, high = whole.min(), whole.max()
        if low is None or (low >= _FIRST_INSTANT and high <= _LAST_INSTANT):  # type: ignore[operator]
            # NumPy makes them in a quarter of the time, None of null, but numbers beyond a year.
            return column.to_numpy().tolist()  # type: ignore[no-any-return]
    return column.to_list()


@dataclass(slots=True)
class Made:
    """Rows that functions gave: their values, and the place of the record each was made of."""

    rows: list[Values] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    failures: dict[int, Exception] = field(default_factory=dict)
    """By the place of the record that failed; nothing it made is among the rows."""

    def without(self, failures: Mapping[int, Exception]) -> Made:
        """What is left when these records have failed as well."""
        kept = [at for at, parent in enumerate(self.parents) if parent not in failures]
        return Made(
            [self.rows[at] for at in kept],
            [self.parents[at] for at in kept],
            {**self.failures, **failures},
        )

    def subs(self) -> pl.Series:
        """The number of each row among those of its record."""
        parents = np.asarray(self.parents, dtype=np.int64)
        numbers = np.arange(len(parents), dtype=np.int64)
        first = np.ones(len(parents), dtype=bool)
        first[1:] = parents[1:] != parents[:-1]
        return pl.Series(numbers - np.maximum.accumulate(np.where(first, numbers, 0)))


class Picker:
    """Takes the values of a schema's columns out of the dicts that a function gives."""

    def __init__(self, schema: pl.Schema) -> None:
        """Look at the schema once."""
        # Polars fills in what a user left open, as in `pl.List(pl.String)`.
        self.schema = pl.DataFrame(schema=schema).schema
        self._names = tuple(schema)
        self.values = _taken(self._names, self._loosely, nested=_any_nested(schema))
        """The values of one row, as they are now: what becomes of the dict later is not seen."""
        self.exact = all(map(is_exact, self.schema.dtypes()))
        """Whether values may go on to the next function without having been in columns."""

    def __reduce__(self) -> tuple[type[Picker], tuple[pl.Schema]]:
        """Travel as the schema."""
        return (Picker, (self.schema,))

    def __call__(self, row: Any) -> Values:
        """The values of one row."""
        return self.values(row)

    def _loosely(self, row: Any) -> Values:
        if not isinstance(row, Mapping):
            message = f"expected a dict, got {type(row).__name__}"
            raise BadRow(message)
        if unknown := [name for name in row if name not in self.schema]:
            message = f"unknown column {unknown[0]!r}; out has {', '.join(self._names)}"
            raise BadRow(message)
        return tuple(row.get(name) for name in self._names)

    def as_held(self, rows: Sequence[Values]) -> Sequence[Values] | None:
        """Rows as columns would give them back; None where only columns can tell.

        >>> pick = Picker(pl.Schema({"n": pl.Int8(), "x": pl.Float64()}))
        >>> pick.as_held([(1, 2), (None, 0.5)])
        [(1, 2.0), (None, 0.5)]
        >>> pick.as_held([(128, 0.5)]), pick.as_held([(True, 0.5)])
        (None, None)
        """
        held, changed = list[Sequence[Any]](), False
        for dtype, values in zip(self.schema.dtypes(), zip(*rows, strict=True), strict=False):
            found = held_values(values, dtype)
            if found is None:
                return None
            changed = changed or found is not values
            held.append(found)
        return list(zip(*held, strict=True)) if changed else rows

    def frame(self, rows: Sequence[Values]) -> pl.DataFrame:
        """Rows as a frame, or `Misfit` with the first that does not fit."""
        found = []
        for at, (name, dtype) in enumerate(self.schema.items()):
            # Column by column: `zip(*rows)` makes an iterator a row, and the collector look at all.
            values = list(map(itemgetter(at), rows))
            if (series := _fast(name, values, dtype)) is None:
                series = _slow(name, values, dtype)
            found.append(series)
        return pl.DataFrame(found)

    def checked(self, made: Made) -> tuple[pl.DataFrame, Made]:
        """The frame of the rows that fit; a record of which one row does not has failed."""
        try:
            return self.frame(made.rows), made
        except Misfit:
            left = made.without(self._misfits(made))
            return self.frame(left.rows), left

    def _misfits(self, made: Made) -> dict[int, Exception]:
        found: dict[int, Exception] = {}
        for row, parent in zip(made.rows, made.parents, strict=True):
            if parent not in found:
                try:
                    self.frame([row])
                except Misfit as misfit:
                    found[parent] = BadRow(misfit.why)
        return found


def _taken(
    names: Sequence[str], loosely: Callable[[Any], Values], *, nested: bool
) -> Callable[[Any], Values]:
    """A plain function that takes these keys out of a dict: called for every row there is."""
    width, picked = len(names), itemgetter(*names)
    get = picked if width > 1 else lambda row: (picked(row),)

    def values(row: Any) -> Values:
        if type(row) is dict and len(row) == width:
            try:
                return get(row)
            except KeyError:
                pass
        return loosely(row)

    return (lambda row: copy.deepcopy(values(row))) if nested else values


def _any_nested(schema: pl.Schema) -> bool:
    return any(dtype.is_nested() for dtype in schema.dtypes())


def several(given: Any) -> Iterable[Any]:
    """What a function gave, as records: a dict, a list or iterator of them, or None for nothing."""
    if given is None:
        return ()
    if isinstance(given, Mapping):
        return (given,)
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        message = f"expected a dict, a list of dicts or None, got {type(given).__name__}"
        raise BadRow(message)
    return given  # type: ignore[no-any-return]


def _fast(name: str, values: Sequence[Any], dtype: pl.DataType) -> pl.Series | None:
    plain = frozenset({int, _NONE}) if dtype.is_integer() else _PLAIN.get(type(dtype))
    if plain is None or not set(map(type, values)) <= plain:
        return None
    try:
        return pl.Series(name, values, dtype=dtype, strict=True)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        return None


def _slow(name: str, values: Sequence[Any], dtype: pl.DataType) -> pl.Series:
    return frame_of([{name: value} for value in values], pl.Schema({name: dtype})).to_series()
