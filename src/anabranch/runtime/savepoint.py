"""A copy of a checkpoint as of its last commit, whole by itself, to start from later or elsewhere.

It has the layout of a checkpoint and is one: the commits that name the state's files, those files,
the plans by which sources remember where they were, what the program kept state for. What was
planned and not committed is not in it, and neither is a lease: whoever starts from it takes the
next one above the runs that its commits tell of.

It is written beside its path under a hidden name and renamed at the end, so whatever happens there
is nothing at the path or all of it. In an object store nothing can be renamed: there its last file
is the metadata, and whoever starts from files without them is refused.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from anabranch.errors import RunError
from anabranch.objects import ObjectUrl
from anabranch.state.delta import unpack
from anabranch.state.envelope import refuse
from anabranch.state.layout import (
    METADATA,
    Acknowledgement,
    Commit,
    Metadata,
    commit_path,
    program_path,
    published_path,
)
from anabranch.state.object_store import ObjectStore
from anabranch.state.recovery import Recovered, recover
from anabranch.state.store import AlreadyThere, Durability, LocalStore, Missing, Store
from anabranch.state.stores import Place, checkpoint_at


def savepoint(checkpoint: Place, path: Place, *, durability: Durability = "power") -> int:
    """Copy a checkpoint as of its last commit to `path`; returns the last epoch that is in it.

    Whoever runs the query calls this between two steps, when nothing is half done; the query goes
    on as if nothing had been. `path` must not exist. A program is started from the copy with
    `checkpoint=path`, which makes it that program's checkpoint: copy it first to keep it.
    """
    source = checkpoint_at(checkpoint)
    if source is None:
        message = f"savepoint: there is no checkpoint at {checkpoint}"
        raise RunError(message, so="take it of a query that has begun")
    try:
        recovered = recover(source)
        newest = _newest(recovered)
        with _target(path, durability) as target:
            _copy(source, target, recovered, newest)
    except Missing as error:
        message = f"savepoint: {error} went away while {checkpoint} was copied"
        so = "take it through the query that runs there, by query.savepoint(path)"
        raise RunError(message, so=so) from error
    return newest.last


def _newest(recovered: Recovered) -> Commit:
    """The commit to copy: all of its output has been shown."""
    if not recovered.history:
        message = "savepoint: the query has not begun yet"
        raise RunError(message, so="try again")
    if recovered.unpublished:
        epoch, sink = recovered.unpublished[0].epoch, recovered.unpublished[0].sink
        message = f"savepoint: sink {sink!r} has not published epoch {epoch} yet"
        why = "whoever started from it would show that output again, or not have it"
        raise RunError(message, why=why, so="try again when it has")
    return recovered.history[-1]


def _copy(source: Store, target: Store, recovered: Recovered, newest: Commit) -> None:
    """Write a checkpoint that has this commit for its newest; the files of the state first."""
    for link in (link for links in recovered.chains.values() for link in links):
        data = source.read(link.path)
        if unpack(data, link.path).path != link.path:
            refuse(link.path, "it is another delta under this name")
        target.create(link.path, data)
    plans = {plan.path for plan in recovered.latest.values()} | {*newest.adopted}
    commits = _commits(recovered, newest)
    programs = {program_path(commit.run) for commit in commits}
    for each in sorted(plans | {path for path in programs if source.exists(path)}):
        target.create(each, source.read(each))
    acknowledgement = Acknowledgement(newest.number, newest.run)
    target.create(published_path(newest.number), acknowledgement.to_bytes())
    for commit in commits:
        target.create(commit_path(commit.number), source.read(commit_path(commit.number)))
    data = source.read(METADATA)
    Metadata.from_bytes(METADATA, data)
    target.create(METADATA, data)
    recover(target)


def _commits(recovered: Recovered, newest: Commit) -> list[Commit]:
    """The newest, those that name its state, and the last with epochs: it says what program ran."""
    with_epochs = (each.number for each in reversed(recovered.history) if not each.is_opening)
    oldest = min(newest.state_from or newest.number, next(with_epochs, newest.number))
    return [each for each in recovered.history if each.number >= oldest]


@contextmanager
def _target(path: Place, durability: Durability) -> Iterator[Store]:
    """A store to fill, of which nothing is left unless all goes well."""
    if isinstance(path, Path):
        with _whole(path) as temporary:
            yield LocalStore(temporary, durability)
        return
    target = _NewObjects(path)
    try:
        target.require_empty()
        yield target
    except BaseException as error:
        with suppress(RunError):
            for each in reversed(target.made):
                target.delete(each)
        if isinstance(error, AlreadyThere):
            raise _there(path) from error
        if isinstance(error, RunError):
            raise _unwritten(path, error) from error
        raise


class _NewObjects(ObjectStore):
    """A store that knows what was made through it."""

    def __init__(self, url: ObjectUrl) -> None:
        super().__init__(url)
        self.made: list[str] = []

    def create(self, path: str, data: bytes) -> None:
        """Make a file; one of which that is not sure counts as made, unless another made it."""
        self.made.append(path)
        try:
            super().create(path, data)
        except AlreadyThere:
            self.made.pop()
            raise


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A directory to fill that is at `path` if all goes well; if not, nothing is left of it."""
    if os.path.lexists(path):
        raise _there(path)
    target = path.absolute()
    made = [folder for folder in target.parents if not folder.exists()]
    temporary = target.parent / f".{target.name[:100]}.{uuid4().hex}"
    try:
        yield temporary
        temporary.rename(target)
        _sync(target.parent)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError) and os.path.lexists(path):
            raise _there(path) from error
        if isinstance(error, RunError | OSError):
            raise _unwritten(path, error) from error
        raise


def _there(path: Place) -> RunError:
    message = f"savepoint: {path} is there already"
    return RunError(message, so="choose a path where nothing is")


def _unwritten(path: Place, error: RunError | OSError) -> RunError:
    message = f"savepoint: cannot copy the checkpoint to {path}"
    why = str(error)
    if isinstance(error, RunError):
        why = f"{error.what}: {error.why}" if error.why else error.what
    so = "make room or give the right to write there, or choose another path; nothing was left"
    return RunError(message, why=why, so=so)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
