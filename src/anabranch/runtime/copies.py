"""What a lane's process keeps, on its own disk, of state that is on other executors.

These are the paper's backups (ChronoStream, III-B): files of the checkpoint, of each the rows of
the slices that are to be kept here. When the executor is lost that has these slices, the lane that
has the copies takes them over, and reads nothing from the checkpoint. A copy that is late, or that
could not be made, costs the time to read the file where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl

from anabranch.errors import CheckpointError
from anabranch.runtime.aside import Aside
from anabranch.runtime.exchange import OwnedDirectory, sweep
from anabranch.state.delta import SLICE, Delta, pack, unpack
from anabranch.state.recovery import read_delta
from anabranch.state.store import LocalStore, Missing, Store

_WHAT = "backup"
_NONE: frozenset[int] = frozenset()


class Copies:
    """The copies of one process, in a directory that is gone with it."""

    def __init__(self, aside: Aside, store: Store, root: Path) -> None:
        """Begin with none; the directory is made in `root` with the first."""
        self._aside, self._store, self._root = aside, store, root
        self._kept: dict[str, frozenset[int]] = {}
        """The slices that there is a copy of, by file."""
        self._begun: dict[str, tuple[frozenset[int], Future[None]]] = {}
        self._place: tuple[OwnedDirectory, LocalStore] | None = None

    def follow(self, wanted: Mapping[str, frozenset[int]]) -> tuple[str, ...]:
        """Have copies of some slices in these files as soon as can be; says of which there are."""
        self._look()
        for path, slices in wanted.items():
            if path not in self._begun and not slices <= self._kept.get(path, _NONE):
                self.drop([path])
                begun = self._aside.submit(partial(self._copy, path, slices))
                self._begun[path] = slices, begun
        self._look()
        return tuple(p for p, slices in wanted.items() if slices <= self._kept.get(p, _NONE))

    def drop(self, paths: Iterable[str]) -> None:
        """Let go of the copies of these."""
        for path in paths:
            if self._kept.pop(path, None) is not None and self._place is not None:
                self._place[1].delete(path)

    def delta(self, path: str, slices: frozenset[int]) -> Delta | None:
        """What is in a file of some slices, if there is a copy of that."""
        if self._place is None or not slices <= self._kept.get(path, frozenset()):
            return None
        try:
            return unpack(self._place[1].read(path), path)
        except (CheckpointError, Missing):
            self._kept.pop(path, None)  # it is read where it is
            return None

    def close(self) -> None:
        """Let go of all, and of the directory."""
        self._kept, self._begun = {}, {}
        if self._place is not None:
            self._place[0].remove()
        self._place = None

    def _copy(self, path: str, slices: frozenset[int]) -> None:
        found = read_delta(self._store, path)
        mine = found.frame.filter(pl.col(SLICE).is_in(sorted(slices)))
        self._here().create(path, pack(replace(found, frame=mine)))

    def _here(self) -> LocalStore:
        if self._place is None:
            sweep(self._root, _WHAT)
            owned = OwnedDirectory.create(_WHAT, self._root)
            self._place = owned, LocalStore(owned.path)
        return self._place[1]

    def _look(self) -> None:
        """Take what is copied; what could not be is begun anew when it is asked for again."""
        for path in [path for path, (_, each) in self._begun.items() if each.done()]:
            slices, ended = self._begun.pop(path)
            if ended.exception() is None:
                self._kept[path] = slices
