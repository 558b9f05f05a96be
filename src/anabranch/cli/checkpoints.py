"""A checkpoint as the command line sees it: by its files alone, and nothing is changed."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from anabranch.errors import CheckpointError, ProgramError
from anabranch.observe.checkpoint import COMMITTED_AT, SESSION, no_checkpoint
from anabranch.state.envelope import Json
from anabranch.state.layout import METADATA, STATE, Commit, Metadata
from anabranch.state.recovery import Recovered, recover
from anabranch.state.store import Missing, Store
from anabranch.state.stores import Place, checkpoint_at, place_of

T = TypeVar("T")

_LOOKS = 3


@dataclass(frozen=True, slots=True)
class Source:
    """How far a source is read."""

    name: str
    rows: int
    partitions: int
    watermark: int | None
    """Microseconds; None: before all time."""


@dataclass(frozen=True, slots=True)
class Operator:
    """What an operator's state is made of."""

    name: str
    lanes: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What a checkpoint holds."""

    program: str
    id: str
    created: int
    """Microseconds since 1970."""
    run: int
    """How often the program was started."""
    epochs: int
    """Those that are committed, from 0 on."""
    planned: int
    """Those behind them that will be run as they are written down."""
    committed_at: int | None
    lanes: int
    slices: int
    rows_per_second: float | None
    """Between the last two commits; None: there are no two."""
    sources: tuple[Source, ...]
    operators: tuple[Operator, ...]
    unpublished: int
    """Epochs that are committed and may not be visible yet, counted for each sink."""
    session: Mapping[str, Json] = field(default_factory=dict)
    """How it stood among other queries at its last commit; nothing: there were none."""


def place(given: str) -> Place:
    """Where a checkpoint is, as an argument of the command line."""
    try:
        return place_of(given)
    except ProgramError as error:
        # There is no line of a program to blame.
        raise argparse.ArgumentTypeError("; ".join(filter(None, (error.what, error.so)))) from error


def seen(directory: Place) -> Seen:
    """Look into a checkpoint, of a query that runs or of one that has ended.

    Raises:
        CheckpointError: It is none, or damaged.
    """
    return look(directory, _read)


def look(directory: Place, read: Callable[[Store], T]) -> T:
    """Read a checkpoint, again where a query has cleared away what was listed.

    Raises:
        CheckpointError: It is none, or damaged.
    """
    store = checkpoint_at(directory)
    if store is None:
        raise no_checkpoint(directory)
    for _ in range(_LOOKS - 1):
        # A query that runs clears away what it no longer needs: what was listed may be gone.
        with suppress(CheckpointError, Missing):
            return read(store)
    return read(store)


def _read(store: Store) -> Seen:
    metadata = Metadata.from_bytes(METADATA, store.read(METADATA))
    found = recover(store)
    sizes = store.sizes(STATE) if found.chains else {}
    commit = found.commit
    return Seen(
        metadata.program,
        metadata.id,
        metadata.created,
        found.lease,
        0 if commit is None else commit.last + 1,
        len(found.plans),
        next((at for each in reversed(found.history) if (at := _at(each)) is not None), None),
        0 if commit is None else commit.lanes,
        0 if commit is None else len(commit.owners),
        _rate(found),
        () if commit is None else tuple(_source(name, commit) for name in commit.positions),
        tuple(_operator(name, found, sizes) for name in sorted(found.chains)),
        len(found.unpublished),
        {} if commit is None else _session(commit),
    )


def _session(commit: Commit) -> Mapping[str, Json]:
    told = commit.statistics.get(SESSION)
    return told if isinstance(told, dict) else {}


def _source(name: str, commit: Commit) -> Source:
    rows = sum(commit.row_numbers.get(name, {}).values())
    return Source(name, rows, len(commit.positions[name]), commit.watermarks.get(name))


def _operator(name: str, found: Recovered, sizes: Mapping[str, int]) -> Operator:
    links = found.chains[name]
    size = sum(sizes.get(link.path, 0) for link in links)
    return Operator(name, len({link.lane for link in links}), len(links), size)


def _at(commit: Commit) -> int | None:
    at = commit.statistics.get(COMMITTED_AT)
    return at if isinstance(at, int) else None


def _rate(found: Recovered) -> float | None:
    timed = [(at, commit) for commit in found.history if (at := _at(commit)) is not None]
    if len(timed) < 2:
        return None
    (began, before), (ended, last) = timed[-2:]
    if ended <= began:
        return None
    return (_rows(last) - _rows(before)) / (ended - began) * 1_000_000


def _rows(commit: Commit) -> int:
    return sum(
        count for by_partition in commit.row_numbers.values() for count in by_partition.values()
    )
