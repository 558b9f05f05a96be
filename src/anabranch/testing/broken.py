"""How a broken rule of a contract is told."""

from __future__ import annotations

import json
from enum import Enum
from typing import Any

from anabranch.testing.compare import Rows, first_difference


def broken(
    rule: Enum, expected: Any, found: Any, so: str, *, at: str | None = None
) -> AssertionError:
    """The error that says which rule, where, what was expected and found, and what to do.

    >>> class Rule(Enum):
    ...     JSON = "offsets are JSON values"
    >>> print(broken(Rule.JSON, "a number", (1, 2), "give a list", at="partition 0"))
    broken: offsets are JSON values
      at        partition 0
      expected  a number
      found     (1, 2)
      so        give a list
    """
    parts = (("at", at or ""), ("expected", expected), ("found", found), ("so", so))
    lines = [f"  {label:<10}{_shown(what)}" for label, what in parts if label != "at" or at]
    return AssertionError("\n".join([f"broken: {rule.value}", *lines]))


def parted(
    rule: Enum,
    expected: Rows,
    found: Rows,
    so: str,
    *,
    what: str = "rows",
    at: str | None = None,
) -> AssertionError | None:
    """The error where two lists of rows are not the same; None where they are."""
    if (difference := first_difference(expected, found)) is None:
        return None
    number = difference.number
    one, other = (
        f"{len(rows)} {what}, number {number}: {dict(rows[number])}"
        if number < len(rows)
        else f"{len(rows)} {what}"
        for rows in (expected, found)
    )
    return broken(rule, one, other, so, at=at)


def same_json(value: Any) -> bool:
    """Whether a value is JSON, and the same when it comes back from it.

    >>> [same_json(each) for each in ([1, "a"], (1, 2), {1: 2}, {"a": None}, {1}, float("nan"))]
    [True, False, False, True, False, False]
    """
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return bool(json.loads(text) == value)


def _shown(what: Any) -> str:
    return what if isinstance(what, str) else repr(what)
