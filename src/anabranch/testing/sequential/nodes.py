"""Which node an operator is at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anabranch.program.operators import keyed, rowwise, together, windowed
from anabranch.program.operators.operator import Operator, Output
from anabranch.testing.sequential import keyed as keyed_nodes
from anabranch.testing.sequential import rowwise as rowwise_nodes
from anabranch.testing.sequential import together as together_nodes
from anabranch.testing.sequential.node import Node
from anabranch.testing.sequential.windows import window_node

_NODES: dict[type[Operator], Callable[[Any, Sequence[Output]], Node[Any]]] = {
    rowwise.Filter: rowwise_nodes.FilterNode,
    rowwise.Select: rowwise_nodes.SelectNode,
    rowwise.WithColumns: rowwise_nodes.WithColumnsNode,
    rowwise.Drop: rowwise_nodes.DropNode,
    rowwise.Rename: rowwise_nodes.RenameNode,
    rowwise.Explode: rowwise_nodes.ExplodeNode,
    rowwise.WithEventTime: rowwise_nodes.WithEventTimeNode,
    rowwise.Map: rowwise_nodes.MapNode,
    rowwise.FlatMap: rowwise_nodes.FlatMapNode,
    rowwise.MapBatches: rowwise_nodes.MapBatchesNode,
    rowwise.Split: rowwise_nodes.SplitNode,
    keyed.Process: keyed_nodes.ProcessNode,
    keyed.Reduce: keyed_nodes.ReduceNode,
    keyed.Deduplicate: keyed_nodes.DeduplicateNode,
    keyed.Match: keyed_nodes.MatchNode,
    windowed.WindowAggregate: window_node,
    windowed.WindowApply: window_node,
    together.Join: together_nodes.JoinNode,
    together.Lookup: together_nodes.LookupNode,
    together.Union: together_nodes.UnionNode,
    together.Merge: together_nodes.TimeOrderNode,
    together.InTimeOrder: together_nodes.TimeOrderNode,
}


def node_of(op: Operator, inputs: Sequence[Output]) -> Node[Any]:
    """The node of an operator that is neither a source nor a sink."""
    return _NODES[type(op)](op, inputs)
