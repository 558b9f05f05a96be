"""Rows of JSON Lines: an object a line, whose keys are columns.

A key that is missing is null; one that is no column is refused. Dates and times are texts, as ISO
8601 writes them. A line of blanks is no row.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import polars as pl

from anabranch.connectors.text_types import READ_REFUSALS, Misread, arrow_type, spelling

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

_BLANKS = " \t\r"


@dataclass(frozen=True, slots=True)
class JsonRows:
    """How rows of these columns are found in JSON Lines, and read."""

    schema: pl.Schema

    def whole(self, text: bytes) -> int:
        """The bytes before the last line end."""
        return text.rfind(b"\n") + 1

    def records(self, lines: pl.DataFrame) -> pl.DataFrame:
        """The lines that are not blank."""
        stripped = lines.with_columns(pl.col("text").str.strip_chars(_BLANKS))
        return stripped.filter(pl.col("text") != "")

    def parse(self, texts: pl.Series, names: Sequence[str] = ()) -> pl.DataFrame:  # noqa: ARG002
        """Rows of objects; those that do not fit raise."""
        import pyarrow as pa
        from pyarrow import json as arrow_json

        # An object that goes on in the next line cannot stop at `}` and go on with `{`: so each
        # line holds objects of its own, and as many objects as lines are one a line.
        if not (texts.str.starts_with("{") & texts.str.ends_with("}")).all():
            message = "it is no JSON object"
            raise Misread(message)
        joined = texts.str.join("\n").item().encode()
        table = arrow_json.read_json(
            pa.BufferReader(joined),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(joined) + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=self._arrow(spelled=True), unexpected_field_behavior="error"
            ),
        )
        if table.num_rows != len(texts):
            message = "there are several objects in the line"
            raise Misread(message)
        # Arrow's JSON takes a time with an offset for one without; its cast does not.
        return pl.DataFrame(table.cast(self._arrow())).cast(self.schema)

    def plainly(self, text: str, names: Sequence[str] = ()) -> str | None:  # noqa: ARG002
        """What is wrong with a row whatever its values are, if anything is."""
        try:
            record = json.loads(text)
        except json.JSONDecodeError as error:
            return f"it is no JSON: {error}"
        except (ValueError, RecursionError):  # too long or too deep for Python alone
            return None
        if not isinstance(record, dict):
            return f"it is no JSON object but {_shown(record)}"
        for name, value in record.items():
            if name not in self.schema:
                return f"column {name!r} is {_shown(value)}, expected no such column"
        return None

    def why(self, text: str, names: Sequence[str] = ()) -> str | None:  # noqa: ARG002
        """Which value of a row does not fit, as far as it is known."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            return None
        for name, value in values.items():
            dtype = self.schema[name]
            if not _fits(json.dumps(value), dtype):
                return f"column {name!r} is {dtype}, got {_shown(value)}{spelling(dtype)}"
        return None

    def _arrow(self, *, spelled: bool = False) -> pa.Schema:
        import pyarrow as pa

        types = {name: arrow_type(dtype, spelled=spelled) for name, dtype in self.schema.items()}
        return pa.schema(types)


@lru_cache(maxsize=4096)  # what does not fit in one row is often the same in the next
def _fits(value: str, dtype: pl.DataType) -> bool:
    """Whether a value as JSON has it is one of a type."""
    try:
        JsonRows(pl.Schema({"v": dtype})).parse(pl.Series([f'{{"v": {value}}}']))
    except READ_REFUSALS:
        return False
    return True


def _shown(value: object) -> str:
    """A value as JSON has it, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
