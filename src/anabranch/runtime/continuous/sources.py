"""The sources of a resident program: what each has to offer, and how far it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from anabranch.connectors.base import Interruption
from anabranch.epoch.protocol import Offer
from anabranch.epoch.row_limit import RowLimit
from anabranch.epoch.watermarks import SourceTime
from anabranch.observe.facts import Look, SourceFacts
from anabranch.program.operators.edges import Read
from anabranch.runtime.continuous.epoch_size import EpochSize
from anabranch.runtime.continuous.messages import Orders, Positions
from anabranch.runtime.continuous.sequencer import Sequenced, in_turn
from anabranch.runtime.intake import Intake
from anabranch.state.layout import EpochPlan


class Sources:
    """All of them, each with its intake; used by one thread."""

    def __init__(self, orders: Orders) -> None:
        """Go on behind the last commit."""
        self._reads: dict[str, Read] = {read.name: read for read in orders.reads}
        for name, read in self._reads.items():
            if orders.memory.get(name) is not None:
                read.source.recall(orders.memory[name])
        known = orders.known
        self._intakes = {
            name: Intake(read, None, known.positions.get(name))
            for name, read in self._reads.items()
        }
        self._known = {
            name: Sequenced(
                finished=known.times[name].finished, partitions=len(read.source.partitions())
            )
            for name, read in self._reads.items()
        }
        self._looks = dict.fromkeys(self._reads, Look())

    @property
    def at_end(self) -> bool:
        """Whether nothing more will come."""
        return all(each.at_end for each in self._known.values())

    def in_turn(self, times: Mapping[str, SourceTime]) -> Iterator[str]:
        """Those from which something may come, in the order in which they are looked at."""
        names = in_turn({name: times[name].watermark for name in self._reads})
        return (name for name in names if not self._known[name].at_end)

    def look(self, name: str, now: float, size: EpochSize) -> Offer:
        """What the next epoch of a source could hold."""
        offer = self._intakes[name].look(now, RowLimit(size.rows))
        self._looks[name] = self._looks[name].then(offer, now)
        return offer

    def brings(self, name: str, offer: Offer) -> bool:
        """Whether an offer is an epoch."""
        return self._known[name].brings(offer)

    def nothing(self) -> tuple[str, Offer]:
        """An epoch of nothing, of the first source: it tells what is known already."""
        name = next(iter(self._reads))
        at, known = self._intakes[name].positions, self._known[name]
        offsets = {partition: (offset, offset) for partition, offset in at.items()}
        return name, Offer(offsets, known.finished, None, more=False, idle=known.idle, forced=True)

    def take(self, name: str, offer: Offer) -> tuple[tuple[int, Any], ...]:
        """Go on behind an offer that is cut; the splits that it is made up of."""
        splits = tuple(self._intakes[name].splits(offer))
        self._intakes[name].take(offer)
        self._looks[name] = self._looks[name].taken()
        self._known[name] = self._known[name].after(offer)
        return splits

    def plan(self, epoch: int, name: str, offer: Offer, lanes: int) -> EpochPlan:
        """An offer that is cut, as it is told to the log."""
        return EpochPlan(
            epoch,
            name,
            offer.offsets,
            idle=tuple(offer.idle),
            finished=tuple(offer.finished),
            hint=offer.hint,
            lanes=lanes,
            memory=self._reads[name].source.memory(),
        )

    def positions(self) -> Positions:
        """Where the next epoch of each begins."""
        return {name: dict(intake.positions) for name, intake in self._intakes.items()}

    def interruption(self, name: str, offer: Offer) -> Interruption | None:
        """What a source does to a run that cuts this, if it is one that does something."""
        return self._intakes[name].interruption(offer)

    def pause(self, name: str, until: float) -> None:
        """Take a source for empty until then."""
        self._intakes[name].pause(until)

    def facts(self, times: Mapping[str, SourceTime]) -> tuple[SourceFacts, ...]:
        """How far each is, for people who ask."""
        return tuple(
            SourceFacts(
                name,
                times[name],
                self._known[name].idle,
                look.quiet_since,
                look.rows,
                self._known[name].at_end,
            )
            for name, look in self._looks.items()
        )
