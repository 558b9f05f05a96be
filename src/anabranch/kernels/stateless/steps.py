"""Steps of expressions: one operator each, over bundles.

A filter copies the rows that it keeps. To carry its mask through the next projection instead, and
copy what comes out of that, was measured (a filter, then one cheap or three costlier columns, one
thread; how often it was as fast, copying first / carrying the mask):

====================== ===== ===== ===== ===== ===== =====
rows kept               0.01   0.1  0.33   0.5   0.9  0.99
====================== ===== ===== ===== ===== ===== =====
1,000 rows, cheap       1.22  1.19  1.26  1.24  1.29  1.26
1,000 rows, costlier    0.93  0.94  1.02  1.03  1.09  1.08
200,000 rows, cheap     0.58  0.70  0.89  1.02  1.28  1.28
200,000 rows, costlier  0.09  0.18  0.39  0.55  0.88  0.96
====================== ===== ===== ===== ===== ===== =====

It gains 10 us where it gains most of 1,000 rows, may take eleven times as long, and would compute
columns of rows that the program dropped, which may fail. So masks are not carried; but where all
rows stay nothing is copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from anabranch.kernels.bundle import hidden
from anabranch.kernels.letters import NONE, Left
from anabranch.kernels.stateless.columns import filtered, framed, only
from anabranch.kernels.stateless.evaluated import Evaluated

_Numbers: TypeAlias = npt.NDArray[np.int64]


class Step(Protocol):
    """One operator over a bundle: the user's columns change, each row keeps its hidden ones."""

    @property
    def name(self) -> str:
        """The operator's name."""

    def run(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, Left]:
        """The bundle behind the operator, and the records that failed and were left out."""


@dataclass(frozen=True)
class FilterStep:
    """The rows for which an expression is true."""

    name: str
    predicate: Evaluated
    live: tuple[str, ...]

    def run(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, Left]:
        """Compute the mask, then carry only the columns that are read behind it."""
        mask = self.predicate.over(frame).to_series()
        return filtered(frame, mask, self.live), NONE


@dataclass(frozen=True)
class ProjectStep:
    """Columns under the same or other names, and expressions' columns beside them."""

    name: str
    kept: tuple[tuple[str, str], ...]
    """Columns that stay as they are: their old names and their new ones."""
    made: Evaluated | None = None
    out: tuple[str, ...] = ()
    """What is read behind it, of both, in order."""

    @property
    def picks(self) -> bool:
        """Whether it does no more than leave columns out."""
        return self.made is None and all(old == new for old, new in self.kept)

    def run(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, Left]:
        """Compute what is new; what stays is not touched."""
        made = () if self.made is None else self.made.over(frame)
        found = {column.name: column for column in made}
        for old, new in self.kept:
            found[new] = frame[old] if old == new else frame[old].alias(new)
        hide = [frame[name] for name in hidden(frame)]
        return framed([*(found[name] for name in self.out), *hide], frame.height), NONE


@dataclass(frozen=True)
class ExplodeStep:
    """One row for each element of a list: none for an empty one, one with null for null."""

    name: str
    column: str
    live: tuple[str, ...]
    sub: str | None

    def run(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, Left]:
        """Unfold the list, numbering its elements where the order is kept."""
        kept = only(frame, self.live)
        if isinstance(kept.schema[self.column], pl.Array):
            kept = kept.with_columns(pl.col(self.column).arr.to_list())
        unfolded = kept.explode(self.column, empty_as_null=False, keep_nulls=True)
        if self.sub is None:
            return unfolded, NONE
        lengths = kept[self.column].list.len().fill_null(1).to_numpy().astype(np.int64)
        return unfolded.with_columns(_counted(lengths).alias(self.sub)), NONE


def _counted(lengths: _Numbers) -> pl.Series:
    """0, 1, ... anew for each length."""
    total = int(lengths.sum())
    begins = np.cumsum(lengths) - lengths
    return pl.Series(np.arange(total, dtype=np.int64) - np.repeat(begins, lengths))
