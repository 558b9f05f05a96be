"""A stream grouped by a key, for operators that keep state a key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, final

from anabranch.program.functions import OnError
from anabranch.program.missing import missing
from anabranch.program.operators.keyed import Deduplicate, Match, Process, Reduce
from anabranch.program.pattern import Step
from anabranch.program.schema import SchemaLike
from anabranch.program.windowed_stream import WindowedStream, windowed
from anabranch.program.windows import Window

if TYPE_CHECKING:
    from anabranch.program.stream import Stream


@final
class KeyedStream:
    """The rows of a stream, a key at a time."""

    def __init__(self, stream: Stream, key: tuple[str, ...]) -> None:
        """Group a stream; users call `stream.key_by(...)`."""
        self._stream, self._key = stream, key

    def __repr__(self) -> str:
        """Say of what and by what."""
        return f"<KeyedStream of {self._stream!r} by {', '.join(self._key)}>"

    if not TYPE_CHECKING:  # a checker of types says it better

        def __getattr__(self, name: str) -> Any:
            """Say what was probably meant."""
            from anabranch.program.stream import Stream

            raise missing(self, name, Stream)

    def process(
        self,
        fn: Any,
        *,
        out: SchemaLike | None = None,
        ttl: str | timedelta | None = None,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Apply a function with state, or a KeyedOperator, to each key's records in order.

        With `ttl` a key's state is forgotten for a record that comes more than so long of event
        time behind the key's newest.
        """
        given = self._stream._output
        return self._stream._then(
            "process",
            name,
            lambda b: Process.over(b, given, self._key, fn, out, ttl, on_error),
        )

    def reduce(
        self,
        fn: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]],
        *,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Combine a key's records two at a time; emits the new value for every record."""
        given = self._stream._output
        return self._stream._then(
            "reduce", name, lambda b: Reduce.over(b, given, self._key, fn, on_error)
        )

    def deduplicate(
        self, within: str | timedelta | None = None, *, name: str | None = None
    ) -> Stream:
        """Pass a record unless one with its key passed before, or within that event time."""
        given = self._stream._output
        return self._stream._then(
            "deduplicate", name, lambda b: Deduplicate.over(b, given, self._key, within)
        )

    def match(
        self,
        pattern: Sequence[Step],
        *,
        within: str | timedelta,
        skip: bool = False,
        name: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream:
        """Find sequences of a key's records that fit `[ab.step(...), ...]`, at most `within` long.

        They follow each other at once; with `skip` other records may lie between. Each match gives
        the keys, `match_start`, `match_end`, and for each step a list of its records.
        """
        given = self._stream._output
        return self._stream._then(
            "match",
            name,
            lambda b: Match.over(b, given, self._key, pattern, within, skip, on_error),
        )

    def window(self, w: Window) -> WindowedStream:
        """Group each key's rows into windows of event time."""
        return windowed(self._stream, w, self._key)
