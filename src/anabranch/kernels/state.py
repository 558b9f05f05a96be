"""State in versions: each is a value, and a new one leaves the one before it as it was.

A version is the state after an epoch. A view holds a base and one overlay for each epoch behind it;
`at` drops the newest overlays (an attempt was lost), `fold` puts the oldest into the base (they are
committed). What an epoch changes is its delta, and state is nothing but the fold of its deltas.

A state is of many slices. Some can leave it (`only`) and others come in (`joined`) in no time,
however large it is: `layers` tells how.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, Self, runtime_checkable

import polars as pl

from anabranch.kernels.shelf import Shelf


class StateView(Protocol):
    """The state of one operator in one lane, at a version."""

    @property
    def version(self) -> int:
        """How many epochs it is made of."""

    @property
    def oldest(self) -> int:
        """The oldest version that `at` still knows: the base's."""

    def at(self, version: int) -> Self:
        """The state at an earlier version."""

    def fold(self, version: int) -> Self:
        """The same state, with everything up to this version in the base."""

    def whole(self, slices: frozenset[int] | None = None) -> pl.DataFrame:
        """All of it as one delta, sorted by slice: folding it alone gives the state again.

        Or all of some slices, which costs a look at the slice of every row, and no more.
        """

    def only(self, slices: frozenset[int]) -> Self:
        """The same state, of these slices alone: of no other will anything show.

        No row is copied. To be asked for where a slice leaves: what is left has to be tidied later.
        """

    def joined(self, other: Self) -> Self:
        """This state and one of other slices, both folded; the version is this one's.

        No row is copied. Both have taken the same epochs.
        """

    def shelved(self, shelf: Shelf) -> Self:
        """The same state, with the pieces that a shelf gave back."""


@runtime_checkable
class Adding(StateView, Protocol):
    """State to which epochs are added up in less time together than one by one."""

    def together(self, since: int) -> tuple[Self, pl.DataFrame]:
        """The same state with all that came after a version in one piece; and that as a delta.

        The delta stands for those of the epochs since. Versions before this one are not known any
        more.
        """


@dataclass(frozen=True, slots=True)
class Nothing:
    """The state of an operator that keeps none."""

    version: int = 0
    oldest: int = 0

    def at(self, version: int) -> Self:
        """The same nothing, earlier."""
        self._require_known(version)
        return replace(self, version=version)

    def then(self) -> Self:
        """The same nothing, an epoch later."""
        return replace(self, version=self.version + 1)

    def fold(self, version: int) -> Self:
        """The same nothing, committed."""
        self._require_known(version)
        return replace(self, oldest=version)

    def whole(self, slices: frozenset[int] | None = None) -> pl.DataFrame:
        """A delta without rows."""
        del slices
        return pl.DataFrame(schema={"slice": pl.UInt16})

    def only(self, slices: frozenset[int]) -> Self:
        """The same nothing."""
        del slices
        return self

    def joined(self, other: Self) -> Self:
        """The same nothing."""
        del other
        return self

    def shelved(self, shelf: Shelf) -> Self:
        """The same nothing."""
        del shelf
        return self

    def _require_known(self, version: int) -> None:
        if not self.oldest <= version <= self.version:
            message = f"no state at version {version}: {self.oldest} to {self.version} are known"
            raise LookupError(message)
