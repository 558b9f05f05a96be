"""The log: what came from outside, in the order in which it counts (M1).

Values only. Who makes a log and who obeys it decide apart from each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from anabranch.ids import Offset, Partition


@dataclass(frozen=True, slots=True)
class Cut:
    """One epoch of one source.

    `offsets` gives the range of each partition that was read, its end left out; a partition that
    is missing gave nothing. What is `idle` or `finished` is so at the end of the epoch (None: the
    source is asked whether its end was reached); `hint` is in the time column's own type. `tables`
    are the versions that hold from this epoch on, by the lookup's name; `quarantined` are rows, by
    partition and number, that are passed over.
    """

    source: str
    offsets: Mapping[Partition, tuple[Offset, Offset]]
    idle: frozenset[Partition] = frozenset()
    finished: frozenset[Partition] | None = None
    hint: Any = None
    tables: Mapping[str, pl.DataFrame] = field(default_factory=dict, compare=False)
    quarantined: frozenset[tuple[Partition, int]] = frozenset()
