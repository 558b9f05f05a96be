"""Operators that look at one row at a time (M8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import polars as pl

from anabranch.errors import ProgramError
from anabranch.program.expressions import Expression, projected, require_row_wise
from anabranch.program.functions import (
    Function,
    OnError,
    as_function,
    out_schema,
    require_on_error,
)
from anabranch.program.operators.operator import (
    DEAD_LETTERS,
    OUT,
    REST,
    Base,
    Operator,
    Output,
    dead_letters,
    require_final,
)
from anabranch.program.schema import (
    SchemaLike,
    TimeType,
    describe,
    require_columns,
)


def predicate(given: Any, schema: pl.Schema, what: str) -> Expression | Function:
    """A row-wise Boolean expression, or a function of a record."""
    if not isinstance(given, pl.Expr):
        return as_function(given, what)
    expression = Expression.of(given)
    require_row_wise(expression, schema, what)
    found = projected(schema, [expression], what)
    if found.dtypes() != [pl.Boolean()]:
        message = f"{what}: not a Boolean: {expression.text} is {describe(found)}"
        raise ProgramError(message, so="compare it, e.g. pl.col('x') > 0")
    return expression


def _row_wise(
    given: Sequence[Any], named: Mapping[str, Any], schema: pl.Schema, what: str
) -> tuple[Expression, ...]:
    flat = [one for each in given for one in (each if isinstance(each, list | tuple) else [each])]
    named_exprs = [
        (
            value
            if isinstance(value, pl.Expr)
            else pl.col(value)
            if isinstance(value, str)
            else pl.lit(value)
        ).alias(name)
        for name, value in named.items()
    ]
    found = tuple(Expression.of(each) for each in [*flat, *named_exprs])
    for expression in found:
        require_row_wise(expression, schema, what)
    return found


@dataclass(frozen=True, slots=True)
class Filter(Operator):
    """Rows for which a predicate holds; null does not hold."""

    predicate: Expression | Function
    on_error: OnError

    kind: ClassVar[str] = "filter"

    @classmethod
    def over(cls, base: Base, given: Output, by: Any, on_error: str) -> Self:
        """Keep the rows for which `by` holds."""
        found = predicate(by, given.schema, base.name)
        outputs = {OUT: given}
        if isinstance(found, Function):
            outputs[DEAD_LETTERS] = dead_letters(given)
        return cls(base, outputs, found, require_on_error(on_error, base.name))


@dataclass(frozen=True, slots=True)
class Select(Operator):
    """New columns in place of the old ones."""

    expressions: tuple[Expression, ...]

    kind: ClassVar[str] = "select"

    @classmethod
    def over(
        cls, base: Base, given: Output, exprs: Sequence[Any], named: Mapping[str, Any]
    ) -> Self:
        """Compute columns and drop all others."""
        found = _row_wise(exprs, named, given.schema, base.name)
        if not found:
            message = f"{base.name}: no columns selected"
            raise ProgramError(message, have=describe(given.schema))
        schema = projected(given.schema, found, base.name)
        return cls(base, {OUT: Output(schema, given.time, given.revised)}, found)


@dataclass(frozen=True, slots=True)
class WithColumns(Operator):
    """New columns beside the old ones."""

    expressions: tuple[Expression, ...]

    kind: ClassVar[str] = "with_columns"

    @classmethod
    def over(
        cls, base: Base, given: Output, exprs: Sequence[Any], named: Mapping[str, Any]
    ) -> Self:
        """Compute columns and keep the others."""
        found = _row_wise(exprs, named, given.schema, base.name)
        schema = projected(given.schema, found, base.name, keep=True)
        return cls(base, {OUT: Output(schema, given.time, given.revised)}, found)


@dataclass(frozen=True, slots=True)
class Drop(Operator):
    """All columns but some."""

    columns: tuple[str, ...]

    kind: ClassVar[str] = "drop"

    @classmethod
    def over(cls, base: Base, given: Output, columns: Sequence[str]) -> Self:
        """Leave columns out; at least one must stay."""
        require_columns(given.schema, columns, base.name)
        left = {name: dtype for name, dtype in given.schema.items() if name not in columns}
        if not left:
            message = f"{base.name}: no column would be left"
            raise ProgramError(message, have=describe(given.schema))
        return cls(base, {OUT: Output(pl.Schema(left), given.time, given.revised)}, tuple(columns))


@dataclass(frozen=True, slots=True)
class Rename(Operator):
    """Columns under other names."""

    names: tuple[tuple[str, str], ...]

    kind: ClassVar[str] = "rename"

    @classmethod
    def over(cls, base: Base, given: Output, names: Mapping[str, str]) -> Self:
        """Give columns new names; two columns must not end up with one."""
        if not isinstance(names, Mapping):
            message = f"{base.name} takes a dict of old names to new ones, got {names!r}"
            raise ProgramError(message, so='write {"old": "new"}')
        require_columns(given.schema, names, base.name)
        renamed = [names.get(name, name) for name in given.schema]
        if twice := sorted({name for name in renamed if renamed.count(name) > 1}):
            message = f"{base.name}: two columns would be called {twice[0]!r}"
            raise ProgramError(message, have=describe(given.schema))
        schema = pl.Schema(dict(zip(renamed, given.schema.dtypes(), strict=True)))
        return cls(base, {OUT: Output(schema, given.time, given.revised)}, tuple(names.items()))


@dataclass(frozen=True, slots=True)
class Explode(Operator):
    """One row for each element of a list; an empty list gives none, null gives null."""

    column: str

    kind: ClassVar[str] = "explode"

    @classmethod
    def over(cls, base: Base, given: Output, column: str) -> Self:
        """Unfold a list column."""
        require_columns(given.schema, [column], base.name)
        dtype = given.schema[column]
        if not isinstance(dtype, pl.List | pl.Array):
            message = f"{base.name}: column {column!r} is {dtype}, not a list"
            raise ProgramError(message, have=describe(given.schema))
        schema = pl.Schema({**given.schema, column: dtype.inner})
        return cls(base, {OUT: Output(schema, given.time, given.revised)}, column)


@dataclass(frozen=True, slots=True)
class WithEventTime(Operator):
    """The same rows at other event times."""

    column: str
    on_error: OnError

    kind: ClassVar[str] = "with_event_time"

    @classmethod
    def over(cls, base: Base, given: Output, column: str, time_unit: str, on_error: str) -> Self:
        """Take event times from a column; a null one obeys `on_error`."""
        require_columns(given.schema, [column], base.name)
        time = TimeType.of(column, given.schema[column], time_unit)
        out = Output(given.schema, time, given.revised)
        outputs = {OUT: out, DEAD_LETTERS: dead_letters(out)}
        return cls(base, outputs, column, require_on_error(on_error, base.name))


@dataclass(frozen=True, slots=True)
class _PythonRows(Operator):
    function: Function
    on_error: OnError

    @classmethod
    def over(
        cls, base: Base, given: Output, fn: Any, out: SchemaLike | None, on_error: str
    ) -> Self:
        """Apply a function to each record."""
        function = as_function(fn, base.name)
        schema = out_schema(function, out, base.name)
        outputs = {
            OUT: Output(schema, given.time, given.revised),
            DEAD_LETTERS: dead_letters(given),
        }
        return cls(base, outputs, function, require_on_error(on_error, base.name))


@dataclass(frozen=True, slots=True)
class Map(_PythonRows):
    """Each record to one record."""

    kind: ClassVar[str] = "map"


@dataclass(frozen=True, slots=True)
class FlatMap(_PythonRows):
    """Each record to any number of records."""

    kind: ClassVar[str] = "flat_map"


@dataclass(frozen=True, slots=True)
class MapBatches(Operator):
    """Each epoch's rows, as one frame; with `elementwise` any cut of them."""

    function: Function
    elementwise: bool
    on_error: OnError

    kind: ClassVar[str] = "map_batches"

    @classmethod
    def over(
        cls,
        base: Base,
        given: Output,
        fn: Any,
        out: SchemaLike | None,
        elementwise: bool,
        on_error: str,
    ) -> Self:
        """Apply a function to frames."""
        if not elementwise:
            require_final(given, base.name)
        function = as_function(fn, base.name)
        schema = out_schema(function, out, base.name)
        outputs = {
            OUT: Output(schema, given.time, given.revised),
            DEAD_LETTERS: dead_letters(given),
        }
        return cls(base, outputs, function, elementwise, require_on_error(on_error, base.name))


@dataclass(frozen=True, slots=True)
class Split(Operator):
    """Each row to the first branch whose predicate is true, else to the rest."""

    predicates: tuple[tuple[str, Expression], ...]

    kind: ClassVar[str] = "split"

    @classmethod
    def over(cls, base: Base, given: Output, predicates: Mapping[str, Any]) -> Self:
        """Divide a stream by predicates."""
        if not predicates:
            message = f"{base.name}: no predicates"
            raise ProgramError(message, so="write .split(a=pl.col('x') > 0)")
        found = []
        for name, given_predicate in predicates.items():
            if name == REST:
                message = f"{base.name}: 'rest' is what no predicate takes"
                raise ProgramError(message, so="choose another name")
            checked = predicate(given_predicate, given.schema, f"{base.name}: {name}")
            if isinstance(checked, Function):
                message = f"{base.name}: {name}: a branch takes a Polars expression"
                raise ProgramError(message, so="use .filter(fn) for functions")
            found.append((name, checked))
        outputs = dict.fromkeys([*predicates, REST], given)
        return cls(base, outputs, tuple(found))
