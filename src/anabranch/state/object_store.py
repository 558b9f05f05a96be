"""A checkpoint in an object store: every file is an object, made by one conditional put.

Nothing else is needed of the store than that `create` refuses a name which is taken, and that
whoever lists or reads after it sees what it made. Locks there are none: the highest lease owns the
checkpoint, and a run whose lease was taken finds its next commit's name taken, or the newer lease
when it looks behind the commit, before it shows any output.
"""

from __future__ import annotations

from typing import Any

from anabranch.errors import CheckpointError
from anabranch.objects import Absent, Bucket, ObjectUrl, Taken
from anabranch.state.envelope import LARGEST
from anabranch.state.layout import METADATA
from anabranch.state.store import UNLIMITED, AlreadyThere, Missing, folders_of


class ObjectStore:
    """The contract of `Store` over the objects below a URL.

    What is created is durable when `create` returns, whatever durability was asked for. There is
    nothing half done to sweep but the probes of runs that died at their beginning.
    """

    def __init__(self, url: ObjectUrl) -> None:
        """Use this place; it is not looked at until something is done."""
        self.url = url
        self._bucket = Bucket(url, "checkpoint")

    def __repr__(self) -> str:
        """Say where."""
        return f"ObjectStore({str(self.url)!r})"

    def __str__(self) -> str:
        """The URL."""
        return str(self.url)

    def __reduce__(self) -> tuple[Any, ...]:
        """Tasks get the place; credentials are those of their own processes."""
        return type(self), (self.url,)

    def create(self, path: str, data: bytes) -> None:
        """Make a file or raise `AlreadyThere`; see `Bucket.create` for answers that are lost."""
        folders_of(path)
        try:
            self._bucket.create(path, data)
        except Taken:
            raise AlreadyThere(path) from None

    def read(self, path: str) -> bytes:
        """All of a file, or raise `Missing`."""
        first = folders_of(path)[0]
        try:
            return self._bucket.read(path, None if first in UNLIMITED else LARGEST)
        except Absent:
            raise Missing(path) from None

    def list(self, prefix: str) -> list[str]:
        """The paths of all files that begin with `prefix`, sorted."""
        return sorted(self.sizes(prefix))

    def sizes(self, prefix: str) -> dict[str, int]:
        """The bytes of all files that begin with `prefix`, by path."""
        directory, slash, _ = prefix.rpartition("/")
        if slash:
            folders_of(directory)
        found = self._bucket.sizes(directory + slash)
        return {
            path: size
            for path, size in found.items()
            if path.startswith(prefix) and not _is_hidden(path)
        }

    def delete(self, path: str) -> None:
        """Remove a file if it is there."""
        folders_of(path)
        self._bucket.delete(path)

    def exists(self, path: str) -> bool:
        """Whether a file is there."""
        folders_of(path)
        try:
            self._bucket.size(path)
        except Absent:
            return False
        return True

    def sweep(self) -> None:
        """Remove what runs left that died while they looked whether the store is fit."""
        self._bucket.delete(*(path for path in self._bucket.sizes("") if _is_hidden(path)))

    def require_empty(self) -> None:
        """Refuse a place that holds anything, and a store that has no fence; for a savepoint."""
        if found := self.list(""):
            raise AlreadyThere(found[0])
        self._bucket.require_fence()

    def require_fit(self) -> None:
        """Refuse a store that has no fence, and a place that holds something else; for a run.

        The metadata are the first file of a checkpoint and the last of a savepoint: where other
        files are without them, a savepoint was not finished, or they are no checkpoint.
        """
        self._bucket.require_fence()
        found = self.list("")
        if found and METADATA not in found:
            message = f"{self.url} is no checkpoint: it holds other files and no {METADATA}"
            have = ", ".join(found[:3])
            so = "choose a place where nothing is; if it is half of a savepoint, remove it"
            raise CheckpointError(message, have=have, so=so)


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))
