"""What a user's function makes of windows: `fn(key, frame)`, the rows in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from anabranch.connectors.rows import Misfit, whole_type
from anabranch.kernels.failures import BadRow, Failed, told
from anabranch.kernels.stateless.held_values import is_exact
from anabranch.kernels.stateless.python_rows import Picker, several
from anabranch.kernels.windows.whole import WholeRows
from anabranch.program.functions import OnError
from anabranch.program.operators.operator import OUT
from anabranch.program.operators.windowed import REVISION, WindowApply


@dataclass(frozen=True)
class Applied:
    """Rows a function made, and the number of the window that each was made of."""

    rows: pl.DataFrame
    windows: pl.Series
    subs: pl.Series
    failed: pl.Series
    """The numbers of the windows that it failed on and that are left out."""
    errors: Sequence[Exception]


@dataclass(frozen=True)
class Apply:
    """A function over windows, lowered."""

    operator: str
    call: Callable[[tuple[Any, ...], pl.DataFrame], Any]
    pick: Picker
    by: tuple[str, ...]
    on_error: OnError

    @classmethod
    def of(cls, op: WindowApply) -> Apply:
        """Lower the operator's function."""
        schema = op.outputs[OUT].schema
        names = [name for name in op.columns if name != REVISION]
        pick = Picker(pl.Schema({name: schema[name] for name in names}))
        return cls(op.name, op.function.call, pick, op.windowing.by, op.on_error)

    def run(self, bounds: pl.DataFrame, kept: WholeRows, partials: pl.DataFrame) -> Applied:
        """Call the function on each window; `bounds` says which window and key it is."""
        keys = bounds.select(self.by).rows() if self.by else [()] * bounds.height
        found, counts = [self.pick.frame([])], list[int]()
        failed, errors = list[int](), list[Exception]()
        for at, (window, frame) in enumerate(zip(keys, kept.frames(partials), strict=True)):
            try:
                made = self._one(window, frame)
            except Exception as error:  # noqa: BLE001 - whatever a user's function raises
                if self.on_error == "fail":
                    record = bounds.row(at, named=True)
                    raise Failed(told(self.operator, error, record)) from None
                failed.append(at)
                errors.append(error)
                counts.append(0)
                continue
            found.append(made)
            counts.append(made.height)
        lengths = pl.DataFrame({"n": counts}, schema={"n": pl.Int64}).with_row_index("w")
        each = lengths.select("w", pl.int_ranges(pl.col("n")).alias("s"))
        each = each.explode("s", empty_as_null=False, keep_nulls=False)
        rows, subs = pl.concat(found), each["s"].cast(pl.Int64)
        return Applied(rows, each["w"], subs, pl.Series(failed, dtype=pl.UInt32), errors)

    def _one(self, key: tuple[Any, ...], frame: pl.DataFrame) -> pl.DataFrame:
        given = self.call(key, frame)
        if isinstance(given, pl.DataFrame):
            if dict(given.schema) == dict(self.pick.schema) and all(map(_as_rows, given.dtypes)):
                return given.select(list(self.pick.schema))
            given = given.rows(named=True)
        try:
            return self.pick.frame([self.pick(row) for row in several(given)])
        except Misfit as misfit:
            raise BadRow(misfit.why) from None


def _as_rows(dtype: pl.DataType) -> bool:
    """Whether a column's values are the same when they have been in rows, parts of them too.

    Not so where Python rounds, as it does nanoseconds.
    """
    match dtype:
        case pl.List(inner=inner) | pl.Array(inner=inner):
            return _as_rows(whole_type(inner))
        case pl.Struct(fields=fields):
            return all(_as_rows(whole_type(each.dtype)) for each in fields)
    return is_exact(dtype)
