"""Patterns over a key's records (M14): named predicates in sequence, each a number of times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl

from anabranch.errors import ProgramError
from anabranch.program.expressions import Expression
from anabranch.program.functions import Function, as_function


@dataclass(frozen=True, slots=True)
class Step:
    """A predicate that must hold so many records in a row."""

    name: str
    predicate: Expression | Function
    times: int


def step(name: str, predicate: pl.Expr | Callable[[dict[str, Any]], Any], times: int = 1) -> Step:
    """One step of a pattern, e.g. `ab.step("fails", pl.col("ok") == False, times=3)`."""
    if not isinstance(name, str) or not name:
        message = f"step: name must be a word, got {name!r}"
        raise ProgramError(message)
    if not isinstance(times, int) or isinstance(times, bool) or times < 1:
        message = f"step {name!r}: times must be a whole number of at least 1, got {times!r}"
        raise ProgramError(message)
    if isinstance(predicate, pl.Expr):
        return Step(name, Expression.of(predicate), times)
    return Step(name, as_function(predicate, f"step {name!r}"), times)
