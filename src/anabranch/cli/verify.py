"""`anabranch state DIR --verify`: every file that the last commit needs, read and checked."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import polars as pl

from anabranch.errors import AnabranchError, CheckpointError
from anabranch.state.delta import Delta
from anabranch.state.layout import (
    COMMITS,
    METADATA,
    Acknowledgement,
    Commit,
    Lease,
    Metadata,
    commit_path,
    lease_path,
    number_of,
    published_path,
)
from anabranch.state.recovery import Recovered, read_delta, read_description, recover
from anabranch.state.retention import Link
from anabranch.state.store import Missing, Store

_LOOKS = 5
"""A query that runs clears away what was listed; so often it is looked at anew."""


@dataclass(slots=True)
class Checked:
    """What was read, and what is wrong with it."""

    files: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)
    """A sentence each, which begins with the file."""


def verify(store: Store) -> Checked:
    """Read a checkpoint that nobody, or somebody, is writing to; nothing is changed.

    Raises:
        CheckpointError: Whoever writes to it is too fast for it to be read.
    """
    for _ in range(_LOOKS):
        before = _newest(store)
        found = _Verification(store).run()
        if not found.problems or _newest(store) == before:
            return found
    message = f"{store} cannot be checked while its query runs"
    why = "it lets go of files faster than they are read"
    so = "check it when the query has ended, or check a savepoint: query.savepoint(path)"
    raise CheckpointError(message, why=why, so=so)


def _newest(store: Store) -> int | None:
    return max(
        (n for path in store.list(COMMITS) if (n := number_of(path)) is not None), default=None
    )


class _Verification:
    """One look at everything; what is wrong is noted, and the next thing looked at."""

    def __init__(self, store: Store) -> None:
        self._store, self._found = store, Checked()
        self._sizes = store.sizes("")

    def run(self) -> Checked:
        """Look."""
        with self._noting(METADATA):
            Metadata.from_bytes(METADATA, self._read(METADATA))
        recovered: Recovered | None = None
        with self._noting("the log"):
            recovered = recover(self._store)
        if recovered is None:
            self._commits_one_by_one()
        else:
            self._small_files(recovered)
            for links in recovered.chains.values():
                self._chain(links, {each.number: each for each in recovered.history})
        return self._found

    def _small_files(self, recovered: Recovered) -> None:
        """Those that `recover` has read are counted, the others read too."""
        for commit in recovered.history:
            self._count(commit_path(commit.number))
        if recovered.lease:
            path = lease_path(recovered.lease)
            with self._noting(path):
                Lease.from_bytes(path, self._read(path))
        if recovered.acknowledged is not None:
            path = published_path(recovered.acknowledged)
            with self._noting(path):
                Acknowledgement.from_bytes(path, self._read(path))
        if (run := recovered.described_by) is not None:
            with self._noting(f"program/{run:010d}"):
                read_description(self._store, run)
        plans = [*recovered.plans, *recovered.latest.values()]
        for plan in {each.path: each for each in plans}.values():
            self._count(plan.path)
            for path in plan.tables.values():
                with self._noting(path):
                    pl.read_ipc(io.BytesIO(self._read(path)))

    def _commits_one_by_one(self) -> None:
        """Where the log cannot be read as a whole, which of its files are damaged."""
        for path in self._store.list(COMMITS):
            with self._noting(path):
                Commit.from_bytes(path, self._read(path))

    def _chain(self, links: Sequence[Link], commits: dict[int, Commit]) -> None:
        by_lane: dict[int, list[Delta]] = {}
        for link in links:
            with self._noting(link.path):
                self._count(link.path)
                delta = read_delta(self._store, link.path)
                self._found.problems += _misplaced(delta, link, commits[link.number])
                by_lane.setdefault(link.lane, []).append(delta)
        for deltas in by_lane.values():
            self._found.problems += _torn(deltas)

    def _read(self, path: str) -> bytes:
        data = self._store.read(path)
        self._count(path)
        return data

    def _count(self, path: str) -> None:
        self._found.files += 1
        self._found.bytes += self._sizes.get(path, 0)

    def _noting(self, path: str) -> _Noting:
        return _Noting(path, self._found.problems.append)


@dataclass(slots=True)
class _Noting:
    """Note what goes wrong, and go on."""

    path: str
    note: Callable[[str], None]

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Note errors of the checkpoint; others are ours."""
        match error:
            case None:
                return False
            case Missing():
                self.note(f"{self.path}: it is missing")
            case AnabranchError():
                self.note(_sentence(self.path, error))
            case pl.exceptions.PolarsError() | OSError():
                self.note(f"{self.path}: {str(error).splitlines()[0]}")
            case _:
                return False
        return True


def _sentence(path: str, error: AnabranchError) -> str:
    said = error.what if error.why is None else f"{error.what}: {error.why}"
    return said if path in said else f"{path}: {said}"


def _misplaced(delta: Delta, link: Link, commit: Commit) -> Iterator[str]:
    """Whether a delta is of the operator and lane that its commit names it for."""
    if delta.operator != link.operator or delta.lane != link.lane:
        yield (
            f"{link.path}: it is of {delta.operator} in lane {delta.lane}, and {commit.path} "
            f"names it for {link.operator} in lane {link.lane}"
        )
    # What holds all of some slices is named when it is there, which may be commits later.
    if delta.last > commit.last or (delta.last < commit.first and not link.whole):
        yield f"{link.path}: it ends with epoch {delta.last}, and {commit.path} is of other epochs"
    strange = delta.index.keys() - link.slices
    if strange and delta.slice_key is not None:
        some = ", ".join(map(str, sorted(strange)[:5]))
        yield f"{link.path}: it has rows of slices that lane {link.lane} does not own: {some}"


def _torn(deltas: Sequence[Delta]) -> Iterator[str]:
    """Where a lane's deltas do not follow one another.

    Between them may be epochs that are in snapshots, or in which other lanes had its slices.
    """
    changes = sorted((each for each in deltas if each.kind == "delta"), key=lambda each: each.last)
    for older, newer in pairwise(changes):
        follows = newer.first == older.last + 1 and newer.parent is not None
        if newer.first <= older.last or (follows and newer.parent != older.id):
            yield f"{newer.path}: it follows {newer.parent}, not {older.path}, which is before it"
