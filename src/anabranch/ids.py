"""Names for the small values that travel everywhere: none of them is a bare int or string."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NewType, TypeAlias

OperatorId = NewType("OperatorId", int)
"""An operator's number in order of writing; it is also its topological number (M5)."""

Partition: TypeAlias = int | str
"""A source's partition, as the source itself calls it."""

Offset: TypeAlias = Any
"""A place in a partition: a JSON value that means something to its source alone."""

Epoch = NewType("Epoch", int)
"""The position of an epoch in the log, from 0."""

Marks: TypeAlias = Mapping[str, tuple[int | None, int | None]]
"""The watermarks of all sources before and after an epoch, microseconds, by the source's name.

None is before all time.
"""
