"""The types that text files hold, as the readers of PyArrow know them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import polars as pl

from anabranch.errors import AnabranchError, ProgramError

if TYPE_CHECKING:
    import pyarrow as pa


class Misread(ValueError):
    """A text that is not what its format wants, and why."""


READ_REFUSALS = (ValueError, NotImplementedError, pl.exceptions.PolarsError)
"""What readers raise for values that do not fit; Arrow's errors of that kind are ValueErrors."""


def spelling(dtype: Any) -> str:
    """How values of a type are written, where that is not plain."""
    if not isinstance(dtype, pl.Datetime):
        return ""
    offset = "Z" if dtype.time_zone else ""
    such = f"such as 2026-01-31T12:30:00{offset}"
    return f"; write times {such}, {'with' if dtype.time_zone else 'without'} an offset"


def require_text_types(
    schema: pl.Schema,
    format: str,  # noqa: A002 - as users call it
    error: type[AnabranchError] = ProgramError,
) -> None:
    """Refuse a column of a type that has no agreed spelling in such files."""
    for name, dtype in schema.items():
        if _holds(dtype, nested=format == "jsonl"):
            continue
        message = f"Files: {format} holds no column of type {dtype}, as {name!r} is"
        have = "Boolean, whole numbers, floats, Decimal, String, Enum, Categorical, Date, Datetime"
        have += "; List and Struct of them" if format == "jsonl" else ""
        so = "make it a String or a number, and convert it in the program"
        raise error(message, have=have, so=so)


@lru_cache(maxsize=1024)
def arrow_type(dtype: Any, *, spelled: bool = False) -> pa.DataType:
    """The type as which Arrow reads a column; `spelled`: with texts for dates and times.

    Enum and Categorical are texts in either case: Polars checks those.

    >>> str(arrow_type(pl.List(pl.Date()))), str(arrow_type(pl.List(pl.Date()), spelled=True))
    ('list<item: date32[day]>', 'list<item: string>')
    """
    import pyarrow as pa

    match dtype:
        case pl.List():
            return pa.list_(arrow_type(dtype.inner, spelled=spelled))
        case pl.Struct():
            return pa.struct(
                [(each.name, arrow_type(each.dtype, spelled=spelled)) for each in dtype.fields]
            )
        case pl.String() | pl.Enum() | pl.Categorical():
            return pa.string()
        case pl.Date() | pl.Datetime() if spelled:
            return pa.string()
    return pl.DataFrame(schema={"": dtype}).to_arrow().schema.field(0).type


def _holds(dtype: Any, *, nested: bool) -> bool:
    match dtype:
        case pl.List():
            return nested and _holds(dtype.inner, nested=True)
        case pl.Struct():
            return nested and all(_holds(each.dtype, nested=True) for each in dtype.fields)
        case pl.Int128() | pl.UInt128():
            return False
    plain = pl.Boolean | pl.String | pl.Enum | pl.Categorical | pl.Date | pl.Datetime
    return isinstance(dtype, plain) or dtype.is_numeric()
