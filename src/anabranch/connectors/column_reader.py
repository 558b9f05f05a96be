"""Parquet and Arrow files as batches of rows: a file says its types and how many rows it has.

Each ends with what tells that it is whole.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl

from anabranch.connectors.places import StoredFile, for_arrow
from anabranch.connectors.rows import BATCH_ROWS, difference
from anabranch.connectors.unread import UnreadFile, other_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa


class ColumnReader(Protocol):
    """What is asked of a format whose files hold columns, and say their types and rows."""

    def types(self, path: StoredFile) -> pl.Schema:
        """The columns and types of a file, told by its ends; `UnreadFile` if they cannot be."""
        ...

    def count(self, path: StoredFile) -> int:
        """How many rows it has."""
        ...

    def batches(
        self, path: StoredFile, low: int, high: int | None, columns: list[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows from `low` to before `high`, in batches of a bounded size.

        Others than these columns may be left out.
        """
        ...


class _Parquet:
    """Rows are counted in the footer, and whole row groups skipped."""

    def types(self, path: StoredFile) -> pl.Schema:
        if isinstance(path, Path):
            return _scanned_types(_scan(path))
        from pyarrow import parquet

        with _as_unread():
            return _held(parquet.read_schema(for_arrow(path)))

    def count(self, path: StoredFile) -> int:
        from pyarrow import parquet

        return int(parquet.read_metadata(for_arrow(path)).num_rows)

    def batches(
        self, path: StoredFile, low: int, high: int | None, columns: list[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        from pyarrow import parquet

        with parquet.ParquetFile(for_arrow(path), pre_buffer=True) as file:
            groups, skipped, at = [], 0, 0
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                if at + rows <= low:
                    skipped += rows
                elif high is None or at < high:
                    groups.append(group)
                at += rows
            batches = file.iter_batches(batch_size=BATCH_ROWS, row_groups=groups, columns=columns)
            yield from _between(batches, low - skipped, None if high is None else high - skipped)


class _Arrow:
    """An Arrow IPC file, not mapped: touching the map of a file that shrank ends the process."""

    def types(self, path: StoredFile) -> pl.Schema:
        import pyarrow as pa

        with _as_unread(), _opened(path) as file, pa.ipc.open_file(file) as reader:
            return _held(reader.schema)

    def count(self, path: StoredFile) -> int:
        import pyarrow as pa

        # The rows of a batch are in the batch alone; one column is enough to learn them.
        one = pa.ipc.IpcReadOptions(included_fields=[0])
        with _opened(path) as file, pa.ipc.open_file(file, options=one) as reader:
            return sum(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))

    def batches(
        self,
        path: StoredFile,
        low: int,
        high: int | None,
        columns: list[str] | None = None,  # noqa: ARG002 - they lie one behind the other
    ) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        with _opened(path) as file, pa.ipc.open_file(file) as reader:
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
            yield from _between(_checked(batches), low, high)


def _opened(path: StoredFile) -> Any:
    import pyarrow as pa

    return pa.OSFile(str(path)) if isinstance(path, Path) else for_arrow(path)


def _held(schema: pa.Schema) -> pl.Schema:
    return pl.DataFrame(schema.empty_table()).schema


@contextmanager
def _as_unread() -> Iterator[None]:
    """Take what Arrow says of a file's content, and types that Polars has not, for `UnreadFile`."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise UnreadFile(first_line(error)) from error
    except OSError as error:
        # What the system says of a file has a number; what Arrow says of its content has none.
        if error.errno is not None:
            raise
        raise UnreadFile(first_line(error)) from error


def require_columns(reader: ColumnReader, path: StoredFile, schema: pl.Schema) -> None:
    """Raise `UnreadFile` for a file that is not whole, or has other columns or types than these."""
    _require(schema, reader.types(path))


def scanned(path: Path, schema: pl.Schema) -> pl.LazyFrame:
    """A Parquet file as Polars reads it, if it has these columns; else `UnreadFile`."""
    lazy = _scan(path)
    _require(schema, _scanned_types(lazy))
    return lazy


def _require(schema: pl.Schema, found: pl.Schema) -> None:
    if wrong := difference(schema, found):
        raise UnreadFile(other_columns(wrong))


def _scan(path: Path) -> pl.LazyFrame:
    return pl.scan_parquet(path, glob=False)  # names of files may hold brackets and stars


def _scanned_types(lazy: pl.LazyFrame) -> pl.Schema:
    try:
        return lazy.collect_schema()
    except pl.exceptions.PolarsError as error:  # what the system refuses is an OSError
        raise UnreadFile(first_line(error)) from error


def first_line(error: Exception) -> str:
    """What an error says, shortly.

    >>> first_line(ValueError("bad file", 1)), first_line(OSError())
    ("('bad file', 1)", 'OSError')
    """
    return (str(error) or type(error).__name__).splitlines()[0]


COLUMN_FORMATS: Mapping[str, ColumnReader] = {"parquet": _Parquet(), "arrow": _Arrow()}


def _checked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Refuse offsets that lead elsewhere and text that is none: Polars would believe them."""
    for batch in batches:
        batch.validate(full=True)
        yield batch


def _between(
    batches: Iterator[pa.RecordBatch], low: int, high: int | None
) -> Iterator[pa.RecordBatch]:
    """The rows from `low` to before `high`, in batches of a bounded size."""
    at = 0
    for batch in batches:
        stop = batch.num_rows if high is None else min(batch.num_rows, high - at)
        for start in range(max(0, low - at), stop, BATCH_ROWS):
            yield batch.slice(start, min(BATCH_ROWS, stop - start))
        at += batch.num_rows
        if high is not None and at >= high:
            return
