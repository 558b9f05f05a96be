"""On which node rows were made, and what follows from it: pure, and for free where there is one.

A part in the exchange carries the node that made it, a task knows its own. Rows are taken in their
order whoever made them (M5), so what can be chosen is what is fetched first, where work runs that
could run anywhere, and how many bytes came from where is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

NODE = "node"
"""Under this name a part says where it was made."""

Node: TypeAlias = str
"""What tasks that share a memory or a disk call it; "" where nobody says."""


@dataclass(frozen=True, slots=True)
class Topology:
    """Who is where, declared: for executors that only imagine nodes.

    >>> two = Topology(lanes={0: "a", 1: "b"}, slots=("a", "b"))
    >>> two.of_lane(1), two.of_lane(7), two.of_slot(2), two.near("b"), two.near("c")
    ('b', '', 'a', 'b', 'a')
    """

    lanes: Mapping[int, Node] = field(default_factory=dict)
    slots: Sequence[Node] = ("",)
    """Where tasks run that any process may do."""

    def of_lane(self, lane: int) -> Node:
        """Where a lane is."""
        return self.lanes.get(lane, "")

    def of_slot(self, number: int) -> Node:
        """Where the task of this number is, where it does not matter."""
        return self.slots[number % len(self.slots)]

    def near(self, node: Node) -> Node:
        """Where a task goes that would like to be on this node."""
        return node if node in self.slots else self.of_slot(0)


@dataclass(slots=True)
class Fetched:
    """How many bytes of parts a task got from its own node, and how many from others."""

    own: int = 0
    others: int = 0

    def add(self, part: Mapping[str, Any], size: int, node: Node) -> None:
        """Count what a task on a node got of a part."""
        if made_on(part) == node:
            self.own += size
        else:
            self.others += size

    def take(self) -> dict[str, int]:
        """What was counted since the last time, as progress tells it."""
        found = {"ownNode": self.own, "otherNodes": self.others}
        self.own = self.others = 0
        return found


def made_on(part: Mapping[str, Any]) -> Node:
    """The node where a part was made."""
    node: Node = part.get(NODE, "")
    return node


def own_first(parts: Sequence[Mapping[str, Any]], node: Node) -> Sequence[int]:
    """The places of parts in the order in which a task fetches them: its own node's first.

    >>> list(own_first([{"node": "a"}, {"node": "b"}, {"node": "a"}, {}], "b"))
    [1, 0, 2, 3]
    """
    own = [made_on(part) == node for part in parts]
    if all(own):
        return range(len(parts))
    return sorted(range(len(parts)), key=lambda at: not own[at])


def nearest(sizes: Sequence[tuple[Node, int]]) -> Node:
    """The node where most of some bytes are; of several the first by name.

    >>> nearest([("b", 3), ("a", 2), ("b", 1), ("a", 2)]), nearest([])
    ('a', '')
    """
    found = Counter[Node]()
    for node, size in sizes:
        found[node] += size
    return min(found, key=lambda node: (-found[node], node), default="")
