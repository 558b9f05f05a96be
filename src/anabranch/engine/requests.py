"""What is asked of an evaluator and what it answers, and both as bytes.

They are pickled, since they go from a process to its own child and back, and are kept nowhere. So
are the frames in them, as Polars pickles them: one of 300 rows and eight columns takes 85 to 93 us
there and back out, against 95 to 110 us as an Arrow stream that Polars writes and 285 to 465 us by
PyArrow (medians of four runs that took turns, on a busy machine).
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import polars as pl

from anabranch.kernels.head_task import HeadTask
from anabranch.kernels.lane_task import LaneTask
from anabranch.kernels.results import EpochInput
from anabranch.state.slices import Owners


@dataclass(frozen=True, slots=True)
class Tasks:
    """What evaluators do: a program's stages, and what is done where sources are read.

    Whoever starts evaluators pickles it, as it knows how to ship users' functions.
    """

    stages: Sequence[LaneTask]
    heads: Sequence[HeadTask]
    """By source, each routed."""
    owners: Owners


@dataclass(frozen=True, slots=True)
class Take:
    """An epoch for a partition."""

    stage: int
    partition: int
    given: EpochInput


@dataclass(frozen=True, slots=True)
class Head:
    """Consecutive rows of one partition of a source, the first with this number in it."""

    source: int
    frame: pl.DataFrame
    partition: int
    first: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Have the state that these deltas make."""

    stage: int
    partition: int
    deltas: Mapping[str, Sequence[pl.DataFrame]]


@dataclass(frozen=True, slots=True)
class Changed:
    """What has changed since this was last asked?"""

    stage: int
    partition: int


@dataclass(frozen=True, slots=True)
class Whole:
    """What is the state, or that of some slices?"""

    stage: int
    partition: int
    slices: frozenset[int] | None = None


Request: TypeAlias = Take | Head | Restore | Changed | Whole


@dataclass(frozen=True, slots=True)
class Failure:
    """Something went wrong that is no error of the user's program, in words."""

    text: str
    traceback: str


Answer: TypeAlias = Any
"""What was asked for, a `TaskError` in its place, or a `Failure`; None: it is done."""


def packed(value: Request | Answer) -> bytes:
    """A request or an answer as bytes."""
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def unpacked(message: bytes | bytearray) -> Any:
    """The request or answer that these bytes are."""
    return pickle.loads(message)  # noqa: S301 - of our own parent or child
