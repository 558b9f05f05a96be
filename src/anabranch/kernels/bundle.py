"""Bundles: frames of the user's columns with hidden ones beside them.

Every hidden column's name begins with `__ab_`. The order columns, sorted from left to right, give
the order of M5 inside an epoch: Polars puts null first, NaN last, and strings by their bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from itertools import pairwise

import polars as pl

from anabranch.compiler.plan import HIDDEN

TIME = "__ab_time"
"""Event time in microseconds."""
PARTITION = "__ab_p"
"""The index of the partition in `source.partitions()`."""
OFFSET = "__ab_o"
"""The row's number in its partition; of a partial, that of the first row of its split."""
SLICE = "__ab_slice"
"""The slice of the row's key."""
WINDOW_END = "__ab_end"
"""The end of the window that a row is the result of, in microseconds."""


def sub(number: int) -> str:
    """The name of the column that tells apart the rows an operator made of one.

    >>> sub(0)
    '__ab_s0'
    """
    return f"{HIDDEN}s{number}"


def key(number: int) -> str:
    """The name of a key column in the form in which keys are compared (M6)."""
    return f"{HIDDEN}k{number}"


def order_columns(columns: Iterable[str]) -> list[str]:
    """The order columns among these, most significant first.

    >>> order_columns(["x", "__ab_s1", "__ab_o", "__ab_s0", "__ab_p", "__ab_time"])
    ['__ab_p', '__ab_o', '__ab_s0', '__ab_s1']
    """
    ranked = ((_rank(name), name) for name in columns if name.startswith(HIDDEN))
    return [name for _, name in sorted((rank, name) for rank, name in ranked if rank is not None)]


def hidden(frame: pl.DataFrame) -> list[str]:
    """The names of a bundle's hidden columns."""
    return [name for name in frame.columns if name.startswith(HIDDEN)]


def visible(frame: pl.DataFrame) -> pl.DataFrame:
    """The user's columns alone."""
    return frame.select([name for name in frame.columns if not name.startswith(HIDDEN)])


def in_order(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Frames of one shape as one frame, sorted by its order columns.

    Frames that are sorted already and follow one another, as those of the splits of a source do,
    are put one behind the other without a sort.
    """
    if not frames:
        message = "no frames to put in order"
        raise ValueError(message)
    by = order_columns(frames[0].columns)
    full = [frame for frame in frames if frame.height]
    if not by or not full:
        return pl.concat(full or frames[:1])
    if PARTITION in by and (following := _following(full, by)) is not None:
        return pl.concat(following) if len(following) > 1 else following[0]
    return pl.concat(full).sort(by, maintain_order=True)


def to_blob(frame: pl.DataFrame) -> bytes:
    """A bundle as an Arrow IPC stream, written by Polars."""
    stream = io.BytesIO()
    frame.write_ipc_stream(stream)
    return stream.getvalue()


def from_blob(blob: bytes) -> pl.DataFrame:
    """The bundle in a blob."""
    return pl.read_ipc_stream(io.BytesIO(blob))


def _following(frames: list[pl.DataFrame], by: list[str]) -> list[pl.DataFrame] | None:
    """The frames one behind the other, or None where they overlap or one is not sorted."""
    keys = [frame.select(by) for frame in frames]
    ends = sorted((k.row(0), k.row(-1), at) for at, k in enumerate(keys))
    apart = all(one[1] < other[0] for one, other in pairwise(ends))
    if not apart or not all(_is_sorted(k) for k in keys):
        return None
    return [frames[at] for _, _, at in ends]


def _is_sorted(keys: pl.DataFrame) -> bool:
    """Whether whole numbers without null ascend from left to right; two columns decide most."""
    before = pl.lit(value=False)
    same = pl.lit(value=True)
    for name in keys.columns:
        step = pl.col(name).diff().fill_null(1)
        before = before | (same & (step < 0))
        same = same & (step == 0)
    return not keys.select(before.any()).item()


def _rank(name: str) -> tuple[int, int] | None:
    tail = name.removeprefix(HIDDEN)
    fixed = {"p": 0, "o": 1, "end": 2}
    if tail in fixed:
        return (fixed[tail], 0)
    if tail[0] in "ks" and tail[1:].isdigit():
        return (3 if tail[0] == "k" else 4, int(tail[1:]))
    return None
