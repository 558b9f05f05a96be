"""Patterns (M14): every record may begin a run, and the first run that is complete is the match.

Predicates that are expressions are evaluated once for an epoch's rows, Python functions only where
a run asks for their answer. Runs are tuples of places in one frame, of the rows that wait in state
and of the epoch's: rows become Python objects for Python predicates alone.

What is kept of a key is the rows that its runs hold, each once, and which of them each run holds.
A run ends with its key's watermark: no record that is not behind could be near enough any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl
from polars.exceptions import PanicException, PolarsError

from anabranch.kernels.bundle import TIME, hidden
from anabranch.kernels.kernel import Given, Taken
from anabranch.kernels.keyed.outputs import outputs_of
from anabranch.kernels.keyed.rows import NEVER, UNTIL, ColumnState, Shape, arranged, as_delta
from anabranch.kernels.keyed.runs import Contiguous, Run
from anabranch.kernels.keys import canonical
from anabranch.kernels.letters import Left
from anabranch.kernels.stateless.evaluated import Evaluated
from anabranch.kernels.stateless.left_out import left_out
from anabranch.kernels.stateless.python_rows import Made, records_of
from anabranch.kernels.times import shown_column
from anabranch.program.expressions import Expression
from anabranch.program.functions import Function, OnError
from anabranch.program.graph import Graph
from anabranch.program.operators.keyed import Match
from anabranch.program.pattern import Step
from anabranch.program.schema import TimeType

_ROWS, _RUNS, _OF = "rows", "runs", "of"
_NONE_YET: Run = ((), 0, 0)


@dataclass(frozen=True)
class MatchKernel:
    """A match operator, lowered."""

    operator: str
    steps: tuple[Step, ...]
    within: int
    skip: bool
    shape: Shape
    schema: pl.Schema
    time: TimeType
    on_error: OnError
    lag: int = 0

    @classmethod
    def of(cls, graph: Graph, op: Match) -> Self:
        """Lower the operator."""
        given = graph.output(op.inputs[0])
        assert given.time is not None
        row = pl.Struct({**given.schema, TIME: pl.Int64()})
        runs = pl.List(pl.List(pl.UInt32()))
        kept: dict[str, pl.DataType] = {UNTIL: pl.Int64(), _ROWS: pl.List(row), _RUNS: runs}
        shape = Shape.of(op.key, given.schema, kept, one=True)
        return cls(
            op.name, op.steps, op.within, op.skip, shape, given.schema, given.time, op.on_error
        )

    def restore(self, deltas: Iterable[pl.DataFrame], version: int = 0) -> ColumnState:
        """The state after epochs with these deltas, in order."""
        return ColumnState.from_deltas(self.shape, deltas, version)

    def after(self, state: ColumnState, deltas: Iterable[pl.DataFrame]) -> ColumnState:
        """The state after more epochs with these deltas, in order."""
        return state.after(deltas)

    def run(self, taken: Taken, state: ColumnState) -> Given[ColumnState]:
        """Carry the runs of each key on."""
        (rows,) = taken.rows
        if not rows.height:
            left, delta = self._left(rows, {}), self.shape.empty()
            found = outputs_of(self._matches(rows, []), left)
            return Given(found, state.then(delta, taken.after), delta)
        epoch = _Epoch(self, rows, state, taken)
        epoch.run()
        left = self._left(rows, epoch.failures)
        out = self._matches(epoch.pool, epoch.found)
        delta = as_delta(self.shape, epoch.kept(taken.after))
        rows = out.with_columns([rows[name][epoch.places] for name in hidden(rows)])
        found = outputs_of(rows, left)
        return Given(found, state.then(delta, taken.after), delta, letters=left.count)

    def _left(self, rows: pl.DataFrame, failures: dict[int, Exception]) -> Left:
        made = Made(failures=failures)
        return left_out(self.operator, rows, tuple(self.schema), made, self.on_error)

    @property
    def pattern(self) -> list[int]:
        """The number of the step that each row of a match is for."""
        return [number for number, step in enumerate(self.steps) for _ in range(step.times)]

    def _matches(self, pool: pl.DataFrame, found: Sequence[tuple[int, ...]]) -> pl.DataFrame:
        """The user's columns of matches, each of the rows at these places."""
        taken = np.array(found, dtype=np.int64).reshape(len(found), len(self.pattern))
        last, first = pool[taken[:, -1]], pool[taken[:, 0]]
        keys = [
            canonical(pl.col(name), self.schema[name]).cast(self.schema[name]).alias(name)
            for name in self.shape.by
        ]
        start = first.select(shown_column(pl.col(TIME), self.time).alias("match_start"))
        end = last.select(shown_column(pl.col(TIME), self.time).alias("match_end"))
        steps, at = [], 0
        for step in self.steps:
            steps.append(self._lists(pool, taken[:, at : at + step.times]).alias(step.name))
            at += step.times
        return last.select(keys).with_columns([*start, *end, *steps])

    def _lists(self, pool: pl.DataFrame, taken: Any) -> pl.Series:
        """The rows at these places as structs, in lists of one length."""
        structs = pool.select(pl.struct(list(self.schema)).alias(_ROWS))[_ROWS]
        return _listed(structs, taken.ravel(), np.repeat(np.arange(len(taken)), taken.shape[1]))


def _listed(values: pl.Series, places: Any, groups: Any) -> pl.Series:
    """The values at these places in lists, one a group; groups are in order."""
    frame = pl.DataFrame({_OF: pl.Series(groups, dtype=pl.Int64), _ROWS: values[places]})
    return frame.group_by(_OF, maintain_order=True).agg(_ROWS)[_ROWS]


class _Epoch:
    """One epoch's rows behind those that wait, and the runs of each key."""

    def __init__(
        self, kernel: MatchKernel, rows: pl.DataFrame, state: ColumnState, taken: Taken
    ) -> None:
        shape = kernel.shape
        self.kernel, self.rows = kernel, rows
        self.before = NEVER if taken.before is None else taken.before
        self.keyed = rows.select(shape.keyed())
        known = state.find(self.keyed)
        together = pl.concat([known.select(self.keyed.columns), self.keyed])
        order, numbers = arranged(together, shape.keys)
        of_row = np.empty_like(numbers)
        of_row[order] = numbers
        self.numbers: list[int] = of_row[known.height :].tolist()
        waiting = known.select(pl.col(_ROWS).explode(empty_as_null=False)).unnest(_ROWS)
        self.first = waiting.height
        columns = [*kernel.schema, TIME]
        self.pool = pl.concat([waiting.select(columns), rows.select(columns)])
        owners = of_row[: known.height]
        self.stored = self._runs(known, owners.tolist(), waiting[TIME].to_list())
        lengths = known[_ROWS].list.len().to_numpy()
        self.owners = np.concatenate([np.repeat(owners, lengths), of_row[known.height :]])
        self.live: dict[int, list[Run]] = {}
        self.found: list[tuple[int, ...]] = []
        self.places: list[int] = []
        self.failures: dict[int, Exception] = {}
        self.holds = _Holds(kernel, self.pool, self.first)

    def _runs(
        self, known: pl.DataFrame, numbers: Sequence[int], times: Sequence[int]
    ) -> dict[int, list[Run]]:
        """The runs that wait, by the number of their key."""
        found, begin = {}, 0
        for number, lengths, runs in zip(
            numbers, known[_ROWS].list.len().to_list(), known[_RUNS].to_list(), strict=True
        ):
            found[number] = [self._stored(begin, run, times) for run in runs]
            begin += lengths
        return found

    def _stored(self, begin: int, run: Sequence[int], times: Sequence[int]) -> Run:
        places = tuple(begin + at for at in run)
        taken = [times[at] for at in places]
        return places, min(taken), max(taken)

    def run(self) -> None:
        """Take each record in its turn, or all at once where that is the same."""
        masks = self.holds.masks
        if self.kernel.skip or any(mask is None for mask in masks):
            self._one_by_one()
            return
        known = [np.array(mask) for mask in masks]
        runs = Contiguous(self.owners, self.pool[TIME].to_numpy(), known, self.holds.pattern)
        self.found = runs.matches(self.first, self.kernel.within, self.before)
        self.places = [taken[-1] - self.first for taken in self.found]
        self.live = runs.left(self.found, self.first, self.kernel.within, self.before)

    def _one_by_one(self) -> None:
        holds, live, stored = self.holds, self.live, self.stored
        begins = holds.begins()
        times = self.rows[TIME].to_list()
        for index, (number, time, may) in enumerate(zip(self.numbers, times, begins, strict=True)):
            runs = live.get(number)
            if runs is None:
                runs = stored.get(number, [])
            if not (runs or may):
                continue
            try:
                live[number] = self._carried(runs, index, time)
            except Exception as error:  # noqa: BLE001 - whatever a user's function raises
                self.failures[index] = error
                if self.kernel.on_error == "fail":
                    return

    def _carried(self, runs: Sequence[Run], index: int, time: int) -> list[Run]:
        """The runs behind a record: oldest first, then the one that it begins."""
        kernel, kept, place = self.kernel, list[Run](), self.first + index
        pattern, within = self.holds.pattern, kernel.within
        for run in (*runs, _NONE_YET):
            places, low, high = run
            if not places:
                low = high = time
            elif low + within < self.before:
                continue
            least, greatest = min(low, time), max(high, time)
            if greatest - least > within:
                continue
            if self.holds(pattern[len(places)], place):
                carried = (*places, place)
                if len(carried) == len(pattern):
                    self.found.append(carried)
                    self.places.append(index)
                    return []
                kept.append((carried, least, greatest))
            elif kernel.skip and places:
                kept.append(run)
        return kept

    def kept(self, after: int | None) -> pl.DataFrame:
        """What is to be kept of keys whose runs are others than before."""
        bound, changed = NEVER if after is None else after - self.kernel.within, []
        for number, found in self.live.items():
            alive = [run for run in found if run[1] >= bound]
            if alive != self.stored.get(number, []):
                changed.append((number, alive))
        used = [sorted({place for run in runs for place in run[0]}) for _, runs in changed]
        return self._keys(changed).with_columns(
            self._waiting(used).alias(_ROWS), _renumbered(changed, used).alias(_RUNS)
        )

    def _keys(self, changed: Sequence[tuple[int, list[Run]]]) -> pl.DataFrame:
        """The keys of these, and until when their youngest run may go on."""
        within, where = self.kernel.within, {n: index for index, n in enumerate(self.numbers)}
        untils = [max((run[1] + within for run in runs), default=NEVER) for _, runs in changed]
        rows: pl.DataFrame = self.keyed[[where[number] for number, _ in changed]]
        return rows.with_columns(pl.Series(UNTIL, untils, dtype=pl.Int64))

    def _waiting(self, used: Sequence[Sequence[int]]) -> pl.Series:
        """The rows at these places, in a list a key."""
        structs = self.pool.select(pl.struct(pl.all()).alias(_ROWS))[_ROWS]
        counts = [len(each) for each in used]
        owners = np.repeat(np.arange(len(used)), counts)
        lists = _listed(structs, [place for each in used for place in each], owners)
        # A key without runs has no group, and an empty list.
        places = np.cumsum(np.array(counts, dtype=np.int64) > 0) - 1
        taken = pl.Series([at if n else None for at, n in zip(places, counts, strict=True)])
        found = lists.gather(taken.cast(pl.UInt32))
        return found.fill_null(pl.Series([[]], dtype=found.dtype)) if found.null_count() else found


def _renumbered(
    changed: Sequence[tuple[int, list[Run]]], used: Sequence[Sequence[int]]
) -> pl.Series:
    """Each run's rows by their number among the rows that are kept of the key."""
    found = []
    for (_, runs), places in zip(changed, used, strict=True):
        at = {place: number for number, place in enumerate(places)}
        found.append([[at[place] for place in run[0]] for run in runs])
    return pl.Series(found, dtype=pl.List(pl.List(pl.UInt32)))


class _Holds:
    """Whether a step's predicate holds for a record; asked no more than in a sequential run."""

    def __init__(self, kernel: MatchKernel, pool: pl.DataFrame, first: int) -> None:
        self.pattern = kernel.pattern
        self._kernel, self._rows, self._first = kernel, pool, first
        self.masks = [self._mask(step) for step in kernel.steps]

    def begins(self) -> Sequence[bool]:
        """Which records may begin a run: all whose answer is not known yet."""
        mask = self.masks[0]
        return [True] * (self._rows.height - self._first) if mask is None else mask[self._first :]

    def __call__(self, number: int, place: int) -> bool:
        """Ask about a step and a row."""
        if (mask := self.masks[number]) is not None:
            return mask[place]
        row, predicate = self._rows.slice(place, 1), self._kernel.steps[number].predicate
        if isinstance(predicate, Function):
            return bool(predicate.call(records_of(row, tuple(self._kernel.schema))[0]))
        return bool(self._evaluated(predicate, row)[0])

    def _mask(self, step: Step) -> list[bool] | None:
        """An expression's answers for all rows; None where they must be asked one by one."""
        if isinstance(step.predicate, Function):
            return None
        try:
            return self._evaluated(step.predicate, self._rows).fill_null(value=False).to_list()
        except (PolarsError, PanicException):
            return None

    def _evaluated(self, predicate: Expression, rows: pl.DataFrame) -> pl.Series:
        evaluated = Evaluated.of([predicate], self._kernel.schema)
        return evaluated.over(rows.select(list(self._kernel.schema))).to_series()
