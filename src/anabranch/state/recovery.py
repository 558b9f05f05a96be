"""From the files of a checkpoint to what a run begins with.

What the last commit names is there, or the checkpoint is refused. What nobody committed is
tentative: plans are run again with the same offsets, deltas are garbage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import polars as pl

from anabranch.errors import CheckpointError
from anabranch.state.chain import Part, taken
from anabranch.state.delta import SLICE, Delta, check_chain, unpack
from anabranch.state.description import Description
from anabranch.state.envelope import Json, NewerFormatError, refuse
from anabranch.state.layout import (
    COMMITS,
    LEASES,
    METADATA,
    PLANS,
    PROGRAMS,
    PUBLISHED,
    Commit,
    EpochPlan,
    commit_path,
    delta_of,
    is_folded,
    lease_path,
    number_of,
    plan_of,
    program_path,
    published_path,
)
from anabranch.state.retention import Link, Retention, needed_links
from anabranch.state.store import Missing, Store


@dataclass(frozen=True, slots=True)
class Unpublished:
    """Output of an epoch that is committed, and perhaps not visible yet."""

    number: int
    epoch: int
    sink: str
    messages: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a run begins with.

    `commit` is None where no epoch was ever committed; else its positions, watermarks and owners
    are those to go on from. `plans` are the epochs behind it, to be run again as they are. `latest`
    has the newest committed plan of each source, `chains` the files of each operator's state,
    oldest first.
    """

    lease: int
    commit: Commit | None = None
    plans: tuple[EpochPlan, ...] = ()
    latest: Mapping[str, EpochPlan] = field(default_factory=dict)
    chains: Mapping[str, tuple[Link, ...]] = field(default_factory=dict)
    unpublished: tuple[Unpublished, ...] = ()
    garbage: tuple[str, ...] = ()
    history: tuple[Commit, ...] = ()
    acknowledged: int | None = None

    @property
    def next_epoch(self) -> int:
        """The first epoch that is neither committed nor planned."""
        return (self.commit.last + 1 if self.commit else 0) + len(self.plans)

    @property
    def described_by(self) -> int | None:
        """The run of the last commit that has epochs: the program it ran is the one to go on with.

        A run that began and committed nothing has changed nothing, whatever its program was.
        """
        return next((each.run for each in reversed(self.history) if not each.is_opening), None)

    @property
    def published_up_to(self) -> int:
        """The last commit of which, and of all before it, nothing is left to publish."""
        return _published_up_to(self.history, self.unpublished)

    def chain(self, operator: str, lane: int) -> tuple[str, ...]:
        """The paths of what a lane wrote of an operator's state, oldest first.

        After a change of owners a slice's rows are in files of several lanes: then take `chains`.
        """
        return tuple(link.path for link in self.chains.get(operator, ()) if link.lane == lane)


def recover(store: Store, keep: int | None = None) -> Recovered:
    """Read a checkpoint; whoever calls has the lease. `keep` commits are not garbage."""
    files = frozenset(store.list(""))
    acknowledged = _highest(files, PUBLISHED)
    history = _read_history(store, files, acknowledged)
    newest = history[-1] if history else None
    plans = _read_plans(store, files, newest)
    unpublished = tuple(_unpublished(history, acknowledged))
    retention = Retention(keep)
    for commit in history:
        retention.add(commit)
    retention.expire(_published_up_to(history, unpublished))
    lease = _highest(files, LEASES) or 0
    kept = {METADATA, lease_path(lease), *(plan.path for plan in plans)}
    kept |= {program_path(commit.run) for commit in retention.commits}
    if acknowledged is not None:
        kept.add(published_path(acknowledged))
    return Recovered(
        lease=lease,
        commit=newest if newest and newest.last >= 0 else None,
        plans=plans,
        latest=_latest(store, files, retention.commits),
        chains=_chains(history, files),
        unpublished=unpublished,
        garbage=tuple(sorted(filter(_is_ours, files - kept - retention.referenced()))),
        history=tuple(retention.commits),
        acknowledged=acknowledged,
    )


def read_chain(store: Store, paths: Sequence[str]) -> list[Delta]:
    """The deltas of one lane, oldest first, each checked to follow the one before."""
    deltas = [read_delta(store, path) for path in paths]
    check_chain(deltas)
    return deltas


Copy: TypeAlias = Callable[[str, frozenset[int]], Delta | None]
"""What is at hand of some slices in a file; None: it must be read where it is."""


def read_state(
    store: Store,
    parts: Sequence[Part],
    slices: frozenset[int] | None = None,
    copy: Copy = lambda *_: None,
) -> Iterator[pl.DataFrame]:
    """What some slices' state is made of, or all slices', oldest first: of each file what counts.

    What one lane wrote for consecutive epochs is checked to follow one another.
    """
    all_ = frozenset[int]().union(*(part.slices for part in parts)) if slices is None else slices
    before: dict[int, Delta] = {}
    for each in taken(parts, all_):
        delta = copy(each.part.path, each.slices) or read_delta(store, each.part.path)
        if delta.kind == "delta":
            _check_follows(before.get(delta.lane), delta)
            before[delta.lane] = delta
        if slices is None and each.slices == each.part.slices:
            yield delta.frame
        else:
            yield delta.frame.filter(pl.col(SLICE).is_in(sorted(each.slices)))


def _check_follows(older: Delta | None, newer: Delta) -> None:
    """Refuse a lane's delta that is not made of the one before it, as a loser's is not.

    Where epochs lie between them, what they changed is in snapshots, or was another lane's.
    """
    if older is not None and newer.first <= older.last + 1 and newer.parent is not None:
        check_chain([older, newer])


def read_delta(store: Store, path: str) -> Delta:
    """A delta that a commit names: it must be there, whole, and what its name says."""
    try:
        delta = unpack(store.read(path), path)
    except Missing:
        raise _missing(path, "a commit names it") from None
    if delta.path != path:
        refuse(path, f"it is {delta.path} under another name")
    return delta


def read_plans(store: Store, path: str) -> tuple[EpochPlan, ...]:
    """The plans of a file that a commit names: it must be there, whole, and what its name says."""
    try:
        plans = EpochPlan.all_from_bytes(path, store.read(path))
    except Missing:
        raise _missing(path, "a commit names it") from None
    if plans[0].path != path:
        refuse(path, f"it is {plans[0].path} under another name")
    return plans


def committed_plans(store: Store, commit: Commit) -> Iterator[EpochPlan]:
    """The plans of a commit's epochs, in order."""
    for path in commit.plans:
        for plan in read_plans(store, path):
            # A later run may commit in the middle of what an older one wrote into one file.
            if commit.first <= plan.epoch <= commit.last:
                yield plan


def read_description(store: Store, run: int) -> Description | None:
    """What a run kept state for; None: it was of a version that did not say."""
    path = program_path(run)
    try:
        return Description.from_bytes(path, store.read(path))
    except Missing:
        return None


def _is_ours(path: str) -> bool:
    """Whether a name is one we give: a file that somebody else put there is not ours to delete."""
    if path.startswith((LEASES, COMMITS, PUBLISHED, PROGRAMS)):
        return number_of(path) is not None
    return plan_of(path) is not None or delta_of(path) is not None


def _highest(files: frozenset[str], folder: str) -> int | None:
    return max(_numbers(files, folder), default=None)


def _numbers(files: frozenset[str], folder: str) -> Iterator[int]:
    numbers = (number_of(path) for path in files if path.startswith(folder))
    return (number for number in numbers if number is not None)


def _read_history(store: Store, files: frozenset[str], acknowledged: int | None) -> list[Commit]:
    """The commits from the newest back to the first gap, oldest first; what is needed is there."""
    numbers = set(_numbers(files, COMMITS))
    number = max(numbers, default=None)
    if number is None:
        _refuse_lost_commits(acknowledged)
        return []
    history = [_read_commit(store, number)]
    while number - 1 in numbers:
        try:
            history.append(_read_commit(store, number - 1))
        except Missing:
            # An older run, just fenced, was still letting go of old commits.
            break
        number -= 1
    history.reverse()
    needed = history[-1].state_from
    if needed is not None and needed < number:
        raise _missing(commit_path(number - 1), "it names deltas that the state is made of")
    return history


def _refuse_lost_commits(acknowledged: int | None) -> None:
    if acknowledged is not None:
        raise _missing(commit_path(acknowledged), "its output has been published")


def _read_commit(store: Store, number: int) -> Commit:
    path = commit_path(number)
    commit = Commit.from_bytes(path, store.read(path))
    if commit.number != number:
        refuse(path, f"it is commit {commit.number} under another name")
    return commit


def _read_plans(
    store: Store, files: frozenset[str], newest: Commit | None
) -> tuple[EpochPlan, ...]:
    """The plans behind the newest commit that count: its run's own, and those it adopted.

    Any other is of a run that had been fenced when it wrote it.
    """
    if newest is None:
        return ()
    # What was folded is committed, or else is in the files that it was made of, too.
    named = [
        (plan_of(path), path) for path in files if path.startswith(PLANS) and not is_folded(path)
    ]
    own = {parts[0]: path for parts, path in named if parts and parts[1] == newest.run}
    adopted = {parts[0]: path for path in newest.adopted if (parts := plan_of(path))}
    paths = own | adopted
    plans: list[EpochPlan] = []
    at: int | None = newest.last + 1
    if at not in paths:
        # It may be in a file that begins with epochs which are committed.
        at = max((first for first in paths if first <= newest.last), default=None)
    while at in paths:
        path = paths[at]
        found = _try_plans(store, path, required=path in newest.adopted)
        plans += (plan for plan in found if plan.epoch > newest.last)
        at = found[-1].epoch + 1 if found else None
    return tuple(plans)


def _latest(store: Store, files: frozenset[str], commits: Sequence[Commit]) -> dict[str, EpochPlan]:
    """The newest committed plan of each source."""
    if commits and commits[-1].latest:
        last = commits[-1].last
        return {name: _last(store, path, name, last) for name, path in commits[-1].latest.items()}
    # An older version did not say which they are, and has let go of those it did not keep.
    paths = (path for commit in commits for path in commit.plans if path in files)
    return {plan.source: plan for path in paths for plan in read_plans(store, path)}


def _last(store: Store, path: str, source: str, committed: int) -> EpochPlan:
    """The last plan of a source in a file, of the epochs that are committed."""
    plans = read_plans(store, path)
    mine = [each for each in plans if each.source == source and each.epoch <= committed]
    if not mine:
        refuse(path, f"it has no committed epoch of source {source!r}, and a commit says so")
    return mine[-1]


def _try_plans(store: Store, path: str, *, required: bool) -> tuple[EpochPlan, ...]:
    """The plans of a file; none where it is not whole: power was lost, and nobody committed."""
    try:
        return read_plans(store, path)
    except NewerFormatError:
        # Whole, so the epoch may not be planned anew with other offsets.
        raise
    except CheckpointError:
        if required:
            raise
        return ()


def _unpublished(history: Sequence[Commit], acknowledged: int | None) -> Iterator[Unpublished]:
    for commit in history:
        if acknowledged is not None and commit.number <= acknowledged:
            continue
        for sink, entries in commit.staged.items():
            for epoch, messages in entries:
                yield Unpublished(commit.number, epoch, sink, messages)


def _published_up_to(history: Sequence[Commit], unpublished: Sequence[Unpublished]) -> int:
    newest = history[-1].number if history else 0
    return min((each.number - 1 for each in unpublished), default=newest)


def _chains(history: Sequence[Commit], files: frozenset[str]) -> dict[str, tuple[Link, ...]]:
    chains: dict[str, list[Link]] = {}
    for link in needed_links(history):
        if link.path not in files:
            raise _missing(link.path, f"{commit_path(link.number)} names it")
        chains.setdefault(link.operator, []).append(link)
    return {
        operator: tuple(sorted(links, key=lambda link: (link.number, link.lane)))
        for operator, links in chains.items()
    }


def _missing(path: str, why: str) -> CheckpointError:
    message = f"checkpoint file {path} is missing"
    so = "restore it from a copy of the checkpoint, or start from a savepoint"
    return CheckpointError(message, why=why, so=so)
