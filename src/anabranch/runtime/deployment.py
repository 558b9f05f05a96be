"""What a query's tasks need to know, once: it travels to every process that works for the query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias
from uuid import uuid4

from anabranch.config import StateMemory
from anabranch.connectors.base import Sink, Source
from anabranch.kernels.head_task import HeadTask
from anabranch.kernels.lane_task import LaneTask
from anabranch.kernels.region import Link
from anabranch.runtime.exchange import clear_epochs
from anabranch.state.slices import Owners
from anabranch.state.stores import Place

Durability: TypeAlias = Literal["process", "power"]


@dataclass(frozen=True, slots=True)
class Input:
    """A source, and what is done where its rows are read."""

    name: str
    source: Source
    head: HeadTask


@dataclass(frozen=True, slots=True)
class LaneStage:
    """A stage of lanes."""

    task: LaneTask
    level: int
    key: tuple[str, ...] | None
    """The columns that divide its rows; None: all are in lane 0."""

    def lanes(self, width: int) -> range:
        """The lanes that it runs in, where there are so many."""
        return range(width if self.key is not None else 1)


@dataclass(frozen=True, slots=True)
class Output:
    """A sink, and where its rows come from."""

    sink: Sink
    ordered: bool
    stage: int | None
    """The stage that writes to it; None: heads do."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """One query under one run of its driver."""

    id: str
    """Different for every query, run and width: processes keep what they know of it by this."""
    program: str
    run: int
    """The number of the run's lease."""
    inputs: tuple[Input, ...]
    """In the order of the `read` calls."""
    stages: tuple[LaneStage, ...]
    links: tuple[Link, ...]
    outputs: Mapping[str, Output]
    """By the sinks' names."""
    letters: bool
    """Whether somebody reads dead letters."""
    lanes: int
    owners: Owners
    exchange: Path
    checkpoint: Place
    durability: Durability
    state: StateMemory = field(default_factory=StateMemory)
    """How much of it lanes have in memory."""

    @property
    def levels(self) -> int:
        """How many levels an epoch goes through."""
        return max((stage.level for stage in self.stages), default=1)

    @property
    def undivided(self) -> tuple[str, ...]:
        """The operators with state that run in one lane, whatever the width."""
        alone = (stage.task.operators for stage in self.stages if stage.key is None)
        return tuple(operator for operators in alone for operator in operators)

    def slices_of(self, stage: LaneStage, lane: int) -> frozenset[int] | None:
        """The slices of a stage's state that a lane has; None: it has all there is."""
        return None if stage.key is None else frozenset(self.owners.slices_of(lane))

    def number(self, source: str) -> int:
        """The place of a source among the inputs."""
        return [each.name for each in self.inputs].index(source)

    def merged(self, sink: str) -> bool:
        """Whether rows of several lanes must be put into one order before they are staged."""
        output = self.outputs[sink]
        if output.stage is None or not output.ordered:
            return False
        return len(self.stages[output.stage].lanes(self.lanes)) > 1

    def with_lanes(self, lanes: int) -> Deployment:
        """The same query at another width."""
        return self.with_owners(self.owners.moved_to(lanes))

    def with_owners(self, owners: Owners) -> Deployment:
        """The same query with slices in other lanes."""
        inputs = tuple(replace(each, head=each.head.route(owners)) for each in self.inputs)
        return replace(self, id=uuid4().hex, lanes=owners.lanes, owners=owners, inputs=inputs)

    def clean(self, *, before: int) -> None:
        """Remove the exchanged parts of what was cut before this ticket."""
        clear_epochs(self.exchange, before)
