"""What a query's tasks need to know, once: it travels to every process that works for the query."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias
from uuid import uuid4

from anabranch.connectors.base import Sink, Source
from anabranch.kernels.head_task import HeadTask
from anabranch.kernels.lane_task import LaneTask
from anabranch.runtime.exchange import clear_epochs
from anabranch.state.slices import Owners

Durability: TypeAlias = Literal["process", "power"]


@dataclass(frozen=True, slots=True)
class Deployment:
    """One query under one run of its driver."""

    id: str
    """Different for every query, run and width: processes keep what they know of it by this."""
    program: str
    run: int
    """The number of the run's lease."""
    source: Source
    source_name: str
    head: HeadTask
    lane: LaneTask | None
    """What a lane does; None where nothing is in lanes."""
    sink: Sink
    sink_name: str
    ordered: bool
    merged: bool
    """Whether the lanes' rows must be put into one order before they are staged."""
    lanes: int
    owners: tuple[int, ...]
    """The lane of each slice."""
    exchange: Path
    checkpoint: Path
    durability: Durability

    def with_lanes(self, lanes: int) -> Deployment:
        """The same query at another width."""
        owners = Owners.spread(slices=len(self.owners), lanes=lanes)
        return replace(
            self,
            id=uuid4().hex,
            lanes=lanes,
            owners=owners.of,
            head=self.head.route(owners),
            merged=self.ordered and lanes > 1,
        )

    def clean(self, *, before: int) -> None:
        """Remove the exchanged parts of epochs that are committed."""
        clear_epochs(self.exchange, before)
