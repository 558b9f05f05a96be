"""Where an operator's input waits: bundles with serial numbers, each cut into fragments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Expired = Callable[[], bool]
"""Whether a worker's time slice is over."""
Room = Callable[[int], bool]
"""Whether what becomes of a bundle of this serial number fits into the reorder buffer."""


def always(_: int) -> bool:
    """There is room for every one."""
    return True


@dataclass(frozen=True, slots=True)
class Fragment(Generic[T_co]):
    """What one partition gets of a bundle."""

    serial: int
    partition: int
    fragments: int
    """How many the bundle has; it is done when all of them are."""
    content: T_co


class Worklist(Protocol[T]):
    """Bundles that wait, and the rule by which workers get their fragments.

    What holds of each: fragments of a partition are operated on one at a time, in the order of
    their serial numbers, each once.
    """

    def add(self, content: Mapping[int, T]) -> int:
        """Take a bundle, cut into one fragment for each of some partitions; its serial number.

        The number is given and the bundle is queued in one step, so that numbers tell the order.
        """

    def consume(self, expired: Expired, room: Room = always) -> Iterator[Fragment[T]]:
        """Fragments for one worker, until its time is over or there is none for it now.

        A fragment has been operated on when the next is asked for; who takes one goes on until
        the iterator has ended.
        """

    def __len__(self) -> int:
        """How many fragments wait; others may come and go meanwhile."""


def fragments(serial: int, content: Mapping[int, T]) -> Iterator[Fragment[T]]:
    """A bundle's fragments.

    Raises:
        ValueError: It has none: what has no fragment is never done, and holds up all behind it.
    """
    if not content:
        message = f"bundle {serial} has no fragment"
        raise ValueError(message)
    for partition, part in content.items():
        yield Fragment(serial, partition, len(content), part)
