"""How large the state is, by operator: the files that it would be made of again."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


class StateSizes:
    """Sizes of the files of a checkpoint. A file never changes, so each is asked for once."""

    def __init__(self, root: Path) -> None:
        """Begin with none known; paths are below `root`."""
        self._root = root
        self._known: dict[str, int] = {}

    def of(self, files: Mapping[str, frozenset[str]]) -> dict[str, int]:
        """Bytes by operator of these files; all others are forgotten."""
        named = frozenset[str]().union(*files.values())
        self._known = {path: self._size(path) for path in named}
        return {
            operator: sum(self._known[path] for path in paths) for operator, paths in files.items()
        }

    def _size(self, path: str) -> int:
        if (known := self._known.get(path)) is not None:
            return known
        with suppress(OSError):  # a figure is not worth a query
            return (self._root / path).stat().st_size
        return 0
