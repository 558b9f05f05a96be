"""The continuous engine: latencies and rates on Spark; figures 8 to 14 of Prasaad et al. 2018.

    ./x bench continuous                    # all of it
    ./x bench continuous 'vector-*'         # some of it; --save for results files of its own
    ./x bench continuous 'figure-*'         # the figures, about two minutes
    ./x bench continuous --quick            # a look

`vector-200k`, `python-50k`: rows that become due at this rate, through five operators on Spark,
local[2], with as many workers as `parallelism="auto"` takes; latency from when a row is due until
the driver's sink has seen it, of all rows behind the first seconds. The source's rows are made by
the task itself, on the same two cores. `vector-highest`, `python-highest`: the highest rate at
which the median latency of the last third of rows stays below 0.2 s: what a backlog gives, or by
bisection below that. `spark`: Structured Streaming in a process of its own, in turns, on the same
rows through files; with a running sum by key in the place of the last four rows, which it does not
have: less work. `bare loop`: the same function over the same records in one process, without
anything else. `kill-*`: a process is killed, with 20,000 rows a second coming; the time until a row
is seen that was due after that; `kill-executor`, on a cluster of two executors on this machine
(until a row of the new task is seen: the old one lives a little longer than its executor), and
`kill-driver`, where another process is started at once, have a Spark of their own. `work-*`: a
backlog through one operator that takes about so long a record, with two evaluators beside one.

The figures, in virtual time:

First the operators of five TPCx-BB queries are measured, in one thread (case `operators`: what a
tuple costs, how many come of one, what going on in order costs a tuple of the input; SL stateless,
PS partitioned, SF one state). Then pipelines of such costs run in virtual time on the engine's own
queues, buffers, estimates and policies, with 1 to 16 workers: the last number of a metric's name.
`even` is no query: query 1's shape with even costs and a cheap end, for want of one that scales.
To repeat it: all that is drawn has its seed below the table, and virtual time has no noise, so
that two runs differ only where the measured costs do.

`figure-8`: throughput and latency by policy, beside what no policy can exceed (`bound`: all work
divided by workers, or all that one worker does alone). `crowded`: each other worker at an operator
makes it 5 % dearer. `current-throughput by input` is not shipped: it divides by what comes in to an
operator, equation 3 by what goes out. The next externalization sees nothing here that it goes by,
and is last in pipeline then. `figure-9`: keys by a Gauss curve, in ranges; a hybrid queue of 100
partitions beside a partitioned one of as many as workers. `figure-10`: latency of one keyed
operator, by its cost. `figure-11`: both queues on the queries. `figure-12`: a light operator,
`figure-13`: one that gives 50 tuples for one and a keyed one behind it, by reorder buffer:
throughput, the first operator's worker time a tuple, the share of all time in which workers were
blocked, refused adds. `wide`: with room for all. `figure-14`: both buffers on the queries.

`threads`, only if it is asked for: the queries on real threads, one and two of them.
"""

from __future__ import annotations

import time
from dataclasses import replace
from fnmatch import fnmatchcase

from bench.continuous import figures, on_threads, resident
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.kernels import single

NOTES = (
    (
        "figure-*: virtual time after Prasaad, Ramalingam, Rajan 2018, section 7; no measurement "
        "of parallel work. A tuple is a bundle; costs a tuple are those in bundles of 250 rows, "
        "of processor time, Polars with one thread. Time slices of 0.5 ms, 256 tuples ahead and "
        "as the capacity of queue-size throttling: the paper names none of these."
    ),
    (
        "Latency: from the first operator to the exit, without the first and the last fifth of "
        "tuples, as in the paper. Nothing makes two workers slower than one but what waits for "
        "room, locks and partitions; `crowded` guesses the rest."
    ),
    (
        "operators: one estimate each, learnt in up to three passes, without its spread; on a busy "
        "machine three runs differed by up to 1.5 times. With 16 workers a run is too short for a "
        "steady state: latencies of estimated-time and current-throughput grow with its length. "
        "decisions/0023 says which figures hold."
    ),
)
CHOICES = (*resident.NAMES, "vector-*", "python-*", "kill-*", "work-*", "figure-*", on_threads.NAME)


def measure(stand: Stand) -> list[Row]:
    """Programs on Spark first; the figures in a process of their own, with one thread."""
    names = stand.settings.cases
    programs = [each for each in resident.NAMES if not names or _asked(each, names)]
    rows = resident.cases(stand, programs) if programs else []
    figured = chosen(names) or on_threads.NAME in names
    return [*rows, *(single.measured(__name__, stand) if figured else [])]


def cases(stand: Stand) -> list[Row]:
    """The cases that are asked for; without names all."""
    rows = on_threads.cases(stand) if on_threads.NAME in stand.settings.cases else []
    if names := chosen(stand.settings.cases):
        # One thread that waits for nothing: its own time leaves out what others do.
        rows += figures.cases(replace(stand, clock=time.process_time), names)
    return rows


def chosen(names: tuple[str, ...]) -> list[str]:
    """The figures that these names mean, in their order.

    >>> chosen(("figure-1[01]",))
    ['figure-10', 'figure-11']
    """
    return [each for each in figures.NAMES if not names or _asked(each, names)]


def _asked(name: str, names: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, each) for each in names)
