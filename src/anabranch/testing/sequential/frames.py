"""Polars expressions on a frame of one row, and aggregations on a window's rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import polars as pl

from anabranch.program.expressions import Expression
from anabranch.testing.sequential.row import Record


def frame_of(records: Sequence[Record], schema: pl.Schema) -> pl.DataFrame:
    """Records as a frame of exactly this schema."""
    columns = {name: [record[name] for record in records] for name in schema}
    return pl.DataFrame(columns, schema=schema, strict=True)


def projected(record: Record, schema: pl.Schema, expressions: Sequence[Expression]) -> Record:
    """What these expressions make of one record."""
    frame = frame_of([record], schema).select([each.expr for each in expressions])
    return frame.row(0, named=True)


def evaluated(record: Record, schema: pl.Schema, expression: Expression) -> Any:
    """What one expression makes of one record."""
    if (name := _column(expression)) is not None:
        return record[name]
    return frame_of([record], schema).select(expression.expr).row(0)[0]


def aggregated(records: Sequence[Record], schema: pl.Schema, expression: Expression) -> Any:
    """What a scalar aggregation makes of a window's records."""
    value = frame_of(records, schema).select(expression.expr).to_series()[0]
    return value.to_list() if isinstance(value, pl.Series) else value


def _column(expression: Expression) -> str | None:
    """The column that an expression names and nothing else, so that Polars need not be asked."""
    node = json.loads(expression.form) if expression.form else None
    return node["Column"] if isinstance(node, dict) and set(node) == {"Column"} else None
