"""A sink that keeps rows where the program was started."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, final

import polars as pl

from anabranch.connectors.base import Sink
from anabranch.connectors.messages import from_message, to_message
from anabranch.markup import Markup, element, page

if TYPE_CHECKING:
    import pyarrow as pa


@final
class Memory(Sink):
    """Rows in the driver's memory, by epoch: `.rows` are dicts in order, `.frame()` a frame.

    At least once after a crash of the driver, when its memory is gone with it.
    """

    def __init__(self, name: str) -> None:
        """Name the sink; that is also what its rows are called in results."""
        self.name = name
        self._epochs: dict[int, list[pl.DataFrame]] = {}

    def __repr__(self) -> str:
        """Say which and how full."""
        return f"<Memory {self.name!r}: {len(self.frame())} rows>"

    def _repr_html_(self) -> str:
        """Notebooks show its rows as Polars does."""
        return page(element("b", self.name), Markup(self.frame()._repr_html_()))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All published rows, in order."""
        return self.frame().rows(named=True)

    def frame(self) -> pl.DataFrame:
        """All published rows as one frame; of no columns before the first."""
        frames = [frame for epoch in sorted(self._epochs) for frame in self._epochs[epoch]]
        return pl.concat(frames) if frames else pl.DataFrame()

    def write(self, batches: Iterable[pa.RecordBatch], epoch: int, attempt: str) -> str:  # noqa: ARG002
        """Carry the rows in the message itself."""
        return to_message(batches)

    def publish(self, messages: Sequence[str], epoch: int) -> None:
        """Keep an epoch's rows; the same epoch again replaces itself."""
        self._epochs[epoch] = [from_message(each, "Memory") for each in messages if each != ""]
