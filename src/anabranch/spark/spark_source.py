"""A Spark DataFrame as a source."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import polars as pl

from anabranch.connectors.base import Source
from anabranch.connectors.rows import BATCH_ROWS
from anabranch.errors import AnabranchError, CheckpointError, ProgramError, RunError
from anabranch.ids import Offset, Partition
from anabranch.runtime.exchange import OwnedDirectory, sweep
from anabranch.spark import private
from anabranch.spark.kept_rows import KeptRows, keep_rows
from anabranch.spark.session import context_of
from anabranch.spark.spark_types import polars_schema

if TYPE_CHECKING:
    import pyarrow as pa


@final
class Spark(Source):
    """The rows of a DataFrame, its partitions in their order, each in its own. Finishes.

    The DataFrame is run once, when the source is first looked at, and its rows are kept in files
    (`KeptRows`): an offset counts a partition's rows, and means the same rows each time. The files
    lie in `directory`, where a later run of the query finds them again; without one they are in a
    private directory that goes with the source. Then a query that is started again from its
    checkpoint runs the DataFrame again, and refuses to go on if that gives other rows.
    """

    def __init__(self, df: Any, *, directory: str | os.PathLike[str] | None = None) -> None:
        """Take a static DataFrame of a classic session; nothing is run yet.

        On several hosts `directory` must be one that they share.
        """
        require_static(df, "Spark", "Spark")
        self.schema = polars_schema(df.schema, "Spark")
        self._df = df
        self._home = None if directory is None else Path(directory).absolute()
        self._expected: tuple[tuple[int, ...], str] | None = None
        self._kept: KeptRows | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What tasks need: where the rows are; a DataFrame cannot travel."""
        self._rows()
        return {**vars(self), "_df": None}

    def settle(self, directory: Path) -> None:
        """Keep the rows here unless the user has chosen a place; before the first look."""
        if self._home is None and self._kept is None:
            self._home = directory

    def partitions(self) -> Sequence[Partition]:
        """0, 1, ..., as many as the DataFrame has."""
        return range(len(self._rows().rows))

    def latest(self) -> Mapping[Partition, Offset]:
        """The number of rows in each partition."""
        return dict(enumerate(self._rows().rows))

    def finished(self, partition: Partition) -> bool:  # noqa: ARG002
        """Nothing is ever added."""
        return True

    def plan(
        self, start: Mapping[Partition, Offset], end: Mapping[Partition, Offset]
    ) -> Sequence[tuple[Partition, Offset, Offset]]:
        """One split a partition: (partition, start, end)."""
        splits = [(p, start.get(p, 0), end[p]) for p in self.partitions() if p in end]
        return [split for split in splits if split[1] < split[2]]

    def read(self, split: tuple[Partition, Offset, Offset]) -> Iterator[pa.RecordBatch]:
        """The rows of a range, a bounded number at a time."""
        partition, start, end = split
        for low in range(start, end, BATCH_ROWS):
            rows = self.frame((partition, low, min(end, low + BATCH_ROWS)))
            yield from rows.to_arrow().to_batches()

    def frame(
        self, split: tuple[Partition, Offset, Offset], columns: Sequence[str] | None = None
    ) -> pl.DataFrame:
        """The rows of a range as one frame; other columns stay unread."""
        partition, start, end = split
        return self._rows().read(int(partition), start, end, list(columns or self.schema))

    def memory(self) -> dict[str, Any]:
        """How many rows each partition has, and the digest of them all."""
        kept = self._rows()
        return {"rows": list(kept.rows), "digest": kept.digest}

    def recall(self, memory: object) -> None:
        """Give these rows and no others, or refuse to."""
        self._expected = _checked(memory)
        if self._kept is not None:
            self._require_expected(self._kept)

    def _rows(self) -> KeptRows:
        if self._kept is None:
            self._kept = self._found() or self._run()
        return self._kept

    def _found(self) -> KeptRows | None:
        if self._home is None or self._expected is None:
            return None
        return KeptRows.found(self._home, *self._expected)

    def _run(self) -> KeptRows:
        """Run the DataFrame, and see that its rows are those of the run before."""
        require_running(self._df, "Spark")
        kept = keep_rows(self._df, self.schema, self._home or self._own_directory())
        self._require_expected(kept)
        return kept

    def _own_directory(self) -> Path:
        root = Path(tempfile.gettempdir())
        sweep(root, "rows")
        owned = OwnedDirectory.create("rows", root)
        weakref.finalize(self, owned.remove)
        return owned.path

    def _require_expected(self, kept: KeptRows) -> None:
        if self._expected is None or self._expected == (kept.rows, kept.digest):
            return
        then, now = (sum(rows) for rows in (self._expected[0], kept.rows))
        message = "Spark: the DataFrame no longer gives the rows that the checkpoint has read from"
        why = (
            "they are as many, but others, or in another order"
            if then == now
            else f"it had {then:,} rows then, and has {now:,} now"
        )
        so = (
            "give the same DataFrame with its rows in a fixed order, or pass directory= from the "
            "first run on: the rows are then kept there; or begin with another checkpoint"
        )
        raise CheckpointError(message, why=why, so=so)


def require_static(df: Any, what: str, use: str) -> None:
    """Refuse what is no DataFrame, one that never ends, and one that has no jobs.

    `use` is how a table in Spark is called where this is refused.
    """
    from pyspark.sql import DataFrame

    if not isinstance(df, DataFrame):
        message = f"{what}: not a Spark DataFrame: {type(df).__name__}"
        so = "pass one, e.g. spark.read.parquet(...); rows of Python or Polars go into Records"
        raise ProgramError(message, so=so)
    try:
        context_of(df.sparkSession)
    except AnabranchError as error:
        message = f"{what}: {error.what}"
        so = "make the DataFrame with a classic session that is running"
        raise ProgramError(message, why=error.why, so=so) from error
    if df.isStreaming:
        message = f"{what}: this DataFrame is a stream of Spark's"
        why = f"{use} takes a table that is there as a whole"
        so = (
            "read what the stream reads: Files(...) for a directory, a source of your own for "
            "anything else; or let Spark write the stream to files, and read those"
        )
        raise ProgramError(message, why=why, so=so)


def require_running(df: Any, what: str) -> None:
    """Refuse a DataFrame whose Spark is gone, or is not the one that jobs run on."""
    context = None if df is None else df.sparkSession.sparkContext
    if context is not None and context._jsc is not None and context is private.active_context():
        return
    message = f"{what}: the Spark of this DataFrame is stopped, or another than the one in use"
    so = "make the DataFrame again with the session that the program is started on"
    raise RunError(message, so=so)


def _checked(memory: object) -> tuple[tuple[int, ...], str]:
    """What a memory says: it may come from a checkpoint that anybody wrote."""
    match memory:
        case {"rows": list(rows), "digest": str(digest)} if (
            all(type(each) is int and each >= 0 for each in rows)
            and len(digest) == 32
            and all(each in "0123456789abcdef" for each in digest)
        ):
            return tuple(rows), digest
    message = "the memory of a Spark source cannot be read"
    raise CheckpointError(message, why=f"it names no rows: {memory!r}")
