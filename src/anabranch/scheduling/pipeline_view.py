"""What a policy of the continuous engine sees of a pipeline when a worker asks for work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class OperatorView:
    """One operator."""

    waiting: int
    """Tuples in its worklist (I)."""
    workers: int
    """How many operate on it (w)."""
    most: int
    """How many may at once (M)."""
    cost: float
    """Seconds that a tuple takes (c)."""
    selectivity: float
    """Tuples out for one in (s)."""
    spent: float = 0.0
    """Seconds that workers have spent on it in the current window (T)."""
    due: float | None = None
    """When results that it holds work for are expected to leave, if that is known."""
    open: int = 0
    """Windows, or bundles, that it has work of."""
    watermarks: int = 0
    """Of what waits, work that a watermark caused."""

    @property
    def schedulable(self) -> bool:
        """Whether it has work for one worker more."""
        return self.waiting > 0 and self.workers < self.most


@dataclass(frozen=True, slots=True)
class PipelineView:
    """All operators, in the order in which tuples go through them."""

    operators: tuple[OperatorView, ...]
    time_slice: float = 0.005
    """Seconds for which a worker is given to an operator (s)."""
    capacity: float = 10_000.0
    """Tuples that queues hold together, by queue-size throttling (C)."""

    @property
    def cumulative(self) -> tuple[float, ...]:
        """Tuples that leave each operator for one that enters the pipeline (cs)."""
        return tuple(accumulate((each.selectivity for each in self.operators), mul))

    @property
    def schedulable(self) -> tuple[int, ...]:
        """The operators among which to choose."""
        return tuple(at for at, each in enumerate(self.operators) if each.schedulable)


Choice: TypeAlias = Callable[[PipelineView], int | None]
"""The operator that a worker is given to; None: no work is to be had."""
