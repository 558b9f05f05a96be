"""Column types of Spark and of Polars, each as the other's.

What one side cannot hold exactly is refused, with the column's name and what to cast it to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import polars as pl

from anabranch.errors import AnabranchError, ProgramError, RunError

Refuse: TypeAlias = Callable[[str, str, str], AnabranchError]
"""Makes the error from the column's path, its type, and what to do."""

# By name: a type that this version of PySpark does not know yet is refused like any other.
_TO_POLARS: Mapping[str, pl.DataType] = {
    "BooleanType": pl.Boolean(),
    "ByteType": pl.Int8(),
    "ShortType": pl.Int16(),
    "IntegerType": pl.Int32(),
    "LongType": pl.Int64(),
    "FloatType": pl.Float32(),
    "DoubleType": pl.Float64(),
    "StringType": pl.String(),
    "CharType": pl.String(),
    "VarcharType": pl.String(),
    "BinaryType": pl.Binary(),
    "DateType": pl.Date(),
    "TimeType": pl.Time(),
    "TimestampType": pl.Datetime("us", "UTC"),
    "TimestampNTZType": pl.Datetime("us"),
    "DayTimeIntervalType": pl.Duration("us"),
    "NullType": pl.Null(),
}
_TO_SPARK: Mapping[type, str] = {
    pl.Boolean: "BooleanType",
    pl.Int8: "ByteType",
    pl.Int16: "ShortType",
    pl.Int32: "IntegerType",
    pl.Int64: "LongType",
    pl.Float32: "FloatType",
    pl.Float64: "DoubleType",
    pl.String: "StringType",
    pl.Binary: "BinaryType",
    pl.Date: "DateType",
    pl.Duration: "DayTimeIntervalType",
}
# Spark has no unsigned numbers: the next wider type holds them all; 2**64 has 20 digits.
_SIGNED: Mapping[type, pl.DataType] = {
    pl.UInt8: pl.Int16(),
    pl.UInt16: pl.Int32(),
    pl.UInt32: pl.Int64(),
    pl.UInt64: pl.Decimal(20, 0),
}


def polars_schema(given: Any, what: str) -> pl.Schema:
    """The Polars schema of a Spark one: TIMESTAMP is an instant in UTC, TIMESTAMP_NTZ has no zone.

    A map is a list of structs `{key, value}`, as Spark's `map_entries` gives it.

    Raises:
        ProgramError: A column's type has no Polars type, or two columns have one name.
    """

    def refuse(column: str, told: str, so: str) -> ProgramError:
        return ProgramError(
            f"{what}: column {column!r} is {told}, which a record cannot hold", so=so
        )

    names = [field.name for field in given.fields]
    if twice := next((name for name in names if names.count(name) > 1), None):
        message = f"{what}: two columns are called {twice!r}"
        raise ProgramError(message, so="rename one of them, e.g. with df.toDF(...)")
    return pl.Schema(
        {field.name: _polars_type(field.dataType, field.name, refuse) for field in given.fields}
    )


def spark_schema(given: Mapping[str, pl.DataType], what: str) -> Any:
    """The Spark schema of columns whose types are `storable`.

    Raises:
        RunError: A column's type has no Spark type.
    """
    from pyspark.sql.types import StructField, StructType

    def refuse(column: str, told: str, so: str) -> RunError:
        return RunError(f"{what}: column {column!r} is {told}, which Spark cannot hold", so=so)

    return StructType(
        [StructField(name, _spark_type(dtype, name, refuse)) for name, dtype in given.items()]
    )


def storable(dtype: Any) -> pl.DataType:
    """The nearest type that holds the same values and that Spark has too.

    >>> storable(pl.Array(pl.Enum(["a"]), 2)), storable(pl.UInt8())
    (List(String), Int16)
    """
    match dtype:
        case pl.Enum() | pl.Categorical():
            return pl.String()
        case pl.Datetime():
            return pl.Datetime("us", "UTC" if dtype.time_zone else None)
        case pl.Duration():
            return pl.Duration("us")
        case pl.List() | pl.Array():
            return pl.List(storable(dtype.inner))
        case pl.Struct():
            return pl.Struct({field.name: storable(field.dtype) for field in dtype.fields})
    kept: pl.DataType = _SIGNED.get(type(dtype), dtype)
    return kept


def _polars_type(given: Any, column: str, refuse: Refuse) -> pl.DataType:
    kind = type(given).__name__
    if kind == "DecimalType":
        return pl.Decimal(given.precision, given.scale)
    if kind == "ArrayType":
        return pl.List(_polars_type(given.elementType, f"{column}[]", refuse))
    if kind == "StructType":
        return _polars_struct(given, column, refuse)
    if kind == "MapType":
        key = _polars_type(given.keyType, f"{column}.key", refuse)
        value = _polars_type(given.valueType, f"{column}.value", refuse)
        return pl.List(pl.Struct({"key": key, "value": value}))
    if kind not in _TO_POLARS:
        raise refuse(column, given.simpleString().upper(), _instead(kind, column))
    return _TO_POLARS[kind]


def _polars_struct(given: Any, column: str, refuse: Refuse) -> pl.Struct:
    if not given.fields:
        raise refuse(column, "a struct of nothing", f"leave it out: df.drop({column!r})")
    return pl.Struct(
        {
            field.name: _polars_type(field.dataType, f"{column}.{field.name}", refuse)
            for field in given.fields
        }
    )


def _instead(kind: str, column: str) -> str:
    if kind == "YearMonthIntervalType":
        return f"make it a number of months before: df.selectExpr('cast({column} as int)', ...)"
    if kind == "VariantType":
        return f"make it text before: df.selectExpr('to_json({column})', ...)"
    return f"cast it before, e.g. df.withColumn({column!r}, df[{column!r}].cast('string'))"


def _spark_type(given: Any, column: str, refuse: Refuse) -> Any:
    from pyspark.sql import types

    match given:
        case pl.Datetime():
            return types.TimestampType() if given.time_zone else types.TimestampNTZType()
        case pl.Decimal():
            return types.DecimalType(given.precision, given.scale)
        case pl.List():
            return types.ArrayType(_spark_type(given.inner, f"{column}[]", refuse))
        case pl.Struct():
            return types.StructType(
                [
                    types.StructField(
                        field.name, _spark_type(field.dtype, f"{column}.{field.name}", refuse)
                    )
                    for field in given.fields
                ]
            )
    name = _TO_SPARK.get(type(given))
    if name is None:
        first = column.partition(".")[0]
        so = f"cast it before .write(...), e.g. pl.col({first!r}).cast(pl.String)"
        raise refuse(column, str(given), so)
    return getattr(types, name)()
