"""Which rows of both sides of a join are pairs, in the order of M13."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from anabranch.kernels.together.join_near import Flags, Positions
from anabranch.kernels.together.join_reach import Reach
from anabranch.kernels.together.join_tables import LEFT, RIGHT, Arrivals, Table

LOOSE = 6
"""Up to so many rows a key it is faster to look at the times of all than to search for the near."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs by their later row and then by their partner's arrival."""

    tables: tuple[Table, Table]
    left: pl.Series
    """Rows of the left table."""
    right: pl.Series
    """Rows of the right table."""
    later: pl.Series
    """Which of the new rows the later ones are, the right side's behind the left one's."""
    partner: pl.Series
    """Rows of both tables, the right one's behind the left one's."""
    times: pl.Series
    """The later of both times."""

    @classmethod
    def of(cls, tables: tuple[Table, Table], within: int, floor: int | None) -> Pairs:
        """Pair new rows with those of earlier epochs and with each other.

        Rows with a time before `floor` have no partners. What is found has the same bits of keys.
        """
        arrivals = Arrivals.of(tables)
        reach = Reach.of(arrivals)
        if int(reach.count.sum()) > LOOSE * np.count_nonzero(reach.count):
            for side in (LEFT, RIGHT):
                reach = reach.narrowed(arrivals, side, within, floor)
        found = reach.near(arrivals, within, floor)
        left, right = tables
        # All rows of the left table are before all of the right one.
        one = np.minimum(found.later, found.partner)
        two = np.maximum(found.later, found.partner) - left.height
        new = found.later - left.stored - (found.later >= left.height) * right.stored
        return cls(
            tables,
            _rows(one),
            _rows(two),
            _rows(new),
            _rows(found.partner),
            pl.Series(found.times),
        )

    def only(self, keep: pl.Series) -> Pairs:
        """Some of them."""
        return Pairs(
            self.tables,
            self.left.filter(keep),
            self.right.filter(keep),
            self.later.filter(keep),
            self.partner.filter(keep),
            self.times.filter(keep),
        )

    def met(self, side: int) -> Flags:
        """Which rows of a table have a partner."""
        found = np.zeros(self.tables[side].height, dtype=bool)
        found[(self.left if side == LEFT else self.right).to_numpy()] = True
        return found


def _rows(numbers: Positions) -> pl.Series:
    """Numbers of rows in the form in which Polars gathers them."""
    return pl.Series(numbers.astype(np.uint32))
