"""A sink that keeps rows where the program was started."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, final

import polars as pl

from anabranch.connectors.base import Sink, require_visible
from anabranch.connectors.messages import from_message, to_message
from anabranch.markup import Markup, element, page

if TYPE_CHECKING:
    import pyarrow as pa


@final
class Memory(Sink):
    """Rows in the driver's memory, by epoch: `.rows` are dicts in order, `.frame()` a frame.

    At least once after a crash of the driver, when its memory is gone with it. With
    `visible="early"` and the trigger `ab.continuous` rows are there before their commit.
    """

    def __init__(self, name: str, *, visible: Literal["commit", "early"] = "commit") -> None:
        """Name the sink; that is also what its rows are called in results."""
        self.name, self.visible = name, require_visible("Memory", visible)
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

    def rewind(self, after: int) -> None:
        """Forget the rows of epochs that come again."""
        if self.visible == "early":
            self._epochs = {epoch: rows for epoch, rows in self._epochs.items() if epoch <= after}
