"""PageRank: the rank of a page is what the pages that link to it hand on, iterated.

After the kernel of Schneider et al., "Auto-Parallelizing Stateful Distributed Streaming
Applications" (PACT 2012), section 5.3: the links are multiplied with the ranks in parallel, `add`
assembles the next ranks, and a feedback loop carries them back. There are 4 billion uniformly
distributed links there; here as many as are asked for.

`iterated` is that graph, an iteration an epoch. `unrolled` has no loop but a stage for each
iteration: every stage adds by page, in parallel, and ranks of several times are under way at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
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
