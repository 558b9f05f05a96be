"""Text files as rows of a schema: every value fits, or its row is told by its file and line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import polars as pl

from anabranch.connectors.csv_rows import CsvRows, header_names
from anabranch.connectors.json_rows import JsonRows
from anabranch.connectors.places import StoredFile
from anabranch.connectors.rows import BATCH_ROWS, difference
from anabranch.connectors.text_blocks import START, UNCHANGED, Mark, blocks, marks
from anabranch.connectors.text_types import READ_REFUSALS, require_text_types
from anabranch.connectors.unread import Unread, UnreadFile, other_columns, unread_rows
from anabranch.errors import RunError

TEXT_FORMATS: Mapping[str, type[CsvRows | JsonRows]] = {"csv": CsvRows, "jsonl": JsonRows}
HEADER_BYTES = 1 << 16
"""So much is read at first to find a header."""


@final
class TextReader:
    """Reads files of a text format into frames of a schema.

    It counts records, of which the header of a CSV file is one; rows are counted without it. A row
    that does not fit is told in the column `unread`, which only frames with such rows have. A file
    with another header is an `UnreadFile`, and is so before any row of it is given.
    """

    def __init__(
        self,
        format: str,  # noqa: A002 - as users call it
        schema: pl.Schema,
        unread: str,
    ) -> None:
        """Refuse types that the format does not hold."""
        require_text_types(schema, format)
        self._rows = TEXT_FORMATS[format](schema)
        self._schema, self._headers, self._unread = schema, int(format == "csv"), unread

    def marks(self, path: StoredFile, size: int) -> Sequence[Mark]:
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
        self, path: StoredFile, size: int, low: int, high: int | None, near: Mark = START
    ) -> Iterator[pl.DataFrame]:
        """The rows of a range in frames of a bounded size, found from a mark before it."""
        names = self._names(path, size)
        first, end = low + self._headers, None if high is None else high + self._headers
        reached = near.row
        for block in blocks(path, size, self._rows, near):
            reached = block.end.row
            stop = reached if end is None else min(reached, end)
            whole = _Part(path, block.texts, block.lines, block.no_text)
            for row in range(max(first, block.start.row), stop, BATCH_ROWS):
                places = (at - block.start.row for at in (row, min(stop, row + BATCH_ROWS)))
                yield self._frame(whole.between(*places), names)
            if end is not None and reached >= end:
                return
        if end is not None and reached < end:
            rows = reached - self._headers
            message = f"Files: {path} has fewer rows than it had: {rows}, not {high} or more"
            raise RunError(message, so=UNCHANGED)

    def _names(self, path: StoredFile, size: int) -> Sequence[str]:
        """The columns of a file in its own order."""
        if not self._headers:
            return list(self._schema)
        first = next(blocks(path, size, self._rows, step=HEADER_BYTES), None)
        if first is not None and 0 in first.no_text:
            why = f"its header cannot be read: {first.no_text[0]}"
            raise UnreadFile(why)
        names = [] if first is None else header_names(first.texts[0])
        if not any(names):
            why = "it has no header: write the names of its columns into the first line"
            raise UnreadFile(why)
        types = pl.Schema({name: self._schema.get(name, pl.String()) for name in names})
        wrong = difference(self._schema, types)
        if wrong is None and len(names) != len(types):
            wrong = f"column {next(n for n in names if names.count(n) > 1)!r} is there twice"
        if wrong is not None:
            raise UnreadFile(other_columns(wrong))
        return names

    def _frame(self, part: _Part, names: Sequence[str]) -> pl.DataFrame:
        """The rows of a part, with the column for unread ones where there are such."""
        if not part.no_text and (frame := self._fitting(part.texts, names)) is not None:
            return frame.rechunk()
        wrong = {**self._wrong(part.texts, names), **part.no_text}
        kept = [at for at in range(len(part.texts)) if at not in wrong]
        read = self._rows.parse(part.texts.gather(kept), names) if kept else None
        unread = [part.told(at, wrong[at]) for at in sorted(wrong)]
        told = unread_rows(unread, self._schema, self._unread)
        both = pl.concat([told] if read is None else [read, told], how="diagonal")
        places = pl.Series([*kept, *sorted(wrong)])
        return both.select(*self._schema, self._unread)[places.arg_sort()].rechunk()

    def _wrong(self, texts: pl.Series, names: Sequence[str]) -> dict[int, str]:
        """Why some of these rows do not fit, by their places."""
        plain = ((at, self._rows.plainly(text, names)) for at, text in enumerate(texts))
        found = {at: why for at, why in plain if why is not None}
        others = [at for at in range(len(texts)) if at not in found]
        for at in self._unfit(texts, others, names):
            found[at] = self._why(texts[at], names)
        return found

    def _unfit(self, texts: pl.Series, places: list[int], names: Sequence[str]) -> Iterator[int]:
        """The places, among some, of rows that do not fit: by halves, down to single ones."""
        if not places or self._fitting(texts.gather(places), names) is not None:
            return
        if len(places) == 1:
            yield places[0]
            return
        middle = len(places) // 2
        yield from self._unfit(texts, places[:middle], names)
        yield from self._unfit(texts, places[middle:], names)

    def _fitting(self, texts: pl.Series, names: Sequence[str]) -> pl.DataFrame | None:
        """Rows that all fit, or None: each fits or not by itself alone."""
        try:
            return self._rows.parse(texts, names)
        except READ_REFUSALS:
            return None

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


@dataclass(frozen=True, slots=True)
class _Part:
    """Some records of a block, one behind the other."""

    path: StoredFile
    texts: pl.Series
    lines: pl.Series
    no_text: Mapping[int, str]
    """Why some of them are no text, by their places here."""

    def between(self, low: int, high: int) -> _Part:
        """Those from one place to before another."""
        inside = {at - low: why for at, why in self.no_text.items() if low <= at < high}
        return _Part(self.path, self.texts[low:high], self.lines[low:high], inside)

    def told(self, at: int, why: str) -> Unread:
        """One of them, which could not be read."""
        return Unread(str(self.path), self.lines[at], why, self.texts[at])
