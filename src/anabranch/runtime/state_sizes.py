"""How large the state is, by operator: the files that it would be made of again."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from anabranch.errors import RunError
from anabranch.runtime.payload import StageDone
from anabranch.state.layout import STATE
from anabranch.state.stores import Place, store_at


class StateSizes:
    """Sizes of the files of a checkpoint. A file never changes, so each is asked for once.

    Those of this run are told by who wrote them; the store is asked for older ones, all at once.
    """

    def __init__(self, place: Place) -> None:
        """Begin with none known; `place` is that of the checkpoint."""
        self._store = store_at(place)
        self._known: dict[str, int] = {}

    def note(self, done: StageDone) -> None:
        """Take what a lane wrote."""
        self._known.update({path: done.sizes[name] for name, path in done.deltas.items()})

    def of(self, files: Mapping[str, frozenset[str]]) -> dict[str, int]:
        """Bytes by operator of these files; all others are forgotten."""
        named = frozenset[str]().union(*files.values())
        if not named <= self._known.keys():
            with suppress(RunError):  # a figure is not worth a query
                self._known = self._store.sizes(STATE) | self._known
        self._known = {path: self._known.get(path, 0) for path in named}
        return {
            operator: sum(self._known[path] for path in paths) for operator, paths in files.items()
        }
