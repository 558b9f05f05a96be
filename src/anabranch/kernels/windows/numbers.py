"""Sums, means and variances of windows, without rounding before the end (see `window_sums`)."""

from __future__ import annotations

from decimal import Context, Decimal

import numpy as np
import polars as pl

from anabranch.kernels.windows.fields import Field, TooLarge, counted
from anabranch.kernels.windows.grid import Laid
from anabranch.kernels.windows.sums import (
    BITS,
    FLOAT_LIMBS,
    FLOAT_LOW,
    SQUARE_LIMBS,
    Numbers,
    carried,
    decimal_limbs,
    fewer,
    float_limbs,
    rounded,
    square_limbs,
    variance,
    whole,
    whole_limbs,
    wholes,
    with_odd,
)

_FITS = 2**31
"""The highest of two limbs of a number that fits into 64 bits lies in [-2**31, 2**31)."""
_DIGITS = Context(prec=76)
_NO_ODD = pl.lit(None, pl.List(pl.Float64))


class Sum(Field):
    """A sum of anything that can be added; an overflow is found when the window leaves."""

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """The limbs, and for floats the odd parts."""
        odd = {self._odd: pl.List(pl.Float64())} if self.given.is_float() else {}
        return {**dict.fromkeys(self._limbs, pl.Int64()), **odd}

    def prepared(self, rows: pl.DataFrame) -> list[pl.Series]:
        """The limbs of the values, without those that are 0 in all of them."""
        (values,) = super().prepared(rows)
        if self.given.is_float():
            return self._floats(values)
        if isinstance(self.given, pl.Decimal):
            return self._named(decimal_limbs(values))
        if _greatest(values) * len(values) < 2**63:
            # No sum of so few and small numbers can be too large: one column will do.
            plain = values if values.dtype == pl.Boolean else values.to_physical()
            return [plain.cast(pl.Int64).alias(self.value)]
        return self._named(whole_limbs(values))

    def first(self, values: pl.DataFrame) -> list[pl.Expr]:
        """Add limb by limb."""
        if self.value in values.columns:
            total = pl.col(self.value).sum()
            low, high = self._limbs
            return [(total % 2**BITS).alias(low), (total // 2**BITS).alias(high)]
        found = [_added(name, f"{self.value}_{at}", values) for at, name in enumerate(self._limbs)]
        if self.given.is_float():
            found.append(_listed(self._odd, f"{self.value}_odd", values))
        return found

    @property
    def repeats(self) -> bool:
        """Of whole numbers."""
        return not (self.given.is_float() or isinstance(self.given, pl.Decimal))

    def repeated(self, values: pl.Series, counts: pl.Series) -> list[pl.Series]:
        """Limb by limb: one of 32 bits and fewer than 2**31 rows of a bundle have room in 64."""
        limbs = zip(self._limbs, whole_limbs(values), strict=True)
        return [pl.Series(name, limb * counts.to_numpy()) for name, limb in limbs]

    def again(self, partials: pl.DataFrame) -> list[pl.Expr]:
        """Add limb by limb."""
        found = [pl.col(name).sum() for name in self._limbs]
        return [*found, _joined(self._odd, partials)] if self.given.is_float() else found

    def settled(self, partials: pl.DataFrame) -> pl.DataFrame:
        """What the lower limbs have too much, put into the higher ones."""
        limbs = carried([partials[name].to_numpy() for name in self._limbs])
        found = [pl.Series(name, each) for name, each in zip(self._limbs, limbs, strict=True)]
        if self.given.is_float():
            found.append(_fewer(partials[self._odd]))
        return partials.with_columns(found)

    def slides(self, partials: pl.DataFrame) -> bool:
        """Unless there are odd parts."""
        return not self.given.is_float() or _none(partials[self._odd])

    def slid(self, laid: Laid) -> list[pl.Series]:
        """Add limb by limb."""
        found = [pl.Series(name, laid.added(name)) for name in self._limbs]
        return [*found, _no_odd(self._odd, laid)] if self.given.is_float() else found

    def last(self, partials: pl.DataFrame) -> pl.Series:
        """The sum in its type."""
        if self.given.is_float():
            return self.floats(partials).alias(self.name)
        if isinstance(self.dtype, pl.Decimal):
            return pl.Series(self.name, self._decimals(partials, self.dtype), self.dtype)
        low, high = (partials[name] for name in self._limbs)
        wrong = ~high.is_between(-_FITS, _FITS - 1)
        if wrong.any():
            at = int(wrong.arg_max() or 0)
            found = whole(partials.select(self._limbs).row(at))
            raise TooLarge(at, f"sum overflows Int64: {found}")
        total: pl.Series = high * 2**BITS + low
        return total.cast(self.dtype).alias(self.name)

    def floats(self, partials: pl.DataFrame) -> pl.Series:
        """The sum as a float, rounded once or so."""
        low = FLOAT_LOW if self.given.is_float() else 0
        limbs = [partials[name].to_numpy() for name in self._limbs]
        found = rounded(limbs, low)
        if self.given.is_float() and (odd := partials[self._odd]).null_count() < len(odd):
            for at in np.flatnonzero(odd.is_not_null().to_numpy()):
                found[at] = with_odd([limb[at] for limb in limbs], odd[int(at)].to_list())
        return pl.Series(found)

    @property
    def _limbs(self) -> list[str]:
        count = FLOAT_LIMBS if self.given.is_float() else 4
        count = count if self.given.is_float() or isinstance(self.given, pl.Decimal) else 2
        return [f"{self.column}_{at}" for at in range(count)]

    @property
    def _odd(self) -> str:
        return f"{self.column}_odd"

    def _named(self, limbs: list[Numbers]) -> list[pl.Series]:
        return [pl.Series(f"{self.value}_{at}", limb) for at, limb in enumerate(limbs)]

    def _floats(self, values: pl.Series) -> list[pl.Series]:
        numbers = values.cast(pl.Float64).fill_null(0.0).to_numpy()
        limbs, odd = float_limbs(numbers)
        found = [pl.Series(f"{self.value}_{i}", x) for i, x in enumerate(limbs) if x is not None]
        return found if odd is None else [*found, _sparse(f"{self.value}_odd", odd)]

    def _decimals(self, partials: pl.DataFrame, dtype: pl.Decimal) -> list[Decimal]:
        found = []
        for at, limbs in enumerate(partials.select(self._limbs).iter_rows()):
            total = Decimal(whole(limbs)).scaleb(-dtype.scale, _DIGITS)
            if abs(whole(limbs)) >= 10 ** (dtype.precision or 38):
                raise TooLarge(at, f"sum overflows {dtype}: {total}")
            found.append(total)
        return found


class Mean(Sum):
    """A sum and how many there are of it."""

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """The sum's, and the number."""
        return {**super().columns, self._count: pl.Int64()}

    def prepared(self, rows: pl.DataFrame) -> list[pl.Series]:
        """The sum's, and which values are not null."""
        assert self.of is not None
        known = self.of.over(rows).to_series().is_not_null()
        return [*super().prepared(rows), known.alias(f"{self.value}_n")]

    def first(self, values: pl.DataFrame) -> list[pl.Expr]:
        """Add and count."""
        count = pl.col(f"{self.value}_n").sum().cast(pl.Int64).alias(self._count)
        return [*super().first(values), count]

    def repeated(self, values: pl.Series, counts: pl.Series) -> list[pl.Series]:
        """Both."""
        number = counted(values, counts).alias(self._count)
        return [*super().repeated(values, counts), number]

    def again(self, partials: pl.DataFrame) -> list[pl.Expr]:
        """Add both."""
        return [*super().again(partials), pl.col(self._count).sum()]

    def slid(self, laid: Laid) -> list[pl.Series]:
        """Add both."""
        return [*super().slid(laid), pl.Series(self._count, laid.added(self._count))]

    def last(self, partials: pl.DataFrame) -> pl.Series:
        """The one by the other; null of nothing."""
        count = partials[self._count]
        total = self.floats(partials)
        if isinstance(self.given, pl.Decimal):
            total = total / 10.0**self.given.scale
        with_none = pl.when(count > 0).then(total / count)
        return pl.select(with_none).to_series().alias(self.name)

    @property
    def _count(self) -> str:
        return f"{self.column}_n"


class Variance(Field):
    """The sums of the values and of their squares, exactly, so that nothing cancels out."""

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """The limbs of both, the number of values, and the values with an odd part."""
        limbs = dict.fromkeys([*self._sums, *self._squares, self._count], pl.Int64())
        return {**limbs, self._odd: pl.List(pl.Float64())}

    def prepared(self, rows: pl.DataFrame) -> list[pl.Series]:
        """The limbs that are not 0 in all values and squares."""
        (values,) = super().prepared(rows)
        numbers = values.cast(pl.Float64).fill_null(0.0).to_numpy()
        limbs, odd = float_limbs(numbers)
        if odd is not None:
            plain = np.where(odd == 0, numbers, 0.0)
            odd = np.where(odd == 0, 0.0, numbers)
            numbers, limbs = plain, float_limbs(plain)[0]
        every = enumerate([*limbs, *square_limbs(numbers)])
        named = [pl.Series(f"{self.value}_{at}", x) for at, x in every if x is not None]
        named.append(values.is_not_null().alias(f"{self.value}_n"))
        return named if odd is None else [*named, _sparse(f"{self.value}_odd", odd)]

    def first(self, values: pl.DataFrame) -> list[pl.Expr]:
        """Add limb by limb."""
        names = enumerate([*self._sums, *self._squares])
        found = [_added(name, f"{self.value}_{at}", values) for at, name in names]
        found.append(pl.col(f"{self.value}_n").sum().cast(pl.Int64).alias(self._count))
        return [*found, _listed(self._odd, f"{self.value}_odd", values)]

    def again(self, partials: pl.DataFrame) -> list[pl.Expr]:
        """Add limb by limb."""
        found = [pl.col(name).sum() for name in [*self._sums, *self._squares, self._count]]
        return [*found, _joined(self._odd, partials)]

    def settled(self, partials: pl.DataFrame) -> pl.DataFrame:
        """What the lower limbs have too much, put into the higher ones."""
        found = []
        for names in (self._sums, self._squares):
            limbs = carried([partials[name].to_numpy() for name in names])
            found += [pl.Series(name, limb) for name, limb in zip(names, limbs, strict=True)]
        return partials.with_columns(found)

    def slides(self, partials: pl.DataFrame) -> bool:
        """Unless there are odd values."""
        return _none(partials[self._odd])

    def slid(self, laid: Laid) -> list[pl.Series]:
        """Add limb by limb."""
        names = [*self._sums, *self._squares, self._count]
        return [*(pl.Series(name, laid.added(name)) for name in names), _no_odd(self._odd, laid)]

    def last(self, partials: pl.DataFrame) -> pl.Series:
        """The variance, null of too few."""
        ddof = self.aggregate.ddof
        assert ddof is not None
        sums, squared = (
            wholes([partials[name].to_numpy() for name in names])
            for names in (self._sums, self._squares)
        )
        counts, odd = partials[self._count].to_list(), partials[self._odd].to_list()
        found = [
            variance(n, total, square, each or (), ddof)
            for n, total, square, each in zip(counts, sums, squared, odd, strict=True)
        ]
        return pl.Series(self.name, found, pl.Float64())

    @property
    def _sums(self) -> list[str]:
        return [f"{self.column}_{at}" for at in range(FLOAT_LIMBS)]

    @property
    def _squares(self) -> list[str]:
        return [f"{self.column}_q{at}" for at in range(SQUARE_LIMBS)]

    @property
    def _count(self) -> str:
        return f"{self.column}_n"

    @property
    def _odd(self) -> str:
        return f"{self.column}_odd"


def _added(name: str, value: str, values: pl.DataFrame) -> pl.Expr:
    """The sum of a limb, 0 where no value has it."""
    found = pl.col(value).sum() if value in values.columns else pl.lit(0, pl.Int64)
    return found.alias(name)


def _listed(name: str, value: str, values: pl.DataFrame) -> pl.Expr:
    """The odd parts as a list, null where there are none."""
    if value not in values.columns:
        return _NO_ODD.alias(name)
    parts = pl.col(value).drop_nulls()
    return pl.when(parts.len() > 0).then(parts.implode()).alias(name)


def _joined(name: str, partials: pl.DataFrame) -> pl.Expr:
    """Lists of odd parts as one, null where there are none."""
    if _none(partials[name]):
        return _NO_ODD.alias(name)
    parts = pl.col(name).explode(empty_as_null=False, keep_nulls=False)
    return pl.when(parts.len() > 0).then(parts.implode()).alias(name)


def _no_odd(name: str, laid: Laid) -> pl.Series:
    return pl.repeat(None, laid.height, dtype=pl.List(pl.Float64), eager=True).alias(name)


def _none(odd: pl.Series) -> bool:
    return odd.null_count() == len(odd)


def _fewer(odd: pl.Series) -> pl.Series:
    if _none(odd):
        return odd
    found = [None if each is None else fewer(each) for each in odd.to_list()]
    return pl.Series(odd.name, found, pl.List(pl.Float64()))


def _sparse(name: str, odd: np.ndarray[tuple[int], np.dtype[np.float64]]) -> pl.Series:
    values = pl.Series(name, odd)
    return pl.select(pl.when(values != 0).then(values).alias(name)).to_series()


def _greatest(values: pl.Series) -> int:
    """How far from 0 whole numbers lie."""
    plain = values.to_physical()
    bounds = (plain.min(), plain.max())
    return max((abs(int(each)) for each in bounds if each is not None), default=0)  # type: ignore[arg-type]
