"""Regions as tasks: the one place where plans meet kernels.

A task is a value that can be pickled. It gives the same result for the same arguments, and an error
of the user's program is part of the result: a task never raises for one.
"""

from __future__ import annotations

from typing import TypeAlias

import polars as pl

from anabranch.compiler.linear import LinearPlan, Stage
from anabranch.kernels.bundle import OFFSET, PARTITION
from anabranch.kernels.early import EarlyPartials
from anabranch.kernels.head_task import Entrance, HeadTask
from anabranch.kernels.keyed import Processor
from anabranch.kernels.keyed_task import KeyedTask
from anabranch.kernels.lookup import LookupStep
from anabranch.kernels.stateless import Chain, Numbering, lower_chain
from anabranch.kernels.windows import Windows
from anabranch.program.operators.edges import Read, Write
from anabranch.program.operators.operator import OUT, Operator
from anabranch.program.operators.windowed import WindowAggregate

RegionTask: TypeAlias = "HeadTask | KeyedTask"


def lower(plan: LinearPlan, region: Stage) -> RegionTask:
    """The task of a region."""
    return _head_task(plan) if region is plan.head or region == plan.head else _keyed_task(plan)


# Lowering


def _head_task(plan: LinearPlan) -> HeadTask:
    operators, read, stateful = _between(plan, plan.head), plan.read, plan.stateful
    behind = [*plan.first, *([stateful] if stateful else []), *plan.tail, plan.write]
    given = _given(plan, behind[0])
    windows = None
    if isinstance(stateful, WindowAggregate) and not plan.first:
        windows = Windows.of(stateful, given)
    # Behind a window rows are ordered by it, whatever their order was before.
    ordered = windows is None
    needed = tuple(given) if windows is None else windows.roots
    schemas = [_given(plan, op) for op in operators]
    chain, _ = lower_chain(operators, schemas, needed, Numbering(ordered))
    chain, early = _early(chain, windows, schemas[-1] if schemas else given)
    out, timed = read.outputs[OUT], isinstance(stateful, WindowAggregate)
    entrance = Entrance(
        read.name, out.schema, read.event_time, out.time, read.on_error, ordered, timed
    )
    key = plan.keyed.key if plan.keyed is not None else None
    ends, proofs = plan.keyed is None, plan.head.proofs
    return HeadTask(entrance, chain, key or (), windows, early, ends, proofs)


def _early(
    chain: Chain, windows: Windows | None, schema: pl.Schema
) -> tuple[Chain, EarlyPartials | None]:
    """Take the last step off a chain if it is a lookup that partials may be made before."""
    last = chain.steps[-1] if chain.steps else None
    if windows is None or not isinstance(last, LookupStep):
        return chain, None
    early = EarlyPartials.of(last, windows, schema)
    if early is None:
        return chain, None
    out = tuple(dict.fromkeys([*last.left, *last.on]))
    return Chain(chain.steps[:-1], chain.live, out), early


def _keyed_task(plan: LinearPlan) -> KeyedTask:
    stateful, numbering = plan.stateful, Numbering(ordered=True)
    numbering = numbering.behind_all(_between(plan, plan.head))
    first = None
    if plan.first:
        needed = _given(plan, stateful or plan.write)
        schemas = [_given(plan, op) for op in plan.first]
        first, numbering = lower_chain(plan.first, schemas, tuple(needed), numbering)
    lowered, made, numbering = _lowered(plan, numbering)
    schemas = [_given(plan, op) for op in plan.tail]
    tail, _ = lower_chain(plan.tail, schemas, tuple(_given(plan, plan.write)), numbering)
    alone, proofs = len(plan.unproved) > 1, plan.keyed.proofs if plan.keyed else ()
    return KeyedTask(first, lowered, tail, tail.run(made)[0], proofs, one_by_one=alone)


def _lowered(
    plan: LinearPlan, numbering: Numbering
) -> tuple[Processor | Windows | None, pl.DataFrame, Numbering]:
    """The operator with state, no rows as it gives them, and the numbering behind it."""
    stateful = plan.stateful
    if isinstance(stateful, WindowAggregate):
        windows = Windows.of(stateful, _given(plan, stateful))
        made = windows.results(pl.DataFrame(schema=windows.partial_schema))
        return windows, made, Numbering(ordered=True)
    processor, out = None, _given(plan, plan.write)
    if stateful is not None:
        sub, numbering = numbering.behind(stateful)
        assert sub is not None
        once = stateful in plan.unproved
        processor = Processor.of(stateful, _given(plan, stateful), sub, once=once)
        out = stateful.outputs[OUT].schema
    order = dict.fromkeys([OFFSET, *numbering.names], pl.Int64())
    return processor, pl.DataFrame(schema={**out, PARTITION: pl.Int32(), **order}), numbering


def _between(plan: LinearPlan, region: Stage) -> list[Operator]:
    return [op for op in plan.operators(region) if not isinstance(op, Read | Write)]


def _given(plan: LinearPlan, op: Operator) -> pl.Schema:
    return plan.graph.output(op.inputs[0]).schema
