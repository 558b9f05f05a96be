"""Where a Files sink keeps what it wrote and what it shows: an object store.

Nothing has two names there. A staged object is copied to its place, which is refused where one is,
and then removed: whatever dies in between, doing it again ends in the same place.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from anabranch.connectors.places import local_path, plain_url
from anabranch.connectors.staging import STAGING, LocalStaging, Staging, neither, of_another_run
from anabranch.errors import ProgramError
from anabranch.objects import SCHEMES, Absent, Bucket, ObjectUrl, Taken, require_obstore, scheme_of


class ObjectStaging:
    """The objects below a URL. What is written there outlives a loss of power in any case."""

    def __init__(self, url: ObjectUrl) -> None:
        """Use this place; it is not looked at until something is done."""
        self.url = url
        self._bucket = Bucket(url, "Files")
        self._fit = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process has its own connections and credentials."""
        return type(self), (self.url,)

    def __str__(self) -> str:
        """The URL."""
        return str(self.url)

    @contextmanager
    def creating(self, name: str) -> Iterator[IO[bytes]]:
        """A new staged object: its bytes wait in memory, and are put by one request."""
        file = io.BytesIO()
        yield file
        self._bucket.create(f"{STAGING}/{name}", file.getvalue())

    def show(self, moves: Sequence[tuple[str, str]]) -> None:
        """Give staged objects their places."""
        for name, place in moves:
            self._show(name, place)
        self.remove(name for name, _ in moves)

    def _show(self, name: str, place: str) -> None:
        staged = f"{STAGING}/{name}"
        try:
            self._bucket.copy(staged, place)
        except Absent:
            if not self._is_there(place):
                raise neither(name, self.url / STAGING) from None
        except Taken:
            # By us, before a crash or in a request whose answer was lost, if it has the same bytes.
            if self._is_there(staged) and self._bucket.read(staged) != self._bucket.read(place):
                raise of_another_run(self.url / place) from None

    def _is_there(self, name: str) -> bool:
        try:
            self._bucket.size(name)
        except Absent:
            return False
        return True

    def remove(self, names: Iterable[str]) -> None:
        """Remove staged objects."""
        self._bucket.delete(*(f"{STAGING}/{name}" for name in names))

    def names(self) -> list[str]:
        """All staged objects; a store that would overwrite others' is refused first."""
        if not self._fit:
            self._bucket.require_fence(STAGING, copies=True)
            self._fit = True
        return [name.removeprefix(f"{STAGING}/") for name in self._bucket.sizes(f"{STAGING}/")]

    def with_durability(self, *, power: bool) -> ObjectStaging:  # noqa: ARG002
        """It always does."""
        return self


def output_place(given: str | os.PathLike[str]) -> Staging:
    """The place that a user means to write to: a directory, or a URL of an object store."""
    scheme = scheme_of(given)
    if scheme in SCHEMES:
        url = ObjectUrl.of(plain_url(str(given)))
        require_obstore(f"Files: writing to {url}")
        return ObjectStaging(url)
    if scheme not in (None, "file"):
        message = f"Files: nothing can be written to {plain_url(str(given))}"
        why = f"{scheme}:// has no requests that never overwrite"
        have = ", ".join(f"{each}://" for each in (*SCHEMES, "file"))
        raise ProgramError(message, why=why, have=have)
    # Tasks run elsewhere, where a relative path would mean another place.
    root = (local_path(str(given)) if scheme else Path(given)).absolute()
    if root.exists() and not root.is_dir():
        message = f"Files: {given} is a file, not a directory to write into"
        raise ProgramError(message, so="name a directory, or remove the file")
    return LocalStaging(root)
