"""In which order an operator takes the rows of an epoch, and numbers that say so for ever (M5)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from anabranch.compiler.plan import HIDDEN
from anabranch.kernels.bundle import order_columns

ID = f"{HIDDEN}id"
"""Epoch and place of a row among those a lane took in it: ascends with arrival in a slice."""
PLACES = 2**32
"""More rows of one epoch in one lane than there are places do not fit into its memory."""

_SIDE, _AT = f"{HIDDEN}side", f"{HIDDEN}at"


def places(inputs: Sequence[pl.DataFrame]) -> list[npt.NDArray[np.int64]]:
    """The place of each input's rows in the order in which the operator takes all of them.

    >>> one, two = pl.DataFrame({"__ab_o": [1, 4]}), pl.DataFrame({"__ab_o": [2, 3, 5]})
    >>> [each.tolist() for each in places([one, two])]
    [[0, 3], [1, 2, 4]]
    """
    if sum(frame.height > 0 for frame in inputs) <= 1:
        return [np.arange(frame.height, dtype=np.int64) for frame in inputs]
    keys = [
        frame.select(
            *order_columns(frame.columns),
            pl.lit(side, pl.Int64).alias(_SIDE),
            pl.int_range(pl.len(), dtype=pl.Int64).alias(_AT),
        )
        for side, frame in enumerate(inputs)
    ]
    all_keys = pl.concat(keys, how="diagonal")
    by = [*order_columns(all_keys.columns), _SIDE, _AT]
    taken = all_keys.sort(by)
    side, at = taken[_SIDE].to_numpy(), taken[_AT].to_numpy()
    found = []
    for number, frame in enumerate(inputs):
        mine = np.flatnonzero(side == number)
        place = np.empty(frame.height, dtype=np.int64)
        place[at[mine]] = mine
        found.append(place)
    return found


def ids(epoch: int, place: npt.NDArray[np.int64]) -> pl.Series:
    """The numbers of rows at these places."""
    return pl.Series(ID, epoch * PLACES + place, dtype=pl.Int64)
