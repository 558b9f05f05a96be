"""What is learnt of a query while it runs, and what follows from it; a value.

Costs come back with results, delays with the times of what was read: nothing is asked for on its
own. Delays are those of live streams. Where event times are far from the wall clock's, as in a
replay, they say nothing of when the next will come, and nothing is expected by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from anabranch.scheduling.sweeps import Estimate, Moments, Sweeps

LIVE_S = 600.0
"""Event times further from the wall clock's than this are of a replay."""
LEARN = 0.2
"""How much the newest counts, against all before it."""
GROWS = 1.02
"""By this factor what a turn costs at least is taken for more, each time that it cost more."""


@dataclass(frozen=True, slots=True)
class Expectations:
    """Of one query."""

    job: float = 0.0
    """Seconds of a turn, whatever is in it; the least that were seen of late."""
    row: float = 0.0
    """Seconds a row, beyond that."""
    gives: float = 1.0
    """Rows that leave, for one that comes in."""
    sweeps: Mapping[str, Sweeps] = field(default_factory=dict)
    """By source."""
    replays: frozenset[str] = frozenset()
    """Sources whose event times are not of now."""
    turns: int = 0
    density: float = 0.0
    """Rows a second of event time; 0: nobody knows."""

    def worked(self, rows: int, seconds: float) -> Expectations:
        """After a turn of so many rows.

        >>> known = Expectations().worked(0, 0.05).worked(1000, 0.25)
        >>> round(known.job, 2), round(known.cost(500), 2)
        (0.05, 0.15)
        """
        job = seconds if not self.turns else min(seconds, GROWS * self.job)
        if rows <= 0:
            return replace(self, job=job, turns=self.turns + 1)
        each = max(0.0, seconds - min(job, seconds)) / rows
        row = each if not self.row else self.row + LEARN * (each - self.row)
        return replace(self, job=min(job, seconds), row=row, turns=self.turns + 1)

    def dense(self, rows: int, seconds: float) -> Expectations:
        """After so many rows by which event time went on for so long.

        >>> Expectations().dense(100, 2.0).density
        50.0
        """
        if rows <= 0 or seconds <= 0:
            return self
        each, known = rows / seconds, self.density
        return replace(self, density=each if not known else known + LEARN * (each - known))

    def rows_within(self, seconds: float, most: int) -> int:
        """How many of the rows that wait are of the next so many seconds of event time.

        >>> Expectations().dense(100, 2.0).rows_within(3.0, most=1000)
        150
        >>> Expectations().rows_within(3.0, most=9)
        9
        """
        if not self.density:
            return most
        return min(most, max(0, round(self.density * seconds)))

    def gave(self, taken: int, given: int) -> Expectations:
        """After a commit of so many rows that came in, and so many that left."""
        if taken <= 0:
            return self
        return replace(self, gives=self.gives + LEARN * (given / taken - self.gives))

    def cost(self, rows: int) -> float:
        """Seconds that so many rows take."""
        return self.job + rows * self.row

    def read(self, source: str, times: Iterable[float], at: float) -> Expectations:
        """After rows of a source that were read at that moment; of each partition the newest."""
        delays = [at - time for time in times]
        if not delays:
            return self
        if not all(abs(each) < LIVE_S for each in delays):
            left = {name: each for name, each in self.sweeps.items() if name != source}
            return replace(self, sweeps=left, replays=self.replays | {source})
        known = self.sweeps.get(source, Sweeps()).brought(Moments.of(*delays))
        return replace(self, sweeps={**self.sweeps, source: known}, replays=self.replays - {source})

    def swept(self, source: str, due: float, at: float) -> Expectations:
        """After a watermark that made a window fire whose end is `due`, and came at that moment."""
        if source in self.replays or not abs(at - due) < LIVE_S:
            return self
        known = self.sweeps.get(source, Sweeps()).swept(at - due)
        return replace(self, sweeps={**self.sweeps, source: known})

    def next(self, source: str, due: float) -> Estimate | None:
        """When the watermark `due` of a source comes; None: nothing is known."""
        known = self.sweeps.get(source)
        return None if known is None else known.next(due)
