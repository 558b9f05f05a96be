"""Rows of windows that leave: the user's columns, event time, slice, and their order columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import polars as pl

from anabranch.kernels.bundle import OFFSET, PARTITION, PHASE, TIME, key_part, sub
from anabranch.kernels.bundle import SLICE as ROW_SLICE
from anabranch.kernels.failures import failing
from anabranch.kernels.windows.apply import Apply
from anabranch.kernels.windows.panes import START
from anabranch.kernels.windows.windows import LEFT, SLICE, Windows
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

    def by_watermark(self, partials: pl.DataFrame) -> tuple[pl.DataFrame, int]:
        """Windows as rows of phase 1, in order (end, start, key); partials have a column `end`."""
        names = self.windows.names
        ordered = partials.sort([END, START, *names], maintain_order=True)
        hidden = ordered.select(
            # M7: the last instant that lies in the window.
            (pl.col(END) - 1).alias(TIME),
            pl.col(SLICE).alias(ROW_SLICE),
            pl.lit(1, pl.Int8).alias(PHASE),
            pl.lit(self.number, pl.Int32).alias(PARTITION),
            pl.col(END).alias(OFFSET),
            pl.col(START).alias(key_part(self.number, 0)),
            *(pl.col(k).alias(key_part(self.number, at)) for at, k in enumerate(names, 1)),
        )
        return self.beside(ordered, hidden)

    def beside(self, partials: pl.DataFrame, hidden: pl.DataFrame) -> tuple[pl.DataFrame, int]:
        """Windows as rows with these hidden columns, and how many of them failed."""
        windows = self.windows
        with failing(windows.operator):
            visible = windows.shown(partials, pl.col(START), pl.col(END))
        if windows.revised:
            visible = visible.with_columns(partials[LEFT].alias(REVISION))
        if self.apply is not None:
            return self._applied(visible, partials, hidden)
        with failing(windows.operator):
            visible = visible.with_columns(windows.finished(partials).values())
        visible = visible.select(list(windows.schema))
        return pl.concat([visible, hidden], how="horizontal"), 0

    def _applied(
        self, bounds: pl.DataFrame, partials: pl.DataFrame, hidden: pl.DataFrame
    ) -> tuple[pl.DataFrame, int]:
        assert self.apply is not None
        assert self.windows.kept is not None
        told = bounds.drop(REVISION, strict=False)
        done = self.apply.run(told, self.windows.kept, partials)
        own = [name for name in bounds.columns if name not in done.rows.columns]
        visible = bounds.select(pl.col(own).gather(done.windows)).with_columns(done.rows)
        hidden = hidden.select(pl.all().gather(done.windows))
        hidden = hidden.with_columns(done.subs.alias(sub(self.number)))
        visible = visible.select(list(self.windows.schema))
        return pl.concat([visible, hidden], how="horizontal"), done.letters
