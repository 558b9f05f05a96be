"""An operator's bundles by output."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from anabranch.kernels.letters import Left
from anabranch.program.operators.operator import DEAD_LETTERS, OUT


def outputs_of(rows: pl.DataFrame, left: Left) -> Mapping[str, pl.DataFrame]:
    """What came of the rows that did not fail, and the letters of the others, if they are read."""
    return {OUT: rows} if left.letters is None else {OUT: rows, DEAD_LETTERS: left.letters}
