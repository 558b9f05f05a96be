"""Bundles: frames of the user's columns with hidden ones beside them.

Every hidden column's name begins with `__ab_`. The order columns, sorted from left to right, give
the order of M5 inside an epoch: Polars puts null first, NaN last, and strings by their bytes.

A row caused by a record has its partition and offset; `PHASE` is null, or no column. A row caused
by a watermark has phase 1, the operator's number as its partition, a time as its offset, then parts
of its key in columns of that operator's own. What operators and branches append has a column each,
by the operator's number, which ascends from left to right of the program; it is null for rows that
did not come by. So rows of any past can be one frame, and two keys differ in the first column where
M5 says that they do.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from types import MappingProxyType

import polars as pl

from anabranch.compiler.plan import HIDDEN

TIME = "__ab_time"
"""Event time in microseconds."""
PHASE = "__ab_phase"
"""1 for a row caused by a watermark; null for one caused by a record."""
PARTITION = "__ab_p"
"""The index of the partition in `source.partitions()`."""
OFFSET = "__ab_o"
"""The row's number in its partition; of a partial, that of the first row of its split."""
SLICE = "__ab_slice"
"""The slice of the row's key."""

_FEW = 2_000
"""Rows that are put in order without a look at the order they are in."""

FROM_EPOCH = f"{HIDDEN}from_epoch"
FROM = MappingProxyType(
    {
        f"{HIDDEN}from_source": pl.String(),
        f"{HIDDEN}from_partition": pl.String(),
        f"{HIDDEN}from_offset": pl.Int64(),
        FROM_EPOCH: pl.Int64(),
    }
)
"""The record that a row is made of, where operators that hold rows are before dead letters.

Null where it is made of none; a row that was held has the epoch in which a watermark made it.
"""

FROM_PARTITION = f"{HIDDEN}from_p"
FROM_OFFSET = f"{HIDDEN}from_o"
"""The order columns of the record that a dead letter is about, where it stands elsewhere itself."""


def sub(number: int) -> str:
    """The name of the column that tells apart the rows an operator made of one.

    >>> sub(0)
    '__ab_s0'
    """
    return f"{HIDDEN}s{number}"


def key(number: int) -> str:
    """The name of a key column in the form in which keys are compared (M6)."""
    return f"{HIDDEN}k{number}"


def key_part(operator: int, number: int) -> str:
    """The name of a part of the key of rows that an operator makes of a watermark.

    >>> key_part(3, 0)
    '__ab_k3_0'
    """
    return f"{HIDDEN}k{operator}_{number}"


def branch(operator: int) -> str:
    """The name of the column that tells apart the readers of an operator that meet again.

    >>> branch(3)
    '__ab_b3'
    """
    return f"{HIDDEN}b{operator}"


def order_columns(columns: Iterable[str]) -> list[str]:
    """The order columns among these, most significant first.

    >>> order_columns(["x", "__ab_s1", "__ab_o", "__ab_s0", "__ab_p", "__ab_time"])
    ['__ab_p', '__ab_o', '__ab_s0', '__ab_s1']
    >>> order_columns(["__ab_s3", "__ab_k3_1", "__ab_b2", "__ab_k3_0", "__ab_o", "__ab_phase"])
    ['__ab_phase', '__ab_o', '__ab_b2', '__ab_k3_0', '__ab_k3_1', '__ab_s3']
    """
    ranked = ((_rank(name), name) for name in columns if name.startswith(HIDDEN))
    return [name for _, name in sorted((rank, name) for rank, name in ranked if rank is not None)]


def hidden(frame: pl.DataFrame) -> list[str]:
    """The names of a bundle's hidden columns."""
    return [name for name in frame.columns if name.startswith(HIDDEN)]


def visible(frame: pl.DataFrame) -> pl.DataFrame:
    """The user's columns alone."""
    names = [name for name in frame.columns if not name.startswith(HIDDEN)]
    if len(names) == frame.width:
        return frame
    if not names:
        return pl.DataFrame(height=frame.height)
    # By columns: to take some of them by their names is a query, which costs 50 us.
    return pl.DataFrame([frame[name] for name in names])


def in_order(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Frames as one frame, sorted by its order columns; a hidden column that one lacks is null.

    Frames that are sorted already and follow one another, as those of the splits of a source do,
    are put one behind the other without a sort.
    """
    if not frames:
        message = "no frames to put in order"
        raise ValueError(message)
    full = [frame for frame in frames if frame.height]
    by = order_columns({name for frame in full for name in frame.columns})
    if not by or not full:
        return pl.concat(full or frames[:1], how="diagonal")
    if sum(frame.height for frame in full) <= _FEW:
        # They are sorted in less time than it takes to find out whether they are.
        return _behind(full).sort(by, maintain_order=True)
    if PHASE not in by and PARTITION in by and (following := _following(full, by)) is not None:
        return _behind(following) if len(following) > 1 else following[0]
    return _behind(full).sort(by, maintain_order=True)


def _behind(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Frames one behind the other."""
    # Hidden columns may stand in another order, by where rows came from. Where they do not, it
    # takes a third of the time.
    alike = all(frame.columns == frames[0].columns for frame in frames[1:])
    return pl.concat(frames, how="vertical" if alike else "diagonal")


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
    if any(name not in frame.columns for frame in frames for name in by):
        return None
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


def _rank(name: str) -> tuple[int, int, int, int] | None:
    """Where an order column stands: the fixed ones, then by operator, key before sub and branch."""
    tail = name.removeprefix(HIDDEN)
    if tail in _FIXED:
        return (_FIXED.index(tail), 0, 0, 0)
    named = _NUMBERED.fullmatch(tail)
    if named is None:
        return None
    kind, operator, part = named.groups()
    if kind == "k" and part is None:
        return (len(_FIXED), -1, 0, int(operator))
    return (len(_FIXED), int(operator), "ksb".index(kind), int(part or 0))


_FIXED = ("phase", "p", "o")
_NUMBERED = re.compile(r"([ksb])(\d+)(?:_(\d+))?")
