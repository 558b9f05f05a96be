"""From a graph to a plan: the passes, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from anabranch.compiler.joints import place_joints
from anabranch.compiler.plan import Plan
from anabranch.compiler.regions import find_regions
from anabranch.compiler.staged import StagedPlan, staged_plan
from anabranch.compiler.strategies import choose_strategies
from anabranch.compiler.traits import infer_traits
from anabranch.program.graph import Graph

Pass: TypeAlias = Callable[[Plan], Plan]

PASSES: tuple[Pass, ...] = (infer_traits, find_regions, place_joints, choose_strategies)
"""Each adds one fact to the plan and changes no other; each takes time linear in the graph."""


def compile_graph(graph: Graph) -> Plan:
    """Turn a graph into a plan; refused only where `fuse_with` asks for what cannot be."""
    plan = Plan(graph)
    for run in PASSES:
        plan = run(plan)
    return plan


def plan_of(graph: Graph) -> StagedPlan:
    """What the runtime can run of a graph today, or a refusal by name, line and reason."""
    return staged_plan(compile_graph(graph))
