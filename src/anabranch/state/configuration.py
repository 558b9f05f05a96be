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
from dataclasses import dataclass, replace
from typing import NoReturn

from anabranch.errors import ProgramError
from anabranch.state.envelope import Fields, Json, as_count, as_text, refuse, tuple_of
from anabranch.state.slices import Owners


@dataclass(frozen=True, slots=True)
class Configuration:
    """Slice to lane and lane to executor, of one version.

    >>> first = Configuration(0, Owners.spread(slices=4, lanes=1))
    >>> first.next(lanes=2, executors=("a", "b")).as_json()
    {'version': 1, 'lanes': 2, 'owners': [0, 0, 1, 1], 'executors': ['a', 'b']}
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

    def lanes_on(self, executor: str) -> tuple[int, ...]:
        """The lanes on an executor."""
        return tuple(lane for lane, where in enumerate(self.executors) if where == executor)

    def slices_by_executor(self) -> dict[str, tuple[int, ...]]:
        """The slices on each executor that has a lane, in order: what backups are placed for.

        >>> Configuration(0, Owners(4, 3, (0, 1, 2, 0)), ("b", "a", "b")).slices_by_executor()
        {'a': (1,), 'b': (0, 2, 3)}
        """
        found: dict[str, list[int]] = {name: [] for name in sorted(set(self.executors))}
        for number, lane in enumerate(self.owners.of):
            found[self.executors[lane]].append(number)
        return {name: tuple(slices) for name, slices in found.items()}

    def next(
        self,
        *,
        lanes: int | None = None,
        costs: Sequence[float] | None = None,
        executors: Sequence[str] | None = None,
    ) -> Configuration:
        """The configuration after this one, or this one if nothing changes.

        `lanes` is the new width, this one's if left out; slices then move as `Owners.moved_to`
        says. With neither `lanes` nor `costs` none moves. `executors` has a place for every lane of
        the new width; without it lanes that stay keep theirs, and of a new one nothing is said.

        >>> both = Configuration(7, Owners.spread(slices=4, lanes=2), ("a", "b"))
        >>> both.next(lanes=2) is both
        True
        >>> both.next(executors=("a", "a")).version
        8
        >>> both.next(lanes=3).executors
        ('a', 'b', '')
        """
        owners = self.owners
        if lanes is not None or costs is not None:
            owners = owners.moved_to(self.lanes if lanes is None else lanes, costs)
        places = self._places(owners.lanes) if executors is None else tuple(executors)
        if (owners, places) == (self.owners, self.executors):
            return self
        return replace(self, version=self.version + 1, owners=owners, executors=places)

    def then(self, owners: Owners, executors: Sequence[str] = ()) -> Configuration:
        """The configuration after this one, with these owners; this one if nothing changes.

        >>> first = Configuration(4, Owners.spread(slices=4, lanes=2))
        >>> first.then(first.owners) is first, first.then(first.owners, ("a", "b")).version
        (True, 5)
        """
        found = Configuration(self.version + 1, owners, tuple(executors))
        same = (found.owners, found.executors) == (self.owners, self.executors)
        return self if same else found

    def _places(self, lanes: int) -> tuple[str, ...]:
        return (*self.executors, *[""] * lanes)[:lanes]

    def as_json(self) -> dict[str, Json]:
        """As a JSON object."""
        return {
            "version": self.version,
            "lanes": self.lanes,
            "owners": list(self.owners.of),
            "executors": list(self.executors),
        }

    @classmethod
    def from_json(cls, content: Json, path: str = "configuration") -> Configuration:
        """Read what `as_json` made, from the file at `path`; whatever else is there is refused.

        >>> one = Configuration(3, Owners.spread(slices=4, lanes=2), ("a", "b"))
        >>> Configuration.from_json(one.as_json()) == one
        True
        """
        if not isinstance(content, dict):
            _refuse(path, f"not an object: {content!r}")
        fields = Fields(path, content)
        version = fields.take("version", as_count)
        lanes = fields.take("lanes", as_count)
        of = fields.take("owners", tuple_of(as_count))
        executors = fields.take("executors", tuple_of(as_text))
        fields.finish()
        if len(executors) != lanes:
            _refuse(path, f"{len(executors)} executors are named for {lanes} lanes")
        try:
            return cls(version, Owners(len(of), lanes, of), executors)
        except ProgramError as error:
            _refuse(path, error.what, error)


def _refuse(path: str, why: str, cause: BaseException | None = None) -> NoReturn:
    refuse(path, f"its configuration: {why}", cause)
