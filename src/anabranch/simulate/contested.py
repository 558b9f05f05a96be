"""A seat that is contested: every other turn somebody else has first, and memory is always short.

Without threads, and always in the same way: the rival asks before the query does, and gives his
turn back while the query waits for its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anabranch.clock import Clock
from anabranch.runtime.turns import SharedTurns, Standing, Turn
from anabranch.scheduling.prospect import Prospect
from anabranch.scheduling.query_view import Policy

_NOTHING = Prospect(0.0)


class ContestedSeat:
    """The seat of a query that has one rival for one slot."""

    alone = False

    def __init__(self, name: str, policy: Policy, clock: Clock) -> None:
        """By this policy; a byte that is held is too much."""
        turns = SharedTurns(name, policy, 1, clock, memory_limit=1)
        self._turns, self._asked = turns, 0
        self._mine, self._rival = turns.enter("query"), turns.enter("rival")

    @contextmanager
    def turn(
        self, prospect: Callable[[], Prospect], meanwhile: Callable[[], object]
    ) -> Iterator[Turn]:
        """Wait for a turn, every other time behind the rival."""
        self._asked += 1
        if self._asked % 2:
            with self._mine.turn(prospect, meanwhile) as turn:
                yield turn
            return
        rival = self._rival.place
        assert self._turns.ask(rival, _NOTHING), "the slot was free"

        def wait() -> None:
            meanwhile()
            self._turns.end(rival, 0)

        with self._mine.turn(prospect, wait) as turn:
            yield turn

    def standing(self) -> Standing | None:
        """How the query stands."""
        return self._mine.standing()

    def leave(self) -> None:
        """Take part no more."""
        self._mine.leave()
