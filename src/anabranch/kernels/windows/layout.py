"""How values that are kept whole are laid out (StreamBox 7.1): copied together, or in chunks.

What a bundle brings for a window and key is a list of values. Lists of one window and key can be
copied behind one another as they come, so that there is one when the window ends; or they stay in
the chunk in which they came, and what combines them is only that they are in the same state. Both
give the same windows. Which is less work depends on how many values of a key come together.
"""

from __future__ import annotations

from enum import Enum
from typing import Self

import polars as pl

SAMPLE = 1_024
"""So many groups of a bundle are looked at."""
_MANY = 8
"""From so many values a key on they stay in chunks.

Chunks took less processor time at any number: in windows of 10 bundles of 200,000 rows, kept for a
Polars aggregation, 78 ms a bundle instead of 91 at 1 value a key, 30 instead of 38 at 8, 19 instead
of 25 at 30. What decides is what they take up, for each list of a chunk has a key of its own: 41.6
bytes a value instead of 20.7 at 1, 29.7 instead of 18.7 at 3, 22.5 instead of 18.1 at 8, 19.0
instead of 17.9 at 30; and the work that is left for the end of the window, which others wait for:
394 ms instead of 165 at 1, 127 instead of 52 at 8, 83 instead of 38 at 30.
"""
_CHUNKS = 16
"""So many chunks are kept beside one another before they are copied into one, so that a window of
many bundles does not look at all of them in each epoch."""


class Layout(Enum):
    """What is done with a bundle's values: how many layers of one size may stand side by side."""

    COPIES = 1
    CHUNKS = _CHUNKS

    @classmethod
    def of(cls, sample: pl.Series) -> Self:
        """The one for a bundle that has so many values a key, in each of some groups of it.

        >>> Layout.of(pl.Series([1, 2, 1])), Layout.of(pl.Series([900, 1, 1]))
        (<Layout.COPIES: 1>, <Layout.CHUNKS: 16>)
        """
        many = len(sample) and int(sample.sum()) >= _MANY * len(sample)
        return cls.CHUNKS if many else cls.COPIES
