"""State on its way to the checkpoint: what a barrier brought, as files; and back again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import polars as pl

from anabranch.engine.core import Work
from anabranch.engine.resident import Barrier, Changed, Epoch, Program, StageWork
from anabranch.ids import Marks
from anabranch.runtime.deployment import Deployment
from anabranch.runtime.payload import Chain
from anabranch.runtime.tasks import least_watermark
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
        self._due: dict[tuple[int, int], tuple[int, ...]] = {}
        """By stage and partition, the slices that are written anew at the barrier under way."""
        self.turns = dict(turns)
        """By stage and partition, how much of its round is over."""

    def barrier(self) -> Barrier:
        """What is wanted of partitions at the next barrier."""
        all_, found = range(self._deployment.owners.slices), dict[tuple[int, int], Any]()
        self._due = {}
        for stage in range(len(self._program.stages)):
            for partition in range(self._program.partitions_of(stage)):
                place, mine = (stage, partition), self._program.slices_of(stage, partition)
                turn = self.turns.get(place, 0.0)
                self.turns[place] = (turn + 1 / ROUND) % 1
                if slices := due(sorted(all_ if mine is None else mine), turn, ROUND):
                    self._due[place] = tuple(slices)
                    found[place] = None if mine is None else frozenset(slices)
        return found

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
        version, parent = uuid4().hex, self._versions.get(place)
        self._versions[place] = version

        def file(operator: str, rows: pl.DataFrame, slices: tuple[int, ...] | None) -> Delta:
            return Delta(
                operator,
                partition,
                self._deployment.run,
                *epochs,
                version,
                rows,
                parent=parent if slices is None else None,
                watermark=least_watermark(marks),
                kind="delta" if slices is None else "snapshot",
                slice_key=self._deployment.stages[stage].key,
                slices=slices,
            )

        for operator, rows in changed.deltas.items():
            yield file(operator, rows, None)
        for operator, rows in changed.whole.items():
            yield file(operator, rows, self._due[place])


def restore(program: Program, works: Sequence[Work], store: Store, chain: Chain) -> None:
    """Have operators begin with the states that files make."""
    for work in works:
        if not isinstance(work, StageWork):
            continue
        task, _ = program.stages[work.number]
        parts = {name: chain[name] for name in task.operators if name in chain}
        if not parts:
            continue
        for partition, home in enumerate(work.homes):
            slices = program.slices_of(work.number, partition)
            home.restore({name: read_state(store, part, slices) for name, part in parts.items()})
