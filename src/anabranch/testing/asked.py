"""What is asked of `assert_same_as_sequential`, checked: a mistake is told before anything runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import polars as pl

from anabranch.connectors.base import Source
from anabranch.connectors.records import Records
from anabranch.connectors.rows import difference
from anabranch.epoch.triggers import Trigger
from anabranch.errors import ProgramError, nearest
from anabranch.program.graph import Graph
from anabranch.program.operators.edges import Read
from anabranch.program.operators.operator import OUT
from anabranch.scheduling.query_policies import QUERY_POLICIES
from anabranch.testing.faults import FaultPoint
from anabranch.testing.lives import as_written, with_edges

Inputs: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]] | pl.DataFrame | Source]

WHAT = "assert_same_as_sequential"
EPOCHS = 6
"""So many at least, where a source can be cut so: some before, some behind whatever happens."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a user asked for, checked."""

    widths: tuple[int, ...]
    crashes: tuple[FaultPoint, ...]
    rescale: Mapping[int, int]
    trigger: Trigger | None
    seed: int
    other_input: bool
    policies: tuple[str | None, ...] = (None,)

    @classmethod
    def of(  # noqa: PLR0913 - what a user may say
        cls,
        widths: Sequence[int],
        crash_at: Sequence[int | str] | None,
        rescale_at: Mapping[int, int] | None,
        trigger: Trigger | None,
        seed: int,
        *,
        other_input: bool,
        policies: Sequence[str] | None = None,
    ) -> Self:
        """Check what a user gave."""
        crashes = tuple(sorted(_points(crash_at), key=lambda point: point.place))
        rescale = _rescale(rescale_at)
        return cls(
            _widths(widths),
            crashes,
            rescale,
            _trigger(trigger),
            seed,
            other_input,
            _policies(policies),
        )

    @property
    def epochs(self) -> int:
        """How many there should be, so that all that is asked for can happen."""
        named = [*self.rescale, *(point.epoch or 0 for point in self.crashes)]
        return max([EPOCHS + len(self.crashes), *(epoch + 2 for epoch in named)])

    @property
    def in_flight(self) -> int:
        """How many may be under way: one where it must be known what is planned when."""
        planned = any(point.step == "plan" and point.epoch is not None for point in self.crashes)
        if self.rescale or planned:
            return 1
        return 3 if self.crashes else 16


def _widths(given: Sequence[int]) -> tuple[int, ...]:
    found = tuple(given) if isinstance(given, Collection) else ()
    if not found or not all(_count(width, 1) for width in found):
        message = f"{WHAT}: widths must be whole numbers of at least 1, got {given!r}"
        raise ProgramError(message, so="write e.g. widths=(1, 2)")
    return found


def _policies(given: Sequence[str] | None) -> tuple[str | None, ...]:
    if given is None:
        return (None,)
    found = () if isinstance(given, str) or not isinstance(given, Collection) else tuple(given)
    unknown = [each for each in found if each not in QUERY_POLICIES]
    if not found or unknown:
        wrong = given if not unknown else unknown[0]
        message = f"{WHAT}: policies must be names of a session's policies, got {wrong!r}"
        raise ProgramError(message, have=", ".join(QUERY_POLICIES), so='policies=["klink", "rr"]')
    return found


def _points(given: Sequence[int | str] | None) -> list[FaultPoint]:
    if isinstance(given, str | int):
        message = f"{WHAT}: crash_at must be a list, got {given!r}"
        raise ProgramError(message, so=f"write crash_at=[{given!r}]")
    return [point for each in given or () for point in FaultPoint.of(each)]


def _rescale(given: Mapping[int, int] | None) -> Mapping[int, int]:
    found = given if given is not None else {}
    good = isinstance(found, Mapping) and all(
        _count(epoch, 0) and _count(lanes, 1) for epoch, lanes in found.items()
    )
    if not good:
        message = f"{WHAT}: rescale_at must map epochs to numbers of lanes, got {given!r}"
        raise ProgramError(message, so="write e.g. rescale_at={3: 2}")
    return dict(found)


def _trigger(given: Trigger | None) -> Trigger | None:
    if given is not None and not isinstance(given, Trigger):
        message = f"{WHAT}: not a trigger: {given!r}"
        raise ProgramError(message, so="pass ab.available_now(max_rows=10), ab.epochs(...) or none")
    return given


def _count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def with_inputs(graph: Graph, inputs: Inputs) -> Graph:
    """The graph with these sources in place of its own; none may be without an end."""
    names = [read.name for read in graph.sources]
    if unknown := [name for name in inputs if name not in names]:
        message = f"{WHAT}: the program has no source {unknown[0]!r}"
        raise ProgramError(message, have=", ".join(names), so=nearest(unknown[0], names))
    found = with_edges(
        graph,
        source_of=lambda r: _source(r, inputs[r.name]) if r.name in inputs else r.source,
        sink_of=lambda write: write.sink,
    )
    for read in found.sources:
        _require_end(read)
    return found


def _source(read: Read, given: Sequence[Mapping[str, Any]] | pl.DataFrame | Source) -> Source:
    schema = read.outputs[OUT].schema
    if not isinstance(given, Source):
        rows = given if isinstance(given, pl.DataFrame) else list(given)
        given = Records(rows, schema=None if isinstance(rows, pl.DataFrame) else schema)
    if wrong := difference(schema, pl.Schema(given.schema)):
        message = f"{WHAT}: what inputs has for {read.name!r} does not have its columns"
        have = ", ".join(f"{name}: {dtype}" for name, dtype in schema.items())
        raise ProgramError(message, why=wrong, have=have)
    return given


def _require_end(read: Read) -> None:
    if None in as_written(read.source).latest().values():
        message = f"{read.name} never ends, so it cannot be run to its end"
        so = f"pass inputs={{{read.name!r}: [...]}}, or give the source rows=..."
        raise ProgramError(message, site=read.site, so=so)
