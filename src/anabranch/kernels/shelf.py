"""Where the columns of a state lie: in memory, or in files that the system maps into it.

A state is frames, arrays beside them, and Python objects that were decoded and can be again. None
of them ever changes, so that a frame in a file is as good as the one it was made of, and who gives
the one for the other changes nothing that shows. That is all a state has to know of it: it shows
what it has, and takes what it gets back (`StateView.shelved`).
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

Array: TypeAlias = npt.NDArray[Any]
_Number = TypeVar("_Number", bound=np.generic)


class Shelf(Protocol):
    """Who is shown all that a state has in memory, piece by piece.

    A piece that nobody has made anew is the same object the next time.
    """

    def frame(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The same rows."""

    def array(self, numbers: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
        """The same numbers, which nobody may change."""

    def decoded(self, size: int) -> bool:
        """Whether decoded objects of about so many bytes may stay."""
