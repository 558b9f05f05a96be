"""Whose epoch is cut next: decided by what is known of sources, and nothing else.

Heads are put in order before an epoch's watermark is known, so an epoch has its place in the log
when it is cut (M3: none waits for one that is not known yet). That a fast source does not relax a
slow one's watermark is seen to here: of those that have something, the one whose watermark is least
goes first, and none twice before the others had their turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from anabranch.epoch.protocol import Offer
from anabranch.ids import Partition


@dataclass(frozen=True, slots=True)
class Sequenced:
    """What is known of a source where epochs are cut."""

    idle: frozenset[Partition] = frozenset()
    finished: frozenset[Partition] = frozenset()
    partitions: int = 1

    def brings(self, offer: Offer) -> bool:
        """Whether an offer is an epoch: it has rows, or tells of a partition what was not so.

        >>> empty = Offer({0: (5, 5)}, frozenset(), None, False)
        >>> Sequenced().brings(empty), Sequenced().brings(replace(empty, idle=frozenset({0})))
        (False, True)
        """
        ends = not offer.finished <= self.finished
        return offer.forced or not offer.empty or ends or not offer.idle <= self.idle

    def after(self, offer: Offer) -> Sequenced:
        """What is known once it is cut."""
        return replace(self, idle=offer.idle, finished=self.finished | offer.finished)

    @property
    def at_end(self) -> bool:
        """Whether nothing more will come."""
        return len(self.finished) == self.partitions


def in_turn(watermarks: Mapping[str, int | None]) -> list[str]:
    """The sources in the order in which they are looked at, given in that of the `read` calls.

    >>> in_turn({"a": 7, "b": None, "c": 7, "d": 3})
    ['b', 'd', 'a', 'c']
    """
    return sorted(watermarks, key=lambda name: _order(watermarks[name]))


def _order(watermark: int | None) -> tuple[bool, int]:
    """The watermark before all time is the least."""
    return watermark is not None, watermark or 0
