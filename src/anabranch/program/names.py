"""Column names as users pass them: one, or several."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.errors import ProgramError


def as_names(given: str | Sequence[str], what: str) -> tuple[str, ...]:
    """One name or several, as a tuple.

    >>> as_names("user", "by")
    ('user',)
    """
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names or not all(isinstance(name, str) for name in names):
        message = f"{what} takes a column name or a list of them, got {given!r}"
        raise ProgramError(message, so='pass e.g. "user" or ["user", "day"]; compute others before')
    return names
