"""Pass 3: where rows enter and leave regions.

Between two regions there is one joint, whatever the number of streams between them:

    from            to              kind
    (a source)      parallel        parallel-source     the region reads its splits itself
    sequential      parallel        split
    parallel        parallel        shuffle             nowhere are all rows in one place
    parallel        sequential      merge
    sequential      sequential      merge               of one: there is nothing to put in order
    parallel        (a sink)        parallel-sink       the region writes itself

All but the fifth are those of Schneider et al. (2012), sections 3.4 and 4.4. A source or sink in a
sequential region has no joint: rows are in one place and stay there. What closes a feedback is a
joint like any other, one epoch long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from anabranch.compiler.plan import Joint, JointKind, Plan, Region
from anabranch.program.operators.edges import Read, Write

_KINDS: dict[tuple[bool, bool], JointKind] = {
    (False, True): "split",
    (True, True): "shuffle",
    (True, False): "merge",
    (False, False): "merge",
}
"""By whether the region before and the one behind are parallel."""


def place_joints(plan: Plan) -> Plan:
    """Put a joint wherever rows cross the border of a region, by the region behind it."""
    return replace(plan, joints=tuple(dict.fromkeys(_joints(plan))))


def _joints(plan: Plan) -> Iterator[Joint]:
    homes = plan.homes()
    for region in plan.regions:
        operators = plan.operators(region)
        if region.parallel and any(isinstance(op, Read) for op in operators):
            yield Joint("parallel-source", None, region.id)
        for op in operators:
            closing = plan.graph.feedback.get(op.id)
            for port in op.inputs if closing is None else (closing,):
                before = homes[port.operator]
                if before.id != region.id:
                    yield _between(before, region)
        if region.parallel and any(isinstance(op, Write) for op in operators):
            yield Joint("parallel-sink", region.id, None)


def _between(before: Region, behind: Region) -> Joint:
    return Joint(_KINDS[before.parallel, behind.parallel], before.id, behind.id)
