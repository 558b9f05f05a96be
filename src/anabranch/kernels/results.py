"""What tasks take and give: values only, so that any driver can carry them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from anabranch.ids import Marks

if TYPE_CHECKING:
    from anabranch.kernels.lane_task import LaneState
    from anabranch.kernels.letters import Origins

END = 2**63 - 1
"""The watermark at the end of time; the one before all time is None."""


@dataclass(frozen=True, slots=True)
class TaskError:
    """An error of the user's program: told, never raised."""

    operator: str
    """The operator's name."""
    text: str
    """The kind of the error and what it says."""
    record: str | None = None
    """The record it happened on, as JSON."""
    traceback: tuple[str, ...] = ()
    """The lines of the user's own code, outermost first."""
    so: str | None = None
    """What to do, where it is something else than to mend a function."""


@dataclass(frozen=True, slots=True)
class HeadResult:
    """What became of a range of one partition's rows.

    `parts` holds bundles by the number of the exit and by lane, and no empty one. With an error the
    parts are empty.
    """

    parts: Mapping[int, Mapping[int, pl.DataFrame]]
    rows_in: int
    greatest_time: int | None
    """The greatest event time of the rows read, in microseconds; None if there was none."""
    letters: int = 0
    """How many records failed and were left out, as `on_error` says."""
    error: TaskError | None = None


@dataclass(frozen=True, slots=True)
class EpochInput:
    """An epoch's bundles for one lane of a stage, and the watermarks around it."""

    epoch: int
    parts: Mapping[int, Sequence[pl.DataFrame]]
    """By the number of the entry, in any order."""
    marks: Marks
    origins: Origins | None = None
    """Where its records come from, if a dead letter should tell."""


@dataclass(frozen=True, slots=True)
class EpochOutput:
    """An epoch's rows of one lane, by the number of the exit, and by lane where they go to lanes.

    Each bundle is in order, with the order columns that other lanes' share; none is empty.
    """

    epoch: int
    parts: Mapping[int, Mapping[int, pl.DataFrame]]
    late: int = 0
    letters: int = 0


@dataclass(frozen=True, slots=True)
class LaneResult:
    """What became of epochs in a lane.

    Outputs and deltas, those by operator, are one an epoch. With an error they are those of the
    epochs before the one that failed, and the state is the one after those.
    """

    outputs: Sequence[EpochOutput]
    state: LaneState
    deltas: Sequence[Mapping[str, pl.DataFrame]]
    error: TaskError | None = field(default=None)
