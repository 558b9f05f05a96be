"""Which columns Polars expressions leave alone.

An expression forwards a column if it is that column, or a selector, and gives it no other name.
Everything else may change a value, if only its type.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import polars as pl

from anabranch.program.expressions import Expression, projected


def selected(expressions: Sequence[Expression], given: pl.Schema) -> tuple[str, ...]:
    """The columns that a select of these forwards.

    >>> given = pl.Schema({"a": pl.Int64(), "b": pl.Int64()})
    >>> selected([Expression.of("a"), Expression.of(pl.col("b") + 1)], given)
    ('a',)
    """
    found = {name for each in expressions for name in _bare(each, given)}
    return tuple(name for name in given if name in found)


def kept_beside(expressions: Sequence[Expression], given: pl.Schema) -> tuple[str, ...]:
    """The columns that a with_columns of these forwards: all that none of them writes anew."""
    written = (set(_written(each, given)).difference(_bare(each, given)) for each in expressions)
    return without(given, set().union(*written))


def without(columns: Iterable[str], gone: Iterable[str]) -> tuple[str, ...]:
    """The columns that are not gone."""
    out = set(gone)
    return tuple(name for name in columns if name not in out)


def _bare(expression: Expression, given: pl.Schema) -> tuple[str, ...]:
    node = json.loads(expression.form or "null")
    if not isinstance(node, dict):
        return ()
    if "Selector" in node:
        return tuple(projected(given, [expression], "select"))
    inner, name = node.get("Alias", (node, None))
    column = inner.get("Column") if isinstance(inner, dict) else None
    return (column,) if isinstance(column, str) and name in (None, column) else ()


def _written(expression: Expression, given: pl.Schema) -> tuple[str, ...]:
    node = json.loads(expression.form or "null")
    if isinstance(node, dict) and "Alias" in node:
        return (node["Alias"][1],)
    # What other expressions call their columns, Polars alone knows.
    return tuple(projected(given, [expression], "with_columns"))
