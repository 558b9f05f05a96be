"""Where rows leave a head or a stage: to the lanes of another stage, or to a sink."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from anabranch.kernels.bundle import OFFSET, PARTITION, SLICE
from anabranch.kernels.failures import failing
from anabranch.kernels.windows.early import EarlyPartials
from anabranch.kernels.windows.windows import Windows
from anabranch.kernels.wires import Wire
from anabranch.state.slices import Owners, slice_of

_FEW = 10_000
"""Rows that are divided among lanes by their places."""


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

    def parts(
        self, rows: pl.DataFrame, owners: Owners, place: tuple[int, int] = (0, 0)
    ) -> dict[int, pl.DataFrame]:
        """Rows by lane, in their order; no lane without rows.

        `place` is the partition's index and the first row's offset, for partials.
        """
        if not rows.height:
            return {}
        if self.sink is not None:
            return {0: self.wire.carry(rows)}
        if self.windows is None:
            # What divides the rows here is another key than where they come from.
            slices = slice_of(rows, self.key, owners.slices)
            return self._divided(_with_slices(rows, slices), slices, owners)
        # Without a key of the region all partials are in one slice, though windows may have keys.
        partials = self._partials(rows, self.windows, owners.slices if self.key else 1)
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

    def _partials(self, rows: pl.DataFrame, windows: Windows, slices: int) -> pl.DataFrame:
        if self.early is not None:
            with failing(self.early.lookup.name):
                if self.early.pays(rows):
                    return self.early.partials(rows, slices, self.key)
                rows, _ = self.early.lookup.run(rows)
        if not rows.height:
            return pl.DataFrame(schema=windows.partial_schema)
        with failing(windows.operator):
            return windows.partials(rows, slices, self.key)


def divided(rows: pl.DataFrame, slices: pl.Series, owners: Owners) -> dict[int, pl.DataFrame]:
    """Rows by lane, in their order; no lane without rows."""
    if owners.lanes == 1:
        return {0: rows}
    lanes = owners.lane_of(slices)
    if rows.height <= _FEW:
        # By places: a filter is a query, and each costs what all these rows do.
        of = lanes.to_numpy()
        return {
            lane: rows[pl.Series(places.astype(np.uint32))]
            for lane in range(owners.lanes)
            if len(places := np.flatnonzero(of == lane))
        }
    return {lane: rows.filter(lanes == lane) for lane in lanes.unique().sort().to_list()}


def _with_slices(rows: pl.DataFrame, slices: pl.Series) -> pl.DataFrame:
    others = (rows[name] for name in rows.columns if name != SLICE)
    return pl.DataFrame([*others, slices.alias(SLICE)])
