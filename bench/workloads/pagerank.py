"""PageRank: the rank of a page is what the pages that link to it hand on, iterated.

After the kernel of Schneider et al., "Auto-Parallelizing Stateful Distributed Streaming
Applications" (PACT 2012), section 5.3: the links are multiplied with the ranks in parallel, `add`
assembles the next ranks, and a feedback loop carries them back. There are 4 billion uniformly
distributed links there; here as many as are asked for.

`iterated` is that graph, an iteration an epoch. The others have no loop but a stage for each
iteration, and ranks of several times are under way at once. `blocks` divides the work as the paper
does: a row is a whole vector of ranks, which meets some rows of the matrix in each channel, and
`add` puts together what they make of it. `unrolled` has a row for each page: what pages hand on is
added by page, in parallel, and most of it changes channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import polars as pl

import anabranch as ab
from bench.workloads import mixer

PAGES, LINKS_EACH = 20_000, 20
DAMPING, ITERATIONS = 0.85, 20
WINDOW_MS = 1000
"""Ranks of one second are one vector, where several are under way."""

LINKS = pl.Schema({"page": pl.Int64(), "to": pl.Int64(), "weight": pl.Float64()})
STARTS = pl.Schema({"time": pl.Int64(), "page": pl.Int64(), "rank": pl.Float64()})
"""`time` is in ms."""
VECTORS = pl.Schema({"time": pl.Int64(), "ranks": pl.List(pl.Float64())})
"""The ranks of all pages, by their numbers."""
_RANKS = {"ranks": VECTORS["ranks"]}
"""Those of all pages, or of a block."""
ROUNDS = pl.Schema({"round": pl.Int64()})
RANKS = pl.Schema({"round": pl.Int64(), "page": pl.Int64(), "rank": pl.Float64()})


def edges(numbers: pl.Series, *, pages: int, each: int, seed: int = 0) -> pl.DataFrame:
    """The links of these sequence numbers: so many of each page, to pages drawn at random.

    Two links may go to the same page, and a page may link to itself.

    >>> edges(pl.Series([0, 1, 2]), pages=2, each=2)["page"].to_list()
    [0, 0, 1]
    """
    i = numbers.to_numpy().astype(np.uint64)
    to = mixer.below(pages, i, seed=seed, field=0).astype(np.int64)
    page = (i // np.uint64(each)).astype(np.int64)
    return pl.DataFrame({"page": page, "to": to, "weight": np.full(len(i), 1 / each)}, LINKS)


def links(pages: int = PAGES, each: int = LINKS_EACH, seed: int = 0) -> pl.DataFrame:
    """All links of a web of so many pages, and one of no weight from each page to itself.

    So a page to which nobody links gets something, if nothing, and has a rank.
    """
    numbers = pl.int_range(pages * each, dtype=pl.UInt64, eager=True)
    page = pl.int_range(pages, dtype=pl.Int64, eager=True)
    to_itself = pl.DataFrame({"page": page, "to": page, "weight": np.zeros(pages)}, LINKS)
    return pl.concat([edges(numbers, pages=pages, each=each, seed=seed), to_itself])


def starts(numbers: pl.Series, *, pages: int = PAGES, seed: int = 0) -> pl.DataFrame:
    """Ranks to start from: of each page in turn, a vector a second, about 1 in all.

    >>> starts(pl.Series([0, 1, 2, 3]), pages=2).select("time", "page").rows()
    [(0, 0), (500, 1), (1000, 0), (1500, 1)]
    """
    i = numbers.to_numpy().astype(np.uint64)
    time = (i * np.uint64(WINDOW_MS) // np.uint64(pages)).astype(np.int64)
    rank = (0.5 + mixer.fractions(i, seed=seed, field=0)) / pages
    page = (i % np.uint64(pages)).astype(np.int64)
    return pl.DataFrame({"time": time, "page": page, "rank": rank}, STARTS)


def rounds(iterations: int = ITERATIONS) -> ab.sources.Source:
    """What makes an epoch of each iteration, if an epoch has one row."""
    return ab.sources.Generator(_rounds, schema=ROUNDS, rows=iterations, vectorized=True)


def _rounds(numbers: pl.Series) -> pl.DataFrame:
    return pl.DataFrame({"round": numbers.cast(pl.Int64)}, ROUNDS)


def source(
    vectors: int = 1, *, pages: int = PAGES, seed: int = 0, partitions: int = 1
) -> ab.sources.Source:
    """So many vectors to start from, made as fast as they are asked for."""
    make, rows = partial(starts, pages=pages, seed=seed), vectors * pages
    return ab.sources.Generator(
        make, schema=STARTS, rows=rows, partitions=partitions, vectorized=True
    )


def iterated(
    given: ab.sources.Source,
    web: pl.DataFrame,
    *,
    iterations: int = ITERATIONS,
    sink: ab.sinks.Sink | None = None,
) -> ab.Program:
    """Ranks after so many iterations from equal ones, with a loop. `given` are the rounds.

    Each epoch is an iteration, so there must be as many: with `max_rows=1` there are. The sink is
    `Memory("out")` if none is given.
    """
    program = ab.Program("pagerank")
    back = program.feedback(RANKS, name="iterate")
    pages = web["page"].unique().sort()
    equal = pl.DataFrame({"round": 0, "page": pages, "rank": 1 / len(pages)}, RANKS)
    added = (
        program.read(given, name="rounds")
        .lookup(equal, on="round", many=True, name="start")
        .union(back, name="ranks")
        .lookup(web, on="page", many=True, name="links")
        .select("round", page="to", rank=pl.col("rank") * pl.col("weight"), name="multiply")
        .map_batches(_add(len(pages)), out=RANKS, name="add")
    )
    back.close(added.filter(pl.col("round") < iterations, name="on"))
    last = added.filter(pl.col("round") == iterations, name="last").drop("round")
    last.write(sink or ab.sinks.Memory("out"), name="out")
    return program


def _add(pages: int) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """What makes the next ranks of all that was handed on in an iteration."""

    def add(parts: pl.DataFrame) -> pl.DataFrame:
        totals = parts.group_by("round", "page", maintain_order=True).agg(pl.col("rank").sum())
        return totals.select(pl.col("round") + 1, "page", rank=_damped(pl.col("rank"), pages))

    return add


def _damped(handed_on: pl.Expr, pages: int) -> pl.Expr:
    return (1 - DAMPING) / pages + DAMPING * handed_on


def unrolled(
    given: ab.sources.Source,
    web: pl.DataFrame,
    *,
    iterations: int = ITERATIONS,
    lateness: str = "0 s",
    sink: ab.sinks.Sink | None = None,
) -> ab.Program:
    """Ranks after so many iterations, of each second's vector of `given`, without a loop.

    What a stage adds up leaves with a watermark, and goes through all the others with the same. The
    sink is `Memory("out")` if none is given.
    """
    program = ab.Program("pagerank-unrolled")
    pages = web["page"].n_unique()
    ranks = program.read(given, name="starts", event_time="time", lateness=lateness)
    for number in range(1, iterations + 1):
        ranks = (
            ranks.lookup(web, on="page", many=True, name=f"links-{number}")
            .select(page="to", rank=pl.col("rank") * pl.col("weight"), name=f"multiply-{number}")
            .window(ab.tumbling(f"{WINDOW_MS} ms"), by="page")
            .agg(handed_on=ab.sum("rank"), name=f"add-{number}")
            .select(
                "window_start",
                "page",
                rank=_damped(pl.col("handed_on"), pages),
                name=f"ranks-{number}",
            )
        )
    ranks.write(sink or ab.sinks.Memory("out"), name="out")
    return program


@dataclass(frozen=True, slots=True)
class Matrix:
    """Who links to each page, in files that are mapped: a channel reads the rows that it needs."""

    home: str
    pages: int

    @classmethod
    def kept(cls, web: pl.DataFrame, home: Path) -> Self:
        """Write a web as `links` makes it, in which no link has another weight than others."""
        linked = web.filter(pl.col("weight") > 0).sort("to", maintain_order=True)
        pages, weights = web["page"].n_unique(), linked["weight"].unique()
        if len(weights) != 1:
            message = f"one weight for all links is needed, got {len(weights)}"
            raise ValueError(message)
        np.save(home / "from.npy", linked["page"].to_numpy().astype(np.int32))
        ends = np.searchsorted(linked["to"].to_numpy(), np.arange(pages + 1))
        np.save(home / "ends.npy", ends)
        np.save(home / "weight.npy", weights.to_numpy())
        return cls(str(home), pages)

    def times(self, ranks: npt.NDArray[np.float64], first: int, last: int) -> Any:
        """What pages from a number to before another are handed of these ranks."""
        page, ends, weight = _read(self.home)
        handed_on = ranks[page[ends[first] : ends[last]]]
        sums = np.zeros(last - first)
        some = ends[first:last] < ends[first + 1 : last + 1]
        if some.any():
            sums[some] = np.add.reduceat(handed_on, (ends[first:last] - ends[first])[some])
        return sums * weight


@cache
def _read(home: str) -> tuple[Any, Any, Any]:
    page, ends, weight = (
        np.load(Path(home) / f"{name}.npy", mmap_mode="r") for name in ("from", "ends", "weight")
    )
    return page, ends, weight[0]


def vectors(numbers: pl.Series, *, pages: int = PAGES, seed: int = 0) -> pl.DataFrame:
    """The ranks of `starts`, a row for all of a second.

    >>> vectors(pl.Series([0, 1]), pages=2)["ranks"].list.len().to_list()
    [2, 2]
    """
    i = numbers.to_numpy().astype(np.uint64)
    each = np.add.outer(i * np.uint64(pages), np.arange(pages, dtype=np.uint64)).reshape(-1)
    ranks = starts(pl.Series(each), pages=pages, seed=seed)["rank"].reshape((len(i), pages))
    time = (i * np.uint64(WINDOW_MS)).astype(np.int64)
    return pl.DataFrame({"time": time, "ranks": ranks.cast(VECTORS["ranks"])}, VECTORS)


def vector_source(
    count: int = 1, *, pages: int = PAGES, seed: int = 0, partitions: int = 1
) -> ab.sources.Source:
    """So many vectors to start from, made as fast as they are asked for."""
    make = partial(vectors, pages=pages, seed=seed)
    return ab.sources.Generator(
        make, schema=VECTORS, rows=count, partitions=partitions, vectorized=True
    )


def blocks(
    given: ab.sources.Source,
    matrix: Matrix,
    *,
    count: int,
    iterations: int = ITERATIONS,
    lateness: str = "0 s",
    sink: ab.sinks.Sink | None = None,
) -> ab.Program:
    """Ranks after so many iterations, of each vector of `given`, by so many blocks of the matrix.

    The sink is `Memory("out")` if none is given.
    """
    program, second = ab.Program("pagerank-blocks"), ab.tumbling(f"{WINDOW_MS} ms")
    numbers = pl.DataFrame({"every": [0] * count, "block": range(count)})
    ranks = program.read(given, name="starts", event_time="time", lateness=lateness)
    ranks = ranks.select("ranks", name="vectors")
    for number in range(1, iterations + 1):
        ranks = (
            ranks.with_columns(every=pl.lit(0, pl.Int64), name=f"every-{number}")
            .lookup(numbers, on="every", many=True, name=f"blocks-{number}")
            .window(second, by="block")
            .apply(_multiplied(matrix, count), out=_RANKS, name=f"multiply-{number}")
            .window(second)
            .apply(_put_together, out=_RANKS, name=f"add-{number}")
            .select("ranks", name=f"ranks-{number}")
        )
    ranks.write(sink or ab.sinks.Memory("out"), name="out")
    return program


def _multiplied(matrix: Matrix, count: int) -> Callable[[tuple[int], pl.DataFrame], pl.DataFrame]:
    """What makes the next ranks of a block's pages of the ranks of all."""
    bounds = [matrix.pages * at // count for at in range(count + 1)]

    @ab.operator(pure=True)
    def multiply(key: tuple[int], frame: pl.DataFrame) -> pl.DataFrame:
        (block,) = key
        made = matrix.times(frame["ranks"][0].to_numpy(), bounds[block], bounds[block + 1])
        ranks = (1 - DAMPING) / matrix.pages + DAMPING * made
        return _one(pl.Series(ranks))

    return multiply


def _put_together(key: tuple[()], frame: pl.DataFrame) -> pl.DataFrame:
    """The ranks of all pages; blocks come in their order."""
    del key
    return _one(frame["ranks"].explode())


def _one(ranks: pl.Series) -> pl.DataFrame:
    return pl.DataFrame({"ranks": ranks.implode()}, _RANKS)
