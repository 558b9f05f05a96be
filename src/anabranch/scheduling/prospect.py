"""What a query that asks for a turn knows of itself: frozen, and told to policies at any moment."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.scheduling.memory_mode import Waiting, most_freed
from anabranch.scheduling.query_view import QueryView
from anabranch.scheduling.slack import CYCLE_S, slack
from anabranch.scheduling.sweeps import Estimate


@dataclass(frozen=True, slots=True)
class Prospect:
    """A query with something to do; moments are seconds of the wall clock."""

    asked: float
    """When it was told."""
    rows: int = 0
    """That wait, read or not."""
    cost: float = 0.0
    """Seconds that they take."""
    gives: float = 1.0
    oldest: float = 0.0
    """When the oldest of what waits came."""
    due: float | None = None
    """The end of the window that fires next; None: it has none."""
    expected: tuple[Estimate, ...] = ()
    """When its watermark comes, of each input that it waits for."""
    goal: float | None = None
    """Seconds behind the end of a window, or behind when rows came, in which they are to leave."""
    held: int = 0
    """Bytes of rows that were read and are not committed."""
    queues: tuple[Waiting, ...] = ()
    """What of that waits at which operators."""

    def slack(self, now: float) -> float | None:
        """How long it may wait; None: nothing is known.

        By its goal, if it has one: behind that all is late. Of several inputs the least counts
        (3.3 of the paper).

        >>> Prospect(0.0, cost=1.0, expected=(Estimate(9.0, 0.0), Estimate(5.0, 0.0))).slack(2.0)
        2.0
        >>> Prospect(0.0, cost=1.0, due=4.0, goal=2.0).slack(2.0)
        3.0
        """
        if self.goal is not None:
            begun = self.oldest if self.due is None else self.due
            return begun + self.goal - now - self.cost
        found = [slack(each, now, self.cost) for each in self.expected]
        return min(found, default=None)

    def view(self, place: int, now: float, served: float) -> QueryView:
        """What a policy sees of it."""
        return QueryView(
            place,
            now,
            self.rows,
            self.cost,
            self.gives,
            self.oldest,
            served,
            self.due,
            self.slack(now),
            most_freed(self.queues, CYCLE_S),
        )
