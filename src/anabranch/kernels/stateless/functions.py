"""Python functions one behind the other, without a frame between them.

Rows go through all functions a chunk at a time, so that records die young. Between two functions
they are tuples of values that a column would have given back as they are; where that cannot be told
they do go through columns. So every function gets the records that it would get if it stood alone,
in their order, and what fails is told of the operator whose function it was, on the record it got.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import polars as pl

from anabranch.connectors.rows import Misfit
from anabranch.kernels.failures import Failed, failing, told
from anabranch.kernels.letters import NONE, Left, letters_about
from anabranch.kernels.stateless.calls import Call, Called, Numbers, kept
from anabranch.kernels.stateless.columns import framed, only
from anabranch.kernels.stateless.python_rows import Picker, Record, Values, records_of, rows_of
from anabranch.program.functions import OnError

CHUNK = 2_000
"""Rows: their records take up a megabyte or so, which a processor keeps close by."""


class Loop(Protocol):
    """How often a function is called and what is made of its results (`calls`)."""

    def __call__(
        self, call: Call, rows: Sequence[Values], names: Sequence[str], pick: Picker, *, stop: bool
    ) -> Called:
        """Call the function on the records of some rows."""


@dataclass(frozen=True)
class Stage:
    """One operator: a function of records."""

    name: str
    call: Callable[[Record], object]
    columns: tuple[str, ...]
    """Those of its input, which the function gets."""
    loop: Loop
    pick: Picker
    """What it gives; what goes through a filter is what it takes."""
    sub: str | None
    """The column that tells apart what it makes of one record, where order is kept."""
    on_error: OnError


@dataclass(frozen=True)
class FunctionsStep:
    """Stages, each of which takes what the one before it gives."""

    stages: tuple[Stage, ...]

    @property
    def name(self) -> str:
        """The last operator's."""
        return self.stages[-1].name

    @property
    def open(self) -> bool:
        """Whether another stage may follow without a frame between."""
        return self.stages[-1].pick.exact

    def run(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, Left]:
        """Take chunks through all functions, one after the other."""
        done = [self._chunk(part) for part in frame.iter_slices(CHUNK)] or [self._chunk(frame)]
        if len(done) == 1:
            return done[0]
        rows = pl.concat([made for made, _ in done], rechunk=True)
        letters = [left.letters for _, left in done if left.letters is not None]
        count = sum(left.count for _, left in done)
        return rows, Left(count, pl.concat(letters) if letters else None)

    def _chunk(self, part: pl.DataFrame) -> tuple[pl.DataFrame, Left]:
        way, count, left = _Way.of(part, self.stages[0].columns), 0, NONE
        for stage in self.stages:
            with failing(stage.name):
                way, left = way.through(stage, last=stage is self.stages[-1])
            count += left.count
        assert way.frame is not None
        return framed([*way.frame, *way.places], way.frame.height), Left(count, left.letters)


@dataclass(frozen=True, slots=True)
class _Way:
    """A chunk on its way."""

    rows: Sequence[Values]
    places: pl.DataFrame
    """The rows' hidden columns."""
    frame: pl.DataFrame | None
    """The rows as columns, where they are known as such."""

    @classmethod
    def of(cls, part: pl.DataFrame, names: Sequence[str]) -> _Way:
        """A chunk before its first stage, which takes these columns."""
        frame = framed((part[name] for name in names), part.height)
        return cls(rows_of(part, names), only(part, ()), frame)

    def through(self, stage: Stage, *, last: bool) -> tuple[_Way, Left]:
        """What is behind a stage, and what was left out there."""
        stop, frame = stage.on_error == "fail", None
        called = stage.loop(stage.call, self.rows, stage.columns, stage.pick, stop=stop)
        if stage.loop is kept and self.frame is not None:
            frame = _at(self.frame, called.parents)
        elif last:
            frame, called = _checked(stage.pick, called)
        elif stage.loop is not kept:
            called = _held(stage.pick, called)
        left = self._left_out(stage, called)
        places = _at(self.places, called.parents)
        if stage.sub is not None:
            places = framed([*places, pl.Series(stage.sub, called.subs())], len(called.rows))
        return _Way(called.rows, places, frame), left

    def _left_out(self, stage: Stage, called: Called) -> Left:
        """The records that failed; where an error ends the run, the first one does."""
        failed = sorted(called.failures)
        if failed and stage.on_error == "fail":
            (record,) = self._records(stage, failed[:1])
            raise Failed(told(stage.name, called.failures[failed[0]], record))
        if stage.on_error != "dead_letter":
            return Left(len(failed)) if failed else NONE
        errors = [called.failures[at] for at in failed]
        places = _at(self.places, np.asarray(failed, dtype=np.int64))
        records = self._records(stage, failed)
        return Left(len(failed), letters_about(stage.name, records, places, "error", errors))

    def _records(self, stage: Stage, places: Sequence[int]) -> list[Record]:
        """Records as the stage got them, whatever its function has done to them since."""
        if self.frame is not None:
            return records_of(_at(self.frame, np.asarray(places, dtype=np.int64)), stage.columns)
        return [dict(zip(stage.columns, self.rows[at], strict=True)) for at in places]


def _at(frame: pl.DataFrame, places: Numbers | None) -> pl.DataFrame:
    """The rows at these places; None: all of them."""
    if places is None:
        return frame
    return framed((column.gather(places) for column in frame), len(places))


def _held(pick: Picker, called: Called) -> Called:
    """Rows as columns give them back; what does not fit has failed."""
    rows = pick.as_held(called.rows)
    if rows is not None:
        return Called(rows, called.parents, called.failures)
    made, called = _checked(pick, called)
    return Called(rows_of(made, made.columns), called.parents, called.failures)


def _checked(pick: Picker, called: Called) -> tuple[pl.DataFrame, Called]:
    """Rows as columns; what does not fit has failed."""
    try:
        return pick.frame(called.rows), called
    except Misfit:
        frame, made = pick.checked(called.made())
        return frame, Called.of(made)
