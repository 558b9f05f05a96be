"""State in versions: each is a value, and a new one leaves the one before it as it was.

A version is the state after an epoch. A view holds a base and one overlay for each epoch behind it;
`at` drops the newest overlays (an attempt was lost), `fold` puts the oldest into the base (they are
committed). What an epoch changes is its delta, and state is nothing but the fold of its deltas.
"""

from __future__ import annotations

from typing import Protocol, Self, runtime_checkable

import polars as pl


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

    def whole(self) -> pl.DataFrame:
        """All of it as one delta, sorted by slice: folding it alone gives the state again."""


@runtime_checkable
class Adding(StateView, Protocol):
    """State to which epochs are added up in less time together than one by one."""

    def together(self, since: int) -> tuple[Self, pl.DataFrame]:
        """The same state with all that came after a version in one piece; and that as a delta.

        The delta stands for those of the epochs since. Versions before this one are not known any
        more.
        """
