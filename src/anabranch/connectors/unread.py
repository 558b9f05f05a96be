"""Rows that a source has but could not read: what is told of them, and how.

Such a row has an offset as any other, so a range holds the same rows whether they can be read or
not. In the frames of its source all its columns are null but one more, which the source names by
`unread`, and which is there only where such a row is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import polars as pl

UNREAD = pl.Struct(
    {"file": pl.String(), "line": pl.Int64(), "why": pl.String(), "text": pl.String()}
)
"""The type of the column: null for a row that was read."""


@dataclass(frozen=True, slots=True)
class Unread:
    """Why a row could not be read, and where it is to be found."""

    file: str
    line: int | None
    """Where it begins, from 1; None if it stands for a whole file."""
    why: str
    text: str | None
    """What is there instead of a row, as far as that is text."""


def unread_rows(rows: Sequence[Unread], schema: pl.Schema, name: str) -> pl.DataFrame:
    """A frame of rows that could not be read, told in a column of this name.

    >>> row = Unread("a.csv", 2, "column 'n' is Int64, got 'x'", "x")
    >>> unread_rows([row], pl.Schema({"n": pl.Int64}), "unread").row(0)
    (None, {'file': 'a.csv', 'line': 2, 'why': "column 'n' is Int64, got 'x'", 'text': 'x'})
    """
    nothing = pl.DataFrame({each: [None] * len(rows) for each in schema}, schema=schema)
    told = [asdict(replace(row, file=_text(row.file), why=_text(row.why))) for row in rows]
    return nothing.with_columns(pl.Series(name, told, dtype=UNREAD))


def _text(given: str) -> str:
    """The same as text that can be written: names of files and values quoted may be anything."""
    return given.encode("utf-8", "backslashreplace").decode()


class UnreadFile(Exception):
    """A file of which no row can be read, and why."""

    def __init__(self, why: str) -> None:
        """Say why."""
        super().__init__(why)
        self.why = why


def other_columns(difference: str) -> str:
    """Why a file with other columns than its source cannot be read."""
    return f"it does not have the columns of its source: {difference}"
