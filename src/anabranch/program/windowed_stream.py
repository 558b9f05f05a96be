"""A stream grouped into windows, before it is said what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, final

import polars as pl

from anabranch.errors import ProgramError
from anabranch.ids import OperatorId
from anabranch.program.aggregates import Aggregate
from anabranch.program.durations import parse_duration
from anabranch.program.functions import OnError
from anabranch.program.missing import missing
from anabranch.program.names import as_names
from anabranch.program.operators.keyed import require_key
from anabranch.program.operators.operator import LATE, Base, Operator, Port
from anabranch.program.operators.windowed import WindowAggregate, WindowApply, Windowing
from anabranch.program.schema import SchemaLike
from anabranch.program.windows import Window

if TYPE_CHECKING:
    from anabranch.program.stream import Stream


@final
class WindowedStream:
    """The windows of a stream."""

    def __init__(self, stream: Stream, windowing: Windowing) -> None:
        """Group a stream; users call `stream.window(...)`."""
        self._stream, self._windowing = stream, windowing
        self._number: OperatorId | None = None
        self._filled = False

    def __repr__(self) -> str:
        """Say which windows."""
        return f"<WindowedStream of {self._stream!r}: {self._windowing.window}>"

    if not TYPE_CHECKING:  # a checker of types says it better

        def __getattr__(self, name: str) -> Any:
            """Say what was probably meant."""
            from anabranch.program.stream import Stream

            raise missing(self, name, Stream)

    def agg(self, **aggregates: Aggregate | pl.Expr | Any) -> Stream:
        """One row a window and group; `name="..."`, a string, names the operator."""
        given_name = aggregates.get("name")
        name = given_name if isinstance(given_name, str) else None
        if name is not None or ("name" in aggregates and given_name is None):
            del aggregates["name"]
        given = self._stream._output
        return self._fill(
            name, lambda b: WindowAggregate.over(b, given, self._windowing, aggregates)
        )

    def apply(
        self,
        fn: Callable[[tuple[Any, ...], pl.DataFrame], Any],
        *,
        out: SchemaLike | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """What `fn(key, frame)` makes of each window's rows, behind its bounds and group.

        `key` is a tuple; the function returns a frame, a dict or a list of dicts.
        """
        given = self._stream._output
        return self._fill(
            name, lambda b: WindowApply.over(b, given, self._windowing, fn, out, on_error)
        )

    def allow_late(self, d: str | timedelta) -> WindowedStream:
        """Let windows change for so long after their end; call it before `agg`.

        A window that changes is given again, at the next watermark, with a column `revision`: 0 the
        first time, then 1, 2, ... Such a stream feeds stateless operators and sinks only; sessions
        have none of it.
        """
        allowed = parse_duration(d, "allow_late")
        changed = replace(self._windowing, allowed=allowed)
        changed.check(self._stream._output, "allow_late")
        return WindowedStream(self._stream, changed)

    @property
    def late(self) -> Stream:
        """The records that were late for all their windows, as they came."""
        from anabranch.program.stream import LateStream

        if self._number is None:
            self._number = self._stream._builder.reserve()
        stream = self._stream
        port = Port(self._number, LATE)
        return LateStream(stream._builder, port, stream._output, stream._made)

    def _fill(self, name: str | None, make: Callable[[Base], Operator]) -> Stream:
        from anabranch.program.stream import stream_of

        builder = self._stream._builder
        number = None if self._filled else self._number
        made = builder.add("window", name, (self._stream._port,), make, number)
        self._number, self._filled = self._number or made.id, True
        return stream_of(builder, made)


def windowed(stream: Stream, window: Any, by: str | Sequence[str] | None) -> WindowedStream:
    """Group a stream into windows, refused where it cannot be."""
    if not isinstance(window, Window):
        message = f"window takes a window, got {window!r}"
        so = "use ab.tumbling, ab.sliding, ab.session or ab.rows"
        raise ProgramError(message, so=so)
    names = () if by is None or by == [] else as_names(by, "window: by")
    windowing = Windowing(window, require_key(stream._output, names, "window: by"))
    windowing.check(stream._output, "window")
    return WindowedStream(stream, windowing)
