"""What happens to rows in a lane: an operator with state over its slices, and what follows it.

Where something was not proved of an operator's function, all rows come to one lane, in order, and
that operator, called *first* here, runs before the one with state, or without there being one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import polars as pl

from anabranch.compiler.proof import Proof
from anabranch.kernels.bundle import SLICE, in_order
from anabranch.kernels.encoded import Entry
from anabranch.kernels.failures import Failed, failing
from anabranch.kernels.keyed import Cells, Processor
from anabranch.kernels.results import EpochInput, EpochOutput, KeyedResult
from anabranch.kernels.state import KeyedState, StateView, WindowState, delta_of
from anabranch.kernels.stateless import Chain
from anabranch.kernels.windows import START, Windows, in_log_order


@dataclass(frozen=True)
class KeyedTask:
    """Operators of one region over one lane's slices, one of them with state or none."""

    first: Chain | None
    """Operators before the one with state; None: rows have been through them, or are partials."""
    stateful: Processor | Windows | None
    tail: Chain
    empty_rows: pl.DataFrame
    """No rows, as they leave."""
    proofs: tuple[Proof, ...]
    """What its being parallel rests on; to be looked at when a task begins and ends."""
    one_by_one: bool = False
    """Whether each row goes all the way before the next one: several functions of which nothing is
    proved may know of each other."""

    def empty(self) -> StateView:
        """The state before the first epoch."""
        return self.restore(())

    def restore(self, deltas: Iterable[pl.DataFrame], version: int = 0) -> StateView:
        """The state after epochs with these deltas, in order, as this version."""
        if isinstance(self.stateful, Windows):
            return WindowState.from_deltas(self.stateful, deltas, version)
        return KeyedState.from_deltas(deltas, version)

    def run(self, epochs: Sequence[EpochInput], state: StateView) -> KeyedResult:
        """Take epochs in order, from this state on; it is left as it is."""
        outputs: list[EpochOutput] = []
        deltas: list[pl.DataFrame] = []
        cells = Cells()
        if isinstance(state, KeyedState):
            cells = state.take_cache() or cells
        for epoch in epochs:
            try:
                output, state, delta = self._epoch(epoch, state, cells)
            except Failed as failed:
                return KeyedResult(outputs, state, deltas, failed.error)
            outputs.append(output)
            deltas.append(delta)
        if isinstance(state, KeyedState):
            cells.trim()
            state = replace(state, cache=cells)
        return KeyedResult(outputs, state, deltas)

    def _epoch(
        self, epoch: EpochInput, state: StateView, cells: Cells
    ) -> tuple[EpochOutput, StateView, pl.DataFrame]:
        if isinstance(state, WindowState):
            return self._windows(epoch, state)
        assert isinstance(state, KeyedState)
        return self._rows(epoch, state, cells)

    # Records

    def _rows(
        self, epoch: EpochInput, state: KeyedState, cells: Cells
    ) -> tuple[EpochOutput, StateView, pl.DataFrame]:
        found, letters, entries = list[pl.DataFrame](), 0, dict[bytes, Entry]()
        for rows, failed in self._taken(epoch.parts):
            # What rows before this one changed is found there if the cells are forgotten.
            now = state.then(entries) if entries else state
            made, failures = self._processed(replace(epoch, parts=[rows]), now, cells, entries)
            left, more = self._behind(made)
            found += left
            letters += failed + failures + more
        rows = pl.concat(found) if found else self.empty_rows
        return EpochOutput(epoch.epoch, rows, 0, letters), state.then(entries), delta_of(entries)

    def _taken(self, parts: Sequence[pl.DataFrame]) -> Iterator[tuple[pl.DataFrame, int]]:
        """Rows in order as they come to the operator with state, and how many records failed.

        All together, or each alone, before the next one is taken by anybody.
        """
        if not any(part.height for part in parts):
            return
        together = in_order(parts)
        if self.first is None:
            apart = together.iter_slices(1) if self.one_by_one else [together]
            yield from ((rows, 0) for rows in apart)
        elif self.one_by_one:
            for row in together.iter_slices(1):
                made, letters = self.first.run_apart(row)
                yield from ((each, 0) for each in made)
                yield together.clear(), letters
        else:
            yield self.first.run(together)

    def _processed(
        self, epoch: EpochInput, state: KeyedState, cells: Cells, entries: dict[bytes, Entry]
    ) -> tuple[pl.DataFrame, int]:
        """What the operator with state makes of rows, or the rows; what changes is added."""
        (rows,) = epoch.parts
        if self.stateful is None or not rows.height:
            return rows.drop(SLICE, strict=False), 0
        assert isinstance(self.stateful, Processor)
        done = self.stateful.run(epoch, state, cells)
        entries |= done.entries
        return done.rows, done.letters

    def _behind(self, rows: pl.DataFrame) -> tuple[list[pl.DataFrame], int]:
        """Rows through the operators behind the one with state."""
        if not rows.height:
            return [], 0
        if self.one_by_one:
            return self.tail.run_apart(rows)
        made, letters = self.tail.run(rows)
        return [made] if made.height else [], letters

    # Windows

    def _windows(
        self, epoch: EpochInput, state: WindowState
    ) -> tuple[EpochOutput, StateView, pl.DataFrame]:
        windows = self.stateful
        assert isinstance(windows, Windows)
        parts, letters = self._partials(epoch.parts, windows)
        before = None if epoch.watermark_before is None else epoch.watermark_before - windows.size
        after = None if epoch.watermark is None else epoch.watermark - windows.size
        fresh, late = _in_time(windows.merged(in_log_order(parts)), before)
        rows = self.empty_rows
        if after is not None:
            due = [*state.due(before, after), fresh.filter(pl.col(START) <= after)]
            if any(frame.height for frame in due):
                with failing(windows.operator):
                    results = windows.results(windows.merged(due))
                found, failed = self._behind(results)
                rows = pl.concat(found) if found else self.empty_rows
                letters += failed
            fresh = fresh.filter(pl.col(START) > after)
        delta = fresh.sort("slice", maintain_order=True)
        return EpochOutput(epoch.epoch, rows, late, letters), state.then(fresh, after), delta

    def _partials(
        self, parts: Sequence[pl.DataFrame], windows: Windows
    ) -> tuple[Sequence[pl.DataFrame], int]:
        """Partials as they came, or of rows that came instead."""
        if self.first is None:
            return parts, 0
        taken = list(self._taken(parts))
        letters = sum(failed for _, failed in taken)
        full = [rows for rows, _ in taken if rows.height]
        if not full:
            return (), letters
        with failing(windows.operator):
            return [windows.partials(pl.concat(full), slices=1)], letters


def _in_time(partials: pl.DataFrame, closed: int | None) -> tuple[pl.DataFrame, int]:
    """The partials of windows that were open before the epoch, and how many rows are late."""
    if closed is None or not partials.height:
        return partials, 0
    late = partials.filter(pl.col(START) <= closed)
    return partials.filter(pl.col(START) > closed), int(late["n"].sum())
