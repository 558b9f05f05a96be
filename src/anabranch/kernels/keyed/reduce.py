"""Running combinations (M11): a key's value so far and a record make the key's new value.

The value is a row like any other, so what is kept of a key is the last row that it gave, in columns
of the input's types: nothing is encoded. Inside an epoch a value goes from record to record in the
form in which a column gives it back, so that where an epoch ends is not seen.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self
from zoneinfo import ZoneInfo

import polars as pl

from anabranch.connectors.rows import Misfit
from anabranch.kernels.bundle import hidden
from anabranch.kernels.failures import BadRow
from anabranch.kernels.kernel import Given, Taken
from anabranch.kernels.keyed.keys import each_row
from anabranch.kernels.keyed.outputs import outputs_of
from anabranch.kernels.keyed.rows import ColumnState, Shape, arranged, as_delta
from anabranch.kernels.letters import Left
from anabranch.kernels.stateless.left_out import left_out
from anabranch.kernels.stateless.python_rows import Made, Picker, Record, Values
from anabranch.program.functions import OnError
from anabranch.program.graph import Graph
from anabranch.program.operators.keyed import Reduce


@dataclass(frozen=True)
class ReduceKernel:
    """A reduce operator, lowered."""

    operator: str
    call: Callable[[Record, Record], Any]
    shape: Shape
    pick: Picker
    on_error: OnError
    once: bool = False
    """Whether its function must be called once a record, even if another record fails."""
    lag: int = 0

    @classmethod
    def of(cls, graph: Graph, op: Reduce, *, once: bool = False) -> Self:
        """Lower the operator."""
        pick = Picker(graph.output(op.inputs[0]).schema)
        kept = {_value(at): dtype for at, dtype in enumerate(pick.schema.dtypes())}
        shape = Shape.of(op.key, pick.schema, kept, one=True)
        return cls(op.name, op.function.call, shape, pick, op.on_error, once)

    def restore(self, deltas: Iterable[pl.DataFrame], version: int = 0) -> ColumnState:
        """The state after epochs with these deltas, in order."""
        return ColumnState.from_deltas(self.shape, deltas, version)

    def after(self, state: ColumnState, deltas: Iterable[pl.DataFrame]) -> ColumnState:
        """The state after more epochs with these deltas, in order."""
        return state.after(deltas)

    def run(self, taken: Taken, state: ColumnState) -> Given[ColumnState]:
        """Combine each record with its key's value."""
        (rows,) = taken.rows
        if not rows.height:
            left, delta = self._left(rows, Made()), self.shape.empty()
            return Given(outputs_of(rows, left), state.then(delta, taken.after), delta)
        made, values = (epoch := _Epoch.of(self, rows, state)).run()
        left = self._left(rows, made)
        places = pl.Series(made.parents, dtype=pl.UInt32)
        out = values.with_columns([rows[name].gather(places) for name in hidden(rows)])
        delta = self._delta(epoch.keyed[places], values)
        found = outputs_of(out, left)
        return Given(found, state.then(delta, taken.after), delta, letters=left.count)

    def _left(self, rows: pl.DataFrame, made: Made) -> Left:
        return left_out(self.operator, rows, self.names, made, self.on_error)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of a record."""
        return tuple(self.pick.schema)

    def _delta(self, keyed: pl.DataFrame, values: pl.DataFrame) -> pl.DataFrame:
        """The last value of each key."""
        named = [values[name].alias(_value(at)) for at, name in enumerate(values.columns)]
        rows = keyed.with_columns(named)
        return as_delta(self.shape, rows.unique(self.shape.keys, keep="last", maintain_order=True))


class _Trouble(Exception):
    """An epoch must be run again with care."""


@dataclass(frozen=True)
class _Epoch:
    """One epoch's records, key by key, and the values that their keys begin with."""

    kernel: ReduceKernel
    rows: pl.DataFrame
    keyed: pl.DataFrame
    """The slice and the key of each row."""
    numbers: list[int]
    """The number of each row's key."""
    first: dict[int, Values]
    """The values of keys that have one, by their number."""

    @classmethod
    def of(cls, kernel: ReduceKernel, rows: pl.DataFrame, state: ColumnState) -> _Epoch:
        shape = kernel.shape
        keyed = rows.select(shape.keyed())
        known = state.find(keyed)
        order, numbers = arranged(
            pl.concat([known.select(keyed.columns), keyed]) if known.height else keyed, shape.keys
        )
        of_row = numbers.copy()
        of_row[order] = numbers
        values = known.select([name for name, _ in shape.kept]).rows()
        first = dict(zip(of_row[: known.height].tolist(), values, strict=True))
        return cls(kernel, rows, keyed, of_row[known.height :].tolist(), first)

    def run(self) -> tuple[Made, pl.DataFrame]:
        """The new values, of the records that did not fail."""
        if self.kernel.once and self.kernel.on_error != "fail":
            return self.carefully()
        try:
            return self.swiftly()
        except _Trouble:
            return self.carefully()

    def swiftly(self) -> tuple[Made, pl.DataFrame]:
        """Run as if nothing could go wrong, with `_Trouble` if anything does."""
        pick, call, names = self.kernel.pick, self.kernel.call, self.kernel.names
        settle, value_of = _settling(pick.schema), dict(self.first)
        copied = copy.deepcopy if _is_nested(pick.schema) else _same
        found: list[Values] = []
        try:
            for number, values in zip(self.numbers, self._records(), strict=True):
                value = value_of.get(number)
                if value is None:
                    new = values
                else:
                    # One length, and hot.
                    one = dict(zip(names, copied(value)))  # noqa: B905
                    new = settle(pick(call(one, dict(zip(names, copied(values))))))  # noqa: B905
                value_of[number] = new
                found.append(new)
            return Made(parents=list(range(len(found)))), pick.frame(found)
        except Exception as error:
            raise _Trouble from error

    def carefully(self) -> tuple[Made, pl.DataFrame]:
        """Run one record after the other; what fails leaves its key's value as it was."""
        pick, made, value_of = self.kernel.pick, Made(), dict(self.first)
        settle = _settling(pick.schema)
        for index, (number, values) in enumerate(zip(self.numbers, self._records(), strict=True)):
            try:
                new = values
                if (value := value_of.get(number)) is not None:
                    new = settle(self._checked(value, values))
            except Exception as error:  # noqa: BLE001 - whatever a user's function raises
                made.failures[index] = error
                if self.kernel.on_error == "fail":
                    break
            else:
                value_of[number] = new
                made.rows.append(new)
                made.parents.append(index)
        return made, pick.frame(made.rows)

    def _checked(self, value: Values, values: Values) -> Values:
        names, pick = self.kernel.names, self.kernel.pick
        given = [dict(zip(names, copy.deepcopy(each), strict=True)) for each in (value, values)]
        new = pick(self.kernel.call(*given))
        try:
            pick.frame([new])
        except Misfit as misfit:
            raise BadRow(misfit.why) from None
        return new

    def _records(self) -> Iterator[Values]:
        return each_row(self.rows, self.kernel.names)


def _value(number: int) -> str:
    """The name of a state's column that holds a column of the value."""
    return f"v{number}"


def _is_nested(schema: pl.Schema) -> bool:
    return any(dtype.is_nested() for dtype in schema.dtypes())


def _same(values: Values) -> Values:
    return values


def _settling(schema: pl.Schema) -> Callable[[Values], Values]:
    """What makes of a row's values those that its columns would give back."""
    fixes = [(at, fix) for at, dtype in enumerate(schema.dtypes()) if (fix := _fix(dtype))]
    if not fixes:
        return _same

    def settle(values: Values) -> Values:
        found = list(values)
        for at, fix in fixes:
            if found[at] is not None:
                found[at] = fix(found[at])
        return tuple(found)

    return settle


def _fix(dtype: pl.DataType) -> Callable[[Any], Any] | None:
    """What a column of this type makes of a value, if it makes anything else of some."""
    if dtype.is_integer() or isinstance(dtype, _EXACT):
        return None
    if isinstance(dtype, pl.Float64):
        return _as_float
    if isinstance(dtype, pl.Datetime):
        zone = None if dtype.time_zone is None else ZoneInfo(dtype.time_zone)
        return None if zone is None else lambda value: value.astimezone(zone)
    return lambda value: _through(value, dtype)


def _as_float(value: Any) -> Any:
    return float(value) if type(value) is int else value


def _through(value: Any, dtype: pl.DataType) -> Any:
    return Picker(pl.Schema({"v": dtype})).frame([(value,)])["v"].to_list()[0]


_EXACT = (
    pl.Boolean, pl.String, pl.Date, pl.Time, pl.Duration, pl.Enum, pl.Categorical, pl.Null,
)  # fmt: skip
