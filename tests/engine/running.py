"""Programs in the core, on a log, by workers who take turns as they are told to, or by threads."""

import random

from anabranch.clock import SystemClock
from anabranch.compiler.compile import plan_of
from anabranch.engine.core import Core, Scheme
from anabranch.engine.resident import (
    Beginning,
    EpochToRead,
    Program,
    fragments_of,
    works_of,
)
from anabranch.engine.threads import Threads
from anabranch.epoch.protocol import Offer
from anabranch.scheduling.last_in_pipeline import last_in_pipeline
from tests.ordering.interleaving import Case, Notes, Steps, step, wander


def cuts_of(program, log, chance, split_rows=4):
    """The epochs of a log, in splits of any size."""
    reads, found = program.freeze().sources, []
    reached = {read.name: dict.fromkeys(read.source.end(), 0) for read in reads}
    for each in log:
        (at,) = [at for at, read in enumerate(reads) if read.name == each.source]
        source, splits, end = reads[at].source, [], reads[at].source.end()
        for index, partition in enumerate(source.partitions()):
            start, stop = each.offsets.get(partition, (0, 0))
            while start < stop:
                to = min(stop, start + chance.randint(1, split_rows))
                (split,) = source.plan({partition: start}, {partition: to})
                splits.append((index, split))
                start = to
        reached[each.source] |= {p: stop for p, (_, stop) in each.offsets.items()}
        # A partition without rows is at its end, and no cut names it.
        ended = frozenset(p for p in end if reached[each.source][p] == end[p])
        done = ended if each.finished is None else each.finished
        offer = Offer(each.offsets, done, each.hint, more=False, idle=each.idle)
        found.append(EpochToRead(at, offer, tuple(splits)))
    return found


def works(program, partitions):
    """Its operators, at their beginning."""
    graph = program.freeze()
    return works_of(
        Program.of(plan_of(graph), partitions=partitions, slices=8), Beginning.of(graph)
    )


class Out:
    """What leaves, by sink."""

    def __init__(self, program):
        self.sinks = {write.name: [] for write in program.freeze().sinks}
        self.epochs = []

    def take(self, serial, bundle):
        epoch = bundle[0]
        self.epochs.append(epoch.number)
        for name, rows in self.sinks.items():
            frame = epoch.output(name)
            if frame is not None:
                rows.extend(frame.rows(named=True))


def interleaved(program, log, seed, *, workers=3, partitions=2, scheme=Scheme()):  # noqa: B008
    """Run it with workers between whom it is drawn who takes the next step."""
    chance = random.Random(seed)
    cuts = cuts_of(program, log, chance)
    out = Out(program)

    def case():
        cells = Steps()
        core = Core(
            works(program, partitions),
            out.take,
            scheme,
            cells,
        )
        for cut in cuts:
            core.add(fragments_of(cut))

        def over():
            return len(out.epochs) == len(cuts)

        def waiting():
            return [at for at, each in enumerate(core.operators) if len(each.worklist)]

        def work():
            while not over():
                if not (ready := waiting()):
                    step(lambda: None, lambda: over() or waiting())
                    continue
                at, turns = chance.choice(ready), iter([False] * chance.randint(1, 3))
                step(lambda: None)
                for fragment in core.fragments(at, lambda t=turns: next(t, True)):
                    bundle = core.operate(at, fragment)
                    if bundle is None:
                        continue
                    buffer = core.operators[at].buffer
                    while not core.send(at, bundle):
                        step(
                            lambda: None,
                            lambda b=buffer, s=bundle.serial: s < b._next.shown() + b._size,
                        )

        return Case([work] * workers, Notes(), lambda _: None, cells)

    wander(case, chance.randrange)
    assert out.epochs == list(range(len(cuts)))
    return out.sinks


def threaded(program, log, seed, *, workers=2, partitions=2):
    """Run it with threads."""
    cuts, out = cuts_of(program, log, random.Random(seed)), Out(program)
    core = Core(works(program, partitions), out.take)
    threads = Threads(core, last_in_pipeline, workers, SystemClock(), size=lambda _: 1)
    try:
        for cut in cuts:
            threads.add(fragments_of(cut))
        threads.drain()
    finally:
        threads.close()
    assert out.epochs == list(range(len(cuts)))
    return out.sinks
