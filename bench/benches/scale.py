"""Schneider's three graphs by work and channels, in virtual time; what an event costs at size.

    ./x bench scale                # all of it, about three minutes
    ./x bench scale stateful       # one graph
    ./x bench scale 'growth-*'     # more input, more keys

Figures 6 and 10 of Schneider, Hirzel, Gedik, Wu, "Auto-Parallelizing Stateful Distributed Streaming
Applications" (PACT 2012): one operator without state (`stateless`), one with state by key
(`stateful`, 1,024 keys in turn), two of those one behind the other with different keys (`shuffle`).
What leaves is in order. A metric's name has the work of an operator a tuple; a system is so many
channels, beside one. A channel of `shuffle` is a worker for both operators, as there two processes
on a core that is fully subscribed.

Virtual time, on the engine's own queues, reorder buffers and policies (`simulate/pipeline.py`).
What it costs to have a tuple go on in order is measured here first, and is what bounds light work.
Two channels on real cores: `./x bench continuous 'work-*'`.

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
from bench.continuous.figures import reorderings
from bench.continuous.virtual import Setting, run
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, compared
from bench.kernels import single
from bench.scale import growth

NOTES = (
    (
        "Virtual time: no parallel work is measured, and nothing makes many workers slower than "
        "few but the order of what leaves and partitions that are at work. A tuple is a bundle of "
        "one; hybrid queues of 1,024 partitions, reorder buffers with room for 4,096."
    ),
)
KEYS, ROOM = 1024, 4096
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
    """In a process of its own, with one thread."""
    return single.measured(__name__, stand)


def cases(stand: Stand) -> list[Row]:
    """The graphs that are asked for; without names all."""
    alone = replace(stand, clock=time.process_time)
    onward = median(each for each, _ in reorderings(alone))
    stand.notes.append(f"Measured: a tuple goes on in order in {onward * 1e6:.2f} us.")
    quick = stand.settings.quick
    ground = (
        Ground(onward, QUICK_CHANNELS, QUICK_WORK_US, QUICK_TUPLES)
        if quick
        else Ground(onward, CHANNELS, WORK_US, TUPLES)
    )
    asked = stand.settings.cases
    names = [each for each in NAMES if not asked or any(fnmatchcase(each, n) for n in asked)]
    rows = [row for name in names if name in GRAPHS for row in scaled(name, ground)]
    for name in names:
        rows += growth.measured(alone, name) if name in growth.NAMES else ()
    return rows


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
NAMES = (*GRAPHS, *growth.NAMES)
CHOICES = (*NAMES, "growth-*")
