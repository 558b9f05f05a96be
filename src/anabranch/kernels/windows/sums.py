"""Sums without rounding: the same for every order and every grouping of the same numbers.

A number is a row of *limbs*, whole numbers that count multiples of 2**32 apart from each other; the
sum of two is limb by limb, and nothing is lost until 2**31 of them. Whole numbers have two limbs,
decimals four. Floats have five, from 2**-96 on, which hold every float of 1e-13 to 9e18 to its
last bit; what of a float lies outside is kept as it is in a list of *odd* ones. A result is rounded
once, from the exact sum. So float sums depend on the numbers alone, which is more than M10 asks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

Numbers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

BITS = 32
_MASK = np.int64(2**BITS - 1)
FLOAT_LOW, FLOAT_LIMBS = -96, 5
SQUARE_LOW, SQUARE_LIMBS = -192, 10
"""The squares of all floats that have no odd part."""
_BLOCK = 8192
"""So many floats at a time: what is made of them on the way stays in the cache."""
_MANY = 32
"""Lists of odd parts that are longer are added up."""


def whole_limbs(values: pl.Series) -> list[Numbers]:
    """Integers, truths and durations as two limbs; 0 for null."""
    plain = values.cast(pl.Int64) if values.dtype == pl.Boolean else values.to_physical()
    numbers = plain.fill_null(0).to_numpy()
    if numbers.dtype == np.uint64:
        low, high = numbers & np.uint64(_MASK), numbers >> np.uint64(BITS)
        return [low.astype(np.int64), high.astype(np.int64)]
    numbers = numbers.astype(np.int64, copy=False)
    return [numbers & _MASK, numbers >> BITS]


def decimal_limbs(values: pl.Series) -> list[Numbers]:
    """Decimals, as whole numbers of their last digit, as four limbs; 0 for null."""
    array = values.fill_null(0).rechunk().to_arrow()
    words = np.frombuffer(array.buffers()[1], dtype="<i8")
    words = words[2 * array.offset : 2 * (array.offset + len(array))]
    low, high = words[0::2], words[1::2]
    return [low & _MASK, (low >> BITS) & _MASK, high & _MASK, high >> BITS]


def float_limbs(
    values: Floats, low: int = FLOAT_LOW, count: int = FLOAT_LIMBS
) -> tuple[list[Numbers | None], Floats | None]:
    """The limbs of each float, None where all are 0, and the odd parts if there are any.

    >>> limbs, odd = float_limbs(np.array([1.5, -2.0**40]))
    >>> [None if each is None else each.tolist() for each in limbs], odd
    ([None, None, [-2147483648, 0], [2, 0], [0, -256]], None)
    """
    found: list[Numbers | None] = [None] * count
    odd: Floats | None = None
    for begin in range(0, len(values), _BLOCK):
        part = values[begin : begin + _BLOCK]
        limbs, rest = _block(part, low, count)
        for at, limb in limbs:
            found[at] = _room(found[at], len(values), np.int64)
            found[at][begin : begin + len(part)] = limb  # type: ignore[index]
        if rest is not None:
            odd = _room(odd, len(values), np.float64)
            odd[begin : begin + len(part)] = rest
    return found, odd


def _block(values: Floats, low: int, count: int) -> tuple[list[tuple[int, Floats]], Floats | None]:
    """The limbs of some floats that are not all 0, and what is odd of them."""
    size, odd = np.abs(values), None
    if not size.max() < 2.0 ** (low + BITS * count - 1):
        fits = size < 2.0 ** (low + BITS * count - 1)
        odd, values = np.where(fits, 0.0, values), np.where(fits, values, 0.0)
        size = np.abs(values)
    found = []
    for at in range(count - 1, -1, -1):
        unit = 2.0 ** (low + BITS * at)
        if size.max() <= unit / 2:
            continue
        # Both steps are exact: powers of two, and a rest with fewer bits than before.
        part = np.rint(values * (1 / unit))
        found.append((at, part))
        values = values - part * unit
        size = np.abs(values)
    if size.any():
        odd = values if odd is None else odd + values
    return found, odd


def _room(array: Any, length: int, dtype: Any) -> Any:
    return np.zeros(length, dtype=dtype) if array is None else array


def squares(values: Floats) -> tuple[Floats, Floats]:
    """The square of each float in two parts, exactly (Dekker's product, 1971)."""
    split = values * (2.0**27 + 1)
    high = split - (split - values)
    low = values - high
    square = values * values
    return square, ((high * high - square) + 2 * high * low) + low * low


def square_limbs(values: Floats) -> list[Numbers | None]:
    """The limbs of the square of each float that has no odd part, None where all are 0."""
    found: list[Numbers | None] = [None] * SQUARE_LIMBS
    for begin in range(0, len(values), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        for part in squares(values[block]):
            for at, limb in _block(part, SQUARE_LOW, SQUARE_LIMBS)[0]:
                found[at] = _room(found[at], len(values), np.int64)
                found[at][block] += limb.astype(np.int64)  # type: ignore[index]
    return found


def carried(limbs: Sequence[Numbers]) -> list[Numbers]:
    """The same numbers with limbs from 0 to 2**32 but for the highest, which has the sign."""
    found, over = list[Numbers](), np.zeros(1, dtype=np.int64)
    for limb in limbs[:-1]:
        full = limb + over
        found.append(full & _MASK)
        over = full >> BITS
    return [*found, limbs[-1] + over]


def rounded(limbs: Sequence[Numbers], low: int = 0) -> Floats:
    """Each number as a float: a function of its value alone, within some last digits."""
    plain = carried(limbs)
    negative = plain[-1] < 0
    # Of a small negative number the limbs are large ones: its opposite has none that cancel.
    plain = carried([np.where(negative, -limb, limb) for limb in plain])
    total = np.zeros(len(negative), dtype=np.float64)
    for at, limb in enumerate(plain):
        total = total + limb.astype(np.float64) * 2.0 ** (low + BITS * at)
    return np.where(negative, -total, total)


def whole(limbs: Sequence[int]) -> int:
    """One number from its limbs."""
    return sum(int(limb) << (BITS * at) for at, limb in enumerate(limbs))


def wholes(limbs: Sequence[Numbers]) -> list[int]:
    """The same for many numbers.

    >>> wholes([np.array([1, -1]), np.array([2, 0]), np.array([0, -3])])
    [8589934593, -55340232221128654849]
    """
    *lower, highest = carried(limbs)
    words = np.empty((len(highest), len(lower) + 2), dtype="<u4")
    for at, limb in enumerate(lower):
        words[:, at] = limb
    words[:, -2:] = highest.astype("<i8").view("<u4").reshape(-1, 2)
    every, width = words.tobytes(), 4 * words.shape[1]
    begins = range(0, len(every), width)
    return [int.from_bytes(every[at : at + width], "little", signed=True) for at in begins]


def with_odd(limbs: Sequence[int], odd: Sequence[float]) -> float:
    """One sum of floats from its limbs and its odd parts."""
    if wild := [each for each in odd if not math.isfinite(each)]:
        return sum(wild)
    exact = _exact(whole(limbs), FLOAT_LOW) + sum((Fraction(each) for each in odd), Fraction(0))
    return _nearest(exact)


def fewer(odd: list[float]) -> list[float]:
    """As few floats as it takes whose exact sum is the same."""
    if len(odd) <= _MANY:
        return odd
    if wild := [each for each in odd if not math.isfinite(each)]:
        return [sum(wild)]
    rest, found = sum((Fraction(each) for each in odd), Fraction(0)), list[float]()
    while rest:
        part = _nearest(rest)
        if not math.isfinite(part):
            return odd
        found.append(part)
        rest -= Fraction(part)
    return found


def variance(count: int, total: int, squared: int, odd: Sequence[float], ddof: int) -> float | None:
    """The variance of `count` floats, rounded once.

    `total` and `squared` are the sums of those that are not odd, and of their squares, in units of
    their lowest limbs.
    """
    if count <= ddof:
        return None
    if not all(math.isfinite(each) for each in odd):
        return math.nan
    if not odd:
        scaled = count * squared - total * total
        return scaled / (count * (count - ddof) << -SQUARE_LOW)
    exact = _exact(total, FLOAT_LOW) + sum((Fraction(x) for x in odd), Fraction(0))
    square = _exact(squared, SQUARE_LOW) + sum((Fraction(x) ** 2 for x in odd), Fraction(0))
    return _nearest((square - exact * exact / count) / (count - ddof))


def _exact(number: int, low: int) -> Fraction:
    return Fraction(number, 1 << -low)


def _nearest(exact: Fraction) -> float:
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
