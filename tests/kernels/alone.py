"""A driver of one kernel: a program `read(s) -> one operator with state -> sinks`, without the rest.

Rows are divided by lane and slice, lanes run in any order, attempts are lost, states are rebuilt
from their deltas: nothing of that may show. What comes out is compared with the oracle on the log.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

import anabranch as ab
from anabranch.epoch.watermarks import SourceTime
from anabranch.kernels.bundle import OFFSET, PARTITION, SLICE, TIME, branch, in_order, visible
from anabranch.kernels.failures import Failed
from anabranch.kernels.kernel import Given, Kernel, Taken
from anabranch.kernels.letters import Origins, Split
from anabranch.kernels.results import TaskError
from anabranch.kernels.state import Adding
from anabranch.kernels.times import micros_of
from anabranch.program.graph import Graph
from anabranch.program.log import Cut
from anabranch.program.operators.edges import Read, Write
from anabranch.program.operators.operator import DEAD_LETTERS, Operator, Port
from anabranch.state.slices import Owners, slice_of

Lower = Callable[[Graph, Any], Kernel[Any]]
Rows = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Ways:
    """What no output may show: how work is divided and repeated."""

    width: int = 2
    slices: int = 8
    seed: int = 0
    restart: bool = False
    """Rebuild the state from all its deltas before every epoch."""
    compact: bool = False
    """Rebuild it from one delta that is all there is."""
    together: bool = False
    """Rebuild it from one delta that is all of them, one behind the other, as a file holds them."""
    lose: bool = False
    """Run everything twice, as if the first attempt were lost."""


@dataclass
class Ran:
    """Rows by sink, how many were late, and the error that ended it."""

    rows: Rows
    late: int = 0
    letters: int = 0
    error: TaskError | None = None


def run_alone(program: ab.Program, log: Sequence[Cut], lower: Lower, ways: Ways) -> Ran:
    """Run the program's one operator between its sources and its sinks."""
    return _Run(program.freeze(), lower, ways).all(log)


class _Run:
    def __init__(self, graph: Graph, lower: Lower, ways: Ways) -> None:
        (self.op,) = [op for op in graph.operators if not isinstance(op, Read | Write)]
        self.graph, self.ways, self.draw = graph, ways, random.Random(ways.seed)
        self.kernel = pickle.loads(pickle.dumps(lower(graph, self.op)))
        self.owners = Owners.spread(slices=ways.slices, lanes=ways.width)
        self.times = {
            read.name: SourceTime(tuple(read.source.partitions()), read.lateness)
            for read in graph.sources
        }
        self.seen: dict[tuple[str, Any], int] = {}
        self.states = [self.kernel.restore(()) for _ in range(ways.width)]
        self.deltas: list[list[pl.DataFrame]] = [[] for _ in range(ways.width)]
        self.ran = Ran({write.name: [] for write in graph.sinks})

    def all(self, log: Sequence[Cut]) -> Ran:
        for epoch, cut in enumerate(log):
            before = self._watermark()
            inputs = self._inputs(cut)
            origins = self._origins(epoch, cut)
            try:
                self._epoch(origins, inputs, before, self._watermark())
            except Failed as failed:
                self.ran.error = failed.error
                break
        return self.ran

    def _watermark(self) -> int | None:
        """The least over the sources that feed the operator; None: before all time."""
        feeding = {self.graph[port.operator].name for port in self.op.inputs}
        found = [self.times[name].watermark for name in feeding]
        return None if None in found else min(found)  # type: ignore[type-var]

    def _origins(self, epoch: int, cut: Cut) -> Origins:
        """Offsets are the numbers of rows in their partition here."""
        read = next(each for each in self.graph.sources if each.name == cut.source)
        splits = [Split(i, 0, str(p), 0) for i, p in enumerate(read.source.partitions())]
        return Origins(epoch, read.name, splits)

    def _inputs(self, cut: Cut) -> list[pl.DataFrame]:
        """A bundle for each input of the operator, and the source's time moves on."""
        read = next(each for each in self.graph.sources if each.name == cut.source)
        bundle, greatest = self._bundle(read, cut)
        source = read.source
        ended = {p for p in source.partitions() if self._at_end(read, p)}
        done = frozenset(ended if cut.finished is None else cut.finished)
        self.times[read.name] = self.times[read.name].after(
            greatest, idle=frozenset(cut.idle), finished=done
        )
        readers = [at for at, port in enumerate(self.op.inputs) if port.operator == read.id]
        several = len(readers) > 1
        inputs = []
        for at, port in enumerate(self.op.inputs):
            rows = bundle if at in readers else self._none(self.graph[port.operator])
            if several:
                rows = rows.with_columns(pl.lit(at, pl.Int64).alias(branch(read.id)))
            inputs.append(rows)
        return inputs

    def _bundle(self, read: Read, cut: Cut) -> tuple[pl.DataFrame, dict[Any, int | None]]:
        parts, greatest = [self._none(read)], {}
        for index, partition in enumerate(read.source.partitions()):
            if partition not in cut.offsets:
                continue
            start, end = cut.offsets[partition]
            frames = [
                pl.DataFrame(batch)
                for split in read.source.plan({partition: start}, {partition: end})
                for batch in read.source.read(split)
            ]
            frame = pl.concat([pl.DataFrame(schema=read.outputs["out"].schema), *frames])
            first = self.seen.get((read.name, partition), 0)
            self.seen[read.name, partition] = first + frame.height
            rows = self._timed(read, frame).with_columns(
                pl.lit(index, pl.Int32).alias(PARTITION),
                pl.int_range(first, first + frame.height, dtype=pl.Int64).alias(OFFSET),
            )
            greatest[partition] = rows[TIME].max()
            parts.append(rows)
        return pl.concat(parts), greatest  # type: ignore[return-value]

    def _at_end(self, read: Read, partition: Any) -> bool:
        seen, end = self.seen.get((read.name, partition), 0), read.source.end()[partition]
        return bool(seen == end and read.source.finished(partition))

    def _timed(self, read: Read, frame: pl.DataFrame) -> pl.DataFrame:
        kind = read.outputs["out"].time
        if read.event_time is None or kind is None:
            return frame.with_columns(pl.lit(None, pl.Int64).alias(TIME))
        return frame.with_columns(micros_of(frame[read.event_time], kind).alias(TIME))

    def _none(self, read: Operator) -> pl.DataFrame:
        hidden = {TIME: pl.Int64, PARTITION: pl.Int32, OFFSET: pl.Int64}
        return pl.DataFrame(schema={**read.outputs["out"].schema, **hidden})

    def _epoch(
        self, origins: Origins, inputs: list[pl.DataFrame], before: int | None, after: int | None
    ) -> None:
        given: dict[str, list[pl.DataFrame]] = {}
        lanes = list(range(self.ways.width))
        self.draw.shuffle(lanes)
        for lane in lanes:
            taken = Taken(origins.epoch, [self._mine(rows, lane) for rows in inputs], before, after)
            for output, rows in self._lane(lane, taken).items():
                if output == DEAD_LETTERS:
                    rows = origins.addressed(rows)  # noqa: PLW2901 - as a lane task does
                given.setdefault(output, []).append(rows)
        for write in self.graph.sinks:
            (port,) = write.inputs
            self._deliver(write, port, given.get(port.output, []))

    def _lane(self, lane: int, taken: Taken) -> Mapping[str, pl.DataFrame]:
        state = self._state(lane)
        if self.ways.lose:
            self.kernel.run(taken, state)
        given: Given[Any] = self.kernel.run(taken, state)
        made, delta = given.state, given.delta
        if isinstance(made, Adding):
            made, delta = made.together(state.version)
        else:
            assert delta["slice"].is_sorted()
        assert delta["slice"].is_in(self.owners.slices_of(lane)).all()
        self.deltas[lane].append(delta)
        self.states[lane] = made.fold(made.version)
        self.ran.late += given.late
        self.ran.letters += given.letters
        return given.rows

    def _state(self, lane: int) -> Any:
        if self.ways.compact:
            return self.kernel.restore([self.states[lane].whole()])
        if self.ways.together and self.deltas[lane]:
            behind = pl.concat(self.deltas[lane], how="diagonal").sort("slice", maintain_order=True)
            return self.kernel.restore([behind])
        if self.ways.restart:
            return self.kernel.restore(self.deltas[lane])
        return self.states[lane]

    def _mine(self, rows: pl.DataFrame, lane: int) -> pl.DataFrame:
        """The rows of a lane's slices, in pieces put together again."""
        key = _key(self.op)
        rows = rows.with_columns(slice_of(rows, key, self.ways.slices).alias(SLICE))
        return rows.filter(self.owners.lane_of(rows[SLICE]) == lane)

    def _deliver(self, write: Write, port: Port, frames: list[pl.DataFrame]) -> None:
        if not frames:
            return
        rows = in_order(frames)
        expected = self.graph.output(port).schema
        assert visible(rows).schema == expected
        self.ran.rows[write.name] += visible(rows).rows(named=True)


def _key(op: Any) -> tuple[str, ...]:
    """The columns by which an operator's rows may be divided; none: all are in one lane."""
    windowing = getattr(op, "windowing", None)
    found = windowing.by if windowing is not None else getattr(op, "key", getattr(op, "on", None))
    return tuple(found or ())


WAYS = [
    Ways(width=1, slices=1),
    Ways(width=2, slices=8, restart=True, seed=1),
    Ways(width=3, slices=128, lose=True, seed=2),
    Ways(width=4, slices=16, compact=True, seed=3),
    Ways(width=2, slices=4, together=True, seed=4),
]
