"""The rows of both sides of a join that an epoch looks at, and the order in which they came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from anabranch.kernels.together.join_near import Positions, Words
from anabranch.kernels.together.join_run import Run

LEFT, RIGHT = 0, 1


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one side: those of earlier epochs, the oldest first, then the new ones."""

    runs: Sequence[Run]
    places: Positions
    """The numbers of the new rows in the order in which those of both sides are taken."""

    @property
    def new(self) -> Run:
        """The new rows."""
        return self.runs[-1]

    @property
    def stored(self) -> int:
        """How many rows came in earlier epochs."""
        return sum(run.height for run in self.runs[:-1])

    @property
    def height(self) -> int:
        """How many rows there are."""
        return self.stored + self.new.height

    @property
    def times(self) -> Positions:
        """The times of all rows."""
        return np.concatenate([run.times for run in self.runs])

    @property
    def hashes(self) -> Words:
        """The bits of the keys of all rows."""
        return np.concatenate([run.hashes for run in self.runs])

    def columns(self, names: Sequence[str]) -> pl.DataFrame:
        """Some columns of all rows."""
        return pl.concat([run.rows.select(names) for run in self.runs], rechunk=True)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """All rows of both tables by arrival: the left one's stored rows, the right one's, new ones."""

    tables: tuple[Table, Table]
    stored: int
    """How many of them came in earlier epochs."""
    row: Positions
    """Which row of both tables each is."""
    hashes: Words

    @classmethod
    def of(cls, tables: tuple[Table, Table]) -> Arrivals:
        """Put the rows of two tables in order."""
        left, right = tables
        rows = left.height + right.height
        stored = left.stored + right.stored
        row, hashes = np.empty(rows, np.int64), np.empty(rows, np.uint64)
        begin, first = 0, 0
        for table in tables:
            end = begin + table.stored
            row[begin:end] = np.arange(first, first + table.stored)
            row[stored + table.places] = np.arange(first + table.stored, first + table.height)
            old, new = np.split(table.hashes, [table.stored])
            hashes[begin:end], hashes[stored + table.places] = old, new
            begin, first = end, first + table.height
        return cls(tables, stored, row, hashes)

    @property
    def times(self) -> Positions:
        """The times of the rows of both tables."""
        return np.concatenate([table.times for table in self.tables])

    @property
    def new(self) -> Positions:
        """Which rows of both tables the new ones are."""
        return self.row[self.stored :]
