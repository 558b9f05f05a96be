"""The files that an operator's state is made of, and which of them are still needed.

A *delta* is what a lane changed in its slices up to an epoch, a *snapshot* all that there was of
some slices behind one. The state of a slice is its newest snapshot and what was changed since, by
whichever lane had it: so a slice may go from lane to lane, and be written anew at any time, and
nobody has to write all of a lane at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from anabranch.state.layout import Commit, DeltaName, delta_of, is_snapshot


@dataclass(frozen=True, slots=True)
class Part:
    """One file: what it is of, and whether that is all there was."""

    path: str
    slices: frozenset[int]
    """Those that its lane had; of a snapshot, those that are whole in it."""
    whole: bool = False

    @property
    def name(self) -> DeltaName:
        """What its path says."""
        found = delta_of(self.path)
        assert found is not None
        return found

    @property
    def place(self) -> tuple[int, bool]:
        """Where it is in the order of its operator's files: a snapshot is behind its epoch."""
        return self.name.epoch, self.whole


def parts_of(commit: Commit) -> Iterator[tuple[str, Part]]:
    """The files that a commit names, each with its operator."""
    for operator, by_lane in commit.deltas.items():
        for lane, path in by_lane.items():
            slices = commit.slices_of(operator, lane)
            yield operator, Part(path, slices, whole=is_snapshot(path))
    for operator, by_path in commit.snapshots.items():
        for path, whole in by_path.items():
            # Of one that is not divided all rows are in one slice, and all slices are that one.
            all_ = operator in commit.undivided
            slices = commit.slices_of(operator, 0) if all_ else frozenset(whole)
            yield operator, Part(path, slices, whole=True)


def needed(parts: Iterable[Part], slices: frozenset[int] | None = None) -> tuple[Part, ...]:
    """Those that the state of some slices is made of, or of all, oldest first.

    >>> a = Part("state/n/0000000001_1_0_a.delta", frozenset({0, 1}))
    >>> b = Part("state/n/0000000002_1_0_b.delta", frozenset({0, 1}))
    >>> c = Part("state/n/0000000001_1_0_c.snap", frozenset({0}), whole=True)
    >>> [part.name.id for part in needed([a, b, c])]
    ['a', 'c', 'b']
    >>> [part.name.id for part in needed([a, b, c], frozenset({0}))]
    ['c', 'b']
    """
    found, whole = [], set[int]()
    for part in sorted(parts, key=lambda each: each.place, reverse=True):
        wanted = part.slices if slices is None else part.slices & slices
        if not wanted <= whole:
            found.append(part)
        if part.whole:
            whole |= part.slices
    return tuple(reversed(found))


@dataclass(frozen=True, slots=True)
class Taken:
    """A file, and the slices for which it counts."""

    part: Part
    slices: frozenset[int]


def taken(parts: Sequence[Part], slices: frozenset[int]) -> Iterator[Taken]:
    """The files that some slices' state is made of, oldest first, and of each what counts.

    A file from before a slice's snapshot may be read for others: of this slice it tells nothing.
    """
    found, whole = [], set[int]()
    for part in reversed(needed(parts, slices)):
        found.append(Taken(part, frozenset((part.slices & slices) - whole)))
        if part.whole:
            whole |= part.slices
    return reversed(found)


class Kept:
    """An operator's files as they come, less those that nothing needs any more.

    At any time those that are `needed` of all that came; one more costs one look at each, where
    asking for them anew costs a walk along all that ever were.

    >>> a = Part("state/n/0000000001_1_0_a.delta", frozenset({0, 1}))
    >>> b = Part("state/n/0000000002_1_0_b.delta", frozenset({0, 1}))
    >>> c = Part("state/n/0000000002_1_0_c.snap", frozenset({0, 1}), whole=True)
    >>> kept = Kept([a, b])
    >>> [part.name.id for part in kept.add(c)], [part.name.id for part in kept]
    (['a', 'b'], ['c'])
    """

    def __init__(self, parts: Iterable[Part] = ()) -> None:
        """Take these, in any order."""
        self._places: list[tuple[int, bool]] = []
        self._parts: list[tuple[Part, frozenset[int]]] = []
        """By place, each with the slices for which it is needed."""
        for part in parts:
            self.add(part)

    def add(self, part: Part) -> tuple[Part, ...]:
        """Take one more; those that are not needed any more, itself perhaps."""
        at = bisect_left(self._places, part.place)
        later = (each.slices for each, _ in self._parts[at:] if each.whole)
        counts = part.slices.difference(*later)
        gone = self._cover(at, part.slices) if part.whole else ()
        if not counts:
            return (*gone, part)
        at -= len(gone)
        self._places.insert(at, part.place)
        self._parts.insert(at, (part, counts))
        return gone

    def _cover(self, before: int, slices: frozenset[int]) -> tuple[Part, ...]:
        """Of files that come before this place nothing is needed of some slices."""
        gone, kept = list[Part](), list[tuple[Part, frozenset[int]]]()
        for part, counts in self._parts[:before]:
            left = counts - slices
            if left:
                kept.append((part, left))
            else:
                gone.append(part)
        if gone:
            self._places[:before] = [part.place for part, _ in kept]
        self._parts[:before] = kept
        return tuple(gone)

    def copy(self) -> Kept:
        """The same, to go on from."""
        made = Kept()
        made._places, made._parts = list(self._places), list(self._parts)
        return made

    def __iter__(self) -> Iterator[Part]:
        """Those that are needed, oldest first."""
        return (part for part, _ in self._parts)


def round_of(state: float, delta: float, shortest: int, longest: int) -> int:
    """In how many deltas each slice is to be written anew once, given bytes of both.

    As many as weigh as much as the state does: then a query writes at most twice what it changes,
    and a recovery reads at most twice the state, or so few files that they do not matter. A power
    of two times the shortest, so that turns add up exactly.

    >>> [round_of(1e9, size, 32, 512) for size in (1e9, 1e7, 1e5)]
    [32, 128, 512]
    """
    found = shortest
    while found < longest and found * delta < state:
        found *= 2
    return found


def due(slices: Sequence[int], turn: float, round_: int) -> tuple[int, ...]:
    """The slices to write anew with a lane's next delta, when so much of its round is over.

    Each comes once in a round of so many deltas, whatever rounds were before: of 64 slices two at a
    time in rounds of 32.

    >>> due(range(64), 0.0, 32), due(range(64), 1 / 32, 32)
    ((0, 1), (2, 3))
    >>> [due((7,), at / 4, 4) for at in range(4)]
    [(), (), (), (7,)]
    """
    count = len(slices)
    passed = range(int(turn * count), int((turn + 1 / round_) * count))
    return tuple(slices[at % count] for at in passed)
