"""When two outputs are the same: the one place that knows a tolerance (M10)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Rows: TypeAlias = Sequence[Mapping[str, Any]]

FLOAT_TOLERANCE = 1e-9
"""Relative: sums of floats depend on how they were grouped, all else is compared exactly."""


def assert_same_rows(
    expected: Rows,
    actual: Rows,
    *,
    ordered: bool = True,
    within: Mapping[str, float] | None = None,
) -> None:
    """Fail unless both have the same rows, in the same order unless `ordered` is False.

    `within` gives the relative error that the columns of sketches may have.

    >>> assert_same_rows([{"x": 0.1 + 0.2}], [{"x": 0.3}])
    """
    __tracebackhide__ = True
    found = first_difference(expected, actual, ordered=ordered, within=within)
    if found is None:
        return
    number, left, right = found.number, found.expected, found.actual
    if number < min(len(left), len(right)):
        message = (
            f"row {number} differs:\n"
            f"  expected {dict(left[number])}\n  actual   {dict(right[number])}"
        )
        raise AssertionError(message)
    longer, name = (left, "missing") if len(left) > len(right) else (right, "too many")
    extra = dict(longer[number])
    message = f"{len(left)} rows expected, {len(right)} came; the first {name}: {extra}"
    raise AssertionError(message)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two outputs part; sorted if their order is none."""

    number: int
    """Of the first row that differs, or that one of the two has not."""
    expected: Rows
    actual: Rows


def first_difference(
    expected: Rows,
    actual: Rows,
    *,
    ordered: bool = True,
    within: Mapping[str, float] | None = None,
) -> Difference | None:
    """Where two outputs part, as `assert_same_rows` judges them; None: they are the same.

    >>> first_difference([{"n": 1}, {"n": 2}], [{"n": 1}]).number
    1
    """
    errors = within or {}
    left, right = list(expected), list(actual)
    if not ordered:
        left, right = sorted(left, key=_rough), sorted(right, key=_rough)
    for number, (one, other) in enumerate(zip(left, right, strict=False)):
        if not _same_row(one, other, errors):
            return Difference(number, left, right)
    if len(left) != len(right):
        return Difference(min(len(left), len(right)), left, right)
    return None


def same_value(one: Any, other: Any, error: float = FLOAT_TOLERANCE) -> bool:
    """Whether two values are the same; NaN is NaN, whole and broken numbers are different kinds.

    >>> same_value(float("nan"), float("nan")), same_value(1, 1.0)
    (True, False)
    """
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or one == other or math.isclose(one, other, rel_tol=error)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        same_names = list(one) == list(other)
        return same_names and all(same_value(one[name], other[name], error) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(same_value(a, b, error) for a, b in pairs)
    return type(one) is type(other) and bool(one == other)


def _same_row(
    one: Mapping[str, Any], other: Mapping[str, Any], errors: Mapping[str, float]
) -> bool:
    if list(one) != list(other):
        return False
    return all(_same_cell(one[name], other[name], errors.get(name)) for name in one)


def _same_cell(one: Any, other: Any, error: float | None) -> bool:
    if error is None or one is None or other is None:
        return same_value(one, other)
    return type(one) is type(other) and math.isclose(one, other, rel_tol=error, abs_tol=error)


def _rough(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """An order that equal rows share whatever the last digits of their floats are."""
    exact = [repr(value) for value in row.values() if not isinstance(value, float)]
    rounded = [f"{value:.6e}" for value in row.values() if isinstance(value, float)]
    return (*exact, *rounded)
