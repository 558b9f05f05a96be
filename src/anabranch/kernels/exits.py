"""Where rows leave a head or a stage: to the lanes of another stage, or to a sink."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from anabranch.kernels.bundle import OFFSET, PARTITION, SLICE
from anabranch.kernels.failures import failing
from anabranch.kernels.windows.early import EarlyPartials
from anabranch.kernels.windows.tally import Tally
from anabranch.kernels.windows.windows import Windows
from anabranch.kernels.wires import Wire
from anabranch.state.slices import Owners, slice_of

_FEW, _SEVERAL = 10_000, 8
"""Lanes up to which each has a look of its own at all rows, if they are more than few: 100,000 rows
for 2, 8 and 100 lanes took 0.60, 1.3 and 11 ms so, and 1.3 ms by a sort. 2,000 rows took 0.13 ms
for 2 lanes and 5.4 ms for 100, and by a sort 0.1 and 0.2."""


@dataclass(frozen=True)
class Exit:
    """One way out of a place, for the rows of one port.

    Rows for a stage are divided by lane; rows for a sink stay together, under lane 0.
    """

    wire: Wire
    sink: str | None = None
    """The sink's name; None: rows go to a stage."""
    key: tuple[str, ...] = ()
    """The columns that decide the slice at the stage; none: all rows are in one."""
    windows: Windows | None = None
    """Where rows end in a window, partials leave instead of them."""
    early: EarlyPartials | None = None
    """Where the last step is a lookup that partials may be made before, and has not been done."""

    @property
    def roots(self) -> tuple[str, ...]:
        """Of rows that become partials, the columns that are read."""
        if self.early is not None:
            return self.early.roots
        assert self.windows is not None
        return self.windows.roots

    def parts(
        self, given: pl.DataFrame | Tally, owners: Owners, place: tuple[int, int] = (0, 0)
    ) -> dict[int, pl.DataFrame]:
        """Rows by lane, in their order; no lane without rows.

        A tally is for all exits of the same rows. `place` is the partition's index and the first
        row's offset, for partials.
        """
        tally = given if isinstance(given, Tally) else Tally(given)
        rows = tally.rows
        if not rows.height:
            return {}
        if self.sink is not None:
            return {0: self.wire.carry(rows)}
        if self.windows is None:
            # What divides the rows here is another key than where they come from.
            slices = slice_of(rows, self.key, owners.slices)
            return self._divided(_with_slices(rows, slices), slices, owners)
        # Without a key of the region all partials are in one slice, though windows may have keys.
        partials = self._partials(tally, self.windows, owners.slices if self.key else 1)
        if not partials.height:
            return {}
        if self.windows.ordered:
            partition, first = place
            partials = partials.with_columns(
                pl.lit(partition, pl.Int32).alias(PARTITION), pl.lit(first, pl.Int64).alias(OFFSET)
            )
        return self._divided(partials, partials["slice"], owners)

    def _divided(
        self, rows: pl.DataFrame, slices: pl.Series, owners: Owners
    ) -> dict[int, pl.DataFrame]:
        # What is not divided is in the first lane, whoever has the first slice.
        return divided(rows, slices, owners) if self.key else {0: rows}

    def _partials(self, tally: Tally, windows: Windows, slices: int) -> pl.DataFrame:
        if self.early is not None:
            with failing(self.early.lookup.name):
                if self.early.pays(tally.rows):
                    return self.early.partials(tally, slices, self.key)
                tally = Tally(self.early.lookup.run(tally.rows)[0])
        if not tally.rows.height:
            return pl.DataFrame(schema=windows.partial_schema)
        with failing(windows.operator):
            return windows.partials(tally, slices, self.key)


def divided(rows: pl.DataFrame, slices: pl.Series, owners: Owners) -> dict[int, pl.DataFrame]:
    """Rows by lane, in their order; no lane without rows."""
    if owners.lanes == 1:
        return {0: rows}
    lanes = owners.lane_of(slices)
    if rows.height <= _FEW or owners.lanes > _SEVERAL:
        return _sorted_out(rows, lanes, owners.lanes)
    return {lane: rows.filter(lanes == lane) for lane in lanes.unique().sort().to_list()}


def _sorted_out(rows: pl.DataFrame, lanes: pl.Series, count: int) -> dict[int, pl.DataFrame]:
    """The same by one sort, whatever the number of lanes; parts are stretches of one frame."""
    of = lanes.to_numpy().astype(np.uint16)  # NumPy sorts so few different numbers by their digits
    order = np.argsort(of, kind="stable").astype(np.uint32)
    ends = np.cumsum(np.bincount(of, minlength=count))
    whole, begins = rows[pl.Series(order)], np.concatenate([[0], ends[:-1]])
    return {
        lane: whole.slice(int(begin), int(end - begin))
        for lane, (begin, end) in enumerate(zip(begins, ends, strict=True))
        if begin < end
    }


def _with_slices(rows: pl.DataFrame, slices: pl.Series) -> pl.DataFrame:
    others = (rows[name] for name in rows.columns if name != SLICE)
    return pl.DataFrame([*others, slices.alias(SLICE)])
