"""Operators whose state stays in one place, and is changed there.

State that is a value costs a frame or two an epoch, however small the epoch is: nothing beside a
job on Spark, most of the time where an epoch is 200 rows. A program that is resident needs one
version alone, the last; what an epoch changes it keeps until the epoch is through (`settle`), and
gives deltas of the same form, when it is asked for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import polars as pl

from anabranch.kernels.kernel import Given, Taken
from anabranch.kernels.state import Nothing


class UnfitError(Exception):
    """What is resident cannot hold such rows: the kernel that it is of can."""


class Resident(Protocol):
    """The state of one operator, and what it does; one call at a time."""

    def take(self, taken: Taken) -> ResidentGiven:
        """What it gives for its next epoch; the state is as before, until `settle`.

        What it cannot hold raises `UnfitError`, and changes nothing.
        """

    def settle(self) -> None:
        """Let the epoch that was taken last be part of the state."""

    def changed(self) -> pl.DataFrame:
        """A delta of all that changed since this was last asked, or the state restored."""

    def whole(self, slices: frozenset[int] | None = None) -> pl.DataFrame:
        """All of the state, or of some slices, as one delta."""

    def restore(self, deltas: Iterable[pl.DataFrame]) -> None:
        """Have the state that epochs with these deltas make, in order."""


@dataclass(frozen=True, slots=True)
class ResidentGiven:
    """What a resident operator gives for one epoch."""

    rows: Mapping[str, pl.DataFrame]
    """Bundles by output, each in order."""
    late: int = 0
    letters: int = 0


@runtime_checkable
class CanReside(Protocol):
    """A kernel that can be resident."""

    operator: str
    lag: int

    def resident(self) -> Resident | None:
        """Itself with the first state, resident; None: not over rows of these types."""


@dataclass(frozen=True)
class Residing:
    """A resident operator as a kernel, whose state nobody else sees."""

    operator: str
    lag: int
    resident: Resident

    def restore(self, deltas: Iterable[pl.DataFrame], version: int = 0) -> Nothing:
        """Nothing."""
        del deltas
        return Nothing(version, version)

    def after(self, state: Nothing, deltas: Iterable[pl.DataFrame]) -> Nothing:
        """The same nothing."""
        del deltas
        return state

    def run(self, taken: Taken, state: Nothing) -> Given[Nothing]:
        """Take one epoch."""
        given = self.resident.take(taken)
        return Given(given.rows, state.then(), _EMPTY, given.late, given.letters)


_EMPTY = Nothing().whole()
"""A delta that tells of no change: those of what is resident are asked for elsewhere."""
