"""Names for the parts of the keys of rows that leave a join alone (M5, M13).

Such rows leave in order (time, input, arrival). Lanes have no common count of arrivals, so a row
carries what decided its own: the epoch it came in, then its order columns. Each of these becomes a
part of a key, and its number must not depend on which others are there, since lanes may have seen
different ones; it depends on the name alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from anabranch.compiler.plan import HIDDEN
from anabranch.ids import OperatorId
from anabranch.kernels.bundle import OFFSET, PARTITION, PHASE, key_part
from anabranch.program.graph import Graph
from anabranch.program.operators.operator import Operator
from anabranch.program.operators.together import Join

_FIXED = (PHASE, PARTITION, OFFSET)
_NUMBERED = re.compile(rf"{HIDDEN}([ksb])(\d+)(?:_(\d+))?")
_FEW = 1_000
"""More parts than the key of any row has, but for those that left another join alone."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Numbers for order columns, ascending as they do."""

    operator: int
    width: int = _FEW
    """More than the number of any part of a key further up."""

    @classmethod
    def of(cls, graph: Graph, op: Operator) -> Parts:
        """See which joins are further up."""
        joins = [each for each in _upstream(graph, op) if isinstance(each, Join)]
        return cls(op.id, max([_FEW, *(Parts.of(graph, each).end for each in joins)]))

    @property
    def end(self) -> int:
        """More than any of its own numbers."""
        return self._number(self.operator, 0, 0)

    @property
    def side(self) -> str:
        """The column of the input that a row came from."""
        return key_part(self.operator, 0)

    @property
    def epoch(self) -> str:
        """The column of the epoch that a row came in."""
        return key_part(self.operator, 1)

    def name(self, column: str) -> str:
        """The name of an order column as a part of the key.

        >>> Parts(7).name("__ab_p"), Parts(7).name("__ab_b3")
        ('__ab_k7_3', '__ab_k7_14005')
        """
        if column in _FIXED:
            return key_part(self.operator, 2 + _FIXED.index(column))
        named = _NUMBERED.fullmatch(column)
        if named is None:
            message = f"{column} is no order column"
            raise ValueError(message)
        kind, operator, part = named.groups()
        if kind == "k" and part is None:
            return key_part(self.operator, self._number(-1, 0, int(operator)))
        number = self._number(int(operator), "ksb".index(kind), int(part or 0))
        return key_part(self.operator, number)

    def _number(self, operator: int, kind: int, part: int) -> int:
        return 2 + len(_FIXED) + ((operator + 1) * 3 + kind) * self.width + part


def _upstream(graph: Graph, op: Operator) -> Iterator[Operator]:
    seen = set[OperatorId]()
    ahead = [port.operator for port in op.inputs]
    while ahead:
        number = ahead.pop()
        if number not in seen:
            seen.add(number)
            yield graph[number]
            ahead += [port.operator for port in graph[number].inputs]
