"""What every operator is to the oracle: rows in, then a watermark, rows out."""

from __future__ import annotations

import base64
import json
import math
import os
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from anabranch.errors import RunError
from anabranch.program.operators.operator import DEAD_LETTERS, OUT, Operator, Output
from anabranch.testing.sequential.row import BEFORE_TIME, Record, Row

Emitted: TypeAlias = Iterable[tuple[str, Row]]

_Op = TypeVar("_Op", bound=Operator)
_PACKAGE = str(Path(__file__).resolve().parents[2]) + os.sep


class Node(Generic[_Op]):
    """One operator at run time. `watermark` is the one before the present epoch."""

    lag = 0
    """By how much its output's watermark is behind its own (outer joins)."""

    def __init__(self, op: _Op, inputs: Sequence[Output]) -> None:
        """Begin before all time, with nothing."""
        self.op, self.inputs = op, tuple(inputs)
        self.watermark: float = BEFORE_TIME

    def take(self, row: Row, position: int) -> Emitted:
        """Take one row from the input at this position."""
        raise NotImplementedError

    def advance(self, watermark: float, epoch: int) -> Emitted:
        """Take the watermark that ends an epoch, after all its rows."""
        self.watermark = watermark
        del epoch
        return ()

    @property
    def given(self) -> Output:
        """The first input."""
        return self.inputs[0]

    def attempt(self, row: Row, run: Callable[[], Sequence[Row]]) -> Emitted:
        """Run a user's function on a row; an error obeys `on_error`."""
        try:
            rows = run()
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            return self.failed(row, error)
        return [(OUT, each) for each in rows]

    def failed(self, row: Row, error: Exception) -> Emitted:
        """Treat an error of one record as `on_error` says."""
        on_error = getattr(self.op, "on_error", "fail")
        if on_error == "skip":
            return ()
        if on_error == "dead_letter":
            return [(DEAD_LETTERS, self.letter(row, "error", error))]
        message = f"{self.op.name} failed on {as_json(row.values)}: {described(error)}"
        why = "\n        ".join(user_frames(error)) or None
        so = 'mend the function, or pass on_error="skip" or "dead_letter"'
        raise RunError(message, site=self.op.site, why=why, so=so) from error

    def letter(self, row: Row, reason: str, error: Exception | None = None) -> Row:
        """The dead letter of a row."""
        origin = row.origin
        values = {
            "operator": self.op.name,
            "source": origin.source,
            "partition": origin.partition,
            "offset": origin.offset,
            "epoch": origin.epoch,
            "reason": reason,
            "error": None if error is None else described(error),
            "traceback": None if error is None else "\n".join(user_frames(error)),
            "record": as_json(row.values),
        }
        return replace(row, values=values)


def described(error: BaseException) -> str:
    """The kind of an error and what it says."""
    try:
        said = str(error)
    except Exception as another:  # noqa: BLE001 - users' exceptions may do anything
        said = f"(it cannot be shown: {type(another).__name__})"
    return f"{type(error).__name__}: {said}".encode("utf-8", "backslashreplace").decode()


def user_frames(error: BaseException) -> list[str]:
    """The lines of the user's own code an error went through, outermost first."""
    return [
        f"{frame.filename}:{frame.lineno} in {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_PACKAGE)
    ]


def as_json(record: Record) -> str:
    """A record as JSON text: times in ISO 8601, durations in microseconds, bytes in base 64.

    Numbers that JSON does not know are told as text: "NaN", "Infinity", "-Infinity".

    >>> as_json({"n": 1, "raw": b"a"})
    '{"n": 1, "raw": "YQ=="}'
    """
    return json.dumps(_plain(record), ensure_ascii=False)


def _plain(value: Any) -> Any:  # noqa: PLR0911 - one case a kind
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return str(value)
    return repr(value)
