"""In which order an operator takes the rows of an epoch, and numbers that say so for ever (M5)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import numpy.typing as npt
import polars as pl

from anabranch.compiler.plan import HIDDEN
from anabranch.kernels.bundle import order_columns

ID = f"{HIDDEN}id"
"""Epoch and place of a row among those a lane took in it: ascends with arrival in a slice."""
PLACES = 2**32
"""More rows of one epoch in one lane than there are places do not fit into its memory."""

_WIDEST = 2**62
"""Order columns with greater values, or that make more numbers, are not made one number."""
_DENSE = 8
"""Numbers at most that many times as many as rows are counted instead of searched for."""
_SIDE, _AT = f"{HIDDEN}side", f"{HIDDEN}at"


def places(inputs: Sequence[pl.DataFrame]) -> list[npt.NDArray[np.int64]]:
    """The place of each input's rows in the order in which the operator takes all of them.

    >>> one, two = pl.DataFrame({"__ab_o": [1, 4]}), pl.DataFrame({"__ab_o": [2, 3, 5]})
    >>> [each.tolist() for each in places([one, two])]
    [[0, 3], [1, 2, 4]]
    """
    if sum(frame.height > 0 for frame in inputs) <= 1:
        return [np.arange(frame.height, dtype=np.int64) for frame in inputs]
    numbers = _numbered(inputs)
    if numbers is not None and (found := _between(numbers)) is not None:
        return found
    return _sorted(inputs)


def ids(epoch: int, place: npt.NDArray[np.int64]) -> pl.Series:
    """The numbers of rows at these places."""
    return pl.Series(ID, epoch * PLACES + place, dtype=pl.Int64)


def _sorted(inputs: Sequence[pl.DataFrame]) -> list[npt.NDArray[np.int64]]:
    """The places of rows whatever their order columns are."""
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


def _numbered(inputs: Sequence[pl.DataFrame]) -> list[npt.NDArray[np.int64]] | None:
    """One whole number a row that ascends in each input as the order columns do, if there is one.

    It is made of the columns from the left that are whole numbers, as digits. Rows of sources are
    like that; a sort of all of them would take longer than to join them.
    """
    found = [np.zeros(frame.height, np.int64) for frame in inputs]
    width = 1
    for name in order_columns({name for frame in inputs for name in frame.columns}):
        if not all(name in frame.columns and _whole(frame[name]) for frame in inputs):
            break
        bounds = [(int(x.min()), int(x.max())) for x in (f[name] for f in inputs) if len(x)]  # type: ignore[arg-type]
        low, high = min(low for low, _ in bounds), max(high for _, high in bounds)
        width *= high - low + 1
        if max(width, -low, high) > _WIDEST:
            break
        if low < high:
            digits = (frame[name].to_numpy().astype(np.int64, copy=False) for frame in inputs)
            found = [
                number * (high - low + 1) + (digit - low)
                for number, digit in zip(found, digits, strict=True)
            ]
    ascend = all((each[1:] > each[:-1]).all() for each in found)
    return found if ascend else None


def _whole(values: pl.Series) -> bool:
    return values.dtype.is_integer() and not values.null_count()


def _between(numbers: Sequence[npt.NDArray[np.int64]]) -> list[npt.NDArray[np.int64]] | None:
    """The places of numbers that ascend in each input among all of them; None where two are one."""
    full = [each for each in numbers if len(each)]
    rows = sum(len(each) for each in full)
    low, high = min(int(each[0]) for each in full), max(int(each[-1]) for each in full)
    if high - low < _DENSE * rows:
        taken = np.zeros(high - low + 1, dtype=bool)
        for each in full:
            taken[each - low] = True
        rank = np.cumsum(taken)
        return [rank[each - low] - 1 for each in numbers] if rank[-1] == rows else None
    places = [np.arange(len(each), dtype=np.int64) for each in numbers]
    for mine, other in permutations(range(len(numbers)), 2):
        below = np.searchsorted(numbers[other], numbers[mine])
        at = np.minimum(below, len(numbers[other]) - 1)
        if len(numbers[other]) and (numbers[other][at] == numbers[mine]).any():
            return None
        places[mine] += below
    return places
