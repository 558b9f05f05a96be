"""State on its way to the checkpoint: what a barrier brought, as files; and back again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from uuid import uuid4

import polars as pl

from anabranch.engine.resident import Changed, Epoch, Program
from anabranch.ids import Marks
from anabranch.kernels.lane_task import LaneState
from anabranch.runtime.deployment import Deployment
from anabranch.runtime.payload import Chain
from anabranch.state.chain import due
from anabranch.state.delta import Delta, pack
from anabranch.state.recovery import read_state
from anabranch.state.store import Store

ROUND = 32
"""Commits in which each slice is written anew once: a recovery reads no more deltas."""


@dataclass(slots=True)
class Written:
    """The files of one barrier."""

    deltas: dict[str, dict[int, str]] = field(default_factory=dict)
    """By operator and partition."""
    snapshots: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)
    """By operator and path, the slices that are whole in it."""
    changed: dict[str, int] = field(default_factory=dict)
    """Rows, by operator."""
    size: dict[str, int] = field(default_factory=dict)
    """Bytes, by operator."""

    def add(self, delta: Delta, size: int) -> None:
        """Count a file."""
        operator = delta.operator
        self.size[operator] = self.size.get(operator, 0) + size
        if delta.kind == "snapshot":
            assert delta.slices is not None
            self.snapshots.setdefault(operator, {})[delta.path] = tuple(delta.slices)
        else:
            self.deltas.setdefault(operator, {})[delta.lane] = delta.path
            self.changed[operator] = self.changed.get(operator, 0) + delta.frame.height


class Writer:
    """Writes what partitions have changed; one thread at a time."""

    def __init__(
        self,
        deployment: Deployment,
        program: Program,
        store: Store,
        turns: Mapping[tuple[int, int], float],
    ) -> None:
        """Go on with rounds where they were."""
        self._deployment, self._program, self._store = deployment, program, store
        self._versions: dict[tuple[int, int], str] = {}
        self.turns = dict(turns)
        """By stage and partition, how much of its round is over."""

    def write(self, epoch: Epoch, first: int) -> Written:
        """Write what has changed from an epoch on up to the one of a barrier."""
        found = Written()
        for place, changed in epoch.changed.items():
            for delta in self._deltas(place, changed, (first, epoch.number), epoch.marks):
                packed = pack(delta)
                self._store.create(delta.path, packed)
                found.add(delta, len(packed))
        return found

    def _deltas(
        self, place: tuple[int, int], changed: Changed, epochs: tuple[int, int], marks: Marks
    ) -> Iterator[Delta]:
        """A delta of each operator, and all that there is of the slices whose turn it is."""
        stage, partition = place
        mine = self._program.slices_of(stage, partition)
        version, parent = uuid4().hex, self._versions.get(place)
        self._versions[place] = version
        turn = self.turns.get(place, 0.0)
        all_ = range(self._deployment.owners.slices)
        compact = due(sorted(all_ if mine is None else mine), turn, ROUND)
        self.turns[place] = (turn + 1 / ROUND) % 1

        def file(operator: str, rows: pl.DataFrame, slices: tuple[int, ...] | None) -> Delta:
            return Delta(
                operator,
                partition,
                self._deployment.run,
                *epochs,
                version,
                rows,
                parent=parent if slices is None else None,
                watermark=_watermark(marks),
                kind="delta" if slices is None else "snapshot",
                slice_key=self._deployment.stages[stage].key,
                slices=slices,
            )

        for operator, rows in changed.deltas.items():
            yield file(operator, rows, None)
        if compact:
            whole = changed.state.whole(None if mine is None else frozenset(compact))
            for operator, rows in whole.items():
                yield file(operator, rows, tuple(compact))


def restored(program: Program, store: Store, chain: Chain) -> dict[tuple[int, int], LaneState]:
    """The states that files make, by stage and partition."""
    found = {}
    for stage, (task, _) in enumerate(program.stages):
        parts = {name: chain[name] for name in task.operators if name in chain}
        if not parts:
            continue
        for partition in range(program.partitions_of(stage)):
            slices = program.slices_of(stage, partition)
            frames = {name: read_state(store, files, slices) for name, files in parts.items()}
            found[stage, partition] = task.restore(frames)
    return found


def _watermark(marks: Marks) -> int | None:
    """The least of all sources' watermarks behind an epoch."""
    found = [after for _, after in marks.values()]
    return None if None in found else min(each for each in found if each is not None)
