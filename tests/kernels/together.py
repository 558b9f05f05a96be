"""Programs that bring two streams together, and logs in which two sources take turns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import polars as pl
from hypothesis import strategies as st

import anabranch as ab
from anabranch.kernels.bundle import in_order
from anabranch.kernels.kernel import Given, Kernel, Taken
from anabranch.program.graph import Graph
from anabranch.program.log import Cut

KEYS: dict[pl.DataType, list[Any]] = {
    pl.String(): ["a", "b", "", "é", None],
    pl.Int64(): [0, 1, -1, 2**40, None],
    pl.Float64(): [0.0, -0.0, 1.5, float("nan"), None],
    pl.Boolean(): [True, False, None],
    pl.Datetime("us", "UTC"): [datetime(2020, 1, day, tzinfo=UTC) for day in (1, 2, 3)],
    pl.Enum(["z", "y", "x"]): ["x", "y", "z", None],
}
TIMES = [0, 1, 2, 3, 5, 8, 13, 21, 22, 40]


@st.composite
def sources(draw: st.DrawFn, column: str, key: pl.DataType) -> ab.sources.Records:
    """Rows (k, j, t, `column`) with times in ms in any order; `column` numbers them."""
    shape = st.tuples(
        st.sampled_from(KEYS[key]), st.sampled_from([0, 1, None]), st.sampled_from(TIMES)
    )
    rows = draw(st.lists(shape, max_size=14))
    if draw(st.booleans()):
        rows.sort(key=lambda row: row[2])
    records = [{"k": k, "j": j, "t": t, column: n} for n, (k, j, t) in enumerate(rows)]
    schema = {"k": key, "j": pl.Int64, "t": pl.Int64, column: pl.Int64}
    if draw(st.booleans()):
        schema = dict(reversed(schema.items()))
    return ab.sources.Records(records, schema, partitions=draw(st.integers(1, 3)))


@st.composite
def two_streams(
    draw: st.DrawFn, columns: tuple[str, str] = ("l", "r"), *, twice: bool = False
) -> tuple[ab.Program, Any, Any]:
    """A program and two streams of it: of two sources, or one `twice`."""
    key = draw(st.sampled_from(list(KEYS)))
    program = ab.Program("drawn")
    lateness = st.sampled_from(["0 ms", "3 ms", "30 ms"])
    left = program.read(
        draw(sources(columns[0], key)), name="left", event_time="t", lateness=draw(lateness)
    )
    if twice or draw(st.integers(0, 3)) == 0:
        return program, left, left
    right = program.read(
        draw(sources(columns[1], key)), name="right", event_time="t", lateness=draw(lateness)
    )
    return program, left, right


@st.composite
def logs(draw: st.DrawFn, program: ab.Program, max_rows: int = 6) -> list[Cut]:
    """Epochs of the sources in any order, some empty, up to the end of all of them."""
    reads = program.freeze().sources
    ends = {read.name: read.source.latest() for read in reads}
    at = {name: dict.fromkeys(end, 0) for name, end in ends.items()}
    log: list[Cut] = []
    while left := [name for name in ends if at[name] != ends[name]]:
        name = draw(st.sampled_from(left))
        log.append(_cut(draw, name, at[name], ends[name], max_rows))
    # At the end each source says once more that it is finished, so that the watermark ends too.
    return [*log, *(Cut(name, {p: (e, e) for p, e in end.items()}) for name, end in ends.items())]


def _cut(draw: st.DrawFn, name: str, at: dict[Any, int], end: Any, max_rows: int) -> Cut:
    to = {p: min(end[p], at[p] + draw(st.integers(0, max_rows))) for p in end}
    cut = Cut(
        name,
        {p: (at[p], to[p]) for p in end},
        idle=frozenset(p for p in end if draw(st.integers(0, 4)) == 0),
    )
    at.update(to)
    return cut


@dataclass(frozen=True)
class Checked:
    """A kernel whose rows must be in order when they leave it, not only when lanes are merged."""

    kernel: Kernel[Any]

    def restore(self, deltas: Iterable[pl.DataFrame], version: int = 0) -> Any:
        """As the kernel does."""
        return self.kernel.restore(deltas, version)

    def run(self, taken: Taken, state: Any) -> Given[Any]:
        """Look at what the kernel gives."""
        given = self.kernel.run(taken, state)
        for rows in given.rows.values():
            assert in_order([rows]).equals(rows)
        return given


@dataclass(frozen=True)
class Lowered:
    """Lowers an operator to a checked kernel."""

    kind: Any

    def __call__(self, graph: Graph, op: Any) -> Any:
        """The kernel."""
        return Checked(self.kind.of(graph, op))
