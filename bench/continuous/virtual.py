"""Runs in virtual time: a query as it was measured, or operators with given costs."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.engine.core import Queueing, Reordering, Scheme
from anabranch.scheduling.current_throughput import current_throughput
from anabranch.scheduling.estimated_time import estimated_time
from anabranch.scheduling.last_in_pipeline import last_in_pipeline
from anabranch.scheduling.pipeline_view import Choice, PipelineView
from anabranch.scheduling.queue_size_throttling import queue_size_throttling
from anabranch.simulate.model import Model, chained, cost_of
from anabranch.simulate.pipeline import Costs, Outcome, Rules, Simulation
from bench.continuous.operators import Kind, Operator, Query

SEED = 7
"""Of the tuples that go through pipelines in virtual time."""
BY_INPUT = "current-throughput by input"


def by_input(view: PipelineView) -> int | None:
    """Current throughput, each operator's work divided by what comes in to it for one tuple.

    Equation 3 divides by what goes out: an operator that lets little through is then thought to be
    ahead by as much as it drops, and is left alone. Here to be measured beside the shipped one.
    """
    before = (1.0, *view.cumulative[:-1])

    def done(at: int) -> float:
        each = view.operators[at]
        unit = each.cost * before[at]
        return (each.spent + each.workers * view.time_slice) / unit if unit > 0 else float("inf")

    return min(view.schedulable, key=lambda at: (done(at), -at), default=None)


POLICIES: Mapping[str, Choice] = {
    "queue-size-throttling": queue_size_throttling,
    "last-in-pipeline": last_in_pipeline,
    "estimated-time": estimated_time,
    "current-throughput": current_throughput,
    BY_INPUT: by_input,
}
FINE = 100
"""Partitions of a hybrid queue, as in Prasaad et al. 2018, section 7.2.1."""
TIME_SLICE = 0.0005
"""Ten times less than the engine's: a run takes a few hundredths of a second with 16 workers."""
AHEAD = 256
"""Tuples that wait at the first operator, and that queues hold by queue-size throttling."""


@dataclass(frozen=True, slots=True)
class Setting:
    """All that may differ between two runs of the same operators."""

    workers: int
    policy: str = "current-throughput"
    scheme: Scheme = Scheme()  # noqa: RUF009 - a frozen value
    contention: float = 0.0
    add: float = 0.0
    """Seconds to put an output into a reorder buffer."""

    @property
    def partitions(self) -> int:
        """Of a partitioned operator: fine in a hybrid queue, else one for each worker."""
        return FINE if self.scheme.queueing is Queueing.HYBRID else self.workers

    def rules(self) -> Rules:
        """As the simulation takes them."""
        return Rules(
            self.workers, POLICIES[self.policy], self.scheme, TIME_SLICE, float(AHEAD), AHEAD
        )


def partitioned(setting: Setting) -> Setting:
    """The same with a queue for each partition."""
    return replace(setting, scheme=replace(setting.scheme, queueing=Queueing.PARTITIONED))


def locked(setting: Setting) -> Setting:
    """The same with one lock for each reorder buffer."""
    return replace(setting, scheme=replace(setting.scheme, reordering=Reordering.LOCKED))


def run(
    models: Sequence[Model],
    values: Sequence[int],
    setting: Setting,
    onward: Callable[[int, list[int]], float],
) -> Outcome:
    """Tuples, each a bundle, through operators."""
    costs = Costs(cost_of(models), onward, setting.add, setting.contention)
    simulation = Simulation(chained(models), costs, setting.rules())
    found = simulation.run([models[0].cut([value]) for value in values])
    assert len(values) == len(found.left), "a number for what has not left is no number"
    return found


def query(measured: Query, tuples: int, setting: Setting) -> Outcome:
    """A query with the costs that were measured."""
    parts = min(setting.partitions, measured.keys or setting.partitions)
    models = [_model(each, parts) for each in measured.operators]
    passing = [each.onward for each in measured.operators]
    return run(models, numbers(tuples), setting, lambda at, _: passing[at])


def bound(measured: Query, outcome: Outcome) -> float:
    """Tuples a second that no policy can exceed with the tuples of this run.

    All work divided by workers, or what is done by one at a time: sending, and operating where
    there is one state, or a share of it where there are few keys.
    """
    work, alone = 0.0, 0.0
    for each, spent in zip(measured.operators, outcome.operators, strict=True):
        work += spent.operating + spent.sending
        alone = max(alone, spent.sending)
        if each.kind is Kind.STATEFUL:
            alone = max(alone, spent.operating + spent.sending)
        elif each.kind is Kind.PARTITIONED and measured.keys is not None:
            alone = max(alone, spent.operating / measured.keys)
    return outcome.tuples / max(work / outcome.workers, alone)


def numbers(count: int) -> list[int]:
    """Tuples, drawn; the same whenever they are asked for."""
    chance = random.Random(SEED)
    return [chance.getrandbits(48) for _ in range(count)]


def _model(each: Operator, partitions: int) -> Model:
    parts = {Kind.STATELESS: None, Kind.PARTITIONED: partitions, Kind.STATEFUL: 1}[each.kind]
    return Model.of(each.name, each.cost, partitions=parts, selectivity=each.selectivity)
