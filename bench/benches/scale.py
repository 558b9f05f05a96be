"""Schneider's three graphs and five kernels by channels; what an event costs at size.

    ./x bench scale                # all of it, about half an hour
    ./x bench scale stateful       # one graph
    ./x bench scale finance        # one kernel
    ./x bench scale 'growth-*'     # more input, more keys
    ./x bench scale 'lanes-*'      # other workloads with one lane and with two

Figures 6, 10 and 12 of Schneider, Hirzel, Gedik, Wu, "Auto-Parallelizing Stateful Distributed
Streaming Applications" (PACT 2012). The graphs: one operator without state (`stateless`), one with
state by key (`stateful`, 1,024 keys in turn), two of those one behind the other with different keys
(`shuffle`). What leaves is in order. A metric's name has the work of an operator a tuple; a system
is so many channels, beside one. A channel of `shuffle` is a worker for both operators, as there two
processes on a core that is fully subscribed.

Virtual time, on the engine's own queues, reorder buffers and policies (`simulate/pipeline.py`).
What it costs to have a tuple go on in order is measured here first, and is what bounds light work.
Two channels on real cores: `./x bench continuous 'work-*'`.

The kernels: `network`, `pagerank`, `twitter-nlp`, `twitter-cep`, `finance` (`bench/workloads`).
`throughput` and `speedup`: a backlog on Spark with one core and one lane and with two of both,
behind a short run that is not counted; all have given the same rows. `speedup_<n>`: n channels
beside one in the same virtual time, with what a row costs at each operator (`cost, <n>`) and to go
on from it in order (`onward, <n>`), measured right before for each n (`bench/scale/channels.py`).
Sources of `network` are parallel: with n channels there are n, and entries come n times as fast.
`network-one-rate`, in virtual time alone, has the same rate whatever the channels; the streams of
the other kernels have, too. A row of `pagerank` is a vector of ranks, which each block of the
matrix is multiplied with, as in the paper; `pagerank-by-page`, in virtual time alone, has a row for
each page, and adds what pages hand on by page.

`schneider-paper` is what the paper's text says (`bench/scale/paper.py`); the ratio beside it is the
efficiency, 1 and more is as good. Of graphs it is beside their dearest work.

`lanes-*`: all other workloads that no bench of their own races, as a backlog on Spark with one core
and one lane and with two of both (`bench/scale/lanes.py`); `source` is what their rows are made at.

`growth-input`: processor time a row with state by key (10,000 of them, sliding windows), as there
are 1, 4 and 16 times 1 million rows; each value is of five epochs, from one window to the next.
`growth-keys`: the same 2 million rows with 1,000 to 1,000,000 keys, drawn at random.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from statistics import median

from anabranch.engine.core import Scheme
from anabranch.simulate.model import Model, mixed
from bench.backlog import runs
from bench.continuous.figures import reorderings
from bench.continuous.operators import Query
from bench.continuous.virtual import Setting, run
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, compared
from bench.kernels import single
from bench.scale import channels, growth, lanes, paper
from bench.scale.applications import APPLICATIONS, OTHERWISE, on_spark
from bench.scale.channels import KEYS, ROOM

NOTES = (
    (
        "Virtual time: no parallel work is measured, and nothing makes many workers slower than "
        "few but the order of what leaves and partitions that are at work. A tuple is a bundle of "
        "one; hybrid queues of 1,024 partitions, reorder buffers with room for 4,096."
    ),
    (
        "Kernels in virtual time: a tuple is a channel's part of a bundle; its costs are those of "
        "the tasks, divided and put together for as many channels, in one thread. What a Spark job "
        "costs is not in it, nor is a wait for a watermark."
    ),
)
CHANNELS, QUICK_CHANNELS = (1, 2, 4, 8, 16, 32, 64, 100), (1, 2, 8)
WORK_US, QUICK_WORK_US = (10, 100, 1000), (100,)
TUPLES, QUICK_TUPLES = 4_000, 400
"""Of a run: forty for each of a hundred channels."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What is the same for all graphs."""

    onward: float
    """Seconds in which a tuple goes on, in order."""
    channels: tuple[int, ...]
    work: tuple[int, ...]
    tuples: int


def measure(stand: Stand) -> list[Row]:
    """Kernels on Spark, then what has one thread, in a process of its own."""
    names = [each for each in asked(stand) if each in APPLICATIONS]
    real = on_spark(stand, names) if names else []
    if others := {each: lanes.WORKLOADS[each] for each in asked(stand) if each in lanes.WORKLOADS}:
        real += runs.measured(stand, others)
    if all(each in lanes.WORKLOADS for each in asked(stand)):
        return real
    return [*real, *single.measured(__name__, stand)]


def asked(stand: Stand) -> list[str]:
    """The cases that are asked for; without names all."""
    given = stand.settings.cases
    return [each for each in NAMES if not given or any(fnmatchcase(each, n) for n in given)]


def cases(stand: Stand) -> list[Row]:
    """What has one thread, of what is asked for."""
    alone = replace(stand, clock=time.process_time)
    onward = median(each for each, _ in reorderings(alone))
    stand.notes.append(f"Measured: a tuple goes on in order in {onward * 1e6:.2f} us.")
    quick = stand.settings.quick
    ground = (
        Ground(onward, QUICK_CHANNELS, QUICK_WORK_US, QUICK_TUPLES)
        if quick
        else Ground(onward, CHANNELS, WORK_US, TUPLES)
    )
    rows = list[Row]()
    for name in asked(stand):
        if name in GRAPHS:
            rows += [*scaled(name, ground), *beside_paper(stand, name, ground)]
        elif name in KERNELS:
            rows += kernel(alone, name, ground)
        elif name in growth.NAMES:
            rows += growth.measured(alone, name)
    return rows


def beside_paper(stand: Stand, name: str, ground: Ground) -> Iterator[Row]:
    """A graph's speed-ups with its dearest work, for the channels of which the paper tells."""
    models = GRAPHS[name](max(ground.work) / 1e6)
    told = [each.channels for each in paper.FIGURES[name]]
    widths = [each for each in told if each <= max(ground.channels)]
    if not widths:
        return
    one = _throughput(models, ground, 1)
    found = {each: _throughput(models, ground, each) / one for each in widths}
    stand.notes.append(paper.told(name))
    yield from paper.beside(name, found)


def kernel(stand: Stand, name: str, ground: Ground) -> Iterator[Row]:
    """One of the five: what it costs by channels, and its speed-ups."""
    each, costs = KERNELS[name], dict[int, Query]()
    stand.progress.begin(name, len(ground.channels))
    for width in ground.channels:
        costs[width] = channels.measured(stand, each.make, each.part, width)
        stand.progress.step(f"{width}")
    for width in (min(costs), max(costs)):
        yield from channels.costs_of(name, costs[width], width, each.part * each.sources)
    stand.notes.append(f"{name}: a part has {each.part * each.sources:,} rows.")
    stand.notes.append(paper.told(name))
    yield from paper.beside(name, channels.speedups(costs, each.keys, ground.tuples))


def scaled(name: str, ground: Ground) -> Iterator[Row]:
    """One graph, by work and channels."""
    for work in ground.work:
        models = GRAPHS[name](work / 1e6)
        samples = {
            _called(channels): [_throughput(models, ground, channels)]
            for channels in ground.channels
        }
        pairs = [(_called(each), _called(1)) for each in ground.channels if each != 1]
        metric = Metric(name, f"throughput, {work} us", "tuples/s")
        yield from compared(metric, samples, pairs)


def _throughput(models: Sequence[Model], ground: Ground, channels: int) -> float:
    setting = Setting(channels, scheme=Scheme(room=ROOM))
    onward = partial(_onward, ground.onward)
    return run(models, range(ground.tuples), setting, onward).throughput


def _onward(seconds: float, at: int, rows: list[int]) -> float:
    del at
    return seconds * len(rows)


def _called(channels: int) -> str:
    return "1 channel" if channels == 1 else f"{channels} channels"


def _stateless(cost: float) -> list[Model]:
    return [Model.of("stateless", cost)]


def _stateful(cost: float) -> list[Model]:
    return [Model("keyed", lambda _: cost, KEYS, partition=lambda value: value % KEYS)]


def _shuffle(cost: float) -> list[Model]:
    other = Model("other key", lambda _: cost, KEYS, partition=lambda value: mixed(value, 1) % KEYS)
    return [*_stateful(cost), other]


GRAPHS: Mapping[str, Callable[[float], list[Model]]] = {
    "stateless": _stateless,
    "stateful": _stateful,
    "shuffle": _shuffle,
}
KERNELS = {**APPLICATIONS, **OTHERWISE}
NAMES = (*GRAPHS, *KERNELS, *growth.NAMES, *lanes.WORKLOADS)
CHOICES = (*NAMES, "network*", "pagerank*", "twitter-*", "growth-*", "lanes-*")
