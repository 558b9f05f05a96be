"""`anabranch state DIR --export OUT`: the state as rows, in Parquet.

    OUT.parquet    one file for all operators: operator, slice, key and value as JSON
    OUT            a directory with a file for each operator, each with its own columns

It is written beside its place under a hidden name and renamed at the end, so whatever happens there
is nothing at its place, or what was there before, or all of it. One operator is in memory at a
time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.cli.kept import OPERATOR, Kept
from anabranch.cli.kept_values import as_text
from anabranch.errors import AnabranchError
from anabranch.state.delta import SLICE
from anabranch.state.layout import folder_of

_AT_ONCE = 65_536
"""Rows that are Python objects at a time."""
_ALL = {
    OPERATOR: pl.String(), SLICE: pl.UInt16(), "key": pl.String(), "value": pl.String()
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written."""

    files: tuple[str, ...]
    rows: dict[str, int]
    """By operator."""


def export(states: Iterable[Kept], to: Path, *, force: bool) -> Exported:
    """Write states, each of which is made when its turn comes.

    Raises:
        AnabranchError: Something is at that place, and `force` is not given; or it cannot be
            written.
    """
    with _placed(to, force=force) as draft:
        if to.suffix == ".parquet":
            return Exported((str(to),), _to_file(states, draft))
        draft.mkdir()
        rows = dict(_to_directory(states, draft))
        names = sorted(file.name for file in draft.iterdir())
    return Exported(tuple(str(to / name) for name in names), rows)


def _to_directory(states: Iterable[Kept], draft: Path) -> Iterator[tuple[str, int]]:
    for kept in states:
        frame = kept.rows.select(pl.lit(kept.operator).alias(OPERATOR), pl.all())
        frame.write_parquet(draft / f"{folder_of(kept.operator)}.parquet")
        yield kept.operator, frame.height


def _to_file(states: Iterable[Kept], draft: Path) -> dict[str, int]:
    schema = pl.DataFrame(schema=_ALL).to_arrow().schema
    rows = {}
    with pq.ParquetWriter(draft, schema) as writer:
        for kept in states:
            for part in kept.rows.iter_slices(_AT_ONCE):
                writer.write_table(_as_texts(kept, part).to_arrow().cast(schema))
            rows[kept.operator] = kept.rows.height
    return rows


def _as_texts(kept: Kept, rows: pl.DataFrame) -> pl.DataFrame:
    keys = rows.select(kept.keys)
    values = rows.drop(SLICE, *kept.keys)
    return pl.DataFrame(
        {
            OPERATOR: pl.Series([kept.operator] * rows.height, dtype=pl.String),
            SLICE: rows[SLICE],
            "key": pl.Series(_texts(keys, rows.height), dtype=pl.String),
            "value": pl.Series(_texts(values, rows.height), dtype=pl.String),
        },
        schema=_ALL,
    )


def _texts(rows: pl.DataFrame, height: int) -> list[str]:
    return [as_text(row) for row in rows.to_dicts()] if rows.width else ["{}"] * height


@contextmanager
def _placed(to: Path, *, force: bool) -> Iterator[Path]:
    """A path to write to that is at `to` if all goes well; if not, nothing is left of it."""
    target = to.absolute()
    if os.path.lexists(target) and not force:
        message = f"{to} is there already"
        raise AnabranchError(message, so="choose another path, or pass --force to replace it")
    draft = target.parent / f".{target.name[:100]}.{uuid4().hex}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        _replace(draft, target)
    except (OSError, pa.ArrowException) as error:
        message = f"cannot write the state to {to}"
        so = "make room or give the right to write there, or choose another path"
        raise AnabranchError(message, why=str(error), so=so) from error
    finally:
        _remove(draft)


def _replace(draft: Path, target: Path) -> None:
    """Put it in its place; a directory that is there is moved away first, since none is empty."""
    if not target.is_dir() or target.is_symlink():
        draft.replace(target)
        return
    if not _is_export(target):
        message = f"{target} is a directory with other files than an export has"
        raise AnabranchError(message, so="remove it yourself, or choose another path")
    old = draft.with_name(f"{draft.name}.old")
    target.rename(old)
    draft.rename(target)
    _remove(old)


def _is_export(directory: Path) -> bool:
    return all(file.suffix == ".parquet" and file.is_file() for file in directory.iterdir())


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
