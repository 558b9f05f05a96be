"""What a program means (`run_sequential`): one thread, one record at a time.

The run takes the epochs of a log in order; of each the records one at a time, each through the
whole graph before the next, then the watermark through the operators in topological order (M1, M7).
Every operator checks that its rows come in the order of their keys (M5): a run that breaks the law
fails instead of giving an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from polars.exceptions import PolarsError

from anabranch.errors import ProgramError, RunError
from anabranch.ids import OperatorId
from anabranch.program.graph import Graph
from anabranch.program.log import Cut
from anabranch.program.operators.edges import Feedback, Read, Write
from anabranch.program.operators.operator import DEAD_LETTERS, OUT, Operator, Port
from anabranch.program.operators.together import Lookup
from anabranch.testing.sequential.checkpoint import log_of
from anabranch.testing.sequential.feed import Feed
from anabranch.testing.sequential.node import Emitted, Node
from anabranch.testing.sequential.nodes import node_of
from anabranch.testing.sequential.routes import Route, routes_of
from anabranch.testing.sequential.row import BEFORE_TIME, RECORD_PHASE, OrderKey, Row
from anabranch.testing.sequential.times import micros
from anabranch.testing.sequential.together import LookupNode

Rows: TypeAlias = dict[str, list[dict[str, Any]]]
_NO_PARTITION = -1


class Written(Protocol):
    """Anything that can be frozen into a graph: a Program."""

    def freeze(self) -> Graph:
        """The graph."""
        ...


def run_sequential(
    program: Written,
    *,
    epoch_rows: int | None = None,
    log: Iterable[Cut] | str | Path | None = None,
) -> Rows:
    """The rows of every sink, by the sink's name, in order. Touches no sink.

    `log` is a list of cuts, or the directory of a checkpoint. Without one the sources are read to
    their end in rounds: each gives an epoch of up to `epoch_rows` rows from each partition, or all.
    """
    if epoch_rows is not None and log is not None:
        message = "run_sequential takes epoch_rows or log, not both"
        raise ProgramError(message)
    if epoch_rows is not None and epoch_rows < 1:
        message = f"epoch_rows must be at least 1, got {epoch_rows!r}"
        raise ProgramError(message)
    run = Sequential(program.freeze())
    if isinstance(log, str | Path):
        log = log_of(Path(log), run.graph)
    for _ in run.rounds(epoch_rows) if log is None else map(run.epoch, log):
        pass
    return run.written


class Sequential:
    """A run under way: the nodes, the epoch, and what has been written."""

    def __init__(self, graph: Graph) -> None:
        """Make a node of every operator."""
        self.graph = graph
        self.written: Rows = {sink.name: [] for sink in graph.sinks}
        self.feeds = {op.name: Feed(op) for op in graph.sources}
        self._nodes: dict[OperatorId, Node[Any]] = {
            op.id: node_of(op, [graph.output(port) for port in op.inputs])
            for op in graph.operators
            if not isinstance(op, Read | Write | Feedback)
        }
        self._routes: dict[Port, Sequence[Route]] = {
            Port(op.id, name): routes_of(graph, Port(op.id, name))
            for op in graph.operators
            for name in op.outputs
        }
        self._fed_back: dict[OperatorId, list[Row]] = {number: [] for number in graph.feedback}
        self._last: dict[OperatorId, OrderKey] = {}
        self._watermarks: dict[OperatorId, float | None] = {}
        self._epoch = 0

    def rounds(self, rows: int | None) -> Iterator[None]:
        """Read all sources to their end, an epoch each a round, the smallest watermark first (M3).

        Yields behind each epoch, so that a caller can tell how far it is.
        """
        while cuts := [cut for feed in self.feeds.values() if (cut := feed.next_cut(rows))]:
            taken = [(cut, list(self._feed(cut).rows(cut, self._epoch))) for cut in cuts]
            ends = [(self._feed(cut).close(cut), cut, emitted) for cut, emitted in taken]
            for end, cut, emitted in sorted(ends, key=lambda each: each[0]):
                self._run(cut, emitted, end)
                yield

    def epoch(self, cut: Cut) -> None:
        """Take one epoch of the log."""
        feed = self._feed(cut)
        emitted = list(feed.rows(cut, self._epoch))
        self._run(cut, emitted, feed.close(cut))

    def _run(self, cut: Cut, emitted: Emitted, end: float) -> None:
        self._refresh(cut)
        feed, fed_back = self._feed(cut), self._take_fed_back()
        for number, row in fed_back:
            self._push(number, [(OUT, row)])
        for output, row in emitted:
            placed = replace(row, key=(self._epoch, *row.key[1:]))
            placed = replace(placed, origin=replace(row.origin, epoch=self._epoch))
            if output == DEAD_LETTERS:
                placed = placed.with_values({**row.values, "epoch": self._epoch})
            self._push(feed.op.id, [(output, placed)])
        feed.watermark = end
        self._advance()
        self._epoch += 1

    def _advance(self) -> None:
        """Carry the watermark through the operators, each before those behind it."""
        for op in self.graph.operators:
            watermark = self._watermark(op)
            self._watermarks[op.id] = watermark
            if op.id in self._nodes:
                reached = BEFORE_TIME if watermark is None else watermark
                self._push(op.id, self._nodes[op.id].advance(reached, self._epoch))

    def _watermark(self, op: Operator) -> float | None:
        """The least over the sources that feed it; None where only feedbacks do (M4, M14)."""
        if isinstance(op, Read):
            return self.feeds[op.name].watermark
        behind = [(self._watermarks[port.operator], port.operator) for port in op.inputs]
        counting = [known - self._lag(number) for known, number in behind if known is not None]
        return min(counting, default=None)

    def _lag(self, number: OperatorId) -> int:
        return self._nodes[number].lag if number in self._nodes else 0

    def _push(self, number: OperatorId, emitted: Emitted) -> None:
        """Carry rows through all that is downstream, one at a time, depth first."""
        stack = [self._outgoing(number, emitted)]
        while stack:
            following = next(stack[-1], None)
            if following is None:
                stack.pop()
                continue
            route, row = following
            stack.append(self._deliver(route, route.carry(row)))

    def _outgoing(self, number: OperatorId, emitted: Emitted) -> Iterator[tuple[Route, Row]]:
        for output, row in self._told(number, emitted):
            port = Port(number, output)
            for closed, by in self.graph.feedback.items():
                if by == port:
                    self._fed_back[closed].append(row)
            for route in self._routes[port]:
                yield route, row

    def _told(self, number: OperatorId, emitted: Emitted) -> Emitted:
        """What an operator emits; an expression that fails on a row is an error of the run."""
        try:
            yield from emitted
        except PolarsError as error:
            op = self.graph[number]
            message = f"{op.name} failed: {str(error).splitlines()[0]}"
            raise RunError(message, site=op.site) from error

    def _deliver(self, route: Route, row: Row) -> Iterator[tuple[Route, Row]]:
        number = route.edge.operator
        last = self._last.get(number)
        assert last is None or last < row.key, f"{self.graph[number].name}: {last} then {row.key}"
        self._last[number] = row.key
        op = self.graph[number]
        if isinstance(op, Write):
            self.written[op.name].append(dict(row.values))
            return iter(())
        return self._outgoing(number, _lazily(self._nodes[number], row, route.edge.position))

    def _take_fed_back(self) -> list[tuple[OperatorId, Row]]:
        """What entered a feedback in the last epoch, at the start of this one."""
        released = []
        for number in sorted(self._fed_back):
            held = self._fed_back[number]
            for at, row in enumerate(held):
                key = (self._epoch, RECORD_PHASE, (_NO_PARTITION, number, at))
                values = {name: row.values[name] for name in self.graph[number].outputs[OUT].schema}
                placed = replace(row, key=key, time=self._time_of(number, row), values=values)
                released.append((number, placed))
            self._fed_back[number] = []
        return released

    def _time_of(self, number: OperatorId, row: Row) -> int | None:
        op = self.graph[number]
        kind = op.outputs[OUT].time
        assert isinstance(op, Feedback)
        if op.event_time is None or kind is None:
            return None
        if row.values[op.event_time] is None:
            message = f"{op.name}: null event time in column {op.event_time!r}"
            raise RunError(message, site=op.site)
        return micros(row.values[op.event_time], kind)

    def _refresh(self, cut: Cut) -> None:
        """Take the table versions that hold from this epoch on."""
        for op in self.graph.of(Lookup):
            node = self._nodes[op.id]
            if op.name in cut.tables and isinstance(node, LookupNode):
                node.load(cut.tables[op.name])

    def _feed(self, cut: Cut) -> Feed:
        if cut.source not in self.feeds:
            message = f"the log names a source {cut.source!r} that the program does not read"
            raise ProgramError(message, have=", ".join(self.feeds))
        return self.feeds[cut.source]


def _lazily(node: Node[Any], row: Row, position: int) -> Emitted:
    """What a node makes of a row, when it is asked for."""
    yield from node.take(row, position)
