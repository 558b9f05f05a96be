"""Errors of users' functions and expressions as data."""

from __future__ import annotations

import base64
import json
import math
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from polars.exceptions import PanicException, PolarsError

from anabranch.kernels.results import TaskError

_PACKAGE = str(Path(__file__).resolve().parents[1])


class BadRow(Exception):
    """A row that a Python operator may not give."""


class Failed(Exception):
    """A task ends with this error of the user's program."""

    def __init__(self, error: TaskError) -> None:
        """Carry the error to where the task ends."""
        super().__init__(error.text)
        self.error = error


@contextmanager
def failing(operator: str) -> Iterator[None]:
    """Tell an error of Polars, or a value that its type cannot hold, as this operator's."""
    try:
        yield
    except (PolarsError, PanicException, OverflowError) as error:
        text = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        raise Failed(TaskError(operator, text)) from error


def told(operator: str, error: BaseException, record: dict[str, Any] | None = None) -> TaskError:
    """An exception as data: what it says, on which record, and the user's own lines."""
    text = f"{type(error).__name__}: {_words(error)}"
    return TaskError(operator, text, None if record is None else as_json(record), _frames(error))


def as_json(record: dict[str, Any]) -> str:
    """A record as JSON text: times in ISO 8601, durations in microseconds, bytes in base 64.

    Floats that JSON has no number for are text.

    >>> as_json({"n": 1, "raw": b"a", "x": float("nan")})
    '{"n": 1, "raw": "YQ==", "x": "NaN"}'
    """
    try:
        return json.dumps(record, default=_plain, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(record), default=_plain, ensure_ascii=False)


def _words(error: BaseException) -> str:
    """What an exception says, as text that can be written: users' exceptions may say anything."""
    try:
        said = str(error)
    except Exception as another:  # noqa: BLE001 - the record is to blame, not its exception
        said = f"(it cannot be shown: {type(another).__name__})"
    return said.encode("utf-8", "backslashreplace").decode()


def _frames(error: BaseException) -> tuple[str, ...]:
    return tuple(
        f"{frame.filename}:{frame.lineno} in {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_PACKAGE)
    )


def _finite(value: Any) -> Any:
    """The value with text in the place of floats that are no numbers to JSON."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        # As JSON's own extension spells them: NaN, Infinity, -Infinity.
        return json.dumps(value)
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return str(value)
    return repr(value)
