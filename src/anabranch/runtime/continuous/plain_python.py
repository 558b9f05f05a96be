"""Which parts of a program run plain Python, and where that is done.

Plain Python holds the interpreter's lock while it runs. In a process in which others put rows into
order none may run: whoever waits for the lock waits for milliseconds. So those parts are done by
evaluator processes, unless the interpreter has no lock, or there is one worker alone: then all that
is done is done by the one thread that cuts epochs, and rows need not go to another process.
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


def workers_for(plain: PlainPython, slots: int) -> int:
    """How many workers a program has on a node of so many slots, if nobody says.

    Evaluators are processes, one for each slot but the one of who asks them: on two cores that is
    none, and one process does it all. Without plain Python workers share one interpreter, and of an
    epoch of a few hundred rows most of the time is its own: two of them hold each other up. At
    200,000 rows a second, on two cores, half of all rows took 4 ms with one worker and 17 ms or
    more with two.

    >>> plain = PlainPython(stages=frozenset({0}))
    >>> workers_for(PlainPython(), 8), workers_for(plain, 8), workers_for(plain, 2)
    (1, 7, 1)
    """
    return max(1, slots - 1) if plain else 1


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
    many = "" if workers == 1 else "s"
    lines = [f"continuous: resident in one task, {workers} worker{many}"]
    if not plain:
        lines.append("no plain Python: all of it in threads")
    elif free:
        lines.append("plain Python in threads: this interpreter has no lock that they would share")
    elif workers == 1:
        lines.append("plain Python in the task itself: one worker waits for nobody's lock")
    else:
        parts = [each.operators for each in plan.heads] + [each.operators for each in plan.stages]
        calling = [op for part in parts for op in map(plan.graph.__getitem__, part) if _calls(op)]
        names = [op.name for op in calling]
        lines.append(f"plain Python in {workers} evaluator processes: {', '.join(names)}")
        lines.append("all else in threads")
    return "\n  ".join(lines) + "\n"
