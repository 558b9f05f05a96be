"""A source of which some rows cannot be read."""

import polars as pl

from anabranch.connectors.base import Source
from anabranch.connectors.unread import Unread, unread_rows


class Torn(Source):
    """Rows in the order given, item i in partition i mod `partitions`; a text is no row."""

    unread = "torn"

    def __init__(self, items, schema, partitions=1):
        self.schema = pl.Schema(schema)
        self._parts = [list(items[i::partitions]) for i in range(partitions)]

    def partitions(self):
        return range(len(self._parts))

    def latest(self):
        return {number: len(part) for number, part in enumerate(self._parts)}

    def finished(self, partition):
        return True

    def plan(self, start, end):
        return [(p, start.get(p, 0), end[p]) for p in self.partitions() if p in end]

    def read(self, split):
        """A batch a row: only those of rows that cannot be read have the column for them."""
        partition, low, high = split
        for line, item in enumerate(self._parts[partition][low:high], low + 1):
            if isinstance(item, str):
                told = Unread(f"torn-{partition}", line, "it is torn", item)
                frame = unread_rows([told], self.schema, self.unread)
            else:
                frame = pl.DataFrame([item], schema=self.schema)
            yield from frame.to_arrow().to_batches()
