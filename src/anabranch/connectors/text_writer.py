"""Tables as CSV and as JSON Lines, spelled as they are read again; nothing is lost in silence.

Times of a zone are written in UTC: the offsets of the 19th century have seconds, which an offset in
a text has not.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, final

import polars as pl

from anabranch.connectors.text_types import require_text_types
from anabranch.errors import RunError

if TYPE_CHECKING:
    import pyarrow as pa


@final
class CsvWriter:
    """A header, then rows: texts in quotes, so that an empty one is no null."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        """Write the header; refuse types that CSV does not hold."""
        from pyarrow import csv

        require_text_types(_polars_schema(schema), "csv", RunError)
        options = csv.WriteOptions(quoting_style="needed")
        self._schema = _in_utc(schema)
        self._writer = csv.CSVWriter(file, self._schema, write_options=options)

    def write_table(self, table: pa.Table) -> None:
        """Write rows."""
        self._writer.write_table(table.cast(self._schema))

    def close(self) -> None:
        """Write what is held back."""
        self._writer.close()


@final
class JsonWriter:
    """An object a row; times as ISO 8601 writes them.

    JSON has no NaN and no infinity, for which Polars writes null: they are refused.
    """

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        """Refuse types that JSON Lines do not hold."""
        found = _polars_schema(schema)
        require_text_types(found, "jsonl", RunError)
        self._file = file
        self._spelled = [_spelled(pl.col(name), dtype).alias(name) for name, dtype in found.items()]

    def write_table(self, table: pa.Table) -> None:
        """Write rows."""
        frame = pl.DataFrame(table)
        for column in frame:
            if not _finite(column):
                message = f"Files: jsonl holds no NaN and no infinity, as {column.name!r} has"
                so = "make it null by fill_nan(None), or write another format"
                raise RunError(message, so=so)
        frame.select(self._spelled).write_ndjson(self._file)

    def close(self) -> None:
        """Everything is written."""


def _polars_schema(schema: pa.Schema) -> pl.Schema:
    return pl.DataFrame(schema.empty_table()).schema


def _in_utc(schema: pa.Schema) -> pa.Schema:
    import pyarrow as pa

    fields = [
        field.with_type(pa.timestamp(field.type.unit, "UTC"))
        if pa.types.is_timestamp(field.type) and field.type.tz is not None
        else field
        for field in schema
    ]
    return pa.schema(fields)


def _spelled(values: pl.Expr, dtype: Any) -> pl.Expr:
    """Values with texts for times: Polars writes those of no zone with a blank for the T."""
    match dtype:
        case pl.Datetime():
            instants = values if dtype.time_zone is None else values.dt.convert_time_zone("UTC")
            return instants.dt.to_string("iso:strict")
        case pl.List():
            return values.list.eval(_spelled(pl.element(), dtype.inner))
        case pl.Struct():
            fields = [
                _spelled(values.struct.field(each.name), each.dtype).alias(each.name)
                for each in dtype.fields
            ]
            return pl.when(values.is_not_null()).then(pl.struct(fields))
    return values


def _finite(values: pl.Series) -> bool:
    match values.dtype:
        case pl.Float32() | pl.Float64():
            return bool(values.is_finite().all())
        case pl.List():
            return _finite(values.explode())
        case pl.Struct():
            return all(_finite(values.struct.field(each.name)) for each in values.dtype.fields)
    return True
