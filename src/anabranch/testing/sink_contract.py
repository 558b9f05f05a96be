"""Whether a sink keeps its contract (`anabranch.connectors.base.Sink`), rule by rule.

What is done here is what a run does: copies of the sink stage rows as tasks do, some of them for
nothing; the sink itself publishes what was committed, and publishes it again after a restart.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import polars as pl

from anabranch.connectors.base import Sink
from anabranch.errors import ProgramError
from anabranch.testing.broken import broken, parted, same_json

if TYPE_CHECKING:
    import pyarrow as pa

Record: TypeAlias = dict[str, Any]
Visible: TypeAlias = Callable[[], Iterable[Mapping[str, Any]] | pl.DataFrame]

_PIECE = 3
"""Rows of a task."""
_NEEDED = 12 * _PIECE

_APART = "tell what is staged from what is published by its place or name"

_NUMBERED = pl.DataFrame({"n": range(_NEEDED), "text": [f"row {n}" for n in range(_NEEDED)]})


class SinkRule(Enum):
    """What a sink promises."""

    SAME = "with_durability() and called() give the same sink"
    TRAVELS = "a copy can travel to a task"
    MESSAGES = "write() returns a JSON value, the same when it comes back from JSON"
    UNSEEN = "rows are not visible before they are published"
    ORDERED = "an epoch's rows are seen in the order of its messages"
    NOTHING = "tasks without rows show nothing, and are in nobody's way"
    NO_TASKS = "an epoch without messages shows nothing"
    ABORTED = "rows of an attempt that was aborted are never seen"
    WINNER = "of an epoch's attempts only the one that won is seen"
    ABORT_ALONE = "what is published stays when other attempts are aborted"
    PUBLISHED_STAYS = "what is published stays when it is aborted: that is too late"
    ERRORS = "an error of the rows passes through write()"
    FAILED = "rows of a task that failed are never seen"
    REPEATED = "a task that failed can be repeated"
    SWEPT = "what is swept is never seen"
    KEPT = "sweep(keep) leaves what these messages name"
    REWOUND = "rewind(after) takes back what was shown of later epochs, and nothing else"
    TAKEN_OVER = "a new run publishes what the one before it staged and committed"
    ONCE = "publishing an epoch twice is publishing it once"
    RESTARTED = "a new run sweeps what is staged, and nothing that is published"
    GOES_ON = "epochs go on after a repetition"


def check_sink(
    sink: Sink,
    *,
    read: Visible,
    rows: pl.DataFrame | Sequence[Mapping[str, Any]] | None = None,
    again: Callable[[], Sink] | None = None,
    at_least_once: bool = False,
) -> None:
    """Fail unless a sink keeps the contract of sinks. Rows are written to it, of a few epochs.

    `read()` gives what a reader of the sink sees, in order: rows as dicts, or a frame; the sink has
    no reader of its own. An AssertionError says which rule is broken, in which epoch, what was
    expected and found, and what to do.

    `rows` are what is written, 36 or more that are all different; without them two columns, `n` and
    `text`. `again` makes the sink anew, as a program that is started again does: it publishes what
    the one before has staged, and once more what is published. `at_least_once` is for a sink that
    says of itself that an epoch which is published again is seen again, with the same rows.

    >>> from anabranch.connectors.memory import Memory
    >>> memory = Memory("out")
    >>> check_sink(memory, read=lambda: memory.rows)
    """
    __tracebackhide__ = True
    if not isinstance(sink, Sink):
        message = f"check_sink: not a sink: {sink!r}"
        raise ProgramError(message, so="derive from ab.sinks.Sink")
    check = _SinkCheck(sink, read, _frame(rows), at_least_once=at_least_once)
    check.order()
    check.nothing()
    if sink.visible == "commit":
        # What is shown early may be seen of any attempt until the sink is told to rewind.
        check.losers()
        check.failures()
        check.sweeping()
    check.rewinding()
    if again is not None and sink.visible == "commit":
        check.taken_over(again)
    check.repeating(again)


def _frame(rows: pl.DataFrame | Sequence[Mapping[str, Any]] | None) -> pl.DataFrame:
    if rows is None:
        return _NUMBERED
    frame = rows if isinstance(rows, pl.DataFrame) else pl.DataFrame(list(rows))
    if frame.height < _NEEDED or len({repr(row) for row in frame.iter_rows()}) < frame.height:
        message = f"check_sink: rows must be {_NEEDED} or more, all different"
        raise ProgramError(message, have=f"{frame.height} rows")
    return frame


class _SinkCheck:
    """A sink under check: what it was given and must show."""

    def __init__(
        self, sink: Sink, read: Visible, rows: pl.DataFrame, *, at_least_once: bool
    ) -> None:
        self._read, self._rows, self._at_least_once = read, rows, at_least_once
        # As a run does: one for tasks, and one that is told its name for the driver.
        self._in_tasks = self._sink(sink.with_durability("process"), "with_durability")
        self._driver = self._sink(self._in_tasks.called("check", "sink"), "called")
        self._at, self._epoch, self._tasks = 0, 0, 0
        self._shown = self._visible()
        """What must be visible."""
        self._last: tuple[Sequence[Any], list[Record]] = ((), [])
        """The messages of the last epoch, and its rows."""

    # ---- As a run does ----------------------------------------------------------------------

    def _sink(self, sink: Any, what: str) -> Sink:
        __tracebackhide__ = True
        if not isinstance(sink, Sink):
            so = "return self, or a changed copy"
            raise broken(SinkRule.SAME, f"a Sink from {what}()", sink, so)
        return sink

    def _piece(self) -> pl.DataFrame:
        """Rows that no task has had yet; the first again when all were had."""
        if self._at + _PIECE > self._rows.height:
            self._at = 0
        self._at += _PIECE
        return self._rows.slice(self._at - _PIECE, _PIECE)

    def _write(self, rows: pl.DataFrame, attempt: str) -> Any:
        """Stage rows in a task of its own; its message, as it comes back from the checkpoint."""
        __tracebackhide__ = True
        return self._message(self._copy().write(_batches(rows), self._epoch, attempt))

    def _copy(self) -> Sink:
        __tracebackhide__ = True
        from anabranch.spark.shipping import travelled

        try:
            return cast("Sink", travelled(self._in_tasks))
        except Exception as error:
            raise broken(
                SinkRule.TRAVELS,
                "a sink that can be pickled",
                f"{type(error).__name__}: {error}",
                "keep what cannot travel out of __getstate__, and open it where it is used",
            ) from error

    def _message(self, message: Any) -> Any:
        __tracebackhide__ = True
        if not same_json(message):
            raise broken(
                SinkRule.MESSAGES,
                "null, a number, a text, a list or an object with texts for keys",
                message,
                "name what was staged by a text, such as the file's name",
                at=f"epoch {self._epoch}",
            )
        return json.loads(json.dumps(message))

    def _publish(
        self, messages: Sequence[Any], rows: Sequence[pl.DataFrame], rule: SinkRule
    ) -> None:
        """Publish an epoch, which must then be seen behind those before it."""
        __tracebackhide__ = True
        told = [row for each in rows for row in each.rows(named=True)]
        self._driver.publish(messages, self._epoch)
        self._shown += told
        self._last = (messages, told)
        self._see(rule, "show the messages' rows in the messages' order, and no others")
        self._epoch += 1

    def _visible(self) -> list[Record]:
        found = self._read()
        rows = found.rows(named=True) if isinstance(found, pl.DataFrame) else list(found)
        return [dict(row) for row in rows]

    def _see(self, rule: SinkRule, so: str) -> None:
        __tracebackhide__ = True
        error = parted(rule, self._shown, self._visible(), so, at=f"epoch {self._epoch}")
        if error is not None:
            raise error

    def _unseen(self, rule: SinkRule) -> None:
        """That nothing more is seen than before; an early sink may show what is not committed."""
        __tracebackhide__ = True
        if self._driver.visible == "commit":
            self._see(rule, "keep rows where no reader looks until publish() is told of them")

    # ---- The rules --------------------------------------------------------------------------

    def order(self) -> None:
        """Rows of several tasks, batches and epochs are seen in order, once they are published."""
        __tracebackhide__ = True
        for _ in range(2):
            pieces = [self._piece() for _ in range(3)]
            # Tasks end in any order; which of them is first is what the messages say. A sink that
            # shows rows early is given them in order.
            ended = (2, 0, 1) if self._driver.visible == "commit" else (0, 1, 2)
            staged = {number: self._write(pieces[number], "a") for number in ended}
            self._unseen(SinkRule.UNSEEN)
            self._publish(
                [staged[number] for number in range(3)],
                pieces,
                SinkRule.ORDERED,
            )

    def nothing(self) -> None:
        """Tasks without rows, and epochs without tasks."""
        __tracebackhide__ = True
        piece, rule = self._piece(), SinkRule.NOTHING
        messages = [*self._empty(), self._write(piece, "a"), *self._empty()]
        self._publish(messages, [piece], rule)
        self._publish(self._empty(), [], rule)
        self._publish([], [], SinkRule.NO_TASKS)

    def _empty(self) -> list[Any]:
        """Messages of a task without batches, and of one whose batches are without rows."""
        __tracebackhide__ = True
        none = self._message(self._copy().write(iter(()), self._epoch, "a"))
        return [none, self._write(self._rows.head(0), "a")]

    def losers(self) -> None:
        """Attempts that lost are never seen, whether they were aborted or not."""
        __tracebackhide__ = True
        lost, forgotten, won = self._piece(), self._piece(), self._piece()
        aborted = self._write(lost, "a")
        self._write(forgotten, "b")
        message = self._write(won, "c")
        self._driver.abort([aborted], self._epoch)
        self._driver.abort([aborted], self._epoch)
        self._unseen(SinkRule.ABORTED)
        self._publish([message], [won], SinkRule.WINNER)
        self._driver.abort([message], self._epoch - 1)
        self._see(
            SinkRule.PUBLISHED_STAYS,
            "remove in abort() what is staged, and leave what is published alone",
        )
        late = self._write(self._piece(), "d")
        self._driver.abort([late], self._epoch)
        self._see(
            SinkRule.ABORT_ALONE,
            "remove in abort() what its messages name, and nothing else",
        )

    def failures(self) -> None:
        """A task that fails while it writes shows nothing, and its error is told."""
        __tracebackhide__ = True
        piece, copy = self._piece(), self._copy()
        rule, epoch = SinkRule.ERRORS, f"epoch {self._epoch}"
        try:
            copy.write(_failing(piece), self._epoch, "a")
        except _RowsFailed:
            pass
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
            raise broken(rule, "the rows' own error", found, "let it pass", at=epoch) from error
        else:
            so = "let it pass: the rows are not whole"
            raise broken(rule, "the rows' own error", "none", so, at=epoch)
        self._unseen(SinkRule.FAILED)
        self._publish([self._write(piece, "b")], [piece], SinkRule.REPEATED)

    def sweeping(self) -> None:
        """What is kept can be published, what is published stays."""
        __tracebackhide__ = True
        kept = self._piece()
        message = self._write(kept, "a")
        self._write(self._piece(), "b")
        self._driver.sweep([message])
        self._unseen(SinkRule.SWEPT)
        rule = SinkRule.KEPT
        self._publish([message], [kept], rule)
        self._driver.sweep([])
        self._see(rule, "sweep what is staged, not what is published")

    def rewinding(self) -> None:
        """What is shown early and not committed comes again; the rest stays."""
        __tracebackhide__ = True
        piece, epoch = self._piece(), self._epoch
        self._write(piece, "a")
        self._driver.rewind(epoch - 1)
        rule = SinkRule.REWOUND
        self._see(rule, "take back the rows of epochs behind `after` that were shown early")
        self._publish([self._write(piece, "b")], [piece], rule)
        self._driver.rewind(epoch)
        self._see(rule, "leave the rows of epochs up to `after` where they are")

    def taken_over(self, again: Callable[[], Sink]) -> None:
        """A run dies behind its commit: the next one sweeps, and publishes what was committed."""
        __tracebackhide__ = True
        pieces = [self._piece(), self._piece()]
        messages = [self._write(each, "a") for each in pieces]
        self._write(self._piece(), "b")
        self._driver = self._started(again)
        self._driver.sweep(messages)
        self._see(SinkRule.RESTARTED, _APART)
        self._publish(messages, pieces, SinkRule.TAKEN_OVER)

    def _started(self, again: Callable[[], Sink]) -> Sink:
        """The sink of a program that is started again."""
        __tracebackhide__ = True
        started = self._sink(again(), "again").with_durability("process")
        return self._sink(started.called("check", "sink"), "called")

    def repeating(self, again: Callable[[], Sink] | None) -> None:
        """The last epoch published again is that epoch once."""
        __tracebackhide__ = True
        # Two messages: one of two could have been published when the run died.
        pieces = [self._piece(), self._piece()]
        self._publish([self._write(each, "a") for each in pieces], pieces, SinkRule.ORDERED)
        self._epoch -= 1
        self._repeat(self._driver)
        if again is not None:
            self._driver = self._started(again)
            self._repeat(self._driver)
            self._driver.sweep([])
            self._see(SinkRule.RESTARTED, _APART)
        self._epoch += 1
        piece = self._piece()
        self._publish([self._write(piece, "a")], [piece], SinkRule.GOES_ON)
        for _ in range(2):
            self._driver.publish([], self._epoch)
            self._see(SinkRule.NO_TASKS, "show nothing for it, however often it is published")

    def _repeat(self, sink: Sink) -> None:
        __tracebackhide__ = True
        messages, rows = self._last
        sink.publish(messages, self._epoch)
        if self._at_least_once and len(self._visible()) > len(self._shown):
            self._shown += rows
        self._see(
            SinkRule.ONCE,
            "keep the epoch's number with the rows, and pass over one that is there; or say that "
            "the sink is at least once (at_least_once=True)",
        )


class _RowsFailed(Exception):
    """What the rows of a task raise."""


def _batches(rows: pl.DataFrame) -> Iterator[pa.RecordBatch]:
    """Rows as a task gives them: some batches, one without rows, that can be gone through once."""
    for part in (rows.head(1), rows.head(0), rows.slice(1)) if rows.height else (rows,):
        yield from part.to_arrow().to_batches() or [_none(part)]


def _none(part: pl.DataFrame) -> pa.RecordBatch:
    import pyarrow as pa

    table = part.to_arrow()
    return pa.RecordBatch.from_pylist([], schema=table.schema)


def _failing(rows: pl.DataFrame) -> Iterator[pa.RecordBatch]:
    yield from rows.to_arrow().to_batches()
    raise _RowsFailed
