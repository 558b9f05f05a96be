"""A Spark DataFrame as a lookup table: collected as a whole, so not a large one."""

from __future__ import annotations

from typing import Any

import polars as pl

from anabranch.errors import ProgramError
from anabranch.spark.kept_rows import arrow_schema, as_schema, described
from anabranch.spark.spark_source import require_running, require_static
from anabranch.spark.spark_types import polars_schema

MOST_ROWS = 10_000_000
MOST_BYTES = 1 << 30
"""Every process that works for a query holds the table: on 8 cores, 1 GiB is 9 GiB."""


def collected(
    df: Any, what: str, *, most_rows: int = MOST_ROWS, most_bytes: int = MOST_BYTES
) -> pl.DataFrame:
    """All rows of a DataFrame, in its order, refused if there are too many to hold.

    Raises:
        ProgramError: It is a stream, or of another Spark, has a type that Polars has not, or is
            too large.
    """
    require_static(df, what, "lookup")
    require_running(df, what)
    schema = polars_schema(df.schema, what)
    with described(df.sparkSession.sparkContext, "anabranch: collect a lookup table"):
        # One row more than is allowed tells that there are too many, without fetching them all.
        found = df.limit(most_rows + 1).toArrow()
    if found.num_rows > most_rows:
        raise _too_large(what, f"it has more than {most_rows:,} rows")
    if found.nbytes > most_bytes:
        raise _too_large(what, f"it has {found.nbytes:,} bytes, and {most_bytes:,} may be")
    return as_schema(found.cast(arrow_schema(df)), schema)


def _too_large(what: str, why: str) -> ProgramError:
    message = f"{what}: the Spark DataFrame is too large for a lookup table"
    so = (
        "select the columns and rows that are looked up; or read it as a stream, "
        "ab.sources.Spark(df), and join; a table that you collect yourself is not limited"
    )
    return ProgramError(message, why=f"{why}: every process of the query holds all of it", so=so)
