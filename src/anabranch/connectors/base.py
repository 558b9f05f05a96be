"""The contracts of sources and sinks.

A source is read again after a crash, so what it gives for a range of offsets never changes. A sink
is written by tasks that may be repeated, so nothing is visible before `publish`, and publishing the
same epoch twice is publishing it once (M15).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from anabranch.errors import ProgramError
from anabranch.ids import Offset, Partition

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Interruption:
    """What a source does to the run that reads it; sources for tests do."""

    kind: Literal["end", "kill", "wait"]
    """The run ends in order; or it dies before this epoch is committed; or this source pauses."""
    seconds: float = 0.0
    """How long it pauses."""


class Source(ABC):
    """Something that holds records in partitions, each in the order of its offsets.

    Offsets are JSON values. A range takes its start and leaves its end out.
    """

    schema: pl.Schema
    unread: str | None = None
    """The column in which rows that could not be read are told, if the source has such rows.

    It is no column of the schema. A batch or a frame has it, of type `UNREAD`, where there is such
    a row, whatever columns were asked for; all else of that row is null. The row has its offset
    as any other, and obeys `on_error` of `read`. For all other rows it is null.
    """

    @abstractmethod
    def partitions(self) -> Sequence[Partition]:
        """The partitions in their order (M5); a new one goes to the end."""

    @abstractmethod
    def latest(self) -> Mapping[Partition, Offset]:
        """Where each partition ends now."""

    @abstractmethod
    def plan(
        self, start: Mapping[Partition, Offset], end: Mapping[Partition, Offset]
    ) -> Sequence[Any]:
        """Cut a range into splits, in partition and offset order; a split is read by one task."""

    @abstractmethod
    def read(self, split: Any) -> Iterator[pa.RecordBatch]:
        """The records of a split: the same ones, in the same order, each time."""

    def frame(self, split: Any, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """The records of a split as one frame, of these columns alone where they are given.

        A source that can leave columns unread, or read faster than by batches, overrides it.
        """
        import polars as pl

        names = list(self.schema) if columns is None else list(columns)
        told = set() if self.unread is None else {self.unread}
        frames = [pl.DataFrame(batch) for batch in self.read(split)]
        frames = [each.select([*names, *told & {*each.columns}]) for each in frames]
        empty = pl.DataFrame(schema={name: self.schema[name] for name in names})
        # Batches with and without the column of unread rows may follow one another.
        return pl.concat(frames, how="diagonal" if told else "vertical") if frames else empty

    def finished(self, partition: Partition) -> bool:  # noqa: ARG002 - a contract's default
        """Whether nothing will ever follow what `latest` says of this partition."""
        return False

    def hint(self) -> Any:
        """An event time below which nothing will come any more, in the time column's own type."""
        return None

    def first(self, partition: Partition) -> Offset:  # noqa: ARG002 - a contract's default
        """Where a partition begins."""
        return 0

    def end(self) -> Mapping[Partition, Offset]:
        """Where each partition will end once all it will ever hold is there; None: never.

        By default what is there now. The sequential run reads up to here.
        """
        return self.latest()

    def limit(self, partition: Partition, start: Offset, end: Offset, rows: int | None) -> Offset:  # noqa: ARG002
        """The offset at most `rows` records after `start`, at most `end`; None rows: no limit.

        The default knows offsets that count records; a source with others overrides it.
        """
        if rows is None or not isinstance(start, int):
            return end
        return start + rows if end is None else min(end, start + rows)

    def interruption(self, partition: Partition, offset: Offset) -> Interruption | None:  # noqa: ARG002
        """What happens to a run whose epoch ends at this offset of a partition; mostly nothing."""
        return None

    def memory(self) -> Any:
        """What the source must be told again to give its offsets the same meaning; a JSON value."""
        return None

    def recall(self, memory: Any) -> None:  # noqa: B027 - nothing to remember is a fine default
        """Take back what `memory` gave, in a new process."""


class Sink(ABC):
    """Something that takes rows, an epoch at a time."""

    visible: Literal["commit", "early"] = "commit"
    """When readers see rows, after their commit or as soon as they are written.

    That is sooner with the trigger `ab.continuous` alone. Rows that were shown and not committed
    come again after a restart; `rewind` tells which.
    """
    gathers: ClassVar[bool] = False
    """Whether rows of several epochs that are committed together may be written as one's."""

    def require(self, schema: pl.Schema) -> None:  # noqa: B027 - a contract's default
        """Refuse columns that it could not write by a ProgramError; called when `write` is."""

    @abstractmethod
    def write(self, batches: Iterable[pa.RecordBatch], epoch: int, attempt: str) -> Any:
        """Stage rows in a task; returns a JSON message by which `publish` finds them."""

    @abstractmethod
    def publish(self, messages: Sequence[Any], epoch: int) -> None:
        """Make the staged rows of a committed epoch visible, in the messages' order.

        Called again after a restart: publishing an epoch twice is publishing it once.
        """

    def with_durability(self, durability: Literal["process", "power"]) -> Sink:  # noqa: ARG002
        """The same sink, whose rows outlive the death of processes, or a loss of power too."""
        return self

    def called(self, program: str, name: str) -> Sink:  # noqa: ARG002 - a contract's default
        """The same sink, told its program's name and its own there, for what it says to people."""
        return self

    def abort(self, messages: Sequence[Any], epoch: int) -> None:  # noqa: B027 - nothing staged
        """Forget staged rows of an attempt that lost."""

    def sweep(self, keep: Sequence[Any]) -> None:  # noqa: B027 - nothing is staged
        """Remove what attempts left that nobody will publish: all but these messages' rows.

        Called by the one who may write, when no task is writing.
        """

    def rewind(self, after: int) -> None:  # noqa: B027 - nothing was shown early
        """Rows of epochs behind `after` that were shown early will come again."""


def require_visible(what: str, given: object) -> Literal["commit", "early"]:
    """What a sink was told of when rows are visible.

    Raises:
        ProgramError: It is neither of the two.
    """
    if given == "commit":
        return "commit"
    if given == "early":
        return "early"
    message = f'{what}: visible must be "commit" or "early", got {given!r}'
    raise ProgramError(message)
