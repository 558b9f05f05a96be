"""Rows of windows that leave: the user's columns, event time, slice, and their order columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import polars as pl

from anabranch.compiler.plan import HIDDEN
from anabranch.kernels.bundle import OFFSET, PARTITION, PHASE, TIME, hidden, key_part, sub
from anabranch.kernels.bundle import SLICE as ROW_SLICE
from anabranch.kernels.failures import failing
from anabranch.kernels.letters import NONE, Left, letters_about
from anabranch.kernels.stateless.python_rows import records_of
from anabranch.kernels.windows.apply import Applied, Apply
from anabranch.kernels.windows.panes import START
from anabranch.kernels.windows.windows import LEFT, SLICE, Windows
from anabranch.program.operators.operator import DEAD_LETTERS, LATE, OUT
from anabranch.program.operators.windowed import REVISION, WindowAggregate, WindowApply

END = "end"


@dataclass(frozen=True)
class Leaving:
    """What becomes of whole windows."""

    windows: Windows
    number: int
    """The operator's."""
    apply: Apply | None

    @classmethod
    def of(cls, op: WindowAggregate | WindowApply, windows: Windows) -> Self:
        """Lower what follows the windows of an operator."""
        return cls(windows, op.id, Apply.of(op) if isinstance(op, WindowApply) else None)

    @property
    def tells(self) -> bool:
        """Whether windows that a function failed on become dead letters."""
        return self.apply is not None and self.apply.on_error == "dead_letter"

    def by_watermark(self, partials: pl.DataFrame) -> tuple[pl.DataFrame, Left]:
        """Windows, in order (end, start, key) and with a column `end`, as rows of phase 1."""
        names = self.windows.names
        cause = partials.select(
            # M7: the last instant that lies in the window.
            (pl.col(END) - 1).alias(TIME),
            pl.col(SLICE).alias(ROW_SLICE),
            pl.lit(1, pl.Int8).alias(PHASE),
            pl.lit(self.number, pl.Int32).alias(PARTITION),
            pl.col(END).alias(OFFSET),
            pl.col(START).alias(key_part(self.number, 0)),
            *(pl.col(k).alias(key_part(self.number, at)) for at, k in enumerate(names, 1)),
        )
        return self.beside(partials, cause)

    def beside(self, partials: pl.DataFrame, cause: pl.DataFrame) -> tuple[pl.DataFrame, Left]:
        """Windows as rows with the hidden columns of their causes, and those that failed.

        A dead letter tells the record that was the cause; where that is a watermark, which has no
        columns but hidden ones, it tells the window's bounds.
        """
        windows = self.windows
        with failing(windows.operator):
            bounds = windows.shown(partials, pl.col(START), pl.col(END))
        if self.apply is not None:
            return self._applied(bounds, partials, cause)
        with failing(windows.operator):
            columns = windows.finished(partials).values()
        shown = self._revised(bounds.with_columns(columns), partials)
        return pl.concat([shown, cause.select(hidden(cause))], how="horizontal"), NONE

    def _applied(
        self, bounds: pl.DataFrame, partials: pl.DataFrame, cause: pl.DataFrame
    ) -> tuple[pl.DataFrame, Left]:
        assert self.apply is not None
        assert self.windows.kept is not None
        done = self.apply.run(bounds, self.windows.kept, partials)
        own = [name for name in bounds.columns if name not in done.rows.columns]
        made = bounds.select(pl.col(own).gather(done.windows)).with_columns(done.rows)
        made = self._revised(made, partials.select(pl.all().gather(done.windows)))
        places = cause.select(pl.col(hidden(cause)).gather(done.windows))
        places = places.with_columns(done.subs.alias(sub(self.number)))
        rows = pl.concat([made, places], how="horizontal")
        return rows, self._left(done, bounds, cause)

    def _revised(self, shown: pl.DataFrame, partials: pl.DataFrame) -> pl.DataFrame:
        """The columns of the result: how often a window has left among them, if it may again."""
        if self.windows.revised:
            shown = shown.with_columns(partials[LEFT].alias(REVISION))
        return shown.select(list(self.windows.schema))

    def _left(self, done: Applied, bounds: pl.DataFrame, cause: pl.DataFrame) -> Left:
        """What is told of the windows that failed."""
        if not self.tells:
            return Left(len(done.failed))
        told = [name for name in cause.columns if not name.startswith(HIDDEN)]
        about = cause.select(told) if told else bounds
        records = records_of(about[done.failed], about.columns)
        name, places = self.windows.operator, cause[done.failed]
        return Left(len(records), letters_about(name, records, places, "error", done.errors))


def outputs_of(
    rows: pl.DataFrame, late: pl.DataFrame | None, failed: Left
) -> Mapping[str, pl.DataFrame]:
    """A window operator's bundles by output, those that nobody reads left out."""
    found = {OUT: rows, LATE: late, DEAD_LETTERS: failed.letters}
    return {name: bundle for name, bundle in found.items() if bundle is not None}
