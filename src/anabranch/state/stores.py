"""Which store a checkpoint is kept in: the only place that decides it, by what the user wrote."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

from anabranch.connectors.places import local_path
from anabranch.errors import ProgramError
from anabranch.objects import SCHEMES, ObjectUrl, refuse_secrets, require_obstore, scheme_of
from anabranch.state.layout import METADATA
from anabranch.state.object_store import ObjectStore
from anabranch.state.store import Durability, LocalStore, Store

Place: TypeAlias = Path | ObjectUrl
"""Where a checkpoint is. It may travel: there are no credentials in it."""


def place_of(given: str | os.PathLike[str] | ObjectUrl) -> Place:
    """The place that a user means: a URL of an object store, or a path.

    >>> place_of("s3://bucket/views"), place_of("file:///data/views")
    (ObjectUrl(scheme='s3', bucket='bucket', path='views'), PosixPath('/data/views'))
    """
    if isinstance(given, ObjectUrl):
        return given
    scheme = scheme_of(given)
    if scheme is None:
        return _path(given)
    text = str(given)
    refuse_secrets(text)
    if scheme == "file":
        return local_path(text)
    if scheme not in SCHEMES:
        message = f"a checkpoint cannot be kept at {text}"
        have = ", ".join(f"{each}://" for each in (*SCHEMES, "file"))
        raise ProgramError(message, why=f"{scheme}:// has no conditional puts here", have=have)
    require_obstore(f"a checkpoint at {text}")
    return ObjectUrl.of(text)


def store_at(place: Place, durability: Durability = "process") -> Store:
    """The store there; a directory is made if there is none."""
    if isinstance(place, ObjectUrl):
        return ObjectStore(place)
    return LocalStore(place, durability)


def checkpoint_at(place: Place) -> Store | None:
    """The store of a checkpoint that is there; None: there is none. Nothing is made."""
    if isinstance(place, ObjectUrl):
        store = ObjectStore(place)
        return store if store.exists(METADATA) else None
    return LocalStore(place) if (place / METADATA).is_file() else None


def _path(given: str | os.PathLike[str]) -> Path:
    path = Path(given)
    if path.parts and path.parts[0].removesuffix(":") in SCHEMES and path.parts[0].endswith(":"):
        message = f"{path} was a URL before it became a Path"
        raise ProgramError(message, so="pass the URL as text")
    return path
