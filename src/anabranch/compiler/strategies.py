"""Pass 4: how rows are routed into a region, and how they are put in order behind it.

Routing is Schneider et al. (2012), section 4.2: in turn where nothing is kept, by the hash of the
region's key where something is. A region's ordering is their table 1, with a column more: what the
region needs by itself, between a split and a merge.

    state        one            at most one         any
    stateless    round-robin    sequence+pulses     sequence+pulses
    keyed        sequence       sequence+pulses     sequence+pulses
    otherwise    none: such a region is sequential, and in order as it is

- *round-robin*: rows leave in the turn in which they were dealt. With a parallel source the splits
  are what is dealt: each says how many rows it has, and every row gives one.
- *sequence*: every number comes, so the next one is waited for.
- *sequence+pulses*: numbers may be missing. A pulse says that nothing below it will come any more.
  For any number of rows of one the number is an order key (M5), whose last part counts them.

A joint's strategy is what is done there, with the regions around it (section 4.4). Numbers are
given where rows are first divided and kept through every shuffle, so:

- behind a shuffle every copy gets a part of the rows, in no turn: always sequence+pulses;
- a merge waits for every number only if no region since the first entry drops or makes rows, and
  there was one entry: the numbers of two streams are no one sequence;
- a merge takes turns only behind a region that was itself dealt to in turn.

*None* for a parallel region behind which nobody cares: where all that leaves it reaches, in any
number of steps, only unordered sinks, through operators that give the same rows whatever the order
of theirs. It is the paper's network monitoring (5.3): only routing is left to do. An operator that
takes a key's records one by one cares (M11), so a shuffle before it keeps their order. Windows of
event time care only if an aggregate does: which window a record is in, and whether it is late, are
decided by its time and by watermarks. Watermarks themselves stay in order everywhere.

A merge into a global window of mergeable aggregates carries *partials*: parallel partials, one
sequential finish.

In epoch cycles a merge is a k-way merge of sorted runs, whichever strategy is named here; what the
three differ in is what a channel of the continuous engine has to carry and to wait for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import polars as pl

from anabranch.compiler.plan import (
    SPREAD,
    Joint,
    Ordering,
    Plan,
    Region,
    Selectivity,
    State,
)
from anabranch.ids import OperatorId
from anabranch.program.aggregates import Aggregate
from anabranch.program.graph import Graph
from anabranch.program.operators import rowwise, together
from anabranch.program.operators.edges import Read, Write
from anabranch.program.operators.operator import LATE, OUT, Operator, Port
from anabranch.program.operators.windowed import WindowAggregate
from anabranch.program.windows import Sliding, Tumbling

PARTIALS = "partials"
"""The strategy of a merge that carries partial aggregates instead of rows."""

MERGEABLE = frozenset(
    ["count", "sum", "min", "max", "mean", "var", "first", "last", "count_distinct",
     "approx_distinct", "approx_quantile", "top_k"]
)  # fmt: skip
"""Aggregates whose partials are smaller than their rows and together give the whole.

`first` and `last` are among them since a partial holds the order key of its value, and float sums
since partials are grouped and merged as the log says (M10). `collect` and `quantile` could be
merged too, but their partials hold every value: nothing would be saved.
"""

_INDIFFERENT = frozenset(
    ["count", "min", "max", "count_distinct", "approx_distinct", "approx_quantile", "quantile",
     "top_k"]
)  # fmt: skip
"""Aggregates that give the same for any order of their rows; sums do if they are of integers."""

_ROW_BY_ROW = (
    Read, rowwise.Filter, rowwise.Select, rowwise.WithColumns, rowwise.Drop, rowwise.Rename,
    rowwise.Explode, rowwise.WithEventTime, rowwise.Map, rowwise.FlatMap, rowwise.MapBatches,
    rowwise.Split, together.Lookup, together.Union,
)  # fmt: skip


def choose_strategies(plan: Plan) -> Plan:
    """Choose the cheapest routing and ordering that is safe, for every region and joint."""
    cares = _who_cares(plan)
    regions = tuple(_routed(plan, region, cares) for region in plan.regions)
    routed = replace(plan, regions=regions)
    partial, kept = _takes_partials(routed), _kept(routed)
    joints = tuple(
        replace(joint, strategy=_strategy(routed, joint, partial, kept)) for joint in plan.joints
    )
    return replace(routed, joints=joints)


def ordering_of(state: State, selectivity: Selectivity) -> Ordering:
    """Table 1: the cheapest way to put rows in order behind a region.

    >>> ordering_of("keyed", "one")
    'sequence'
    """
    if state not in ("stateless", "keyed"):
        return "none"
    if selectivity != "one":
        return "sequence+pulses"
    return "round-robin" if state == "stateless" else "sequence"


def merges(graph: Graph, op: Operator) -> bool:
    """Whether an operator is a global window whose partials can be made in parallel.

    Not where late records are read: rows are then exchanged whole (M9). Not for sessions and rows:
    which of them a record is in depends on the records of other parts.
    """
    return (
        isinstance(op, WindowAggregate)
        and not op.windowing.by
        and isinstance(op.windowing.window, Tumbling | Sliding)
        and all(each.kind in MERGEABLE for _, each in op.aggregates)
        and not graph.is_read(Port(op.id, LATE))
    )


def _routed(plan: Plan, region: Region, cares: Mapping[OperatorId, bool]) -> Region:
    if not region.parallel:
        return region
    ordered = any(_leaves_to(plan.graph, region, cares))
    ordering = ordering_of(region.state, region.selectivity) if ordered else "none"
    return replace(region, routing="hash" if region.key else "round-robin", ordering=ordering)


def _leaves_to(graph: Graph, region: Region, cares: Mapping[OperatorId, bool]) -> list[bool]:
    """For each reader behind a region whether it cares for order; nobody reads a sink."""
    inside = set(region.operators)
    return [
        cares[reader]
        for number in region.operators
        for reader in graph.readers(number)
        if reader not in inside
    ]


def _who_cares(plan: Plan) -> dict[OperatorId, bool]:
    """Whether it matters in which order an operator's rows come, to it or to anyone behind it."""
    cares: dict[OperatorId, bool] = {}
    for op in reversed(plan.graph.operators):
        # What closes a feedback comes out in order in the next epoch: the feedback itself cares.
        own = _is_sensitive(plan, op)
        cares[op.id] = own or any(cares.get(each, True) for each in plan.graph.readers(op.id))
    return cares


def _is_sensitive(plan: Plan, op: Operator) -> bool:
    if isinstance(op, Write):
        return op.ordered
    if isinstance(op, WindowAggregate) and isinstance(op.windowing.window, Tumbling | Sliding):
        schema = op.outputs[OUT].schema
        return not all(_is_indifferent(each, schema[name]) for name, each in op.aggregates)
    return plan.traits[op.id].state != "stateless" or not isinstance(op, _ROW_BY_ROW)


def _is_indifferent(aggregate: Aggregate, dtype: pl.DataType) -> bool:
    if aggregate.kind == "sum":
        return not dtype.is_float()
    return aggregate.kind in _INDIFFERENT


def _takes_partials(plan: Plan) -> dict[int, bool]:
    """For each region whether all rows that enter it enter windows whose partials merge."""
    homes = plan.homes()
    found: dict[int, bool] = {}
    for op in plan.graph.operators:
        home = homes[op.id].id
        if any(homes[port.operator].id != home for port in op.inputs) or not op.inputs:
            found[home] = found.get(home, True) and merges(plan.graph, op)
    return found


def _kept(plan: Plan) -> dict[int, Ordering]:
    """For each parallel region how its rows are put in order, with all that lies before it."""
    entries: dict[int, list[Joint]] = {}
    for joint in plan.joints:
        if joint.behind is not None:
            entries.setdefault(joint.behind, []).append(joint)
    wide: dict[int, Selectivity] = {}
    kept: dict[int, Ordering] = {}
    # A parallel region begins behind all that feed it, so those have smaller numbers.
    for region in plan.regions:
        before = entries.get(region.id, ())
        shuffled = [wide[number] for number in _shuffled(before)]
        wide[region.id] = max((region.selectivity, *shuffled), key=SPREAD.index)
        if len(before) > 1:
            wide[region.id] = "any"
        ordering = ordering_of(region.state, wide[region.id])
        kept[region.id] = "sequence" if shuffled and ordering == "round-robin" else ordering
    return kept


def _shuffled(entries: Iterable[Joint]) -> Iterator[int]:
    """The regions from which rows come that were divided before."""
    for joint in entries:
        if joint.kind == "shuffle" and joint.before is not None:
            yield joint.before


def _strategy(
    plan: Plan, joint: Joint, partial: Mapping[int, bool], kept: Mapping[int, Ordering]
) -> str:
    if joint.before is None:
        return "splits"
    before = plan.regions[joint.before]
    if joint.behind is None:
        return before.ordering
    behind = plan.regions[joint.behind]
    if not before.parallel:
        return behind.routing
    needed: Ordering = "none" if before.ordering == "none" else kept[before.id]
    if behind.parallel:
        shuffled = "none" if needed == "none" else "sequence+pulses"
        return f"{behind.routing}, {shuffled}"
    return PARTIALS if partial[behind.id] else needed
