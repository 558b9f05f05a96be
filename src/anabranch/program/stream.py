"""Streams: the handles by which a user writes a program. They hold no data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, final

import polars as pl

from anabranch.connectors.base import Sink
from anabranch.errors import ProgramError, nearest
from anabranch.program.builder import Builder
from anabranch.program.functions import OnError
from anabranch.program.keyed_stream import KeyedStream
from anabranch.program.missing import missing
from anabranch.program.names import as_names
from anabranch.program.operators import keyed, rowwise, together
from anabranch.program.operators.edges import Feedback, Write
from anabranch.program.operators.operator import (
    DEAD_LETTERS,
    OUT,
    Base,
    Operator,
    Output,
    Port,
)
from anabranch.program.operators.together import How
from anabranch.program.schema import SchemaLike
from anabranch.program.windowed_stream import WindowedStream, windowed
from anabranch.program.windows import Window


class Stream:
    """The rows that come out of one operator."""

    def __init__(self, builder: Builder, port: Port, output: Output, made: Operator) -> None:
        """Point at a port; users get streams from a program and from other streams."""
        self._builder, self._port, self._output, self._made = builder, port, output, made

    def __repr__(self) -> str:
        """Say which port this is."""
        return f"<{type(self).__name__} of {self._made.name!r}: {self._port.output}>"

    if not TYPE_CHECKING:  # a checker of types says it better

        def __getattr__(self, name: str) -> Any:
            """Say what was probably meant."""
            raise missing(self, name, Stream)

    @property
    def schema(self) -> pl.Schema:
        """The columns and their types, in order."""
        return self._output.schema

    # Row by row

    def filter(
        self,
        predicate: pl.Expr | Callable[[dict[str, Any]], Any],
        *,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Keep the rows for which a row-wise expression, or a function of the record, holds."""
        return self._then(
            "filter", name, lambda b: rowwise.Filter.over(b, self._output, predicate, on_error)
        )

    def select(self, *exprs: Any, **named: Any) -> Stream:
        """Compute columns and drop all others; `name="..."`, a string, names the operator."""
        name = _operator_name(named)
        return self._then(
            "select", name, lambda b: rowwise.Select.over(b, self._output, exprs, named)
        )

    def with_columns(self, *exprs: Any, **named: Any) -> Stream:
        """Compute columns and keep the others; `name="..."`, a string, names the operator."""
        name = _operator_name(named)
        return self._then(
            "with_columns", name, lambda b: rowwise.WithColumns.over(b, self._output, exprs, named)
        )

    def drop(self, *columns: str, name: str | None = None) -> Stream:
        """Leave columns out."""
        return self._then("drop", name, lambda b: rowwise.Drop.over(b, self._output, columns))

    def rename(self, names: Mapping[str, str], *, name: str | None = None) -> Stream:
        """Give columns new names: `{"old": "new"}`."""
        return self._then("rename", name, lambda b: rowwise.Rename.over(b, self._output, names))

    def explode(self, column: str, *, name: str | None = None) -> Stream:
        """One row for each element of a list column; an empty list gives none, null gives null."""
        return self._then("explode", name, lambda b: rowwise.Explode.over(b, self._output, column))

    def with_event_time(
        self,
        column: str,
        *,
        time_unit: str = "ms",
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Take event times from another column; the watermark stays what it is."""
        return self._then(
            "with_event_time",
            name,
            lambda b: rowwise.WithEventTime.over(b, self._output, column, time_unit, on_error),
        )

    def map(
        self,
        fn: Callable[[dict[str, Any]], dict[str, Any]],
        *,
        out: SchemaLike | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Turn each record into one record."""
        return self._then(
            "map", name, lambda b: rowwise.Map.over(b, self._output, fn, out, on_error)
        )

    def flat_map(
        self,
        fn: Callable[[dict[str, Any]], Any],
        *,
        out: SchemaLike | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Turn each record into any number of records."""
        return self._then(
            "flat_map", name, lambda b: rowwise.FlatMap.over(b, self._output, fn, out, on_error)
        )

    def map_batches(
        self,
        fn: Callable[[pl.DataFrame], pl.DataFrame],
        *,
        out: SchemaLike | None = None,
        elementwise: bool = False,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Apply a function to each epoch's rows as one frame; `elementwise`: to any cut of them."""
        return self._then(
            "map_batches",
            name,
            lambda b: rowwise.MapBatches.over(b, self._output, fn, out, elementwise, on_error),
        )

    # With state

    def key_by(self, *columns: str) -> KeyedStream:
        """Group rows by columns for operators that keep state a key."""
        if not columns:
            message = "key_by: no columns"
            raise ProgramError(message, so='write .key_by("user")')
        return KeyedStream(self, keyed.require_key(self._output, columns, "key_by"))

    def process(
        self,
        fn: Any,
        *,
        out: SchemaLike | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Apply a function with state to the whole stream, sequentially."""
        return self._then(
            "process",
            name,
            lambda b: keyed.Process.over(b, self._output, None, fn, out, None, on_error),
        )

    def window(self, w: Window, by: str | Sequence[str] | None = None) -> WindowedStream:
        """Group rows into windows of event time, and by columns."""
        return windowed(self, w, by)

    # Together

    def join(
        self,
        other: Stream,
        *,
        on: str | Sequence[str],
        within: str | timedelta,
        how: How = "inner",
        name: str | None = None,
    ) -> Stream:
        """Pair rows with equal keys whose event times are at most `within` apart.

        Columns are the left row's, then the right one's without the keys; where names clash the
        right one's end in `_right`. A null key matches nothing. Records that come too late to match
        go to `dead_letters` with the reason `late`.
        """
        right = self._other(other, "join")
        keys = as_names(on, "join: on")
        return self._then(
            "join",
            name,
            lambda b: together.Join.over(b, self._output, right, keys, within, how),
            other,
        )

    def lookup(
        self,
        table: Any,
        *,
        on: str | Sequence[str],
        how: str = "inner",
        many: bool = False,
        refresh: str | timedelta | None = None,
        name: str | None = None,
    ) -> Stream:
        """Put the columns of a table's row with the same key beside each row.

        The table is a Polars frame, the path of a file, a Spark DataFrame, or a function that
        returns a frame. A row without a partner is dropped, or kept with nulls (`how="left"`).
        Two rows of the table with one key are an error unless `many`. With `refresh` the table is
        loaded again so often; an epoch sees one version.
        """
        keys = as_names(on, "lookup: on")
        return self._then(
            "lookup",
            name,
            lambda b: together.Lookup.over(b, self._output, table, keys, how, many, refresh),
        )

    def union(self, other: Stream, *, name: str | None = None) -> Stream:
        """Take the rows of both streams, in log order."""
        right = self._other(other, "union")
        return self._then(
            "union", name, lambda b: together.Union.over(b, self._output, right), other
        )

    def merge(self, other: Stream, *, name: str | None = None) -> Stream:
        """Take the rows of both streams, by event time."""
        right = self._other(other, "merge")
        return self._then(
            "merge", name, lambda b: together.Merge.over(b, self._output, right), other
        )

    def in_time_order(self, *, name: str | None = None) -> Stream:
        """Hold rows until the watermark has passed them, and release them by event time."""
        return self._then(
            "in_time_order", name, lambda b: together.InTimeOrder.over(b, self._output)
        )

    def split(self, **predicates: Any) -> Branches:
        """Send each row to the first branch whose predicate is true, else to `.rest`."""
        name = _operator_name(predicates)
        made = self._add("split", name, lambda b: rowwise.Split.over(b, self._output, predicates))
        return Branches(self._builder, made)

    def fuse_with(self, other: Stream) -> Stream:
        """Keep the operators of both streams in one region; compiling fails where it cannot be."""
        self._other(other, "fuse_with")
        self._builder.fuse(self._port.operator, other._port.operator)
        return self

    # Out

    def write(self, sink: Sink, *, name: str | None = None, ordered: bool = True) -> None:
        """Write rows to a sink; its name is the sink's own where it has one.

        In the order of the sequential program, unless `ordered` is False: then its rows are those
        of the sequential program, in any order.
        """
        chosen = name if name is not None else getattr(sink, "name", None)
        self._add("write", chosen, lambda b: Write.over(b, sink, self.schema, ordered))

    @property
    def dead_letters(self) -> Stream:
        """The records this operator could not take, with the reason.

        Columns: `operator`, `source`, `partition`, `offset`, `epoch`, `reason`, `error`,
        `traceback`, and `record` as JSON text.
        """
        made = self._made
        if DEAD_LETTERS not in made.outputs:
            message = f"{made.name} has no dead letters: nothing can go wrong with one record there"
            so = 'ask for those of read, map, filter or process that have on_error="dead_letter"'
            raise ProgramError(message, so=so)
        on_error = getattr(made, "on_error", "dead_letter")
        if on_error != "dead_letter":
            message = f"{made.name} sends nothing to dead letters: its on_error is {on_error!r}"
            so = f'pass on_error="dead_letter" to {made.kind}'
            raise ProgramError(message, why=f"see {made.site}", so=so)
        return stream_of(self._builder, made, DEAD_LETTERS)

    def _other(self, other: Any, what: str) -> Output:
        if not isinstance(other, Stream) or other._builder is not self._builder:
            message = f"{what} takes another stream of the same program, got {other!r}"
            raise ProgramError(message, so="read both by one ab.Program")
        return other._output

    def _add(
        self, kind: str, name: str | None, make: Callable[[Base], Operator], *others: Stream
    ) -> Operator:
        ports = (self._port, *(each._port for each in others))
        return self._builder.add(kind, name, ports, make)

    def _then(
        self, kind: str, name: str | None, make: Callable[[Base], Operator], *others: Stream
    ) -> Stream:
        return stream_of(self._builder, self._add(kind, name, make, *others))


@final
class Branches:
    """The branches of a split, as attributes or by name; `.rest` is what no predicate took."""

    def __init__(self, builder: Builder, made: Operator) -> None:
        """Hold the outputs of a split."""
        self._builder, self._made = builder, made

    rest: Stream

    def __getattr__(self, branch: str) -> Stream:
        """The stream of a branch."""
        if branch.startswith("_") or branch not in self._made.outputs:
            message = f"{self._made.name} has no branch {branch!r}"
            raise AttributeError(
                f"{message}; it has {', '.join(self._made.outputs)}. "
                f"{nearest(branch, self._made.outputs) or ''}".rstrip()
            )
        return stream_of(self._builder, self._made, branch)

    def __getitem__(self, branch: str) -> Stream:
        """The stream of a branch whose name is no Python name."""
        return self.__getattr__(branch)


@final
class LateStream(Stream):
    """The records that were late for a window, as they came to it."""

    @property
    def dead_letters(self) -> Stream:
        """There are none: a late record is late, not wrong."""
        message = "late records have no dead letters"
        raise ProgramError(message, so="read dead_letters of the stream that the window is of")


@final
class FeedbackStream(Stream):
    """A stream that is read before it is written."""

    def close(self, stream: Stream) -> None:
        """Say which stream comes out here in the next epoch."""
        given = self._other(stream, "close")
        assert isinstance(self._made, Feedback)
        self._builder.close(self._made, stream._port, given)


def stream_of(builder: Builder, made: Operator, output: str = OUT) -> Stream:
    """The stream at an operator's output."""
    return Stream(builder, Port(made.id, output), made.outputs[output], made)


def _operator_name(named: dict[str, Any]) -> str | None:
    """Columns may be called `name` too: an expression is a column, a string the operator's name."""
    if isinstance(named.get("name"), str):
        chosen: str = named.pop("name")
        return chosen
    if "name" in named and named["name"] is None:
        del named["name"]
    return None
