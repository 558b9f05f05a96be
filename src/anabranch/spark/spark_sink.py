"""A sink that hands each epoch's rows to a function as a Spark DataFrame.

    <directory>/_staging/<epoch>-<attempt>-<unique>.parquet    staged, as the Files sink does
                given                                          the last epoch the function has had

A staged file is removed when the function has returned, and that is noted before: whatever dies in
between, an epoch that is published again is either given again or known to have been given.
"""

from __future__ import annotations

import os
import re
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

import polars as pl

from anabranch.connectors.base import Sink
from anabranch.connectors.file_sink import Files
from anabranch.errors import CheckpointError, ProgramError, RunError
from anabranch.runtime.exchange import OwnedDirectory
from anabranch.spark import private
from anabranch.spark.kept_rows import described
from anabranch.spark.spark_types import spark_schema, storable

if TYPE_CHECKING:
    import pyarrow as pa

HANDED_OVER = 20_000
"""Rows up to which Spark is given the rows themselves; of more it reads the files.

Ten rows in 1, 4 and 16 files came after 70, 70 and 50 ms so, and after 230, 390 and 1,440 ms by
reading; a million rows after 7 s so, and after 0.4 s by reading (2 cores, both of them busy).
"""
HANDED_OVER_BYTES = 32 << 20
"""Staged bytes likewise: they pass through this process."""

_FORMAT = "anabranch given 1\n"
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_OWN = re.compile(r"anabranch-staged-[0-9a-f]{12}")


@final
class Spark(Sink):
    """`fn(DataFrame, epoch)` on the driver, once a non-empty epoch, in order, after its commit.

    At least once: a driver that dies while `fn` runs, or right after, gives the last epochs again
    when it is started again, under the same numbers. The DataFrame has the epoch's rows in their
    order, and belongs to the session in use. It is to be used before `fn` returns: then what it
    is made of may be gone.
    """

    def __init__(self, fn: Any, *, directory: str | os.PathLike[str] | None = None) -> None:
        """Stage in `directory`, which is this sink's alone; without one in a temporary one.

        On several hosts it must be one that they share.
        """
        if not callable(fn):
            message = f"Spark: fn must be a function of a DataFrame and an epoch, got {fn!r}"
            raise ProgramError(message, so="pass e.g. lambda df, epoch: df.write.saveAsTable(...)")
        self._fn: Callable[[Any, int], object] | None = fn
        self._root = None if directory is None else Path(directory).absolute()
        self._temporary: _Temporary | None = None
        self._durability: Literal["process", "power"] = "power"

    def __getstate__(self) -> dict[str, Any]:
        """What tasks need: where to stage; the function stays here, with all it refers to."""
        return {**vars(self), "_root": self._home(), "_temporary": None, "_fn": None}

    def settle(self, directory: Path) -> None:
        """Stage here unless the user has chosen a place; before the first epoch."""
        if self._root is None:
            self._root = directory

    def with_durability(self, durability: Literal["process", "power"]) -> Spark:
        """Sync what is staged for the sake of power, or leave that to the system."""
        self._home()  # one for both
        # Not by copy.copy, which takes what travels.
        other = object.__new__(Spark)
        vars(other).update(vars(self), _durability=durability)
        return other

    def write(self, batches: Iterable[pa.RecordBatch], epoch: int, attempt: str) -> Any:
        """Stage rows in a Parquet file, in types that Spark has."""
        message = self._files().write(_storable(batches), epoch, attempt)
        return {"staged": message["staged"], "rows": message["rows"], "in": str(self._home())}

    def publish(self, messages: Sequence[Any], epoch: int) -> None:
        """Call the function with an epoch's rows, unless it has had them and they are gone."""
        paths = [path for message in messages if (path := self._staged(message)) is not None]
        if not paths:
            return
        lost = [path for path in paths if not path.exists()]
        if lost and _given(lost[0]) < epoch:
            message = f"Spark: rows of epoch {epoch} are gone before fn has had them: {lost[0]}"
            why = "they were staged and committed, and the file was then removed"
            so = "pass directory=, a place that stays, and that all hosts share if there are some"
            raise RunError(message, why=why, so=so)
        if not lost:
            self._call(paths, epoch)
            for home in {path.parent.parent for path in paths}:
                _note_given(home, epoch, durable=self._durability == "power")
        for path in paths:
            path.unlink(missing_ok=True)

    def abort(self, messages: Sequence[Any], epoch: int) -> None:  # noqa: ARG002
        """Remove staged rows that lost."""
        for message in messages:
            if (path := self._staged(message)) is not None:
                path.unlink(missing_ok=True)

    def sweep(self, keep: Sequence[Any]) -> None:
        """Remove staged rows that no message to keep names."""
        if not keep:
            # All is published: what is noted is of no more use, and would mislead another query.
            (self._home() / "given").unlink(missing_ok=True)
        kept = {path for message in keep if (path := self._staged(message)) is not None}
        for path in (self._home() / "_staging").glob("*"):
            if path not in kept:
                path.unlink(missing_ok=True)

    def _home(self) -> Path:
        if self._root is None:
            self._temporary = _Temporary()
            self._root = self._temporary.path
        return self._root

    def _files(self) -> Files:
        return Files(self._home(), format="parquet").with_durability(self._durability)

    def _call(self, paths: Sequence[Path], epoch: int) -> None:
        session = _session()
        frame = _frame(session, paths)
        assert self._fn is not None, "a sink that has travelled to a task publishes nothing"
        try:
            with described(session.sparkContext, f"anabranch: epoch {epoch} to a function"):
                self._fn(frame, epoch)
        except Exception as error:
            name = getattr(self._fn, "__qualname__", "fn")
            message = f"Spark: {name} failed on epoch {epoch}: {type(error).__name__}: {error}"
            so = "mend it and start again: with a checkpoint the epoch is given to it again"
            raise RunError(message, so=so) from error

    def _staged(self, message: object) -> Path | None:
        """The file that a message names: it may come from a checkpoint that anybody wrote."""
        match message:
            case {"staged": None, "rows": 0}:
                return None
            case {"staged": str(name), "in": str(place)} if _PLAIN.fullmatch(name):
                return self._place(Path(place)) / "_staging" / name
        text = "a message of a Spark sink cannot be read"
        raise CheckpointError(text, why=f"it names no staged file: {message!r}")

    def _place(self, told: Path) -> Path:
        """This sink's own directory; or a temporary one of this user's, of a run that died."""
        if _OWN.fullmatch(told.name) and told.parent == Path(tempfile.gettempdir()):
            with suppress(OSError):
                if told.stat().st_uid == os.getuid():
                    return told
        return self._home()


class _Temporary:
    """A directory that is gone when the last copy of its sink is, or the process."""

    def __init__(self) -> None:
        owned = OwnedDirectory.create("staged", Path(tempfile.gettempdir()))
        self.path = owned.path
        weakref.finalize(self, owned.remove)


def _session() -> Any:
    from pyspark.sql import SparkSession

    if private.active_context() is None:
        message = "Spark: there is no Spark here to make a DataFrame with"
        raise RunError(message, so="start the program on Spark; run_sequential touches no sinks")
    return SparkSession.builder.getOrCreate()


def _frame(session: Any, paths: Sequence[Path]) -> Any:
    """The rows of some files, in order."""
    from pyarrow import parquet

    arrow = parquet.read_schema(paths[0])
    schema = spark_schema(pl.DataFrame(arrow.empty_table()).schema, "Spark")
    rows = sum(parquet.read_metadata(path).num_rows for path in paths)
    size = sum(path.stat().st_size for path in paths)
    if rows <= HANDED_OVER and size <= HANDED_OVER_BYTES:
        table = pl.read_parquet(list(paths)).to_arrow()
        return session.createDataFrame(table, schema)
    # Of several files in one reading Spark would take the greatest first.
    reader = session.read.schema(schema)
    frames = [reader.parquet(path.as_uri()) for path in paths]
    return reduce(lambda left, right: left.union(right), frames)


def _storable(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        frame = pl.DataFrame(batch)
        types = {name: storable(dtype) for name, dtype in frame.schema.items()}
        spark_schema(types, "Spark")  # refuses what Spark cannot hold before it is committed
        yield from frame.cast(types).to_arrow().to_batches()  # type: ignore[arg-type]


def _given(path: Path) -> int:
    """Up to which epoch the function has had what was staged beside this file; -1: none."""
    file = path.parent.parent / "given"
    try:
        text = file.read_text()
    except FileNotFoundError:
        return -1
    if text.startswith(_FORMAT) and text.removeprefix(_FORMAT).strip().isdecimal():
        return int(text.removeprefix(_FORMAT))
    message = f"{file} cannot be read"
    why = f"it does not begin with {_FORMAT.strip()!r} and an epoch's number"
    raise CheckpointError(message, why=why)


def _note_given(home: Path, epoch: int, *, durable: bool) -> None:
    draft = home / f"given-{os.getpid()}.tmp"
    with draft.open("w") as file:
        file.write(f"{_FORMAT}{epoch}\n")
        file.flush()
        if durable:
            os.fsync(file.fileno())
    draft.replace(home / "given")
