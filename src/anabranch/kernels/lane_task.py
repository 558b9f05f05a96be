"""What happens to rows in a lane: the operators of a region, each with its own state.

An epoch goes from operator to operator, each taking all its rows, in order, and then the watermark.
That gives what records one at a time would give, since an operator sees the same rows in the same
order. Only functions of which nothing is proved could tell, if there are two: they may know of each
other. Then each row goes all the way before the next one, as far as rows go at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import polars as pl

from anabranch.compiler.proof import Proof
from anabranch.ids import Marks
from anabranch.kernels.bundle import in_order
from anabranch.kernels.exits import Exit
from anabranch.kernels.failures import Failed
from anabranch.kernels.kernel import Keeping, Kernel, Taken
from anabranch.kernels.letters import Origins
from anabranch.kernels.results import END, EpochInput, EpochOutput, LaneResult
from anabranch.kernels.shelf import Shelf
from anabranch.kernels.state import Adding, Nothing, StateView
from anabranch.kernels.stateless.chain import Chain
from anabranch.kernels.stateless.split import Branches
from anabranch.kernels.together.feedback import FeedbackKernel, FeedbackState
from anabranch.kernels.wires import Wire
from anabranch.program.operators.operator import DEAD_LETTERS, OUT, Port
from anabranch.state.slices import Owners

Around: TypeAlias = tuple[int | None, int | None]
"""The watermarks before and after an epoch, where there are any: a feedback's does not count, and
what is fed by feedbacks alone has none (M14)."""

_NEVER: Around = (None, None)
"""What an operator without a watermark takes: nothing ever fires there."""


@dataclass(frozen=True)
class Entry:
    """Rows of another place that come into a stage."""

    port: Port
    empty: pl.DataFrame
    """No rows, as they come in."""
    feeds: tuple[tuple[str, int], ...]
    """The sources whose watermarks hold here, and by how much this port is behind each."""
    letters: bool = False
    """Whether they are dead letters of a head, which does not know of which epoch they are."""
    traced: bool = False
    """Whether rows get beside them where they come from."""

    def rows(self, parts: Sequence[pl.DataFrame], origins: Origins) -> pl.DataFrame:
        """All that came, in order."""
        if not parts:
            return self.empty
        parts = [self.told(part, origins) for part in parts]
        if len(parts) == 1 and {*self.empty.columns} <= {*parts[0].columns}:
            # Every part is in order by itself.
            return parts[0]
        return in_order([self.empty, *parts])

    def told(self, rows: pl.DataFrame, origins: Origins) -> pl.DataFrame:
        """Rows with what is to be known of where they come from."""
        rows = origins.addressed(rows) if self.letters else rows
        return origins.traced(rows) if self.traced else rows

    def marks(self, marks: Marks) -> Around | None:
        """The watermarks at this port before and after an epoch."""
        lows = [(marks[source], lag) for source, lag in self.feeds]
        return _least([(_behind(low, lag), _behind(high, lag)) for (low, high), lag in lows])


@dataclass(frozen=True)
class Node:
    """Operators without state, one behind the other, or one with it."""

    port: Port
    """Where its rows leave."""
    wires: tuple[Wire, ...]
    work: Chain | Branches | Kernel[Any]
    apart: bool = False
    """Whether a row goes through all its steps before the next one."""
    traced: bool = False
    """Whether it holds rows with where they come from: a dead letter behind it may tell."""

    @property
    def lag(self) -> int:
        """By how much its output's watermark is behind its own."""
        return 0 if isinstance(self.work, Chain | Branches) else self.work.lag


@dataclass(frozen=True)
class Loop:
    """A feedback: what a port gives in one epoch enters another at the start of the next."""

    port: Port
    """Where rows come out."""
    closing: Port
    """Where they are taken, in this stage or at its entry."""
    work: FeedbackKernel

    def state(self, states: Mapping[str, StateView]) -> FeedbackState:
        """Its own among those of a lane."""
        found = states[self.work.operator]
        assert isinstance(found, FeedbackState)
        return found


@dataclass(frozen=True, slots=True)
class LaneState:
    """The states of a lane's operators, by name, all at one version."""

    views: Mapping[str, StateView]

    def fold(self) -> LaneState:
        """The same states, each in as few pieces as can be."""
        return LaneState({name: each.fold(each.version) for name, each in self.views.items()})

    def together(
        self, since: LaneState, deltas: Sequence[Mapping[str, pl.DataFrame]]
    ) -> tuple[LaneState, dict[str, pl.DataFrame]]:
        """The same states, and by operator one delta for those of all epochs since then."""
        views, changed = dict(self.views), dict[str, pl.DataFrame]()
        for name, view in self.views.items():
            if isinstance(view, Nothing):
                changed[name] = deltas[-1][name]
            elif isinstance(view, Adding):
                views[name], changed[name] = view.together(since.views[name].version)
            else:
                changed[name] = pl.concat([each[name] for each in deltas], how="diagonal")
        return LaneState(views), changed

    def whole(self, slices: frozenset[int] | None = None) -> Mapping[str, pl.DataFrame]:
        """All of each as one delta, or all of some slices."""
        return {name: each.whole(slices) for name, each in self.views.items()}

    def only(self, slices: frozenset[int]) -> LaneState:
        """The same states, of these slices alone."""
        return LaneState({name: each.only(slices) for name, each in self.views.items()})

    def joined(self, other: LaneState) -> LaneState:
        """These states and those of other slices of the same operators, all of them folded."""
        return LaneState({name: x.joined(other.views[name]) for name, x in self.views.items()})

    def shelved(self, shelf: Shelf) -> LaneState:
        """The same states, with the pieces that a shelf gave back."""
        return LaneState({name: each.shelved(shelf) for name, each in self.views.items()})


@dataclass(slots=True)
class _Epoch:
    """One epoch on its way: what every port has given, what every state has become."""

    origins: Origins
    states: dict[str, StateView]
    deltas: dict[str, list[pl.DataFrame]] = field(default_factory=dict)
    flows: dict[Port, list[pl.DataFrame]] = field(default_factory=dict)
    late: int = 0
    letters: int = 0

    @property
    def number(self) -> int:
        """The epoch's place in the log."""
        return self.origins.epoch

    def add(self, port: Port, rows: pl.DataFrame) -> None:
        """Take what a port gave."""
        self.flows.setdefault(port, []).append(rows)

    def gathered(self) -> dict[Port, pl.DataFrame]:
        """All that every port gave, in order: rows came one at a time, and in order."""
        return {port: _together(found) for port, found in self.flows.items()}


@dataclass(frozen=True)
class LaneTask:
    """A region's operators over one lane's slices."""

    entries: tuple[Entry, ...]
    nodes: tuple[Node, ...]
    exits: tuple[Exit, ...]
    proofs: tuple[Proof, ...] = ()
    """What its being parallel rests on; to be looked at when a task begins and ends."""
    loops: tuple[Loop, ...] = ()
    one_by_one: int = 0
    """So many of the nodes take each row, all of them, before the next one."""

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators with state."""
        return tuple(kernel.operator for kernel in self._kernels())

    def restore(self, deltas: Mapping[str, Iterable[pl.DataFrame]]) -> LaneState:
        """The states after epochs with these deltas, in order; without any, the first ones."""
        found = {k.operator: k.restore(deltas.get(k.operator, ())) for k in self._kernels()}
        return LaneState(found)

    def after(self, state: LaneState, deltas: Mapping[str, Iterable[pl.DataFrame]]) -> LaneState:
        """Folded states after more epochs with these deltas, in order."""
        return LaneState(
            {
                k.operator: k.after(state.views[k.operator], deltas.get(k.operator, ()))
                for k in self._kernels()
            }
        )

    def with_tables(self, tables: Mapping[str, pl.DataFrame]) -> LaneTask:
        """The same task with other versions of some lookup tables, by the lookup's name."""
        nodes = tuple(
            replace(node, work=node.work.with_tables(tables))
            if isinstance(node.work, Chain)
            else node
            for node in self.nodes
        )
        return replace(self, nodes=nodes)

    def run(self, epochs: Sequence[EpochInput], state: LaneState, owners: Owners) -> LaneResult:
        """Take epochs in order, from these states on; they are left as they are."""
        outputs: list[EpochOutput] = []
        deltas: list[Mapping[str, pl.DataFrame]] = []
        for epoch in epochs:
            try:
                done = self._epoch(epoch, state)
            except Failed as failed:
                return LaneResult(outputs, state, deltas, failed.error)
            parts = self._parts(done, owners)
            outputs.append(EpochOutput(epoch.epoch, parts, done.late, done.letters))
            deltas.append({name: _together(found) for name, found in done.deltas.items()})
            state = LaneState(done.states)
        return LaneResult(outputs, state, deltas)

    def nothing(self) -> dict[Port, pl.DataFrame]:
        """What every port of its own gives of no rows."""
        times = {source: (None, None) for entry in self.entries for source, _ in entry.feeds}
        done = self._epoch(EpochInput(0, {}, times), self.restore({}))
        entries = {entry.port for entry in self.entries}
        return {port: _together(f) for port, f in done.flows.items() if port not in entries}

    def _parts(self, done: _Epoch, owners: Owners) -> dict[int, dict[int, pl.DataFrame]]:
        found = {
            number: each.parts(_together(done.flows[each.wire.port]), owners)
            for number, each in enumerate(self.exits)
        }
        return {number: parts for number, parts in found.items() if parts}

    def _kernels(self) -> Iterator[Keeping[Any]]:
        yield from (loop.work for loop in self.loops)
        works = (node.work for node in self.nodes)
        yield from (work for work in works if not isinstance(work, Chain | Branches))

    def _epoch(self, given: EpochInput, state: LaneState) -> _Epoch:
        origins = given.origins or Origins(given.epoch)
        flows = {
            entry.port: entry.rows(given.parts.get(number, ()), origins)
            for number, entry in enumerate(self.entries)
        }
        marks = {entry.port: entry.marks(given.marks) for entry in self.entries}
        flows |= {loop.port: loop.work.given(loop.state(state.views)) for loop in self.loops}
        marks |= {loop.port: None for loop in self.loops}
        epoch = _Epoch(origins, dict(state.views), flows={p: [rows] for p, rows in flows.items()})
        first, rest = self.nodes[: self.one_by_one], self.nodes[self.one_by_one :]
        if first:
            # Rows one by one, then the watermark: their epoch does not end with each of them.
            (entry,) = self.entries
            before, _ = marks[entry.port] or _NEVER
            for row in flows[entry.port].iter_slices(1):
                self._apart(epoch, first, row, before)
            flows = {entry.port: entry.empty}
        self._through(epoch, first, flows, marks)
        self._through(epoch, rest, epoch.gathered(), marks)
        for loop in self.loops:
            self._close(epoch, loop)
        return epoch

    def _close(self, epoch: _Epoch, loop: Loop) -> None:
        """Keep what the epoch gave for the next one."""
        name, rows = loop.work.operator, _together(epoch.flows[loop.closing])
        if loop.work.carried:
            rows = epoch.origins.kept(rows)
        state, delta = loop.work.closed(epoch.number, rows, loop.state(epoch.states))
        epoch.states[name] = state
        epoch.deltas[name] = [delta]

    def _apart(
        self, epoch: _Epoch, nodes: Sequence[Node], row: pl.DataFrame, mark: int | None
    ) -> None:
        """Take a row through nodes that follow one another, and each that is made of it, too."""
        waiting = [(0, row)]
        while waiting:
            at, each = waiting.pop()
            if at == len(nodes):
                continue
            given = self._given(epoch, nodes[at], [each], (mark, mark))
            for output, rows in given.items():
                epoch.add(replace(nodes[at].port, output=output), rows)
            waiting += [(at + 1, one) for one in reversed(list(given[OUT].iter_slices(1)))]

    def _through(
        self,
        epoch: _Epoch,
        nodes: Sequence[Node],
        flows: dict[Port, pl.DataFrame],
        marks: dict[Port, Around | None],
    ) -> None:
        """Take rows and watermarks through some nodes; what each gives is added to the epoch."""
        for node in nodes:
            inputs = [wire.carry(flows[wire.port]) for wire in node.wires]
            now = _least([low for wire in node.wires if (low := marks[wire.port]) is not None])
            for output, rows in self._given(epoch, node, inputs, now or _NEVER).items():
                port = (
                    node.port if output == node.port.output else replace(node.port, output=output)
                )
                flows[port] = rows
                marks[port] = now and (_behind(now[0], node.lag), _behind(now[1], node.lag))
                epoch.add(port, rows)

    def _given(
        self,
        epoch: _Epoch,
        node: Node,
        inputs: list[pl.DataFrame],
        marks: Around,
    ) -> Mapping[str, pl.DataFrame]:
        if isinstance(node.work, Chain):
            return self._chained(epoch, node, inputs[0])
        if isinstance(node.work, Branches):
            return node.work.run(inputs[0])
        name = node.work.operator
        if node.traced:
            inputs = [epoch.origins.kept(rows) for rows in inputs]
        given = node.work.run(Taken(epoch.number, inputs, *marks), epoch.states[name])
        epoch.states[name] = given.state
        epoch.deltas.setdefault(name, []).append(given.delta)
        epoch.late += given.late
        epoch.letters += given.letters
        if DEAD_LETTERS not in given.rows:
            return given.rows
        return {**given.rows, DEAD_LETTERS: epoch.origins.addressed(given.rows[DEAD_LETTERS])}

    def _chained(self, epoch: _Epoch, node: Node, rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
        assert isinstance(node.work, Chain)
        if node.apart and rows.height:
            found, left = node.work.run_apart(rows)
            made = pl.concat(found) if found else node.work.run(rows.clear())[0]
        else:
            made, left = node.work.run(rows)
        epoch.letters += left.count
        if left.letters is None:
            return {OUT: made}
        return {OUT: made, DEAD_LETTERS: epoch.origins.addressed(left.letters)}


def _together(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Frames one behind the other; a column that one lacks is null."""
    full = [frame for frame in frames if frame.height]
    if len(full) <= 1:
        return full[0] if full else frames[-1]
    return pl.concat(full, how="diagonal")


def _least(marks: Sequence[Around]) -> Around | None:
    """The least of some watermarks, if there are any."""
    if not marks:
        return None
    return _earliest(low for low, _ in marks), _earliest(high for _, high in marks)


def _earliest(marks: Iterable[int | None]) -> int | None:
    """The least of some watermarks, of which None is before all time."""
    found = list(marks)
    return None if None in found else min(each for each in found if each is not None)


def _behind(mark: int | None, lag: int) -> int | None:
    """What an operator promises of its output: the end of time stays where it is."""
    return mark if mark is None or mark == END else mark - lag
