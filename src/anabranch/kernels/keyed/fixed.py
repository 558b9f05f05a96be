"""Values that never change in place: who has one need not look at it again."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

FIXED = frozenset(
    {type(None), bool, int, float, str, bytes, datetime, date, time, timedelta, Decimal}
)
"""Types of such values that hold no others."""
_HOLDING = frozenset({tuple, frozenset})


def is_fixed(value: Any) -> bool:
    """Whether nobody can change it, nor anything in it.

    >>> is_fixed((1, "a")), is_fixed((1, ["a"]))
    (True, False)
    """
    kind = type(value)
    return kind in FIXED or (kind in _HOLDING and all(map(is_fixed, value)))
