"""Versions of lookup tables: which holds for which epoch, and where it lies.

A table with `refresh` is loaded by the driver when it is due, at most once before an epoch is cut.
A version that differs from the one before is written to the checkpoint, and the epoch's plan names
it, so that the epoch means the same whenever it is run (M13). When the next one is written, those
go that no plan names any more.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import polars as pl

from anabranch.clock import Clock
from anabranch.connectors.rows import shown
from anabranch.connectors.untrusted_arrow import NotWhole, read_file
from anabranch.errors import CheckpointError, RunError
from anabranch.kernels.head_task import HeadTask
from anabranch.kernels.keys import canonical
from anabranch.kernels.lane_task import LaneTask
from anabranch.program.operators.together import Lookup
from anabranch.state.envelope import refuse
from anabranch.state.layout import PLANS, TABLES, run_of_table, table_path
from anabranch.state.recovery import read_plans
from anabranch.state.store import Store

_Task = TypeVar("_Task", HeadTask, LaneTask)

_KEPT = 8
"""Versions that a process has ready: those of the epochs in flight and the one before."""


@dataclass(slots=True)
class _Known:
    """A lookup that is refreshed."""

    lookup: Lookup
    due: float
    table: pl.DataFrame | None = None
    path: str | None = None


@dataclass(slots=True)
class Tables:
    """The newest version of every table that may change. Used by the driver."""

    store: Store
    clock: Clock
    run: int
    lookups: Sequence[Lookup]
    _known: list[_Known] = field(init=False)
    _number: int = 0

    def __post_init__(self) -> None:
        """Everything is due at once."""
        now = self.clock.elapsed()
        changing = (each for each in self.lookups if each.table.refresh is not None)
        self._known = [_Known(each, now) for each in changing]

    def current(self, in_use: Collection[str] = ()) -> Mapping[str, str]:
        """The versions that hold for an epoch that is cut now: their files, by lookup.

        `in_use` are those of epochs under way, some of which may have no plan yet.
        """
        for known in self._known:
            if self.clock.elapsed() >= known.due and self._refresh(known):
                self._clear(in_use)
        return {each.lookup.name: each.path for each in self._known if each.path is not None}

    def _refresh(self, known: _Known) -> bool:
        """Load a table again; says whether there is a new version."""
        lookup = known.lookup
        table = _loaded(lookup)
        assert lookup.table.refresh is not None
        known.due = self.clock.elapsed() + lookup.table.refresh / 1_000_000
        if known.table is not None and table.equals(known.table):
            return False
        self._number += 1
        path = table_path(lookup.name, self._number, self.run)
        self.store.create(path, to_bytes(table))
        known.table, known.path = table, path
        return True

    def _clear(self, in_use: Collection[str]) -> None:
        """Remove versions that nobody asks for any more."""
        files = [path for path in self.store.list(TABLES) if self._may_clear(path)]
        needed = {*in_use, *(known.path for known in self._known)}
        if needed.issuperset(files):
            return
        try:
            plans = [
                plan for path in self.store.list(PLANS) for plan in read_plans(self.store, path)
            ]
        except CheckpointError:
            return  # one was torn when power was lost, or is just being removed: another time
        needed.update(path for plan in plans for path in plan.tables.values())
        for path in files:
            if path not in needed:
                self.store.delete(path)

    def _may_clear(self, path: str) -> bool:
        """Whether it is a version, and not of a run that came later: that one may not be ours."""
        made_by = run_of_table(path)
        return made_by is not None and made_by <= self.run


class TableVersions:
    """Tasks with versions of their tables. Used by a worker."""

    def __init__(self, store: Store) -> None:
        """Begin with nothing loaded."""
        self._store = store
        self._tables: OrderedDict[str, pl.DataFrame] = OrderedDict()
        self._tasks: OrderedDict[tuple[int, tuple[str, ...]], HeadTask | LaneTask] = OrderedDict()

    def of(self, task: _Task, tables: Mapping[str, str]) -> _Task:
        """A task with these versions."""
        if not tables:
            return task
        # A task is known by itself: it lives as long as the worker.
        key = (id(task), tuple(sorted(tables.values())))
        if key not in self._tasks:
            loaded = {name: self._table(path) for name, path in tables.items()}
            _put(self._tasks, key, task.with_tables(loaded))
        return self._tasks[key]  # type: ignore[return-value]

    def _table(self, path: str) -> pl.DataFrame:
        if path not in self._tables:
            _put(self._tables, path, from_bytes(self._store.read(path), path))
        return self._tables[path]


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _put(kept: OrderedDict[_Key, _Value], key: _Key, value: _Value) -> None:
    kept[key] = value
    while len(kept) > _KEPT:
        kept.popitem(last=False)


def to_bytes(table: pl.DataFrame) -> bytes:
    """A table as an Arrow IPC file."""
    file = io.BytesIO()
    table.write_ipc(file)
    return file.getvalue()


def from_bytes(data: bytes, path: str = "of a table") -> pl.DataFrame:
    """The table in the bytes read from `path`, or a CheckpointError that names it."""
    try:
        return read_file(data)
    except NotWhole as error:
        refuse(path, f"its rows are not whole: {error}", error)


def _loaded(lookup: Lookup) -> pl.DataFrame:
    """A table as it is now, or an error that says what is wrong with it."""
    text = lookup.table.text
    try:
        table: Any = lookup.table.load()
    except Exception as error:
        message = f"{lookup.name}: {text} could not be loaded again: {error}"
        so = "see to it that it can be loaded at any time while the query runs"
        raise RunError(message, site=lookup.site, so=so) from error
    if not isinstance(table, pl.DataFrame) or dict(table.schema) != dict(lookup.table.schema):
        found = shown(table.schema) if isinstance(table, pl.DataFrame) else type(table).__name__
        message = f"{lookup.name}: the table's columns changed"
        have = f"{shown(lookup.table.schema)}, then {found}"
        so = "load it with the columns that it had, or stop the query and start the program anew"
        raise RunError(message, site=lookup.site, have=have, so=so)
    if not lookup.many and (twice := _twice(table, lookup.on)):
        message = f"{lookup.name}: the table has several rows for {twice}"
        raise RunError(message, site=lookup.site, so="pass many=True")
    return table


def _twice(table: pl.DataFrame, on: Sequence[str]) -> tuple[object, ...] | None:
    """A key that several rows have, if there is one; null is nobody's key."""
    keys = table.select(canonical(pl.col(name), table.schema[name]) for name in on).drop_nulls()
    found = keys.filter(keys.is_duplicated())
    return found.row(0) if found.height else None
