"""Which files of a checkpoint are still needed.

The last commits can each be gone back to, so whatever they need is kept: the deltas of a chain,
back to the snapshots it begins with, and the commits that name those deltas. Without snapshots a
chain begins with the first commit, and only plans and acknowledgements go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from anabranch.state.chain import Kept, Part, needed, parts_of
from anabranch.state.layout import Commit, is_snapshot


@dataclass(frozen=True, slots=True)
class Link:
    """One file of an operator's chain: the commit that names it, the lane that wrote it."""

    number: int
    operator: str
    lane: int
    path: str
    slices: frozenset[int]
    """That its lane had; of a snapshot, those that are whole in it."""
    whole: bool

    @property
    def part(self) -> Part:
        """The file by itself."""
        return Part(self.path, self.slices, self.whole)


def needed_links(history: Sequence[Commit]) -> Iterator[Link]:
    """The files that the state after the last of these commits is made of, newest first.

    A file is needed while one of its slices has met no snapshot on the way back, and its operator
    was not dropped since.

    >>> old, new = "state/n/0000000001_1_0_a.delta", "state/n/0000000002_1_0_b.snap"
    >>> first = Commit(0, 1, owners=(0,), lanes=1, deltas={"n": {0: old}}, number=7)
    >>> second = Commit(2, 2, owners=(0,), lanes=1, deltas={"n": {0: new}}, number=8)
    >>> [link.number for link in needed_links([first, second])]
    [8]
    """
    found: dict[str, dict[Part, Link]] = {}
    for commit in history:
        for operator in commit.dropped:
            found.pop(operator, None)
        for operator, part in parts_of(commit):
            link = Link(commit.number, operator, part.name.lane, part.path, part.slices, part.whole)
            found.setdefault(operator, {})[part] = link
    links = [by_part[part] for by_part in found.values() for part in needed(by_part)]
    yield from sorted(links, key=lambda link: (-link.number, link.lane))


class _Links:
    """Of commits in order, the oldest that names a file which is needed behind the last."""

    def __init__(self) -> None:
        """Begin before the first."""
        self._kept: dict[str, Kept] = {}
        self._numbers: dict[str, dict[str, int]] = {}
        """The commits that name the files which are needed, by operator and path."""

    def add(self, commit: Commit) -> None:
        """Take the next commit."""
        for operator in commit.dropped:
            self._kept.pop(operator, None)
            self._numbers.pop(operator, None)
        for operator, part in parts_of(commit):
            numbers = self._numbers.setdefault(operator, {})
            numbers[part.path] = commit.number
            for gone in self._kept.setdefault(operator, Kept()).add(part):
                numbers.pop(gone.path, None)

    def copy(self) -> _Links:
        """The same, to go on from."""
        made = _Links()
        made._kept = {operator: each.copy() for operator, each in self._kept.items()}
        made._numbers = {operator: dict(each) for operator, each in self._numbers.items()}
        return made

    def oldest(self) -> int | None:
        """The number of that commit; None: no file is needed."""
        return min((min(each.values()) for each in self._numbers.values() if each), default=None)


class Retention:
    """The commits that are kept, and what may go when there are more."""

    def __init__(self, keep: int | None) -> None:
        """Keep the last `keep` commits that have epochs, and what they need; None: everything."""
        if keep is not None and keep < 1:
            message = f"at least one commit is kept, not {keep}"
            raise ValueError(message)
        self._keep = keep
        self._commits: list[Commit] = []
        # Before this one commits are kept only for their deltas; their plans are gone.
        self._window = self._with_epochs = 0
        # What the newest needs, and what the oldest of the window does.
        self._newest_links, self._oldest_links = _Links(), _Links()
        self._linked = 0
        # Plans of before the window that are the newest of their sources all the same.
        self._spared: set[str] = set()

    @property
    def commits(self) -> Sequence[Commit]:
        """All that are kept, oldest first."""
        return tuple(self._commits)

    @property
    def newest(self) -> Commit | None:
        """The last that was added."""
        return self._commits[-1] if self._commits else None

    def state_from(self, commit: Commit) -> int | None:
        """The oldest commit whose deltas are needed after `commit`, which follows the newest."""
        before = self.newest.state_from if self.newest else None
        if before is None:
            return commit.number if commit.delta_paths else None
        if not _shortens(commit):
            return before
        links = self._newest_links.copy()
        links.add(commit)
        return links.oldest()

    def referenced(self) -> frozenset[str]:
        """The paths of all that is kept: commits, their deltas, the plans of the last ones."""
        kept = self._commits[self._window :]
        plans = (path for each in kept for path in (*each.plans, *each.latest.values()))
        deltas = (path for each in self._commits for path in each.delta_paths)
        return frozenset((*plans, *deltas, *(each.path for each in self._commits)))

    def add(self, commit: Commit) -> None:
        """Take a commit that follows the newest."""
        self._commits.append(commit)
        self._with_epochs += not commit.is_opening
        self._newest_links.add(commit)

    def expire(self, published: int) -> tuple[str, ...]:
        """The paths that nothing needs any more, commits first; nothing behind `published`."""
        if self._keep is None:
            return ()
        begin = self._window
        while self._can_leave(published):
            self._with_epochs -= not self._commits[self._window].is_opening
            self._window += 1
        plans = [path for each in self._commits[begin : self._window] for path in each.plans]
        return (*self._drop(begin), *self._unspared(plans))

    def _unspared(self, plans: Iterable[str]) -> list[str]:
        """The plans that nobody needs any more; others may go later.

        A source needs its newest to remember where it was, and a file of plans may be of epochs of
        several commits.
        """
        oldest = self._commits[self._window] if self._commits else None
        needed = (
            set[str]()
            if oldest is None
            else {*oldest.latest.values(), *oldest.plans, *oldest.adopted}
        )
        left = dict.fromkeys([*plans, *sorted(self._spared)])
        self._spared = {path for path in left if path in needed}
        return [path for path in left if path not in needed]

    def _can_leave(self, published: int) -> bool:
        """Whether behind the oldest of the window enough commits are left that have epochs."""
        assert self._keep is not None
        if self._window >= len(self._commits) - 1:
            return False
        oldest = self._commits[self._window]
        left = self._with_epochs - (not oldest.is_opening)
        return left >= self._keep and oldest.number <= published

    def _drop(self, begin: int) -> Iterator[str]:
        """Let go of commits whose deltas the oldest of the window does not need."""
        if begin == self._window:
            return
        for each in self._commits[self._linked : self._window + 1]:
            self._oldest_links.add(each)
        kept = self._commits[: self._window + 1]
        oldest = self._oldest_links.oldest()
        first = kept[-1].number if oldest is None else oldest
        dropped = [each for each in kept if each.number < min(first, kept[-1].number)]
        del self._commits[: len(dropped)]
        self._window -= len(dropped)
        self._linked = self._window + 1
        yield from (each.path for each in dropped)
        for each in dropped:
            yield from each.delta_paths


def _shortens(commit: Commit) -> bool:
    """Whether chains may be shorter after this commit than before."""
    return bool(commit.dropped or commit.snapshots) or any(map(is_snapshot, commit.delta_paths))
