"""What process operators keep, decoded: values, elements of lists and maps, timers, a row each."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import polars as pl

from anabranch.cli.lasting import Lasting
from anabranch.errors import CheckpointError
from anabranch.kernels.keyed.cell import SEEN
from anabranch.kernels.keyed.state import of_this_life
from anabranch.state.codec import decode
from anabranch.state.delta import SLICE
from anabranch.state.description import Facts

_CELL, _ELEMENT, _TIMER, _ENTRY = range(4)
_PARTS = {_CELL: "value", _ELEMENT: "map", _TIMER: "timer", _ENTRY: "list"}


def processed(rows: pl.DataFrame, facts: Facts, lasting: Lasting) -> pl.DataFrame:
    """A row for each value, element and timer: `part` says which, `at` which one of them."""
    parts = ["kind", "key", "part"]
    (rows,) = of_this_life([rows])
    rows = rows.unique(parts, keep="last", maintain_order=True)
    rows = _alive(rows.filter(pl.col("value").is_not_null()), lasting)
    names = tuple(line.rpartition(": ")[0] for line in facts.get("key", ()))
    keys = [_decoded(code) for code in rows["key"].to_list()]
    kinds, numbers = rows["kind"].to_list(), rows["part"].to_list()
    told = [
        _told(*each, ttl=lasting.ttl is not None)
        for each in zip(kinds, numbers, rows["value"].to_list(), strict=True)
    ]
    return pl.DataFrame(
        [
            rows[SLICE],
            *(column(name, [_at(key, at) for key in keys]) for at, name in enumerate(names)),
            pl.Series("part", [_PARTS.get(kind, "unknown") for kind in kinds], pl.String),
            pl.Series("at", [at for at, _ in told], pl.String),
            pl.Series("value", [value for _, value in told], pl.String),
        ]
    )


def as_text(value: Any) -> str:
    """Any value that state may hold as JSON.

    >>> as_text({"a": (1, None), 2: b"x"})
    '{"a": [1, null], "2": "x"}'
    """
    return json.dumps(_plain(value), ensure_ascii=False)


def column(name: str, values: Sequence[Any]) -> pl.Series:
    """Values of a key as a column of their type; as text where they have several."""
    try:
        return pl.Series(name, values, strict=True)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        return pl.Series(name, [None if each is None else as_text(each) for each in values])


def _alive(rows: pl.DataFrame, lasting: Lasting) -> pl.DataFrame:
    """Without timers that have fired and what has outlived its time to live."""
    kind = pl.col("kind")
    if lasting.watermark is not None:
        rows = rows.filter((kind != _TIMER) | (pl.col("part") > lasting.watermark))
    if lasting.ttl is None:
        return rows
    seen = pl.col("value").bin.head(SEEN.size)
    seen = seen.bin.reinterpret(dtype=pl.Int64, endianness="little")
    cells = rows.filter(kind == _CELL).filter(lasting.seen(seen))
    # What belongs to a key counts while its cell does.
    others = rows.filter(kind != _CELL).join(cells.select("key"), on="key", how="semi")
    return pl.concat([cells, others])


def _told(kind: int, number: int, value: bytes, *, ttl: bool) -> tuple[str | None, str | None]:
    """Which one it is, and what it is, as JSON."""
    if kind == _TIMER:
        return str(number), None
    try:
        found = decode(value[SEEN.size :] if ttl and kind == _CELL else value)
        if kind == _CELL:
            return None, as_text(found[0] if found else None)
        if kind == _ELEMENT:
            return as_text(found[0]), as_text(found[1])
    except CheckpointError as error:
        # A class of the program's, which is not known here.
        return str(number), json.dumps({"undecoded": value.hex(), "because": error.what})
    return str(number), as_text(found)


def _decoded(code: bytes) -> Any:
    try:
        return decode(code)
    except CheckpointError:
        return (code.hex(),)


def _at(key: Any, at: int) -> Any:
    return key[at] if isinstance(key, tuple) and at < len(key) else None


def _plain(value: Any) -> Any:
    """A value of JSON's types; what JSON has not is told as text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return _plain_items(value)


def _plain_items(value: Any) -> Any:
    match value:
        case dict():
            return {k if isinstance(k, str) else as_text(k): _plain(v) for k, v in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case set() | frozenset():
            return sorted((_plain(each) for each in value), key=as_text)
    return str(value)
