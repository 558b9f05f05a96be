"""Text files as rows of a schema: every value fits, or its row is refused by its file and line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import final

import polars as pl

from anabranch.connectors.csv_rows import CsvRows, header_names
from anabranch.connectors.json_rows import JsonRows
from anabranch.connectors.rows import BATCH_ROWS, difference
from anabranch.connectors.text_blocks import START, UNCHANGED, Mark, blocks, marks
from anabranch.connectors.text_types import READ_REFUSALS, require_text_types
from anabranch.errors import RunError

TEXT_FORMATS: Mapping[str, type[CsvRows | JsonRows]] = {"csv": CsvRows, "jsonl": JsonRows}
HEADER_BYTES = 1 << 16
"""So much is read at first to find a header."""
UNREAD = pl.Struct(
    {"file": pl.String(), "line": pl.Int64(), "why": pl.String(), "text": pl.String()}
)
"""What is told of a row that does not fit, where a column is named for it."""
OTHER_COLUMNS = "write it with these types, or read it as another source"
_MEND = "mend the file, and start again; or name a column for such rows: Files(..., unread=...)"


@final
class TextReader:
    """Reads files of a text format into frames of a schema.

    It counts records, of which the header of a CSV file is one; rows are counted without it. A row
    that does not fit is told in the column `unread`, with nulls for all else; without it, it ends
    the run.
    """

    def __init__(
        self,
        format: str,  # noqa: A002 - as users call it
        schema: pl.Schema,
        unread: str | None = None,
    ) -> None:
        """Refuse types that the format does not hold."""
        require_text_types(schema, format)
        self._rows = TEXT_FORMATS[format](schema)
        self._schema, self._headers, self._unread = schema, int(format == "csv"), unread

    def marks(self, path: Path, size: int) -> Sequence[Mark]:
        """Places from which a file can be read; the last is its end."""
        self._names(path, size)
        return marks(path, size, self._rows)

    def count(self, found: Sequence[Mark]) -> int:
        """The rows of a file with these marks."""
        return found[-1].row - self._headers

    def near(self, found: Sequence[Mark], row: int) -> Mark:
        """The last mark at or before a row."""
        return max((mark for mark in found if mark.row <= row + self._headers), default=START)

    def frames(
        self, path: Path, size: int, low: int, high: int | None, near: Mark = START
    ) -> Iterator[pl.DataFrame]:
        """The rows of a range in frames of a bounded size, found from a mark before it."""
        names = self._names(path, size)
        first, end = low + self._headers, None if high is None else high + self._headers
        reached = near.row
        for block in blocks(path, size, self._rows, near):
            reached = block.end.row
            stop = reached if end is None else min(reached, end)
            for row in range(max(first, block.start.row), stop, BATCH_ROWS):
                part = slice(row - block.start.row, min(stop, row + BATCH_ROWS) - block.start.row)
                yield self._frame(path, block.texts[part], block.lines[part], names).rechunk()
            if end is not None and reached >= end:
                return
        if end is not None and reached < end:
            rows = reached - self._headers
            message = f"Files: {path} has fewer rows than it had: {rows}, not {high} or more"
            raise RunError(message, so=UNCHANGED)

    def _names(self, path: Path, size: int) -> Sequence[str]:
        """The columns of a file in its own order."""
        if not self._headers:
            return list(self._schema)
        first = next(blocks(path, size, self._rows, step=HEADER_BYTES), None)
        names = [] if first is None else header_names(first.texts[0])
        if not any(names):
            message = f"Files: {path} has no header"
            raise RunError(message, so="write the names of the columns into its first line")
        types = pl.Schema({name: self._schema.get(name, pl.String()) for name in names})
        wrong = difference(self._schema, types)
        if wrong is None and len(names) != len(types):
            wrong = f"column {next(n for n in names if names.count(n) > 1)!r} is there twice"
        if wrong is not None:
            message = f"Files: {path} does not have the columns of its source"
            raise RunError(message, why=wrong, so=OTHER_COLUMNS)
        return names

    def _frame(
        self, path: Path, texts: pl.Series, lines: pl.Series, names: Sequence[str]
    ) -> pl.DataFrame:
        frame = self._fitting(texts, names)
        if frame is not None:
            return frame
        if self._unread is not None:
            return self._told(path, texts, lines, names)
        row = self._first_unfit(texts, names)
        message = f"Files: line {lines[row]} of {path} does not have the columns of its source"
        raise RunError(message, why=self._why(texts[row], names), so=_MEND)

    def _fitting(self, texts: pl.Series, names: Sequence[str]) -> pl.DataFrame | None:
        """Rows that all fit, or None: each fits or not by itself alone."""
        try:
            frame = self._rows.parse(texts, names)
        except READ_REFUSALS:
            return None
        if self._unread is None:
            return frame
        return frame.with_columns(pl.lit(None, UNREAD).alias(self._unread))

    def _told(
        self, path: Path, texts: pl.Series, lines: pl.Series, names: Sequence[str]
    ) -> pl.DataFrame:
        """Rows of which some do not fit: by halves, down to a single one."""
        if len(texts) == 1:
            told = {"file": str(path), "line": lines[0], "text": texts[0]}
            told["why"] = self._why(texts[0], names)
            nothing = pl.DataFrame({name: [None] for name in self._schema}, schema=self._schema)
            return nothing.with_columns(pl.Series(self._unread, [told], dtype=UNREAD))
        middle = len(texts) // 2
        low = self._fitting(texts[:middle], names)
        # If nothing is wrong in the one half, it is in the other.
        rest = self._frame if low is None else self._told
        if low is None:
            low = self._told(path, texts[:middle], lines[:middle], names)
        return low.vstack(rest(path, texts[middle:], lines[middle:], names))

    def _first_unfit(self, texts: pl.Series, names: Sequence[str]) -> int:
        """The first of some rows that does not fit, of which there is one."""
        low, high = 0, len(texts)
        while high - low > 1:
            middle = (low + high) // 2
            if self._fitting(texts[low:middle], names) is None:
                high = middle
            else:
                low = middle
        return low

    def _why(self, text: str, names: Sequence[str]) -> str:
        """Why a row does not fit, by the rules of its format or else in the reader's own words."""
        known = self._rows.why(text, names)
        if known is not None:
            return known
        try:
            self._rows.parse(pl.Series([text]), names)
        except READ_REFUSALS as error:
            return str(error).splitlines()[0]
        return "it cannot be read among its neighbours"
