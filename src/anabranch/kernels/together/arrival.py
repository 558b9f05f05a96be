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
    if (deciding := _deciding(inputs)) is not None:
        return _between(deciding)
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


def _deciding(inputs: Sequence[pl.DataFrame]) -> list[npt.NDArray[np.int64]] | None:
    """The values of one order column that tells all rows apart, ascending in each input.

    The columns before it are the same in all rows. Rows of one source are like that; a sort of all
    of them would take longer than to join them.
    """
    for name in order_columns({name for frame in inputs for name in frame.columns}):
        if not all(name in frame.columns and _whole(frame[name]) for frame in inputs):
            return None
        values = [frame[name].to_numpy() for frame in inputs if frame.height]
        if len({each[0] for each in values}) == 1 and all((x == x[0]).all() for x in values):
            continue
        together = pl.concat([frame[name] for frame in inputs])
        ascend = all((each[1:] > each[:-1]).all() for each in values)
        if not ascend or together.n_unique() < len(together):
            return None
        return [frame[name].to_numpy() for frame in inputs]
    return None


def _whole(values: pl.Series) -> bool:
    return values.dtype.is_integer() and not values.null_count()


def _between(values: Sequence[npt.NDArray[np.int64]]) -> list[npt.NDArray[np.int64]]:
    """The places of values that ascend, and of which no two are the same, among all of them."""
    return [
        sum((np.searchsorted(other, mine) for other in values), np.zeros(len(mine), np.int64))
        for mine in values
    ]


def ids(epoch: int, place: npt.NDArray[np.int64]) -> pl.Series:
    """The numbers of rows at these places."""
    return pl.Series(ID, epoch * PLACES + place, dtype=pl.Int64)
