"""Where lanes are: on which executors, who of them is gone, and which lane had better be elsewhere.

Loaded before processes are forked, so next to nothing is loaded here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Ground:
    """Who is there, and who has which lane; nothing where there is one place only."""

    executors: tuple[str, ...] = ()
    """By name. Names are not used again."""
    of: Mapping[int, str] = field(default_factory=dict)
    """Whose each lane is."""
    leaving: frozenset[str] = frozenset()
    """Those of them who are to go, when no lane is there any more."""

    def gone(self, before: Ground, lanes: int) -> frozenset[int]:
        """The lanes that were with somebody who is not there any more.

        >>> before = Ground(("a", "b"), {0: "a", 1: "b"})
        >>> Ground(("a", "c"), {0: "a", 1: "c"}).gone(before, lanes=2)
        frozenset({1})
        """
        were = {lane: where for lane, where in before.of.items() if lane < lanes}
        return frozenset(lane for lane, where in were.items() if where not in self.executors)

    def renumbered(self, was: Sequence[int]) -> Ground:
        """The same, with each lane where the one was that it was before.

        >>> Ground(("a", "b"), {0: "a", 1: "b"}).renumbered([1]).of
        {0: 'b'}
        """
        of = {lane: self.of[old] for lane, old in enumerate(was) if old in self.of}
        return replace(self, of=of)

    def misplaced(self, lanes: int) -> int | None:
        """A lane that would better be elsewhere: where it is they leave, or have too many.

        Too many are two more than somebody else has; None: all lanes are where they should be.

        >>> Ground(("a", "b"), {0: "a", 1: "a"}).misplaced(lanes=2)
        1
        >>> Ground(("a", "b"), {0: "a", 1: "a", 2: "b"}).misplaced(lanes=3) is None
        True
        >>> Ground(("a", "b"), {0: "a", 1: "b"}, frozenset({"a"})).misplaced(lanes=2)
        0
        """
        staying = [name for name in self.executors if name not in self.leaving]
        if not staying or len(self.of) < lanes:
            return None
        left = [lane for lane in range(lanes) if self.of[lane] in self.leaving]
        if left:
            return left[0]
        mine = {name: [at for at in range(lanes) if self.of[at] == name] for name in staying}
        fullest = max(mine.values(), key=len)
        least = min(map(len, mine.values()))
        return fullest[-1] if len(fullest) >= least + 2 else None
