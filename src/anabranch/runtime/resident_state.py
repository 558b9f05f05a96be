"""The state of a process's lanes in as much memory as it may have: the rest is in files.

Nobody waits for it. What is too much is written beside the work, and takes its place in the states
when it is written: layers never change, so those of later versions are the same. If it cannot be
written, for want of room, state stays in memory and that is told; nothing else happens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import polars as pl

from anabranch.kernels.lane_task import LaneState
from anabranch.kernels.shelf import Array
from anabranch.runtime.aside import Aside
from anabranch.runtime.resident import DECODED, Piece, to_disk
from anabranch.runtime.resident_files import StateFiles

_Number = TypeVar("_Number", bound=np.generic)
_Held: TypeAlias = pl.DataFrame | Array

SHARED = 1 << 12
"""Pieces with more bytes are shared as files of their own."""
PATIENCE = 64
"""So many jobs behind one for whose state there was no room it is tried again."""
_VIEW = 16
"""Bytes of a text's place in a column, which Polars does not count."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of an operator's state in a lane."""

    memory: int
    disk: int


@dataclass(frozen=True, slots=True)
class _Written:
    """What was put into files, each beside what it was made of; and why not all was."""

    pairs: list[tuple[_Held, _Held]] = field(default_factory=list)
    refused: list[_Held] = field(default_factory=list)
    """What can be in no file."""
    why: str = ""


class Residence:
    """What the states of a process have in memory, and what on disk."""

    def __init__(self, aside: Aside, files: StateFiles, memory: int) -> None:
        """Begin with nothing; `memory` is what states may have of it."""
        self._aside, self._files, self._memory = aside, files, memory
        self._on_disk = WeakValueDictionary[int, Any]()
        self._refused = WeakValueDictionary[int, Any]()
        self._writing: Future[_Written] | None = None
        self._also: deque[_Written] = deque()
        """What was written at once, and is to take its place."""
        self._waits = 0
        self.crowded = ""
        """Why state that should be on disk is not; nothing: it is."""

    def allow(self, memory: int) -> None:
        """Have so much from now on."""
        self._memory = memory

    def settle(
        self, states: MutableMapping[str, LaneState], newest: Sequence[str]
    ) -> list[dict[str, Sizes]]:
        """Take what is written, in all versions, and have more written of the newest ones.

        Returns how large these are, by operator.
        """
        self._take(states)
        room, known = int(DECODED * self._memory), _Inventory()
        for version in newest:
            states[version] = states[version].shelved(known)
        if known.objects > room:
            for version in newest:
                states[version] = states[version].shelved(_Replaced({}, room))
            known.objects = 0
        self._begin(known)
        self._take(states)
        return [self._sizes(states, version) for version in newest]

    def bounded(self, state: LaneState) -> LaneState:
        """The same state, at once with little enough in memory, as far as there is room on disk."""
        known = _Inventory()
        state = state.shelved(known)
        written = self._write(self._chosen(known))
        self._note(written)
        return state.shelved(_Replaced.of(written))

    def everything(self, state: LaneState) -> LaneState:
        """The same state, at once with all that is not small on disk; raises OSError.

        It takes its place in the lane's own states, so that nobody has it twice.
        """
        known = _Inventory()
        state = state.shelved(known)
        large = [held for held, size in known.held.values() if size > SHARED]
        written = self._write(held for held in large if not self._is_on_disk(held))
        if written.why:
            raise OSError(written.why)
        self._note(written)
        self._also.append(written)
        return state.shelved(_Replaced.of(written))

    def lies_on_disk(self, held: _Held) -> None:
        """Know this as a piece that was not written here."""
        self._on_disk[id(held)] = held

    def _sizes(self, states: MutableMapping[str, LaneState], version: str) -> dict[str, Sizes]:
        found, views = {}, dict(states[version].views)
        for name, view in views.items():
            known = _Inventory()
            views[name] = view.shelved(known)
            held = known.held.values()
            disk = sum(size for each, size in held if self._is_on_disk(each))
            found[name] = Sizes(sum(size for _, size in held) + known.objects - disk, disk)
        states[version] = LaneState(views)
        return found

    def _take(self, states: MutableMapping[str, LaneState]) -> None:
        found = [self._also.popleft() for _ in range(len(self._also))]
        if self._writing is not None and self._writing.done():
            found.append(self._writing.result())
            self._note(found[-1])
            self._writing = None
        for written in (each for each in found if each.pairs):
            shelf = _Replaced.of(written)
            for version, state in states.items():
                states[version] = state.shelved(shelf)

    def _begin(self, known: _Inventory) -> None:
        if self._writing is not None:
            return
        if self._waits:
            self._waits -= 1
            return
        if chosen := self._chosen(known):
            self._writing = self._aside.submit(partial(self._write, chosen))

    def _chosen(self, known: _Inventory) -> list[_Held]:
        pieces = [
            Piece(at, size, self._is_on_disk(held), self._refused.get(id(held)) is held)
            for at, (held, size) in known.held.items()
        ]
        numbers = to_disk(pieces, max(0, self._memory - known.objects))
        return [known.held[at][0] for at in numbers]

    def _write(self, chosen: Iterable[_Held]) -> _Written:
        written = _Written()
        for held in chosen:
            try:
                written.pairs.append((held, self._put(held)))
            except OSError as error:
                why = f"{error.strerror or error} in {self._files.directory}"
                return _Written(written.pairs, written.refused, why)
            except Exception:  # noqa: BLE001 - whatever Arrow has no form for stays in memory
                written.refused.append(held)
        return written

    def _put(self, held: _Held) -> _Held:
        if isinstance(held, pl.DataFrame):
            return self._files.frame(held)
        return self._files.array(held)

    def _note(self, written: _Written) -> None:
        self._on_disk.update({id(held): held for _, held in written.pairs})
        self._refused.update({id(held): held for held in written.refused})
        self.crowded, self._waits = written.why, PATIENCE if written.why else 0

    def _is_on_disk(self, held: _Held) -> bool:
        return self._on_disk.get(id(held)) is held


class _Inventory:
    """Sees what states have, and gives it back."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[_Held, int]] = {}
        self.objects = 0

    def frame(self, rows: pl.DataFrame) -> pl.DataFrame:
        self.held[id(rows)] = rows, _bytes(rows)
        return rows

    def array(self, numbers: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
        self.held[id(numbers)] = numbers, numbers.nbytes
        return numbers

    def decoded(self, size: int) -> bool:
        self.objects += size
        return True


class _Replaced:
    """Gives one piece for another."""

    def __init__(self, pairs: Mapping[int, tuple[_Held, _Held]], room: int | None = None) -> None:
        self._pairs, self._room = pairs, room

    @classmethod
    def of(cls, written: _Written) -> _Replaced:
        return cls({id(held): (held, put) for held, put in written.pairs})

    def frame(self, rows: pl.DataFrame) -> pl.DataFrame:
        return self._pairs.get(id(rows), (rows, rows))[1]  # type: ignore[return-value]

    def array(self, numbers: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
        found: npt.NDArray[_Number] = self._pairs.get(id(numbers), (numbers, numbers))[1]
        return found

    def decoded(self, size: int) -> bool:
        return self._room is None or size <= self._room


def _bytes(rows: pl.DataFrame) -> int:
    texts = sum(isinstance(dtype, pl.String | pl.Binary) for dtype in rows.dtypes)
    return int(rows.estimated_size()) + _VIEW * texts * rows.height
