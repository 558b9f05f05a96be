"""Lookup tables: a frame, or something that gives one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl

from anabranch.errors import ProgramError, nearest
from anabranch.program.durations import parse_duration
from anabranch.program.schema import as_schema

_READERS: dict[str, Callable[[Path], pl.DataFrame]] = {
    ".parquet": pl.read_parquet,
    ".csv": pl.read_csv,
    ".arrow": pl.read_ipc,
    ".jsonl": pl.read_ndjson,
}


_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose version is fixed for an epoch; `load` gives the newest one."""

    text: str
    schema: pl.Schema
    load: Callable[[], pl.DataFrame] = field(compare=False, repr=False)
    refresh: int | None
    first: pl.DataFrame = field(compare=False, repr=False)
    """As it was when the program was written."""


def as_table(given: Any, what: str, refresh: str | timedelta | None) -> Table:
    """Take a Polars frame, a path, a Spark DataFrame, or a function that returns a frame."""
    every = None if refresh is None else parse_duration(refresh, f"{what}: refresh")
    text, load = _loader(given, what)
    if every is not None and isinstance(given, pl.DataFrame | pl.LazyFrame):
        message = f"{what}: a frame never changes, so refresh has nothing to do"
        raise ProgramError(message, so="pass a path or a function")
    first = _loaded(load, text, what)
    schema = as_schema(first.schema, f"{what}: {text}")
    if every is None:
        return Table(text, schema, lambda: first, None, first)
    return Table(text, schema, load, every, first)


def _loader(given: Any, what: str) -> tuple[str, Callable[[], Any]]:
    if isinstance(given, pl.DataFrame):
        return "a frame", lambda: given
    if isinstance(given, pl.LazyFrame):
        return "a lazy frame", given.collect
    if isinstance(given, str | Path):
        return str(given), _reader(Path(given), what)
    if hasattr(given, "toArrow"):  # a Spark DataFrame, without asking Spark who it is
        # What collects it is above this module and loads PySpark, which is here already.
        table = importlib.import_module("anabranch.spark.spark_table")
        return "a Spark DataFrame", lambda: table.collected(given, what)
    if callable(given):
        return f"{getattr(given, '__qualname__', given)}()", given
    message = f"{what}: not a table: {given!r}"
    so = "pass a Polars frame, a path, a Spark DataFrame, or a function returning a frame"
    raise ProgramError(message, so=so)


def _reader(path: Path, what: str) -> Callable[[], pl.DataFrame]:
    read = _READERS.get(path.suffix)
    if read is None:
        message = f"{what}: unknown kind of file: {path}"
        so = "name a file with one of these suffixes, or pass a function that reads it"
        raise ProgramError(message, have=", ".join(_READERS), so=so)
    return lambda: read(path)


def _loaded(load: Callable[[], Any], text: str, what: str) -> pl.DataFrame:
    try:
        frame = load()
    except ProgramError:
        raise
    except Exception as error:
        message = f"{what}: {text} could not be loaded: {str(error).splitlines()[0]}"
        have, so = _about(text)
        raise ProgramError(message, have=have, so=so) from error
    if not isinstance(frame, pl.DataFrame):
        message = f"{what}: {text} gave {type(frame).__name__}, not a Polars frame"
        raise ProgramError(message, so="return a pl.DataFrame; of a lazy frame, .collect() it")
    return frame


def _about(text: str) -> tuple[str | None, str]:
    """What there is where a file is not, and what to do."""
    path = Path(text)
    if path.suffix not in _READERS or path.exists() or not path.parent.is_dir():
        return None, "see to it that it can be loaded when the program is written"
    names = sorted(each.name for each in path.parent.iterdir() if each.suffix in _READERS)
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    have = f"{shown or 'no table'} in {path.parent}"
    return have, nearest(path.name, names) or "mend the path"
