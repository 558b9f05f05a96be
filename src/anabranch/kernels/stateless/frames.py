"""A user's function of frames."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl

from anabranch.kernels.failures import BadRow
from anabranch.kernels.stateless.columns import framed


@dataclass(frozen=True)
class Frames:
    """A function from frames of some columns to frames of a schema, which is checked."""

    call: Callable[[pl.DataFrame], Any]
    columns: tuple[str, ...]
    out: pl.Schema

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        """What the function makes of a bundle's rows; it raises whatever the function raises."""
        made = self.call(framed((rows[name] for name in self.columns), rows.height))
        if not isinstance(made, pl.DataFrame):
            message = f"expected a frame, got {type(made).__name__}"
            raise BadRow(message)
        if dict(made.schema) != dict(self.out):
            message = f"expected the columns {dict(self.out)}, got {dict(made.schema)}"
            raise BadRow(message)
        return made.select(list(self.out))

    def nothing(self) -> pl.DataFrame:
        """No rows, as they would be made."""
        return pl.DataFrame(schema=self.out)
