"""Which reader of a port comes first where the rows of one record meet again (M5: diamonds).

Two readers of a port may lead to one operator further down. Rows of one record then arrive there on
both ways, and the one that enters at the lower input comes first. So each reader gets a number,
which becomes part of the order key of rows it carries. Readers that never meet need none.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.ids import OperatorId
from anabranch.program.graph import Edge, Graph
from anabranch.program.operators.operator import Port


def branches(graph: Graph, port: Port) -> Mapping[Edge, int]:
    """The number of each reader of a port; none at all where no two of them meet.

    Meetings are looked at from the first operator to the last; a later one that would contradict
    an earlier one does not count. What they leave open is as it was written.
    """
    readers = graph.consumers(port)
    if len(readers) < 2:
        return {}
    entered = [_entered(graph, reader) for reader in readers]
    meetings = []
    for right in range(len(readers)):
        for left in range(right):
            common = entered[left].keys() & entered[right].keys()
            if common:
                meetings.append((min(common), left, right))
    if not meetings:
        return {}
    after: list[set[int]] = [set() for _ in readers]
    """For each reader those that must come before it, directly or not."""
    for where, left, right in sorted(meetings):
        turned = entered[left][where] > entered[right][where]
        first, second = (right, left) if turned else (left, right)
        if second not in after[first]:
            _put(after, first, second)
    order: list[int] = []
    while len(order) < len(readers):
        free = (at for at in range(len(readers)) if at not in order and after[at] <= {*order})
        order.append(next(free))
    return {readers[at]: number for number, at in enumerate(order)}


def _put(after: list[set[int]], first: int, second: int) -> None:
    """Note that one comes before another, and so before all that follow it."""
    for at, before in enumerate(after):
        if at == second or second in before:
            before.update({first} | after[first])


def _entered(graph: Graph, edge: Edge) -> dict[OperatorId, int]:
    """The operators downstream of a reader, with the lowest input at which its rows come in."""
    found = {edge.operator: edge.position}
    waiting = [edge.operator]
    while waiting:
        for reader in graph.readers(waiting.pop()):
            # What goes round comes in another epoch, and meets none of its own record.
            round_ = reader in graph.feedback
            if reader not in found and reader > edge.operator and not round_:
                found[reader] = -1
                waiting.append(reader)
    for number in found:
        if number != edge.operator:
            inputs = graph[number].inputs
            found[number] = min(at for at, port in enumerate(inputs) if port.operator in found)
    return found
