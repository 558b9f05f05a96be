"""What it costs to change the width, lose a process, write checkpoints, and have much state.

All cases run one query: six aggregates by key in one long window, so that the number of keys is the
state (`state`: the files it is made of, right after it was loaded). At the end of each case the
window closes, and the results of 64 keys are compared with plain Polars'. Sizes, and what others
get done meanwhile, follow figures 12 to 20 of ChronoStream.

`rescale-*`: the longest time between two commits while the width changes from one lane to two
(`longest_gap`) and back (`longest_gap_down`), and the time from when it is asked for to the first
commit at the new width (`turn_time`). `anabranch`: while the query runs. `migrate`: stopped behind
what is planned and started again from its checkpoint, on the same Spark. `steady`: right before a
change is asked for, over as long as a change takes. Rows come at half the rate at which the query
works off a backlog, whether it runs or not. That is the official measure, since nobody sees a gap
in a query that is hours behind, and there the width changes only behind the epochs under way.

`structured-*`: the same of Structured Streaming, with the same query and state: stopped, its state
repartitioned offline by Spark's own tool, started again; rows at half of its own rate.

`checkpoint-*`: the epoch that took longest from its cut to its commit (`worst_epoch`), beside a
query that writes nothing of its state (`none`) and one that writes all of a lane's state inside the
lane's task every 32 deltas (`synchronous`). Ours writes slices anew all the time, a few or none
with each delta, so any stretch shows what that costs. `checkpoint-bytes`: what they write.

`recover-*`: a lane's process is killed; the time to the first commit with a row that came after.
`recover-interval`: with slices written anew once in 8, 32 or 128 deltas, beside what the sizes of
state and deltas suggest. State comes back from the checkpoint alone: there is one executor.

`recover-executor-1`, `-2`, `-3`: on one executor more than that, each with one core and one lane, a
whole one is killed, and so many survive. `anabranch`: they have copies of its state, each of a
part; all but those of what was written in the last two cycles. `durable-only`: nobody has, and they
read the checkpoint, each his part. `slices_from_*`: where the state came from that commits went on
from, from the kill to that first commit. `-remote`: a file of state takes 30 ms more to read from
the checkpoint, as from an object store; else it is on a local disk, as near as copies are.

`memory-2`: of all slices that commits go on from the share that lanes have in memory
(`memory_share`), on two executors, where nothing changes. `rescale-cluster`: as `rescale-*`, the
second lane on another executor.

`slices-*`: throughput of a lane whose state is in so many slices, beside one slice.

`cotenant`: what another query, and a program that has nothing to do with Spark, get done while the
width changes (`rescale`) and while the query is stopped and started (`migrate`).

`state-*`: how long 100,000 rows of a backlog take, beside a query with few keys; and with memory
for an eighth of the state, the rest on disk (`bounded`).
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial

from bench.elastic import cluster, executors
from bench.elastic.costs import checkpoint, slices, state
from bench.elastic.cotenant import cotenant
from bench.elastic.faults import interval, recover
from bench.elastic.ground import FULL, QUICK, Ground, Scale, ground
from bench.elastic.peer import structured
from bench.elastic.rescale import rescale
from bench.harness.report import Row
from bench.harness.stand import Stand

NOTES = (
    (
        "Six aggregates by key in one window, Spark, local[2], durability 'process', an epoch "
        "every 100 ms. rescale, recover and checkpoint: rows come at half the rate at which a "
        "backlog was worked off just before (row `rate`); slices and state: a backlog, "
        "epochs of 100,000 rows. Behind each case all rows of 64 keys were compared with "
        "plain Polars'."
    ),
    (
        "rescale: one lane to two (longest_gap, turn_time) and back (_down). A gap counts from the "
        "last commit before a change is asked for to one second behind its first commit. "
        "structured: a process of its own, the same rows in Parquet files, RocksDB with "
        "changelogs, the batch that was cut off finished with availableNow, then "
        "StreamingCheckpointManager.repartition; it writes nothing, since its file sink does not "
        "go on behind a repartitioning. With 1 GB it is changed once."
    ),
    (
        "recover-executor, memory and rescale-cluster: a process and a Spark of their own, "
        "local-cluster, executors of one core and 768 MB, rows through files. All executors are on "
        "this machine: more survivors share its cores."
    ),
)

CHOICES = (
    *("rescale-*", "structured-*", "checkpoint-*", "recover-*", "slices-*", "state-*"),
    *("memory-*", "cotenant"),
)
_Case = Callable[[Stand, Ground], list[Row]]
_SIZED = {
    "rescale": rescale,
    "structured": structured,
    "checkpoint": checkpoint,
    "recover": recover,
    "state": state,
}


def measure(stand: Stand) -> list[Row]:
    """All cases, or those that are asked for."""
    scale, rows = QUICK if stand.settings.quick else FULL, list[Row]()
    names = chosen(scale, stand.settings.cases)
    if here := [name for name in names if executors.named(name) is None]:
        with ground(scale) as place:
            rows += [row for name in here for row in _asked(name)(stand, place)]
    # These have a Spark of their own, which is better off alone.
    apart = [name for name in names if name not in here]
    return rows + [row for name in apart for row in cluster.measured(stand, name)]


def chosen(scale: Scale, names: tuple[str, ...]) -> list[str]:
    """The cases that these names mean; without names all there are.

    A size may be asked for that is not among those: `rescale-16mb`.

    >>> chosen(QUICK, ("state-1gb", "rescale-*"))
    ['state-1gb', 'rescale-8mb', 'rescale-32mb', 'rescale-cluster']
    """
    usual = _usual(scale)
    if not names:
        return usual
    found = [[each for each in usual if fnmatchcase(each, name)] or [name] for name in names]
    return list(dict.fromkeys(each for some in found for each in some))


def _usual(scale: Scale) -> list[str]:
    return [
        *(f"rescale-{size}" for size in scale.sizes),
        *(f"structured-{size}" for size in scale.sizes),
        f"checkpoint-{scale.checkpoint}",
        *(f"recover-{size}" for size in scale.recover),
        "recover-interval",
        *(f"slices-{count}" for count in scale.slices),
        "cotenant",
        *(f"state-{size}" for size in scale.sizes),
        *executors.names(scale),
    ]


def _asked(name: str) -> _Case:
    kind, _, which = name.partition("-")
    if name == "recover-interval":
        return interval
    if kind in _SIZED:
        return lambda stand, here: _SIZED[kind](stand, here, which)
    if kind == "slices":
        return partial(_slices, int(which))
    return cotenant


def _slices(count: int, stand: Stand, here: Ground) -> list[Row]:
    return slices(stand, here, count)
