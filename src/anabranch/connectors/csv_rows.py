"""Rows of CSV files: a header, commas, quotes as RFC 4180 has them.

A field without quotes that is empty is null; `""` is the empty text, and fits no other type. In a
file of several columns an empty line is no row; in one of a single column it is a null.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import polars as pl

from anabranch.connectors.text_types import READ_REFUSALS, Misread, arrow_type, spelling

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIELD = r'(?:"(?:[^"]|"")*"|[^",\r\n]*)'
_ROW = rf"^{_FIELD}(?:,{_FIELD})*$"
_NOT_QUOTED = "a quote or a carriage return is in a field that is not in quotes"


@dataclass(frozen=True, slots=True)
class CsvRows:
    """How rows of these columns are found in CSV files, and read."""

    schema: pl.Schema

    def whole(self, text: bytes) -> int:
        """The bytes before the last line end that is outside of quotes."""
        end = text.rfind(b"\n") + 1
        quoted = text.count(b'"', 0, end) % 2
        while end and quoted:
            before = text.rfind(b"\n", 0, end - 1) + 1
            quoted ^= text.count(b'"', before, end) % 2
            end = before
        return end

    def records(self, lines: pl.DataFrame) -> pl.DataFrame:
        """Lines, put together where a line end is inside of quotes; the header is a record."""
        odd = lines["text"].str.count_matches('"', literal=True) % 2
        if odd.sum():
            within = (odd.cum_sum() % 2).shift(1, fill_value=0)
            lines = (
                lines.group_by((within == 0).cum_sum().alias("record"), maintain_order=True)
                .agg(pl.col("line").first(), pl.col("text").str.join("\n"))
                .select("line", "text")
            )
        rows = lines.with_columns(pl.col("text").str.strip_suffix("\r"))
        if len(self.schema) == 1:
            return rows
        return rows.filter((pl.col("text") != "") | (pl.col("line") == 1))

    def parse(self, texts: pl.Series, names: Sequence[str]) -> pl.DataFrame:
        """Rows of a file with these names in its header; those that do not fit raise."""
        import pyarrow as pa
        from pyarrow import csv

        joined = texts.str.join("\n").item().encode() + b"\n"
        # With these ruled out, Arrow ends rows where they were ended above.
        if (b'"' in joined or b"\r" in joined) and not texts.str.contains(_ROW).all():
            raise Misread(_NOT_QUOTED)
        table = csv.read_csv(
            pa.BufferReader(joined),
            read_options=csv.ReadOptions(
                use_threads=False, block_size=len(joined) + 1, column_names=names
            ),
            parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(
                column_types={name: arrow_type(self.schema[name]) for name in names},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                true_values=["true", "True", "TRUE"],
                false_values=["false", "False", "FALSE"],
            ),
        )
        if table.num_rows != len(texts):
            message = f"{len(texts)} rows were read as {table.num_rows}"
            raise Misread(message)
        return pl.DataFrame(table).select(list(self.schema)).cast(self.schema)

    def plainly(self, text: str, names: Sequence[str]) -> str | None:
        """What is wrong with a row whatever its values are, if anything is."""
        if re.fullmatch(_ROW, text) is None:
            return _NOT_QUOTED
        values = text.count(",") + 1 if '"' not in text else len(_fields(text))
        if values != len(names):
            return f"it has {values} values, and the header has {len(names)} names"
        return None

    def why(self, text: str, names: Sequence[str]) -> str | None:
        """Which value of a row does not fit, as far as it is known."""
        for name, field in zip(names, _fields(text), strict=True):
            dtype = self.schema[name]
            if not isinstance(dtype, pl.String) and not _fits(field, dtype):
                return f"column {name!r} is {dtype}, got {field!r}{spelling(dtype)}"
        return None


@lru_cache(maxsize=4096)  # what does not fit in one row is often the same in the next
def _fits(field: str, dtype: pl.DataType) -> bool:
    """Whether a field as it is written is a value of a type."""
    try:
        CsvRows(pl.Schema({"v": dtype})).parse(pl.Series([field]), ["v"])
    except READ_REFUSALS:
        return False
    return True


def header_names(text: str) -> list[str]:
    """The names in a header.

    >>> header_names('a,"b, c"')
    ['a', 'b, c']
    """
    return [
        field[1:-1].replace('""', '"') if field.startswith('"') else field
        for field in _fields(text)
    ]


def _fields(text: str) -> list[str]:
    """The fields of a row as they are written."""
    return re.findall(rf"(?:^|,)({_FIELD})", text)
