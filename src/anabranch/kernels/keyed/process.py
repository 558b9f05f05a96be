"""Python functions with state (M11) and timers (M12): a key's records one at a time, in order.

An epoch is first run as if nothing could go wrong, on live objects, and every key it touched is
encoded once, at its end. If anything does go wrong (an exception, a row that does not fit, a value
that cannot be kept) all of it is forgotten and the epoch is run again with care: state is encoded
around each call, so that an exception undoes what that call wrote and nothing else.

After the records come the timers that the watermark reaches, in order (time, key). A timer that is
set at or before the one that fires follows it at once; its rows stand where that one's do, so rows
never go back. As such a timer is of the same key, no other lane can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import GeneratorType
from typing import Any, Generic, Self, TypeAlias, TypeVar

import polars as pl

from anabranch.connectors.rows import Misfit
from anabranch.kernels.bundle import OFFSET, PARTITION, PHASE, SLICE, TIME, key_part, sub
from anabranch.kernels.failures import BadRow, Failed, told
from anabranch.kernels.kernel import Given, Taken
from anabranch.kernels.keyed.cell import CACHED_KEYS, Cell, Cells, Now
from anabranch.kernels.keyed.keys import KeyForm, each_record
from anabranch.kernels.keyed.outputs import outputs_of
from anabranch.kernels.keyed.rows import NEVER
from anabranch.kernels.keyed.state import Changed, Gathered, ProcessState
from anabranch.kernels.keyed.timers import LAST_INSTANT, Sweep
from anabranch.kernels.letters import Left, letters_about
from anabranch.kernels.resident import ResidentGiven
from anabranch.kernels.results import TaskError
from anabranch.kernels.stateless.left_out import inherited, left_out
from anabranch.kernels.stateless.python_rows import (
    Made,
    Picker,
    Record,
    Values,
    records_of,
    several,
)
from anabranch.kernels.times import shown
from anabranch.program.functions import OnError
from anabranch.program.graph import Graph
from anabranch.program.operators.keyed import Process
from anabranch.program.operators.operator import OUT
from anabranch.program.schema import TimeType
from anabranch.state.classes import know_all


@dataclass(frozen=True)
class ProcessKernel:
    """A process operator, lowered."""

    operator: str
    number: int
    call: Callable[..., Any]
    on_timer: Callable[..., Any] | None
    takes_state: bool
    form: KeyForm
    columns: tuple[str, ...]
    pick: Picker
    on_error: OnError
    time: TimeType | None
    ttl: int | None
    once: bool = False
    """Whether its functions must be called once, even if another call fails."""
    lag: int = 0

    @classmethod
    def of(cls, graph: Graph, op: Process, *, once: bool = False) -> Self:
        """Lower the operator."""
        given, function, key = graph.output(op.inputs[0]), op.function, op.key or ()
        return cls(
            operator=op.name,
            number=op.id,
            call=function.call.on_record if function.is_class else function.call,
            on_timer=function.call.on_timer if function.has_timers else None,
            takes_state=function.is_class or function.takes_state,
            form=KeyForm(key, tuple(given.schema[name] for name in key)),
            columns=tuple(given.schema),
            pick=Picker(op.outputs[OUT].schema),
            on_error=op.on_error,
            time=given.time,
            ttl=op.ttl,
            once=once,
        )

    def restore(self, deltas: Iterable[pl.DataFrame], version: int = 0) -> ProcessState:
        """The state after epochs with these deltas, in order."""
        know_all(self.call)
        if self.on_timer is not None:
            know_all(self.on_timer)
        return ProcessState.from_deltas(deltas, version, self.ttl)

    def after(self, state: ProcessState, deltas: Iterable[pl.DataFrame]) -> ProcessState:
        """The state after more epochs with these deltas, in order."""
        return state.after(deltas)

    def resident(self) -> ResidentProcess | None:
        """Itself, resident, unless timers or a time to live have to be looked for in its state."""
        return None if self.on_timer is not None or self.ttl is not None else ResidentProcess(self)

    def run(self, taken: Taken, state: ProcessState) -> Given[ProcessState]:
        """Take one epoch; an error that ends the run raises `Failed`."""
        cells = state.take_cache() or self.cells()

        def anew() -> ProcessState:
            cells.forget()
            return state

        done = self.done(taken, state, cells, anew)
        cells.trim()
        state = state.then(done.changed, taken.after, cells)
        return Given(done.rows, state, done.changed.delta(), letters=done.letters)

    def cells(self) -> Cells:
        """No keys yet."""
        return Cells(self.form, Now(clock=None if self.on_timer is None else self.time))

    def done(
        self, taken: Taken, state: ProcessState, cells: Cells, anew: Callable[[], ProcessState]
    ) -> Done:
        """Take one epoch; where it is run again, `anew` forgets cells and gives the state."""
        if not self.once or self.on_error == "fail":
            try:
                return _Swift(self, taken, state, cells).run()
            except _Trouble:
                state = anew()
        return _Careful(self, taken, state, cells).run()


@dataclass(frozen=True, slots=True)
class Done:
    """What came of an epoch."""

    rows: Mapping[str, pl.DataFrame]
    """By output."""
    changed: Changed
    letters: int


class ResidentProcess:
    """The state of an operator that stays, and what it does with epochs.

    Keys stay decoded. What is kept of them changes epoch by epoch without being written into the
    state that is a value; that is done when a key has to be looked for there, or all of it is told.
    """

    def __init__(self, kernel: ProcessKernel) -> None:
        """Begin with no keys."""
        self._kernel = kernel
        self._begin(())

    def _begin(self, deltas: Iterable[pl.DataFrame]) -> None:
        self._state, self._cells = self._kernel.restore(deltas), self._kernel.cells()
        self._taken: tuple[int | None, Changed] | None = None
        self._unsaved = Gathered()
        self._closed: int | None = None
        self._untold: list[Changed] = []

    def take(self, taken: Taken) -> ResidentGiven:
        """Call the function on each record."""
        if self._taken is not None or len(self._cells) > CACHED_KEYS:
            self._anew()
        done = self._kernel.done(taken, self._state, self._cells, self._anew)
        self._taken = (taken.after, done.changed)
        return ResidentGiven(done.rows, letters=done.letters)

    def settle(self) -> None:
        """Keep what the epoch changed."""
        assert self._taken is not None
        (self._closed, changed), self._taken = self._taken, None
        self._unsaved.add(changed)

    def changed(self) -> pl.DataFrame:
        """What changed of each key, the last word alone."""
        self._save()
        untold, self._untold = self._untold, []
        return pl.concat([Changed().delta(), *(each.delta() for each in untold)])

    def whole(self, slices: frozenset[int] | None = None) -> pl.DataFrame:
        """All that is kept, or that of some slices."""
        self._save()
        return self._state.whole(slices)

    def restore(self, deltas: Iterable[pl.DataFrame]) -> None:
        """Have what these deltas say."""
        self._begin(deltas)

    def _anew(self) -> ProcessState:
        """Drop decoded keys: what is kept of them is looked for in the state from here on."""
        self._taken = None
        self._save()
        self._cells.forget()
        return self._state

    def _save(self) -> None:
        changed, self._unsaved = self._unsaved.changed(), Gathered()
        if changed:
            later = self._state.then(changed, self._closed)
            self._state = later.fold(later.version)
            self._untold.append(changed)


class _Trouble(Exception):
    """An epoch must be run again with care."""


_Given = TypeVar("_Given")
_Failure: TypeAlias = tuple[Record, Exception]
"""What is told of a timer, and its error."""


@dataclass(slots=True)
class _Fired(Generic[_Given]):
    """What timers gave, and where it belongs."""

    given: list[_Given] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    """The timer behind which it stands."""
    times: list[int] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    subs: list[int] = field(default_factory=list)

    def add(self, given: Sequence[_Given], place: int, time: int, cell: Cell, sub: int) -> None:
        """Take what one timer gave; `sub` is the number of the first."""
        self.given += given
        self.places += [place] * len(given)
        self.times += [time] * len(given)
        self.cells += [cell] * len(given)
        self.subs += range(sub, sub + len(given))

    def hidden(self, number: int, form: KeyForm) -> pl.DataFrame:
        """The hidden columns of rows that the operator of this number makes of them."""
        keys = form.columns([cell.compared for cell in self.cells])
        return pl.DataFrame(
            [
                pl.Series(TIME, self.times, dtype=pl.Int64),
                pl.Series(SLICE, [cell.slice for cell in self.cells], dtype=pl.UInt16),
                pl.repeat(1, len(self.given), dtype=pl.Int8, eager=True).alias(PHASE),
                pl.repeat(number, len(self.given), dtype=pl.Int32, eager=True).alias(PARTITION),
                pl.Series(OFFSET, self.places, dtype=pl.Int64),
                *(each.alias(key_part(number, at)) for at, each in enumerate(keys)),
                pl.Series(sub(number), self.subs, dtype=pl.Int64),
            ]
        )


class _Epoch:
    """One epoch of an operator: its records, its timers, what they changed."""

    def __init__(
        self, kernel: ProcessKernel, taken: Taken, state: ProcessState, cells: Cells
    ) -> None:
        self.kernel, self.taken, self.state, self.cells = kernel, taken, state, cells
        (self.rows,) = taken.rows
        self.touched: dict[Cell, None] = {}
        self.fired = _Fired[Values]()
        self.failed = _Fired[_Failure]()
        """Timers whose function failed."""

    def run(self) -> Done:
        """Records, then timers, then what is to be kept."""
        kernel, after = self.kernel, self.taken.after
        self.cells.now.watermark = shown(self.taken.before, kernel.time)
        made = self.records() if self.rows.height else Made()
        left = left_out(kernel.operator, self.rows, kernel.columns, made, kernel.on_error)
        if kernel.on_timer is not None:
            self._sweep()
        rows = _together([self._of_records(made), *self._of_timers()])
        count = left.count + len(self.failed.given)
        if left.letters is not None:
            left = Left(count, _together([left.letters, *self._of_failures()]))
        changed = Changed.of(self.touched, after, ttl=kernel.ttl is not None)
        return Done(outputs_of(rows, left), changed, count)

    def records(self) -> Made:
        """Call the function on each record."""
        raise NotImplementedError

    def fire(self, at: Any, cell: Cell) -> list[Values] | _Failure:
        """Call the function of timers."""
        raise NotImplementedError

    def cells_of_rows(self) -> list[Cell]:
        """The cell of each row's key."""
        found = self.cells.of(self.kernel.form.keys_of(self.rows), self._load)
        self.touched.update(dict.fromkeys(found))
        return found

    def age(self, cell: Cell, time: int) -> None:
        """Forget what has outlived its time before a record at this one, and remember it."""
        ttl, seen, before = self.kernel.ttl, cell.seen, self.taken.before
        assert ttl is not None
        if seen is not None and seen + ttl < (time if before is None else max(time, before)):
            cell.clear()
            cell.seen = seen = None
        cell.seen = time if seen is None else max(seen, time)

    def settle(self, cell: Cell) -> None:
        """Behind a call: a state that is empty has not been seen."""
        if self.kernel.ttl is not None and cell.empty:
            cell.seen = None

    def _load(self, fresh: Sequence[Cell]) -> None:
        self.state.load(list(fresh), self.taken.before)

    # Timers

    def _sweep(self) -> None:
        now, after, ttl = self.cells.now, self.taken.after, self.kernel.ttl
        now.watermark = shown(after, self.kernel.time)
        sweep = Sweep[Cell](after, lambda cell: self.kernel.form.order_of(cell.compared))
        sweep.add(self._due())
        sweep.add(now.fresh)
        now.fresh.clear()
        place: int | None = None
        for at, cell in sweep:
            if at not in cell.timers:
                continue
            cell.fired(at)
            self._require_end(sweep, cell)
            place = at if place is None else max(place, at)
            self.touched[cell] = None
            if ttl is not None and cell.seen is not None and cell.seen + ttl < at:
                cell.clear()
                cell.seen = None
                continue
            before = self.taken.before
            time = min(at if before is None else max(at, before), LAST_INSTANT)
            # Numbered together: rows and letters may meet again.
            number, given = len(self.fired.given) + len(self.failed.given), self.fire(at, cell)
            if isinstance(given, list):
                self.fired.add(given, place, time, cell, number)
            else:
                self.failed.add([given], place, time, cell, number)
            sweep.add(now.fresh)
            now.fresh.clear()

    def _due(self) -> Iterator[tuple[int, Cell]]:
        """Timers of earlier epochs that the watermark reaches."""
        after = self.taken.after
        if after is None:
            return iter(())
        due = self.state.timers.between(self.taken.before, after)
        codes, slices = due["key"].to_list(), due["slice"].to_list()
        cells = self.cells.of_codes(codes, slices, self._load)
        self.touched.update(dict.fromkeys(cells))
        return zip(due["part"].to_list(), cells, strict=True)

    def _require_end(self, sweep: Sweep[Cell], cell: Cell) -> None:
        if not sweep.count(cell):
            text = f"RunError: the timers of key {cell.key!r} set each other for ever"
            raise Failed(TaskError(self.kernel.operator, text))

    # Rows

    def _of_records(self, made: Made) -> pl.DataFrame:
        rows = self.kernel.pick.frame(made.rows)
        return rows.hstack(inherited(self.rows, made, sub(self.kernel.number)))

    def _of_timers(self) -> Iterator[pl.DataFrame]:
        if self.fired.given:
            hidden = self.fired.hidden(self.kernel.number, self.kernel.form)
            yield self.kernel.pick.frame(self.fired.given).hstack(hidden)

    def _of_failures(self) -> Iterator[pl.DataFrame]:
        if self.failed.given:
            hidden = self.failed.hidden(self.kernel.number, self.kernel.form)
            records, errors = zip(*self.failed.given, strict=True)
            yield letters_about(self.kernel.operator, records, hidden, "error", errors)


def _together(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(frames, how="diagonal") if len(frames) > 1 else frames[0]


class _Swift(_Epoch):
    """An epoch on live objects, with `_Trouble` if anything goes wrong."""

    def run(self) -> Done:
        try:
            return super().run()
        except (Misfit, TypeError) as error:
            raise _Trouble from error

    def records(self) -> Made:
        made, calls = Made(), self._calls()
        rows, parents, pick = made.rows, made.parents, self.kernel.pick.values
        try:
            for index, given in enumerate(calls):
                if type(given) is dict:
                    rows.append(pick(given))
                    parents.append(index)
                elif type(given) is GeneratorType:
                    for row in given:
                        rows.append(pick(row))
                        parents.append(index)
                elif given is not None:
                    mark = len(rows)
                    rows.extend(map(pick, several(given)))
                    parents.extend([index] * (len(rows) - mark))
        except Exception as error:
            raise _Trouble from error
        return made

    def _calls(self) -> Iterator[Any]:
        """What the function gives for each record, when it is asked for."""
        kernel, touched = self.kernel, self.cells_of_rows()
        # One after the other: many dicts that live together keep the garbage collector busy.
        records = each_record(self.rows, kernel.columns)
        if kernel.ttl is not None:
            return self._aging(records, touched)
        if kernel.takes_state:
            return map(kernel.call, records, touched)
        return map(kernel.call, records)

    def _aging(self, records: Iterable[Record], touched: Sequence[Cell]) -> Iterator[Any]:
        """The calls; each is settled when the next is asked for, its rows having been taken."""
        kernel, times = self.kernel, self.rows[TIME].to_list()
        call, takes_state, ttl = kernel.call, kernel.takes_state, kernel.ttl
        assert ttl is not None
        before = NEVER if self.taken.before is None else self.taken.before
        for record, cell, time in zip(records, touched, times):  # noqa: B905 - one length, and hot
            # As `age` does, which is asked only where something is to be forgotten.
            seen = cell.seen
            if seen is None:
                cell.seen = time
            elif seen + ttl < time or seen + ttl < before:
                self.age(cell, time)
            elif seen < time:
                cell.seen = time
            yield call(record, cell) if takes_state else call(record)
            if cell.value is None:
                self.settle(cell)

    def fire(self, at: Any, cell: Cell) -> list[Values]:
        kernel = self.kernel
        assert kernel.on_timer is not None
        try:
            given = kernel.on_timer(shown(at, kernel.time), cell)
            rows = [kernel.pick(row) for row in several(given)]
        except Exception as error:
            raise _Trouble from error
        self.settle(cell)
        return rows


class _Careful(_Epoch):
    """An epoch one call after the other; what fails is undone."""

    def records(self) -> Made:
        made, kernel, touched = Made(), self.kernel, self.cells_of_rows()
        times = self.rows[TIME].to_list()
        for index, (record, cell) in enumerate(
            zip(records_of(self.rows, kernel.columns), touched, strict=True)
        ):
            before = cell.snapshot()
            try:
                if kernel.ttl is not None:
                    self.age(cell, times[index])
                given = kernel.call(record, cell) if kernel.takes_state else kernel.call(record)
                rows = self._checked(given, cell)
            except Exception as error:  # noqa: BLE001 - whatever a user's function raises
                made.failures[index] = error
                cell.undo(before)
                if kernel.on_error == "fail":
                    break
            else:
                made.rows += rows
                made.parents += [index] * len(rows)
        return made

    def fire(self, at: Any, cell: Cell) -> list[Values] | _Failure:
        kernel, before = self.kernel, cell.snapshot()
        assert kernel.on_timer is not None
        moment = shown(at, kernel.time)
        try:
            return self._checked(kernel.on_timer(moment, cell), cell)
        except Exception as error:  # whatever a user's function raises
            cell.undo(before)
            record = {**kernel.form.named(cell.key), "timer": moment}
            if kernel.on_error == "fail":
                raise Failed(told(kernel.operator, error, record)) from error
            return record, error

    def _checked(self, given: Any, cell: Cell) -> list[Values]:
        """The rows that were given, if they and what is to be kept fit."""
        pick = self.kernel.pick
        rows = [pick(row) for row in several(given)]
        try:
            pick.frame(rows)
        except Misfit as misfit:
            raise BadRow(misfit.why) from None
        cell.snapshot()
        self.settle(cell)
        return rows
