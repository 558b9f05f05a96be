"""Which operators are in a loop: on a way from a feedback to a feedback, itself or another (M14).

What comes out of a feedback is all that entered it in the epoch before, so a loop cannot be divided
among lanes that are each at an epoch of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from anabranch.ids import OperatorId
from anabranch.program.graph import Graph
from anabranch.program.operators.operator import Port


@dataclass(frozen=True, slots=True)
class Loops:
    """All loops of a program together: one may lead to another and back."""

    inside: frozenset[OperatorId]
    """Feedbacks, and all on a way between two of them."""
    behind: frozenset[OperatorId]
    """What is fed by a feedback, and feeds none."""

    @classmethod
    def of(cls, graph: Graph) -> Loops:
        """Those of a program, if it has any."""
        fed = _reached(graph.feedback, graph.readers)
        feeding = _reached(graph.feedback, lambda each: (p.operator for p in taken(graph, each)))
        return cls(fed & feeding, fed - feeding)


def taken(graph: Graph, number: OperatorId) -> tuple[Port, ...]:
    """The ports whose rows an operator takes; of a feedback, the one that closes it."""
    closing = graph.feedback.get(number)
    return graph[number].inputs if closing is None else (closing,)


def _reached(
    begin: Iterable[OperatorId], following: Callable[[OperatorId], Iterable[OperatorId]]
) -> frozenset[OperatorId]:
    """These operators, and all that are reached from them."""
    waiting = list(begin)
    found = set(waiting)
    while waiting:
        new = {*following(waiting.pop())} - found
        found |= new
        waiting += new
    return frozenset(found)
