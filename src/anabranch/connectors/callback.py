"""A sink that hands each epoch's rows to a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, final

import polars as pl

from anabranch.connectors.base import Sink, require_visible
from anabranch.connectors.messages import from_message, to_message
from anabranch.errors import ProgramError, RunError, raising_site

if TYPE_CHECKING:
    import pyarrow as pa


@final
class Callback(Sink):
    """`fn(rows, epoch)` on the driver, once a non-empty epoch, in order, after its commit.

    `rows` is a list of dicts, in order unless the sink is written with `ordered=False`. The query
    goes on when `fn` has returned; an error of `fn` ends it.

    At least once: where `fn` failed, or the driver died before it was noted that `fn` returned, the
    next run of the checkpoint calls it again, with the same rows under the same number, as it does
    for other epochs of the same commit. An epoch's number never comes back with other rows, so
    whoever keeps the last one with what `fn` wrote can tell.

    The rows go through the commit. For many of them take `ab.sinks.Files` or `Spark`.

    With `visible="early"` and the trigger `ab.continuous` it is called before the commit, as soon
    as rows are there, in a thread of the query's. `on_rewind(after)` is called where rows of epochs
    behind `after` come again.
    """

    def __init__(
        self,
        fn: Callable[[list[dict[str, Any]], int], object],
        *,
        visible: Literal["commit", "early"] = "commit",
        on_rewind: Callable[[int], object] | None = None,
    ) -> None:
        """Take a function; it stays where the program was started, with all it refers to."""
        _require_function(fn)
        self.visible, self._on_rewind = require_visible("Callback", visible), on_rewind
        self._fn: Callable[[list[dict[str, Any]], int], object] | None = fn

    def __repr__(self) -> str:
        """Say which function."""
        return f"<Callback {_name(self._fn)}>"

    def __getstate__(self) -> dict[str, Any]:
        """What tasks need: nothing; the function need not be able to travel."""
        return {**vars(self), "_fn": None, "_on_rewind": None}

    def write(self, batches: Iterable[pa.RecordBatch], epoch: int, attempt: str) -> str:  # noqa: ARG002
        """Carry the rows in the message itself."""
        return to_message(batches)

    def publish(self, messages: Sequence[Any], epoch: int) -> None:
        """Call the function with an epoch's rows, if there are some."""
        frames = [from_message(message, "Callback") for message in messages if message != ""]
        rows = pl.concat(frames).rows(named=True) if frames else []
        if not rows:
            return
        assert self._fn is not None, "a sink that has travelled to a task publishes nothing"
        try:
            self._fn(rows, epoch)
        except (Exception, SystemExit) as error:
            # Left alone, sys.exit() would end the query's thread as if all were well.
            told = f"{type(error).__name__}: {error}"
            message = f"Callback: {_name(self._fn)} failed on epoch {epoch}: {told}"
            raise RunError(message, site=raising_site(error)) from error

    def rewind(self, after: int) -> None:
        """Say which rows come again."""
        if self._on_rewind is not None:
            self._on_rewind(after)


def _require_function(fn: object) -> None:
    so = "pass e.g. lambda rows, epoch: print(epoch, rows)"
    if not callable(fn):
        message = f"Callback: fn must be a function of rows and an epoch, got {fn!r}"
        raise ProgramError(message, so=so)
    if any(lazy(each) for lazy in _LAZY for each in (fn, type(fn).__call__)):
        message = f"Callback: {_name(fn)} is a generator or a coroutine function"
        why = "a call would only make one, which nobody takes from or waits for"
        raise ProgramError(message, why=why, so="pass a plain function")
    try:
        inspect.signature(fn).bind([], 0)
    except ValueError:
        return  # one that was not written in Python need not say what it takes
    except TypeError as error:
        message = f"Callback: {_name(fn)} cannot be called with rows and an epoch"
        raise ProgramError(message, why=str(error), so=so) from error


_LAZY = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


def _name(fn: object) -> str:
    while isinstance(fn, partial):
        fn = fn.func
    return getattr(fn, "__qualname__", None) or type(fn).__qualname__
