"""Rows that are made before, in a file which whoever reads maps: to give them costs nearly nothing.

The file is played again and again: behind its last row comes its first.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import polars as pl
import pyarrow as pa


def keep(frame: pl.DataFrame, path: Path) -> None:
    """Write rows, as they are read."""
    frame.write_ipc(path, compression="uncompressed")


@cache
def kept(path: str) -> pl.DataFrame:
    """All rows of a file."""
    with pa.memory_map(path) as file:
        found = pl.from_arrow(pa.ipc.open_file(file).read_all())
    assert isinstance(found, pl.DataFrame)
    return found


def played(path: str, first: int, last: int) -> pl.DataFrame:
    """The rows from a number to before another, as slices of the file."""
    known, parts, at = kept(path), list[pl.DataFrame](), first
    while at < last:
        place = at % known.height
        parts.append(known.slice(place, min(known.height - place, last - at)))
        at += parts[-1].height
    return pl.concat(parts) if parts else known.clear()
