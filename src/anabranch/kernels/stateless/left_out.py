"""Rows that were made of a bundle's records, and records that failed."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from anabranch.kernels.bundle import hidden
from anabranch.kernels.failures import Failed, told
from anabranch.kernels.letters import NONE, Left, letters_of
from anabranch.kernels.stateless.python_rows import Made, records_of
from anabranch.program.functions import OnError


def inherited(frame: pl.DataFrame, made: Made, sub: str | None) -> list[pl.Series]:
    """The hidden columns of rows that were made of a bundle's records, and their number in them."""
    kept = [frame[name] for name in hidden(frame)]
    if made.parents != list(range(frame.height)):
        # All at once: to take rows of a column is a query, of a frame it is none.
        parents = pl.Series(made.parents, dtype=pl.UInt32)
        kept = pl.DataFrame(kept)[parents].get_columns()
    return kept if sub is None else [*kept, made.subs().alias(sub)]


def left_out(
    name: str, frame: pl.DataFrame, columns: Sequence[str], made: Made, on_error: OnError
) -> Left:
    """The records that failed; where an error ends the run, the first one does."""
    if made.failures and on_error == "fail":
        first = min(made.failures)
        record = records_of(frame.slice(first, 1), columns)[0]
        raise Failed(told(name, made.failures[first], record))
    if on_error != "dead_letter":
        return Left(len(made.failures)) if made.failures else NONE
    places = sorted(made.failures)
    errors = [made.failures[at] for at in places]
    failed = frame[places] if places else frame.clear()
    return Left(len(places), letters_of(name, failed, columns, "error", errors))
