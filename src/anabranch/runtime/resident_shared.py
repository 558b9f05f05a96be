"""States that a lane shares with others of its host: they map its files instead of making copies.

Whoever is to have slices of another lane begins from the files that the state of that one lies in,
all of which is written for that; what that lane changes meanwhile it reads from its deltas. How a
state is made up of those files is a file itself, of pickles: it is read from a process of the same
user on the same host and run, which could do all that a pickle can.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import astuple, dataclass
from functools import partial
from typing import IO, Any
from uuid import uuid4

import numpy as np
import polars as pl

from anabranch.kernels.lane_task import LaneState, LaneTask
from anabranch.kernels.state import StateView
from anabranch.runtime.aside import Aside
from anabranch.runtime.payload import Shared
from anabranch.runtime.resident_files import FilePlace, StateFiles
from anabranch.runtime.resident_state import Residence


class Sharing:
    """What a process shares of its states, of each stage one version."""

    def __init__(self, aside: Aside, files: StateFiles, residence: Residence) -> None:
        """Begin with nothing shared."""
        self._aside, self._files, self._residence = aside, files, residence
        self._made: dict[int, Future[_Told]] = {}

    def follow(
        self, stages: tuple[int, ...], states: Mapping[int, tuple[str, LaneState]]
    ) -> tuple[Shared, ...]:
        """Share the states of these stages and no others; says which are there to be mapped."""
        self._made = {stage: made for stage, made in self._made.items() if stage in stages}
        for stage in stages:
            if stage in states and stage not in self._made:
                version, state = states[stage]
                # Without what is decoded, which is the lane's alone.
                bare = LaneState({name: x.at(x.version) for name, x in state.views.items()})
                make = partial(self._make, stage, version, bare)
                self._made[stage] = self._aside.submit(make)
        return tuple(made.result().shared for made in self._made.values() if made.done())

    def mapped(self, task: LaneTask, shared: Shared) -> LaneState:
        """The state that another process shares; raises OSError where it does so no longer."""
        with _opened(shared) as file:
            views: dict[str, bytes] = pickle.load(file)  # noqa: S301 - of the same user, see above
        empty = task.restore({}).views
        found = LaneState({name: self._read(views[name], empty[name]) for name in empty})
        # All files are let go of behind this one. If it is still there, none was another's by now.
        _opened(shared).close()
        return found

    def _make(self, stage: int, version: str, state: LaneState) -> _Told:
        try:
            return self._told_of(stage, version, state)
        except Exception:  # noqa: BLE001 - whatever it is, others can do without
            return _Told(Shared(stage, version, (), ""), state)

    def _told_of(self, stage: int, version: str, state: LaneState) -> _Told:
        state = self._residence.everything(state)
        views = {name: self._told(view) for name, view in state.views.items()}
        token = uuid4().hex
        with self._files.open() as file:
            file.write(token.encode())
            pickle.dump(views, file)
            file.flush()
            number = os.dup(file.fileno())
        place: tuple[Any, ...] = astuple(FilePlace.of(number))
        found: _Told = self._files.kept(_Told(Shared(stage, version, place, token), state), number)
        return found

    def _told(self, view: StateView) -> bytes:
        """A view, with places for what lies in files."""
        found = io.BytesIO()
        _Pickler(found, self._files, getattr(view, "windows", None)).dump(view)
        return found.getvalue()

    def _read(self, told: bytes, empty: StateView) -> Any:
        own = getattr(empty, "windows", None)
        return _Unpickler(io.BytesIO(told), self._files, self._residence, own).load()


def _opened(shared: Shared) -> IO[bytes]:
    """What is told of a state, behind its token."""
    file = io.FileIO(FilePlace(*shared.place).opened())
    if file.read(len(shared.token)) != shared.token.encode():
        file.close()
        raise FileNotFoundError(shared.version)
    return file


@dataclass(frozen=True, eq=False)
class _Told:
    """What is shared, and the state, whose files are open as long as it is there."""

    shared: Shared
    state: LaneState


class _Pickler(pickle.Pickler):
    def __init__(self, file: IO[bytes], files: StateFiles, own: object) -> None:
        super().__init__(file)
        self._files, self._own = files, own

    def persistent_id(self, obj: Any) -> Any:
        if self._own is not None and obj is self._own:
            return ()  # a part of the program, which the other one has
        if isinstance(obj, pl.DataFrame | np.ndarray) and (place := self._files.place(obj)):
            return (isinstance(obj, np.ndarray), *astuple(place))
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(
        self, file: IO[bytes], files: StateFiles, residence: Residence, own: object
    ) -> None:
        super().__init__(file)
        self._files, self._residence, self._own = files, residence, own

    def persistent_load(self, pid: Any) -> Any:
        if not pid:
            return self._own
        array, *place = pid
        found = self._files.mapped(FilePlace(*place), array=array)
        self._residence.lies_on_disk(found)
        return found
