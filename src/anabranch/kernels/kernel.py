"""What every operator with state is once lowered: an epoch's rows and a watermark, in and out.

A kernel is a frozen value that can be pickled. It takes an epoch's rows at once, in order, and then
the watermark that ends it; what it gives is what the operator would have given for the records one
at a time. Rows it makes of records keep their order columns, and where several are made of one a
`sub` of the operator's number is appended. Rows it makes of the watermark have phase 1 (see
`bundle`). Every row in a lane, in and out, has its `TIME` and its `SLICE`.

State is a value too: `then` makes the next version and leaves the one before as it was, and it is
nothing but the fold of its deltas. A delta is a frame with a `slice` column, sorted by it unless
the state is `Adding`, which makes one of many. A slice is that of its row: the region's key
decides, which may be coarser than the operator's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import polars as pl

from anabranch.kernels.state import StateView

_View = TypeVar("_View", bound=StateView)


@dataclass(frozen=True, slots=True)
class Taken:
    """What an operator takes of one epoch."""

    epoch: int
    rows: Sequence[pl.DataFrame]
    """A bundle an input, each in order; an input without rows has a bundle of none."""
    before: int | None
    """The operator's watermark before the epoch, microseconds; None: before all time."""
    after: int | None
    """The watermark at its end; `results.END`: the end of time."""


@dataclass(frozen=True, slots=True)
class Given(Generic[_View]):
    """What an operator gives for one epoch."""

    rows: Mapping[str, pl.DataFrame]
    """Bundles by output (`out`, `late`, ...), each in order."""
    state: _View
    delta: pl.DataFrame
    late: int = 0
    """Rows that came too late for anything."""
    letters: int = 0
    """Records that failed and were left out, as `on_error` says."""


class Keeping(Protocol[_View]):
    """Who keeps the state of one operator."""

    @property
    def operator(self) -> str:
        """Its name."""

    def restore(self, deltas: Iterable[pl.DataFrame], version: int = 0) -> _View:
        """The state after epochs with these deltas, in order; without any, the first one."""

    def after(self, state: _View, deltas: Iterable[pl.DataFrame]) -> _View:
        """A folded state after more epochs with these deltas, in order, folded again.

        It is as if it had been restored with them, and costs what they do.
        """


class Kernel(Keeping[_View], Protocol[_View]):
    """One operator with state, lowered."""

    @property
    def lag(self) -> int:
        """By how much its output's watermark is behind its own, microseconds (outer joins)."""

    def run(self, taken: Taken, state: _View) -> Given[_View]:
        """Take one epoch; an error of the user's program raises `failures.Failed`."""
