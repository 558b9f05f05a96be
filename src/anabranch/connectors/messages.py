"""Rows that travel in the message of a sink: Arrow, in text.

A commit holds the messages, so the rows are as durable as it is, and are there again when a run
that died before it published them is followed by another.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from typing import TYPE_CHECKING

import polars as pl

from anabranch.connectors.untrusted_arrow import read_stream
from anabranch.errors import CheckpointError

if TYPE_CHECKING:
    import pyarrow as pa


def to_message(batches: Iterable[pa.RecordBatch]) -> str:
    """Rows as text; no batches make no text.

    >>> message = to_message(pl.DataFrame({"n": [1]}).to_arrow().to_batches())
    >>> from_message(message, "Memory").rows()
    [(1,)]
    """
    frames = [pl.DataFrame(batch) for batch in batches]
    if not frames:
        return ""
    stream = io.BytesIO()
    pl.concat(frames).write_ipc_stream(stream)
    return base64.b64encode(stream.getvalue()).decode()


def from_message(message: object, sink: str) -> pl.DataFrame:
    """The rows of a text that is not empty; `sink` is told if they cannot be had."""
    try:
        if not isinstance(message, str):
            raise TypeError(f"it is no text but {type(message).__name__}")  # noqa: EM102 - told below
        return read_stream(base64.b64decode(message, validate=True))
    except (TypeError, ValueError) as error:
        text = f"a message of a {sink} sink cannot be read"
        so = "restore the checkpoint from a copy, or start from a savepoint"
        raise CheckpointError(text, why=str(error), so=so) from error
