"""The rows of a Spark DataFrame, kept in files, so that they are the same each time they are read.

    <home>/rows-<digest>/00000.arrow    the first partition's rows, an Arrow IPC file
                         00001.arrow

A DataFrame is a question, not an answer: asked twice, Spark may give its rows in another order,
or others. So one job asks once and keeps the answer. The directory is named by what is in it: rows
that are told apart by nothing have one digest, and whoever knows the digest finds them again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import polars as pl

from anabranch.connectors.rows import BATCH_ROWS
from anabranch.errors import RunError
from anabranch.spark.private import JobFailed, Spark

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Where the rows are, how many each partition has, and what tells them from others."""

    directory: Path
    rows: tuple[int, ...]
    digest: str

    @classmethod
    def found(cls, home: Path, rows: Sequence[int], digest: str) -> KeptRows | None:
        """Those of this digest that a run before kept in `home`, if they are still there."""
        kept = cls(home / f"rows-{digest}", tuple(rows), digest)
        return kept if all(kept.file(at).is_file() for at in range(len(rows))) else None

    def file(self, partition: int) -> Path:
        """The file of a partition."""
        return self.directory / f"{partition:05d}.arrow"

    def read(self, partition: int, start: int, end: int, columns: Sequence[str]) -> pl.DataFrame:
        """The rows of a range, of these columns.

        Raises:
            RunError: They are not there, or not all.
        """
        path = self.file(partition)
        try:
            rows = pl.scan_ipc(path).select(columns).slice(start, end - start).collect()
        except (OSError, pl.exceptions.PolarsError) as error:
            raise _lost(path, str(error).splitlines()[0]) from error
        if rows.height != end - start:
            raise _lost(path, f"it has no rows {start} to {end}")
        return rows


def keep_rows(df: Any, schema: pl.Schema, home: Path) -> KeptRows:
    """Run a DataFrame once, in one Spark job, and keep its rows below `home`.

    Raises:
        RunError: The job failed, or what its tasks wrote cannot be seen from here.
    """
    home.mkdir(parents=True, exist_ok=True)
    draft = home / f"draft-{uuid4().hex}"
    draft.mkdir(mode=0o700)
    try:
        written = _written(df, schema, draft)
        digest = _digest(schema, written)
        kept = KeptRows(home / f"rows-{digest}", tuple(each.rows for each in written), digest)
        for number, each in enumerate(written):
            (draft / each.file).rename(draft / kept.file(number).name)
        _remove_others(draft, {kept.file(number).name for number in range(len(written))})
        _settle(draft, kept)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return kept


def arrow_schema(df: Any) -> pa.Schema:
    """The Arrow schema in which Spark gives a DataFrame's rows."""
    from pyspark.sql.pandas.types import to_arrow_schema

    conf = df.sparkSession.conf
    large = conf.get("spark.sql.execution.arrow.useLargeVarTypes", "false") == "true"
    zone = conf.get("spark.sql.session.timeZone")
    return to_arrow_schema(df.schema, timezone=zone, prefers_large_types=large)


def as_schema(rows: Any, schema: pl.Schema) -> pl.DataFrame:
    """Arrow rows of Spark's as a frame of the schema that was made of theirs.

    Zones become UTC, which changes no instant; a map becomes a list of its entries.
    """
    frame = pl.DataFrame(rows)
    return frame if frame.schema == schema else frame.cast(dict(schema))  # type: ignore[arg-type]


@contextmanager
def described(sc: Any, text: str) -> Iterator[None]:
    """Say in Spark's pages what this thread's jobs are for; afterwards it is as it was."""
    before = sc.getLocalProperty("spark.job.description")
    sc.setJobDescription(text)
    try:
        yield
    finally:
        sc.setLocalProperty("spark.job.description", before)


@dataclass(frozen=True, slots=True)
class _Written:
    """What a task says of its partition; the file is the attempt's own."""

    partition: int
    file: str
    rows: int
    size: int
    digest: str
    host: str


def _written(df: Any, schema: pl.Schema, draft: Path) -> list[_Written]:
    spark = Spark(df.sparkSession.sparkContext)
    kept = {"directory": str(draft), "arrow": arrow_schema(df).serialize().to_pybytes()}
    task = partial(write_rows, {**kept, "schema": schema})
    try:
        with described(spark.sc, "anabranch: keep the rows of a DataFrame"):
            # Spark's own way to Arrow, which needs no Pandas, unlike DataFrame.mapInArrow.
            batches = df._jdf.toArrowBatchRdd()
            told = spark.collect(spark.apply(batches, spark.function(task, {})))
    except JobFailed as failure:
        message = "Spark: the rows of the DataFrame could not be had"
        raise RunError(message, why=failure.text) from failure
    written = sorted((_Written(**json.loads(each)) for each in told), key=lambda w: w.partition)
    for each in written:
        _require_seen(draft / each.file, each)
    return written


def write_rows(plan: dict[str, Any], partition: int, batches: Iterable[bytes]) -> Iterator[bytes]:
    """A task: write one partition's rows to a file of its own, and say what is in it."""
    import pyarrow as pa

    schema: pl.Schema = plan["schema"]
    arrow = pa.ipc.read_schema(pa.py_buffer(plan["arrow"]))
    path = Path(plan["directory"]) / f"{partition:05d}-{uuid4().hex}"
    rows = 0
    with path.open("xb") as file:
        with pa.ipc.new_file(file, pl.DataFrame(schema=schema).to_arrow().schema) as writer:
            found = (pa.ipc.read_record_batch(pa.py_buffer(each), arrow) for each in batches)
            for frame in _groups(as_schema(each, schema) for each in found):
                rows += frame.height
                writer.write_table(frame.to_arrow())
        size = file.tell()
    digest = _file_digest(path)
    told = _Written(partition, path.name, rows, size, digest, socket.gethostname())
    yield json.dumps({name: getattr(told, name) for name in _Written.__slots__}).encode()


def _groups(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Frames of so many rows each but the last, however Spark has cut them: bytes depend on it."""
    held: list[pl.DataFrame] = []
    for frame in frames:
        held.append(frame)
        while sum(each.height for each in held) >= BATCH_ROWS:
            whole = pl.concat(held)
            yield whole.head(BATCH_ROWS).rechunk()
            held = [whole.slice(BATCH_ROWS)]
    if sum(each.height for each in held):
        yield pl.concat(held).rechunk()


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(schema: pl.Schema, written: Sequence[_Written]) -> str:
    """Of the columns, and of every partition's rows in order."""
    told = [[each.rows, each.digest] for each in written]
    types = [[name, str(dtype)] for name, dtype in schema.items()]
    return hashlib.sha256(json.dumps([types, told]).encode()).hexdigest()[:32]


def _settle(draft: Path, kept: KeptRows) -> None:
    """Give the rows their place; if the same are there already, those will do."""
    try:
        draft.rename(kept.directory)
    except OSError:
        if KeptRows.found(kept.directory.parent, kept.rows, kept.digest) is None:
            raise


def _remove_others(directory: Path, names: set[str]) -> None:
    """Remove what tasks left that Spark has run twice."""
    for entry in os.scandir(directory):
        if entry.name not in names:
            Path(entry.path).unlink(missing_ok=True)


def _require_seen(path: Path, told: _Written) -> None:
    seen = path.stat().st_size if path.exists() else None
    if seen != told.size:
        message = f"Spark: rows that a task wrote on {told.host} cannot be seen from here"
        why = f"{path.parent} is not the same directory on all hosts"
        so = "pass directory=, a place on a file system that all hosts share"
        raise RunError(message, why=why, so=so)


def _lost(path: Path, why: str) -> RunError:
    message = f"Spark: kept rows of a DataFrame cannot be read: {path}"
    return RunError(message, why=why, so="start the query again; leave its directories alone")
