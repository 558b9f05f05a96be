"""Rows divided into directories by the values of columns, `column=value`, as Hive has them.

What a directory says is left out of its files: Polars, DuckDB and Spark read it from the names. A
value is spelled so that all three read the same one: bytes of ASCII that mean something in a path
are `%` and two digits, all other characters stay, null is `__HIVE_DEFAULT_PARTITION__`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from anabranch.connectors.rows import shown
from anabranch.errors import ProgramError, RunError

NULL = "__HIVE_DEFAULT_PARTITION__"
_SPECIAL = re.compile(r"[^A-Za-z0-9_.~\-\u0080-\U0010ffff]")
_DIRECTORIES = re.compile(r"[^/=._\0][^/=\0]*=[^/=\0]+(?:/[^/=._\0][^/=\0]*=[^/=\0]+)*")


@dataclass(frozen=True, slots=True)
class PartitionDirectories:
    """Rows by these columns, the first being the outermost directory."""

    columns: tuple[str, ...]

    @classmethod
    def by(cls, given: object) -> PartitionDirectories:
        """Of a column or a list of columns, as users write it."""
        columns = [given] if isinstance(given, str) else given
        if (
            not isinstance(columns, list | tuple)
            or not columns
            or not all(isinstance(name, str) and name for name in columns)
        ):
            message = f"Files: partition_by must be a column or a list of columns, got {given!r}"
            raise ProgramError(message, so='write it like partition_by="day"')
        if len({*columns}) != len(columns):
            message = f"Files: partition_by names a column twice: {given!r}"
            raise ProgramError(message)
        if hidden := [name for name in columns if name.startswith(("_", "."))]:
            message = f"Files: partition_by names {hidden[0]!r}, whose directories would be hidden"
            so = "rename the column: readers pass over names that begin with '_' or '.'"
            raise ProgramError(message, so=so)
        return cls(tuple(columns))

    def require(self, schema: pl.Schema) -> None:
        """Refuse columns that are missing, or whose values have no plain text."""
        for name in self.columns:
            if name not in schema:
                message = f"Files: partition_by names {name!r}, which is no column of the stream"
                raise ProgramError(message, have=shown(schema))
            if not _is_plain(schema[name]):
                message = f"Files: partition_by names {name!r}, whose type {schema[name]} has no"
                message += " plain text"
                have = "String, Enum, Categorical, Boolean, whole numbers, Date, Datetime"
                so = "add a column of such a type, and partition by that"
                raise ProgramError(message, have=f"{have} without a zone", so=so)
        if len(self.columns) == len(schema):
            message = "Files: partition_by names all columns, so that nothing is left to write"
            raise ProgramError(message, have=shown(schema))

    def pieces(self, rows: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
        """Directories and their rows, each in the order given."""
        values = [rows[name].cast(pl.String).alias(str(at)) for at, name in enumerate(self.columns)]
        for name, column in zip(self.columns, values, strict=True):
            _require_names(name, column)
        places = pl.DataFrame(values).with_row_index("row")
        keys = [column.name for column in values]
        found = places.group_by(keys, maintain_order=True).agg("row")
        kept = rows.drop(self.columns)
        for *texts, numbers in found.iter_rows():
            named = zip(self.columns, texts, strict=True)
            directories = "/".join(f"{_quoted(name)}={_spelled(text)}" for name, text in named)
            yield directories, kept[numbers]


def is_partition(directories: object) -> bool:
    """Whether this is a way down that stays inside: a message may have been written by anybody.

    >>> [is_partition(each) for each in ("day=1/k=%2F", "", "..", "a=1/..", "/a=1", "_a=1")]
    [True, False, False, False, False, False]
    """
    return isinstance(directories, str) and _DIRECTORIES.fullmatch(directories) is not None


def _require_names(column: str, values: pl.Series) -> None:
    """Refuse texts that readers would take for null, or for nothing at all."""
    for text in ("", NULL):
        if (values == text).any():
            message = f"Files: a row has {text!r} in {column!r}, by which it is partitioned"
            why = "readers take a directory of that name for null"
            so = f"replace it before: pl.col({column!r}).replace({text!r}, ...)"
            raise RunError(message, why=why, so=so)


def _spelled(text: str | None) -> str:
    return NULL if text is None else _quoted(text)


def _quoted(text: str) -> str:
    """A text as part of a path.

    >>> _quoted("a b/c=ü")
    'a%20b%2Fc%3Dü'
    """
    return _SPECIAL.sub(lambda found: f"%{ord(found.group()):02X}", text)


def _is_plain(dtype: Any) -> bool:
    if isinstance(dtype, pl.Datetime):
        return dtype.time_zone is None
    return bool(dtype.is_integer()) or isinstance(
        dtype, pl.String | pl.Enum | pl.Categorical | pl.Boolean | pl.Date
    )
