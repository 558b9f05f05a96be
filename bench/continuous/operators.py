"""What the operators of TPCx-BB's queries cost on this machine, and how many tuples they give.

Each query is a program through `works_of`, in one partition and one thread, bundle by bundle; heads
and stages are the operators, as the compiler has fused them. A pass over all bundles is one turn
for `engine.estimates`: windows give in bursts, and a bundle alone tells nothing of what they give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import anabranch as ab
from anabranch.compiler.compile import plan_of
from anabranch.engine.core import Work
from anabranch.engine.estimates import Estimates
from anabranch.engine.resident import (
    Beginning,
    Epoch,
    EpochToRead,
    Program,
    fragments_of,
    works_of,
)
from anabranch.epoch.protocol import Offer
from anabranch.kernels.results import EpochInput
from anabranch.ordering.worklist import Fragment
from bench.harness.stand import Stand
from bench.workloads import tpcxbb, tpcxbb_rows

SEED = 20180413
"""Of sales and clicks."""
BUNDLE = 250
"""Rows: a kernel call is shared by so many."""
ROWS, QUICK_ROWS = 6_000, 2_000
PASSES = 3
"""At most: what is learnt is a mean, and the figures are to take less than three minutes."""
SLICES = 8


class Kind(Enum):
    """How many workers may be at an operator."""

    STATELESS = "SL"
    PARTITIONED = "PS"
    STATEFUL = "SF"


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator, as it was measured."""

    name: str
    kind: Kind
    cost: float
    """Seconds a tuple that it takes."""
    selectivity: float
    onward: float
    """Seconds in which what comes of one tuple of the input goes on, in order."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query's operators, in a row."""

    name: str
    operators: tuple[Operator, ...]
    keys: int | None = None
    """How many there are, if few: it can have no more partitions."""


def programs() -> dict[str, Callable[[int], ab.Program]]:
    """The five queries, on so many rows; query 1 counts each hour, and all pairs count."""
    items, pages = tpcxbb_rows.items(), tpcxbb_rows.pages()

    def sales(rows: int) -> ab.sources.Source:
        return ab.sources.Records(tpcxbb_rows.sales(rows, SEED))

    def clicks(rows: int) -> ab.sources.Source:
        return ab.sources.Records(tpcxbb_rows.clicks(rows, SEED))

    return {
        "q1": lambda rows: tpcxbb.q1(sales(rows), items, above=0),
        "q2": lambda rows: tpcxbb.q2(clicks(rows)),
        "q3": lambda rows: tpcxbb.q3(clicks(rows), items),
        "q4": lambda rows: tpcxbb.q4(clicks(rows), pages),
        "q15": lambda rows: tpcxbb.q15(sales(rows), items),
    }


def measured(stand: Stand, name: str) -> Query:
    """A query's operators, learnt in as many passes as there are runs."""
    rows = QUICK_ROWS if stand.settings.quick else ROWS
    program = programs()[name](rows)
    bundles = list(cuts(program, rows))
    works: list[Work] = []
    estimates = Estimates.of(0, 0.0)
    onward: list[float] = []
    for number in range(stand.settings.warmups + min(stand.settings.runs, PASSES)):
        works = works_in(program, partitions=1)
        one = Pass(stand, works)
        for serial, cut in enumerate(bundles):
            one.take(serial, cut)
        if number <= stand.settings.warmups:
            # Passes before this one warmed up: nothing is known yet.
            estimates, onward = Estimates.of(len(works), 0.0), one.onward
        for at in range(len(works)):
            estimates = estimates.begin(at).end(
                at, 0.0, one.seconds[at], one.taken[at], one.given[at]
            )
        onward = [min(pair) for pair in zip(onward, one.onward, strict=True)]
    return Query(
        name,
        tuple(
            Operator(work.name, kind, each.cost, each.selectivity, passing / rows)
            for work, kind, each, passing in zip(
                works, kinds(program), estimates.operators, onward, strict=True
            )
        ),
        tpcxbb_rows.CATEGORY_COUNT if name == "q15" else None,
    )


def works_in(program: ab.Program, partitions: int, slices: int = SLICES) -> list[Work]:
    """A program's operators, without any state yet."""
    graph = program.freeze()
    found = Program.of(plan_of(graph), partitions=partitions, slices=slices)
    return works_of(found, Beginning.of(graph))


def kinds(program: ab.Program) -> list[Kind]:
    """Of a program's operators, in a row."""
    stages = plan_of(program.freeze()).stages
    return [
        Kind.STATELESS,
        *(Kind.STATEFUL if stage.key is None else Kind.PARTITIONED for stage in stages),
    ]


class Pass:
    """Bundles once through operators: how long each was at them, and how many tuples there were."""

    def __init__(self, stand: Stand, works: Sequence[Work]) -> None:
        """Begin with nothing; what state operators have is theirs."""
        self._clock, self._works = stand.clock, works
        self.seconds, self.onward = [0.0] * len(works), [0.0] * len(works)
        self.taken, self.given = [0] * len(works), [0] * len(works)

    def take(self, serial: int, cut: EpochToRead) -> None:
        """One bundle through all operators."""
        content: Any = fragments_of(cut)
        taken = sum(end - start for start, end in cut.offer.offsets.values())
        for at, work in enumerate(self._works):
            self.taken[at] += taken
            begin = self._clock()
            made = {
                part: work.operate(Fragment(serial, part, len(content), given))
                for part, given in content.items()
            }
            bundle = work.together(serial, made)
            between = self._clock()
            content = work.onward(serial, bundle)
            self.onward[at] += self._clock() - between
            self.seconds[at] += between - begin
            taken = sum(_tuples(each) for each in content.values())
            self.given[at] += taken


def _tuples(content: Epoch | tuple[Epoch, EpochInput | None]) -> int:
    """Of a fragment for a stage, or of an epoch that leaves."""
    if isinstance(content, Epoch):
        return sum(frame.height for frames in content.sinks.values() for frame in frames)
    _, given = content
    if given is None:
        return 0
    return sum(frame.height for frames in given.parts.values() for frame in frames)


def cuts(program: ab.Program, rows: int, bundle: int = BUNDLE) -> Iterator[EpochToRead]:
    """A program's input as bundles: so many rows of each partition, of one source after another."""
    sources = [read.source for read in program.freeze().sources]
    for start in range(0, rows, bundle):
        end = min(start + bundle, rows)
        for number, source in enumerate(sources):
            names = list(source.partitions())
            splits = source.plan(dict.fromkeys(names, start), dict.fromkeys(names, end))
            offsets = dict.fromkeys(names, (start, end))
            offer = Offer(offsets, frozenset(), None, more=end < rows)
            yield EpochToRead(number, offer, tuple(enumerate(splits)))
