"""Places of keys in arrays: a number for each, given when it is first seen."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Hashes: TypeAlias = npt.NDArray[np.uint64]
Places: TypeAlias = npt.NDArray[np.int64]

_FEW = 1024
"""Keys that are new may be so many, or this part of all, until they are put to the others."""
_PART = 8


class KeyPlaces:
    """Hashes and their places, in two sorted indexes: one of most, one of those that are new.

    So a key that is new moves few others, and finding one is two bisections.
    """

    def __init__(self) -> None:
        """Begin without keys."""
        self._most, self._new = _Index(), _Index()

    def __len__(self) -> int:
        return len(self._most.hashes) + len(self._new.hashes)

    def of(self, hashes: Hashes) -> tuple[Places, Places]:
        """The place of each hash; and of those that had none a row each, in their places' order.

        >>> known = KeyPlaces()
        >>> [each.tolist() for each in known.of(np.array([7, 5, 7], dtype=np.uint64))]
        [[1, 0, 1], [1, 0]]
        >>> [each.tolist() for each in known.of(np.array([9, 5], dtype=np.uint64))]
        [[2, 0], [0]]
        """
        places, known = self._most.find(hashes)
        if known.all():
            return places, _NONE
        left = np.flatnonzero(~known)
        places[left], known = self._new.find(hashes[left])
        if known.all():
            return places, _NONE
        left = left[~known]
        fresh, first, of = np.unique(hashes[left], return_index=True, return_inverse=True)
        numbers = np.arange(len(self), len(self) + len(fresh), dtype=np.int64)
        places[left] = numbers[of]
        self._add(fresh, numbers)
        return places, left[first]

    def _add(self, hashes: Hashes, places: Places) -> None:
        self._new = self._new.with_more(hashes, places)
        if len(self._new.hashes) > max(_FEW, len(self._most.hashes) // _PART):
            self._most = self._most.with_more(self._new.hashes, self._new.places)
            self._new = _Index()


class _Index:
    """Hashes, sorted, each once, and their places."""

    def __init__(self, hashes: Hashes | None = None, places: Places | None = None) -> None:
        self.hashes = np.empty(0, dtype=np.uint64) if hashes is None else hashes
        self.places = _NONE if places is None else places

    def find(self, hashes: Hashes) -> tuple[Places, npt.NDArray[np.bool_]]:
        """The places, and which of them hold."""
        if not len(self.hashes):
            return np.zeros(len(hashes), dtype=np.int64), np.zeros(len(hashes), dtype=bool)
        at = np.searchsorted(self.hashes, hashes)
        np.minimum(at, len(self.hashes) - 1, out=at)
        return self.places[at], self.hashes[at] == hashes

    def with_more(self, hashes: Hashes, places: Places) -> _Index:
        """The same and others, which are none of them."""
        both = np.concatenate([self.hashes, hashes])
        order = np.argsort(both, kind="stable")
        return _Index(both[order], np.concatenate([self.places, places])[order])


_NONE: Places = np.empty(0, dtype=np.int64)
