"""Functions of frames to which any cut of the rows is as good as another (M8)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from anabranch.kernels.bundle import hidden
from anabranch.kernels.letters import Left
from anabranch.kernels.stateless.columns import framed
from anabranch.kernels.stateless.frames import Frames
from anabranch.kernels.stateless.left_out import left_out
from anabranch.kernels.stateless.python_rows import Made
from anabranch.program.functions import OnError


@dataclass(frozen=True)
class ElementwiseStep:
    """A function over the whole bundle, or row by row where it must be known what came of which.

    Where rows have no hidden columns it need not. Else, if no row may become several and there are
    as many as before, each was made of the row in its place. As many alone would not tell: a
    function may drop one row and make two of another.
    """

    name: str
    frames: Frames
    at_most_one: bool
    """Whether its author says that it makes no more than one row of one."""
    sub: str | None
    on_error: OnError

    def run(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, Left]:
        """Call the function; rows keep the hidden columns of the row that they were made of."""
        rows, parents, failures = self._called(frame)
        left = left_out(
            self.name, frame, self.frames.columns, Made(failures=failures), self.on_error
        )
        hide = [frame[name] for name in hidden(frame)]
        if parents is not None:
            hide = [column.gather(parents) for column in hide]
        if self.sub is not None:
            hide.append(pl.Series(self.sub, _numbers(parents, rows.height)))
        return framed([*rows, *hide], rows.height), left

    def _called(
        self, frame: pl.DataFrame
    ) -> tuple[pl.DataFrame, list[int] | None, dict[int, Exception]]:
        if not frame.height:
            return self.frames.nothing(), None, {}
        if frame.height > 1 and hidden(frame) and not self.at_most_one:
            return self._one_by_one(frame)
        try:
            made = self.frames(frame)
        except Exception:  # noqa: BLE001 - one by one they tell which of them it was
            return self._one_by_one(frame)
        if made.height == frame.height or not hidden(frame):
            return made, None, {}
        return self._one_by_one(frame)

    def _one_by_one(
        self, frame: pl.DataFrame
    ) -> tuple[pl.DataFrame, list[int], dict[int, Exception]]:
        found, parents, failures = [self.frames.nothing()], list[int](), dict[int, Exception]()
        for at, row in enumerate(frame.iter_slices(1)):
            try:
                made = self.frames(row)
            except Exception as error:  # noqa: BLE001 - whatever a user's function raises
                failures[at] = error
                if self.on_error == "fail":
                    break
                continue
            found.append(made)
            parents += [at] * made.height
        return pl.concat(found, rechunk=True), parents, failures


def _numbers(parents: list[int] | None, height: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The number of each row among those that were made of one."""
    if parents is None:
        return np.zeros(height, dtype=np.int64)
    found = np.asarray(parents, dtype=np.int64)
    return np.arange(height, dtype=np.int64) - np.searchsorted(found, found)
