"""Schneider's five kernels: their programs, and a backlog of each on Spark by cores.

"Auto-Parallelizing Stateful Distributed Streaming Applications" (PACT 2012), section 5.3 and figure
11. PageRank is unrolled, three iterations: a loop runs in one lane. It has as many links a page as
there, of fewer pages. What else differs from there is said with the programs (`bench/workloads`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import anabranch as ab
from bench.backlog import runs
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.workloads import network, pagerank, twitter, vwap

PARTITIONS = 2
"""Of each source, with one core and with two: a core may read one while another reads the other."""
PAGES, LINKS_EACH, BLOCKS, ITERATIONS = 5_000, 2_000, 64, 3
"""Of PageRank; blocks of the matrix are what channels have of it, so more channels have nothing."""
NOT_PARALLEL = "Quotes meet averages in order of time in one place, there as here."


@dataclass(frozen=True, slots=True)
class Application:
    """A kernel's program, and how much of it is measured."""

    make: Callable[[int, int], ab.Program]
    """On so many rows of each source, which has so many partitions."""
    rows: int
    """Of each source, as a backlog on Spark."""
    part: int
    """Of each source, in a channel's part of a bundle. Windows are as long, so one ends in each."""
    sources: int = 1
    keys: Mapping[int, int] = field(default_factory=dict)
    """Of stages that have few, by their number: no more channels can be at work there."""
    why: str = ""

    def workload(self) -> runs.Workload:
        """As it is run on Spark; rows are of all sources together."""

        def make(rows: int) -> ab.Program:
            return self.make(rows // self.sources, PARTITIONS)

        return runs.Workload(make, self.rows * self.sources, self.why)


def _network(rows: int, partitions: int) -> ab.Program:
    """Each partition has a rate of its own, as sources that are parallel do."""
    return network.monitored(network.source(rows, rate=5_000 * partitions, partitions=partitions))


def _network_one_rate(rows: int, partitions: int) -> ab.Program:
    return network.monitored(network.source(rows, rate=5_000, partitions=partitions))


def _pagerank(rows: int, partitions: int) -> ab.Program:
    given = pagerank.vector_source(rows, pages=PAGES, partitions=partitions)
    return pagerank.blocks(given, _matrix(), count=BLOCKS, iterations=ITERATIONS)


def _pagerank_by_page(rows: int, partitions: int) -> ab.Program:
    given = pagerank.source(rows // PAGES, pages=PAGES, partitions=partitions)
    return pagerank.unrolled(given, pagerank.links(PAGES), iterations=ITERATIONS)


@cache
def _home() -> tempfile.TemporaryDirectory[str]:
    """Gone when this process ends."""
    return tempfile.TemporaryDirectory(prefix="anabranch-bench-")


@cache
def _matrix() -> pagerank.Matrix:
    return pagerank.Matrix.kept(pagerank.links(PAGES, LINKS_EACH), Path(_home().name))


def _nlp(rows: int, partitions: int) -> ab.Program:
    return twitter.nlp(twitter.source(rows, rate=1_000, partitions=partitions))


def _cep(rows: int, partitions: int) -> ab.Program:
    return twitter.cep(twitter.raw_source(rows, rate=1_000, partitions=partitions))


def _finance(rows: int, partitions: int) -> ab.Program:
    return vwap.bargains(*vwap.sources(rows, rate=1_000, partitions=partitions))


APPLICATIONS: Mapping[str, Application] = {
    "network": Application(_network, 24_000_000, 25_000, keys={0: network.SERVERS}),
    "pagerank": Application(_pagerank, 240, 2, keys=dict.fromkeys((0, 2, 4), BLOCKS)),
    "twitter-nlp": Application(_nlp, 240_000, 1_000),
    "twitter-cep": Application(_cep, 960_000, 2_500),
    "finance": Application(_finance, 1_200_000, 5_000, sources=2, why=NOT_PARALLEL),
}

OTHERWISE: Mapping[str, Application] = {
    "network-one-rate": replace(APPLICATIONS["network"], make=_network_one_rate),
    "pagerank-by-page": Application(_pagerank_by_page, 120 * PAGES, PAGES),
}
"""In virtual time alone; told beside the others, since the speed-up depends on that choice.

`network-one-rate`: with n channels a part is of n windows, not of one: heads can sum up less before
rows are exchanged. `pagerank-by-page`: no channel has a whole vector, but what its pages hand on
(20 links each), of which it can sum up the less the more channels there are.
"""


def on_spark(stand: Stand, names: Sequence[str]) -> list[Row]:
    """Throughput with one core and with two, and the speed-up."""
    workloads = {name: APPLICATIONS[name].workload() for name in names}
    rows = runs.measured(stand, workloads)
    return [*rows, *_speedups(rows)]


def _speedups(rows: Sequence[Row]) -> Iterator[Row]:
    """Ratios of medians; the least and the greatest are of any two runs."""
    of = {(row.case, row.system): row for row in rows}
    for two in rows:
        if two.ratio is None or two.against is None:
            continue
        one = of[two.case, two.against]
        yield Row(
            two.case, "speedup", "x", two.system, two.ratio, two.low / one.high,
            two.high / one.low, two.runs,
        )  # fmt: skip
