"""Which parts of a program run plain Python, and where that is done.

Plain Python holds the interpreter's lock while it runs. In the process that puts rows into order
none may run: whoever waits for the lock waits for milliseconds. So those parts are done by
evaluator processes, unless the interpreter has no lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import partial

from anabranch.compiler.staged import StagedPlan
from anabranch.engine.evaluators import Evaluators
from anabranch.engine.home import Home
from anabranch.engine.resident import Head, Here
from anabranch.ids import OperatorId
from anabranch.program.functions import Function
from anabranch.program.graph import Graph
from anabranch.program.operators.operator import Operator


@dataclass(frozen=True, slots=True)
class PlainPython:
    """The parts that run some."""

    sources: frozenset[int] = frozenset()
    """By their heads' numbers."""
    stages: frozenset[int] = frozenset()

    @classmethod
    def of(cls, plan: StagedPlan) -> PlainPython:
        """Those of a program."""
        heads = (
            number for number, head in enumerate(plan.heads) if _any(plan.graph, head.operators)
        )
        stages = (each.number for each in plan.stages if _any(plan.graph, each.operators))
        return cls(frozenset(heads), frozenset(stages))

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.sources or self.stages)


def _any(graph: Graph, operators: Iterable[OperatorId]) -> bool:
    return any(_calls(graph[each]) for each in operators)


def _calls(operator: Operator) -> bool:
    """Whether an operator calls a function of the user's, wherever it keeps it."""
    values = (getattr(operator, each.name) for each in fields(operator))
    return any(isinstance(each, Function) or _holds(each) for each in values)


def _holds(value: object) -> bool:
    if isinstance(value, dict):
        return any(isinstance(each, Function) for each in value.values())
    return isinstance(value, tuple | list) and any(isinstance(each, Function) for each in value)


@dataclass(frozen=True)
class Divided:
    """Plain Python in evaluators, all else here."""

    here: Here
    evaluators: Evaluators
    plain: PlainPython

    def head(self, source: int) -> Head:
        """An evaluator that is free, or whoever reads."""
        if source in self.plain.sources:
            return partial(self.evaluators.head, source)
        return self.here.head(source)

    def home(self, stage: int, partition: int) -> Home:
        """In an evaluator, or here."""
        if stage in self.plain.stages:
            return self.evaluators.home(stage, partition)
        return self.here.home(stage, partition)


def told(plan: StagedPlan, workers: int, *, free: bool) -> str:
    """Where a program's parts are done, for its author to read."""
    plain = PlainPython.of(plan)
    lines = [f"continuous: resident in one task, {workers} workers"]
    if not plain:
        lines.append("no plain Python: all of it in threads")
    elif free:
        lines.append("plain Python in threads: this interpreter has no lock that they would share")
    else:
        parts = [each.operators for each in plan.heads] + [each.operators for each in plan.stages]
        calling = [op for part in parts for op in map(plan.graph.__getitem__, part) if _calls(op)]
        names = [op.name for op in calling]
        lines.append(f"plain Python in {workers} evaluator processes: {', '.join(names)}")
        lines.append("all else in threads")
    return "\n  ".join(lines) + "\n"
