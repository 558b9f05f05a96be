"""What epochs change in a partition's state, gathered until somebody asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

TOGETHER = 64
"""Deltas that are kept apart: to put thousands of them together at once would hold up an epoch."""


class Changes:
    """By operator, the deltas of epochs one behind the other: what they change is the same."""

    def __init__(self) -> None:
        """Begin with none."""
        self._piles: dict[str, _Pile] = {}

    def add(self, deltas: Mapping[str, pl.DataFrame]) -> None:
        """Take what one more epoch has changed."""
        for operator, frame in deltas.items():
            if operator not in self._piles:
                self._piles[operator] = _Pile(frame.clear())
            self._piles[operator].add(frame)

    def forget(self, operator: str) -> None:
        """Let go of what epochs have changed in a state of which the next one says all."""
        self._piles.pop(operator, None)

    def take(self) -> dict[str, pl.DataFrame]:
        """All of it, as one delta an operator; from here on it is gathered anew."""
        piles, self._piles = self._piles, {}
        return {operator: pile.take() for operator, pile in piles.items()}


class _Pile:
    """Frames one behind the other, most of them put together already."""

    def __init__(self, empty: pl.DataFrame) -> None:
        self._empty = empty
        self._together: list[pl.DataFrame] = []
        self._loose: list[pl.DataFrame] = []

    def add(self, frame: pl.DataFrame) -> None:
        if not frame.height:
            return
        self._loose.append(frame)
        if len(self._loose) == TOGETHER:
            self._together.append(_behind_one_another(self._loose))
            self._loose = []

    def take(self) -> pl.DataFrame:
        frames = [*self._together, *self._loose]
        return _behind_one_another(frames) if frames else self._empty


def _behind_one_another(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    # Nearly always alike; to find out which columns are missing costs three times as much.
    alike = all(each.schema == frames[0].schema for each in frames[1:])
    return pl.concat(frames, how="vertical" if alike else "diagonal")
