"""A run: rows that travel along a channel together, with their sequence numbers.

A number is given by the splitter to a row that enters the region; every row made of it carries it.
On a channel numbers never fall, neither in a run nor from one run to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[np.int64]
"""Sequence numbers, or places in a bundle."""

BEFORE = -1
"""Before the first number; as a pulse, none."""
END = 2**63 - 1
"""After every number: how far a closed channel is."""
SUB_BITS = 20
"""Of an order key, for the row among those made of one: 2**20 rows of one, 2**43 numbers."""


class Repeats(Enum):
    """Whether several rows may carry one number."""

    NEVER = "never"
    """Numbers are distinct over all channels."""
    ON_ONE_CHANNEL = "on one channel"
    """Operators may make several rows of one, and these stay on one channel, in their order."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Rows `start` to `stop` of a bundle that nobody here looks into, and their numbers, ascending.

    With `pulse`, no row of this number or a smaller one follows the run on its channel. A pulse
    travels with the rows before it; a run without rows is a pulse alone. Round-robin has no
    numbers.

    >>> run = Run("bundle", 4, 7, np.array([10, 12, 13]), pulse=15)
    >>> len(run), run.first, run.last, len(run.part(1, 3))
    (3, 10, 13, 2)
    """

    rows: object
    start: int
    stop: int
    numbers: Numbers | None = None
    pulse: int = BEFORE

    def __post_init__(self) -> None:
        """Refuse rows without a number beside rows with one."""
        if self.stop < self.start:
            message = f"a run from {self.start} to {self.stop} has less than no rows"
            raise ValueError(message)
        if self.numbers is not None and len(self.numbers) != self.stop - self.start:
            message = f"{len(self.numbers)} numbers for {self.stop - self.start} rows"
            raise ValueError(message)

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def numbered(self) -> Numbers:
        """The numbers, where the strategy gives any."""
        if self.numbers is None:
            message = "these rows have no sequence numbers: only a round-robin merger takes them"
            raise ValueError(message)
        return self.numbers

    @property
    def first(self) -> int:
        """The smallest number; there is at least one row."""
        return int(self.numbered[0])

    @property
    def last(self) -> int:
        """The greatest number; there is at least one row."""
        return int(self.numbered[-1])

    @classmethod
    def bare(cls, pulse: int) -> Self:
        """A pulse without rows."""
        return cls(None, 0, 0, _NONE, pulse)

    def carrying(self, pulse: int) -> Run:
        """The same rows with this pulse behind them, unless a greater one is."""
        if pulse <= self.pulse:
            return self
        return Run(self.rows, self.start, self.stop, self.numbers, pulse)

    def part(self, start: int, stop: int) -> Run:
        """Some of the rows, counted from the run's first, and no pulse."""
        numbers = None if self.numbers is None else self.numbers[start:stop]
        return Run(self.rows, self.start + start, self.start + stop, numbers)

    def made(self, rows: object, numbers: Numbers) -> Run:
        """What an operator made of this run: other rows, their causes' numbers, the same pulse."""
        return Run(rows, 0, len(numbers), numbers, self.pulse)


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """Rows picked from a bundle, by place: what a run of a keyed splitter refers to."""

    rows: object
    places: Numbers


def order_keys(numbers: Numbers, subs: Numbers) -> Numbers:
    """One number of each row's number and its place among the rows made of one.

    Rows made of one row keep their order where a shuffle sends them to several channels: with keys
    for numbers they are distinct. Pulses have to become keys as well: `last_key`.

    >>> [int(key) - (7 << SUB_BITS) for key in order_keys(np.array([7, 7]), np.array([0, 1]))]
    [0, 1]
    """
    if len(numbers) and (int(numbers[-1]) >> (63 - SUB_BITS) or int(subs.max()) >> SUB_BITS):
        message = f"{int(numbers[-1])} or {int(subs.max())} does not fit into an order key"
        raise OverflowError(message)
    return (numbers << SUB_BITS) | subs


def last_key(number: int) -> int:
    """The greatest order key of a number: the pulse of that number among order keys."""
    return number if number == BEFORE else ((number + 1) << SUB_BITS) - 1


_NONE: Numbers = np.empty(0, dtype=np.int64)
