"""Sketches that are pure functions of the multiset of values: no order and no cut shows in them.

How many different values: the registers of HyperLogLog, kept as the set of `(register, rank)` pairs
seen, so that a few values cost a few numbers and a union is a union of sets. One estimator serves
all sizes: the improved one of Ertl (New cardinality estimation algorithms for HyperLogLog sketches,
2017, section 4.3), without a table of corrections or a switch between two.

Quantiles: how many values lie in each of DDSketch's bins, whose bounds grow by a constant factor
(Masson, Rim, Lee: DDSketch, VLDB 2019). A value is told by its bin's middle, within the error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from anabranch.state.slices import key_hash

Numbers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

_RANK_BITS = 46
"""The low bits of a hash that give the rank; those above them, up to 18, give the register."""
_RANKS = 64
"""A pair is the number `register * 64 + rank`."""
_SPREAD = 1.04
"""The standard error of m registers is 1.04 / sqrt(m) (Flajolet et al., 2007)."""


@dataclass(frozen=True, slots=True)
class Distinct:
    """Counts different values within an error that it exceeds once in 370 times (3 sigma).

    >>> Distinct.within(0.02).estimate(pl.Series(range(1000)))
    1002
    """

    bits: int
    """2**bits registers."""

    @classmethod
    def within(cls, error: float) -> Distinct:
        """As many registers as the error needs: 4 to 18 bits, so 0.6 % at best."""
        registers = (3 * _SPREAD / error) ** 2
        return cls(min(18, max(4, math.ceil(math.log2(registers)))))

    def pairs(self, values: pl.Series) -> pl.Series:
        """The pair of each value, as Int32; null for null."""
        hashed = key_hash(pl.DataFrame([values.alias("x")]), ["x"])
        register = (hashed >> np.uint64(64 - self.bits)).astype(np.int64)
        rest = (hashed & np.uint64(2**_RANK_BITS - 1)).astype(np.float64)
        # Numbers below 2**53 are exact, so the exponent is the place of the highest bit.
        rank = _RANK_BITS + 1 - np.frexp(rest)[1].astype(np.int64)
        found = pl.Series((register * _RANKS + rank).astype(np.int32))
        if not values.null_count():
            return found
        return pl.select(pl.when(values.is_not_null()).then(found)).to_series().cast(pl.Int32)

    def estimates(self, groups: Numbers, pairs: Numbers, count: int) -> Numbers:
        """How many different values made the pairs of each of `count` groups.

        Groups ascend, and so do the pairs of one; there may be several of one register.
        """
        registers = 2**self.bits
        last = np.ones(len(pairs), dtype=bool)
        same = (groups[1:] == groups[:-1]) & (pairs[1:] // _RANKS == pairs[:-1] // _RANKS)
        last[:-1] = ~same
        places = groups[last] * _RANKS + pairs[last] % _RANKS
        of_rank = np.bincount(places, minlength=count * _RANKS).reshape(count, _RANKS)
        empty = registers - of_rank.sum(axis=1)
        z = registers * _tau(1 - of_rank[:, _RANK_BITS + 1] / registers)
        for rank in range(_RANK_BITS, 0, -1):
            z = (z + of_rank[:, rank]) / 2
        z = z + registers * _sigma(empty / registers)
        found: Numbers = np.rint(registers * registers / (2 * math.log(2) * z)).astype(np.int64)
        return found

    def estimate(self, values: pl.Series) -> int:
        """About how many different values there are."""
        pairs = self.pairs(values).drop_nulls().sort().to_numpy().astype(np.int64)
        return int(self.estimates(np.zeros(len(pairs), dtype=np.int64), pairs, 1)[0])


def _sigma(x: Floats) -> Floats:
    """For 1, a sketch without values, infinity."""
    none = x == 1.0
    x = np.where(none, 0.0, x)
    y, z, before = 1.0, x, np.full_like(x, -1.0)
    while (z != before).any():
        x, before = x * x, z
        z = z + x * y
        y += y
    return np.where(none, np.inf, z)


def _tau(x: Floats) -> Floats:
    edge = (x == 0.0) | (x == 1.0)
    x = np.where(edge, 0.5, x)
    y, z, before = 1.0, 1 - x, np.full_like(x, -1.0)
    while (z != before).any():
        x, before = np.sqrt(x), z
        y /= 2
        z = z - (1 - x) ** 2 * y
    return np.where(edge, 0.0, z / 3)


_MIDDLE = 2**40
"""Added to the number of a bin, so that bins of positive values have positive codes."""
_INFINITE, _NAN = 2**61, 2**62


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Tells values within a relative error; a bin's code grows with its values, NaN's is last.

    >>> sketch = Quantiles.within(0.01)
    >>> codes = sketch.codes(np.array([-2.0, 0.0, 3.0]))
    >>> bool((np.abs(sketch.values(codes) - [-2.0, 0.0, 3.0]) <= [0.02, 0, 0.03]).all())
    True
    """

    growth: float
    """Each bin's upper bound is so many times its lower one."""

    @classmethod
    def within(cls, error: float) -> Quantiles:
        """Bins whose middle is within the error of all their values."""
        return cls((1 + error) / (1 - error))

    def codes(self, values: Floats) -> Numbers:
        """The code of each value's bin."""
        size = np.abs(values)
        usable = np.isfinite(values) & (size > 0)
        logs = np.log(size, where=usable, out=np.zeros_like(size))
        found = np.ceil(logs / math.log(self.growth)).astype(np.int64) + _MIDDLE
        found = np.where(usable, np.where(values < 0, -found, found), 0)
        found = np.where(np.isinf(values), np.where(values < 0, -_INFINITE, _INFINITE), found)
        return np.where(np.isnan(values), _NAN, found)

    def values(self, codes: Numbers) -> Floats:
        """The middle of each bin."""
        size = np.abs(codes)
        numbers = np.where(size < _INFINITE, size - _MIDDLE, 0)
        with np.errstate(over="ignore"):
            middle = 2 * np.power(self.growth, numbers.astype(np.float64)) / (self.growth + 1)
        middle = np.where(codes == 0, 0.0, middle)
        middle = np.where(size == _INFINITE, math.inf, middle)
        return np.where(codes == _NAN, math.nan, np.where(codes < 0, -middle, middle))
