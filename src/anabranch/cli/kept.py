"""What operators keep, as rows, by the files of a checkpoint alone: the program is not needed.

A delta's columns tell what kind of state it is of, and the checkpoint's description what its key is
called. State is the fold of its deltas; here it is folded as each kernel folds its own, except that
partial aggregates stay apart: a pane and key have a row for each commit that added to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from anabranch.cli.kept_values import processed
from anabranch.cli.lasting import Lasting
from anabranch.compiler.plan import HIDDEN
from anabranch.state.delta import SLICE
from anabranch.state.description import Facts
from anabranch.state.recovery import read_state
from anabranch.state.retention import Link
from anabranch.state.store import Store

OPERATOR = "operator"
_TIME = pl.Datetime("us")
_MARKS = 2
"""Kinds of a join's rows from which on they are no rows."""
_PASSED = 255
"""The side of what is no row of a merge."""
_CLOSED = -1
"""The place of what is no row of a feedback."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The state of an operator, or the newest part of it."""

    operator: str
    keys: tuple[str, ...]
    """The columns of the key; without any, all rows are of one."""
    rows: pl.DataFrame
    """The slice, the key's columns, then what is kept."""


def read_kept(store: Store, links: Sequence[Link], facts: Facts, lasting: Lasting) -> Kept:
    """Fold the files of one operator.

    Raises:
        CheckpointError: One of them is not there, or damaged.
    """
    frames = list(read_state(store, [link.part for link in links]))
    return folded(links[0].operator, frames, facts, lasting)


def folded(operator: str, frames: Sequence[pl.DataFrame], facts: Facts, lasting: Lasting) -> Kept:
    """The state that deltas make, as rows."""
    rows = pl.concat(frames, how="diagonal_relaxed") if frames else pl.DataFrame()
    names = tuple(line.rpartition(": ")[0] for line in facts.get("key", ()))
    fold = next((fold for columns, fold in _FORMS if columns <= {*rows.columns}), _as_it_is)
    kept = fold(rows, facts, lasting)
    shown = _named(kept, names)
    keys = tuple(name for name in names if name in shown.columns)
    rest = [name for name in shown.columns if name not in (SLICE, *keys)]
    return Kept(operator, keys, shown.select(SLICE, *keys, *rest).sort(SLICE, maintain_order=True))


def _named(rows: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """The same with the key's columns under the names that users know them by."""
    for form in ("k{}", f"{HIDDEN}k{{}}"):
        found = {form.format(at): name for at, name in enumerate(names)}
        taken = {*rows.columns} - {*found}
        if names and found.keys() <= {*rows.columns} and not taken & {*names}:
            return rows.rename(found)
    return rows


def _panes(rows: pl.DataFrame, facts: Facts, lasting: Lasting) -> pl.DataFrame:
    """Partials of windows that have not left for good."""
    del facts
    kept = rows.filter(lasting.panes("start"))
    return kept.with_columns(pl.col("start").cast(_TIME)).rename({"start": "pane_start"})


def _by_key(rows: pl.DataFrame, facts: Facts, lasting: Lasting) -> pl.DataFrame:
    """Sessions, and last rows: what the newest epoch says of a key is all there is."""
    del facts
    kept = rows.filter(pl.col("epoch") == pl.col("epoch").max().over("hash"))
    kept = kept.filter(lasting.after("end")) if "end" in kept.columns else kept
    times = [pl.col(name).cast(_TIME) for name in ("start", "end") if name in kept.columns]
    return kept.with_columns(times).drop("hash", "epoch")


def _columns(rows: pl.DataFrame, facts: Facts, lasting: Lasting) -> pl.DataFrame:
    """What reduce, deduplicate and match keep: of most the newest row of a key."""
    keys = [name for name in rows.columns if name.startswith(f"{HIDDEN}k")]
    several = facts.get("kind") == ("deduplicate",) and "until" in rows.columns
    if not several:
        rows = rows.unique(keys, keep="last", maintain_order=True)
    if "until" in rows.columns:
        rows = rows.filter(lasting.until("until")).with_columns(pl.col("until").cast(_TIME))
    given = [line.rpartition(": ")[0] for line in facts.get("columns", ())]
    values = {f"v{at}": f"value.{name}" for at, name in enumerate(given)}
    return rows.rename({old: new for old, new in values.items() if old in rows.columns})


def _joined(rows: pl.DataFrame, facts: Facts, lasting: Lasting) -> pl.DataFrame:
    """Rows of both sides that may still find a partner."""
    rows = rows.filter(pl.col("kind") < _MARKS).filter(lasting.near("time"))
    sides = {"l:": "left.", "r:": "right."}
    columns = {name: sides[name[:2]] + name[2:] for name in rows.columns if name[:2] in sides}
    names = [line.rpartition(": ")[0] for line in facts.get("key", ())]
    keys = [
        pl.coalesce([f"{side}{name}" for side in sides if f"{side}{name}" in columns]).alias(name)
        for name in names
        if {f"{side}{name}" for side in sides} & columns.keys()
    ]
    side = pl.col("kind").replace_strict({0: "left", 1: "right"}, return_dtype=pl.String)
    return rows.select(
        SLICE, *keys, side.alias("side"), pl.col("time").cast(_TIME),
        *(pl.col(name).alias(to) for name, to in columns.items()),
    )  # fmt: skip


def _in_time_order(rows: pl.DataFrame, facts: Facts, lasting: Lasting) -> pl.DataFrame:
    """Rows that wait for the watermark."""
    del facts
    rows = rows.filter(pl.col("side") != _PASSED).filter(lasting.from_now("time"))
    columns = [name for name in rows.columns if name.startswith("c:")]
    return rows.select(
        SLICE, "side", pl.col("time").cast(_TIME),
        *(pl.col(name).alias(f"value.{name[2:]}") for name in columns),
    )  # fmt: skip


def _fed_back(rows: pl.DataFrame, facts: Facts, lasting: Lasting) -> pl.DataFrame:
    """Rows that come out in the next epoch: what the newest one says is all there is."""
    del facts, lasting
    rows = rows.filter((pl.col("epoch") == pl.col("epoch").max()) & (pl.col("at") != _CLOSED))
    columns = [name for name in rows.columns if name.startswith("c:")]
    return rows.select(SLICE, *(pl.col(name).alias(f"value.{name[2:]}") for name in columns))


def _as_it_is(rows: pl.DataFrame, facts: Facts, lasting: Lasting) -> pl.DataFrame:
    """State of a form that is not known here, of a later version perhaps."""
    del facts, lasting
    return rows if SLICE in rows.columns else pl.DataFrame(schema={SLICE: pl.UInt16})


_FORMS: Sequence[tuple[frozenset[str], Callable[[pl.DataFrame, Facts, Lasting], pl.DataFrame]]] = (
    (frozenset({"kind", "key", "part", "value"}), processed),
    (frozenset({"kind", "id", "time"}), _joined),
    (frozenset({"side", "id", "time"}), _in_time_order),
    (frozenset({"hash", "epoch"}), _by_key),
    (frozenset({"epoch", "at"}), _fed_back),
    (frozenset({f"{HIDDEN}k0"}), _columns),
    (frozenset({"start", "n"}), _panes),
)
"""By the columns that tell them, the most telling first."""
