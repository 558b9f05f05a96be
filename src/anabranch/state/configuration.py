"""Who works where, as one value: which lane each slice is in, which executor each lane is on.

ChronoStream keeps this as *configuration state* (III-A): routing tables and a thread-control table
in every container, changed in place and therefore guarded by a latch that readers and writers share
(III-D). Here it is a value that never changes: a rescale makes the next one, with the next version,
which holds from one job to the next, so nobody waits for anybody, and there is nothing to guard. An
epoch's plan names the version at which its rows are divided among lanes; where another one holds
when lanes take them, they take them as they were divided. Its commit names the one that held then.

Which slice a key is in is no part of it: that never changes (`slices`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.state.slices import Owners


@dataclass(frozen=True, slots=True)
class Configuration:
    """Slice to lane and lane to executor, of one version.

    >>> first = Configuration(0, Owners.spread(slices=4, lanes=1))
    >>> first.then(first.owners.moved_to(2), ("a", "b")).version
    1
    """

    version: int
    owners: Owners
    executors: tuple[str, ...] = ()
    """By lane; "" where there is one place only, or none was chosen. If left out: all of them."""

    def __post_init__(self) -> None:
        """Refuse a version below 0, and lanes without a place."""
        if not self.executors:
            object.__setattr__(self, "executors", ("",) * self.lanes)
        if self.version < 0 or len(self.executors) != self.lanes:
            places = len(self.executors)
            message = f"version {self.version}: {places} executors named for {self.lanes} lanes"
            raise ValueError(message)

    @property
    def lanes(self) -> int:
        """How many lanes there are."""
        return self.owners.lanes

    def then(self, owners: Owners, executors: Sequence[str] = ()) -> Configuration:
        """The configuration after this one, with these owners; this one if nothing changes.

        >>> first = Configuration(4, Owners.spread(slices=4, lanes=2))
        >>> first.then(first.owners) is first, first.then(first.owners, ("a", "b")).version
        (True, 5)
        """
        found = Configuration(self.version + 1, owners, tuple(executors))
        same = (found.owners, found.executors) == (self.owners, self.executors)
        return self if same else found
