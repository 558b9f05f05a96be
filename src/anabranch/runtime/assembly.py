"""A program, a checkpoint and an executor put together into a loop, where the last run left off."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from anabranch.clock import Clock
from anabranch.compiler.compile import plan_of
from anabranch.compiler.staged import Stage, StagedPlan
from anabranch.config import Outlets, PipelinePolicy, StateMemory
from anabranch.connectors.base import Sink
from anabranch.epoch.bundles import Bundles
from anabranch.epoch.machine import Known, Machine, Rules
from anabranch.epoch.triggers import Trigger
from anabranch.epoch.watermarks import END_OF_TIME, SourceTime
from anabranch.errors import CheckpointError, ProgramError
from anabranch.ids import Offset, Partition
from anabranch.kernels.region import lower
from anabranch.observe.waits import Shape
from anabranch.program.graph import Graph
from anabranch.program.operators.edges import Read, Write
from anabranch.program.operators.operator import DEAD_LETTERS, Port
from anabranch.program.operators.together import Lookup
from anabranch.runtime.blame import Blame
from anabranch.runtime.compatibility import Before, Change, Now, compare
from anabranch.runtime.continuous.loop import ContinuousLoop, Pace, Past
from anabranch.runtime.continuous.placing import Placer, refuse_too_wide, refuse_unfit
from anabranch.runtime.continuous.plain_python import PlainPython, workers_for
from anabranch.runtime.continuous.width import Width
from anabranch.runtime.deployment import Deployment, Durability, Input, LaneStage, Output
from anabranch.runtime.exchange import exchange_directory
from anabranch.runtime.executor import Executor
from anabranch.runtime.facts import describe, divided
from anabranch.runtime.intake import Intake
from anabranch.runtime.loop import Loop, Ways
from anabranch.runtime.merging import MERGE_ABOVE
from anabranch.runtime.offers import offer_of
from anabranch.runtime.tables import Tables
from anabranch.runtime.turns import Alone, Seat
from anabranch.scheduling.session_machine import First
from anabranch.state.commit import CommitMachine
from anabranch.state.commits import Commits
from anabranch.state.delta import SLICE
from anabranch.state.description import Description
from anabranch.state.layout import EpochPlan
from anabranch.state.object_store import ObjectStore
from anabranch.state.recovery import Recovered, read_delta, read_description
from anabranch.state.slices import MOST_SLICES, Owners, slices_for
from anabranch.state.store import Store
from anabranch.state.stores import Place, store_at

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Settings:
    """How a query is to run."""

    trigger: Trigger
    checkpoint: Place | None = None
    lanes: int | None = None
    """None: as many as tasks run at a time."""
    slices: int | None = 128
    """None: as many as the cores call for, or as the checkpoint has."""
    durability: Durability = "process"
    keep: int | None = 100
    """Commits that can be gone back to; None: all."""
    bundles: Bundles | None = None
    """How rows are bundled where they come in; None: as few as keep all slots busy."""
    in_flight: int = 64
    """Epochs of a source that may be under way at a time."""
    bytes_in_flight: int = 1 << 30
    """Of rows that were read and are not committed."""
    job_timeout: float | None = None
    """Seconds after which a job is given up; None: never."""
    merge_above: int = MERGE_ABOVE
    """Bytes of an epoch for an ordered sink above which tasks put them into one order."""
    first: First = First.LANES
    """Whose work goes first."""
    pipeline: PipelinePolicy = "lp"
    """By what workers of a continuous query go to operators."""
    seat: Seat = field(default_factory=Alone)
    """Its place among the queries of a session."""
    goal: float | None = None
    """Seconds in which what it gives is to be there."""
    cycle: float | None = None
    """Seconds that a cycle should take at most; None: as long as one query has for itself."""
    outlets: Outlets = field(default_factory=Outlets)
    """Where it tells of itself."""
    state: StateMemory = field(default_factory=StateMemory)
    """How much of its state is in memory."""


@dataclass(frozen=True, slots=True)
class Assembled:
    """A loop that is ready to go, and how to clear up behind it."""

    loop: Loop | ContinuousLoop
    deployment: Deployment
    identity: str
    """The query's: the same in all runs of one checkpoint."""
    run_id: str
    """This run's alone."""
    close: Callable[[], None]
    notes: tuple[str, ...] = ()
    """What has changed since the run before, a sentence each, as far as state is concerned."""


def assemble(
    graph: Graph,
    settings: Settings,
    executor: Executor | Placer,
    clock: Clock,
    open_store: Callable[[Any, Durability], Store] | None = None,
) -> Assembled:
    """Put a query together; whatever was opened is closed again if it cannot be.

    It runs on an executor, cycle by cycle, or where its trigger is `continuous` in a task that is
    placed. `open_store` opens the checkpoint for the driver; the test kit's own dies when told.
    """
    plan = _planned(graph, settings, executor)
    with ExitStack() as stack:
        root = _checkpoint(settings, stack)
        stack.enter_context(_telling(root))
        store = _store(open_store or store_at, root, settings.durability)
        durability = settings.durability
        sinks = {
            op.name: op.sink.with_durability(durability).called(graph.name, op.name)
            for op in graph.sinks
        }
        commits = Commits(store, sinks, CommitMachine(keep=settings.keep))
        run_id = uuid4().hex
        recovered = commits.open(
            graph.name,
            holder=f"{socket.gethostname()}:{os.getpid()}",
            created=int(clock.now() * 1_000_000),
            run_id=run_id,
        )
        stack.callback(commits.close)
        settings = replace(settings, slices=settings.slices or _slices(recovered, executor))
        exchange = _exchange(stack)
        slots = _slots(plan, executor)
        deployment = _deployment(plan, settings, slots, commits.run, root, exchange)
        program = describe(plan, [stage.task for stage in deployment.stages])
        kinds = {op.name: op.kind for op in graph.operators}
        change = _change(recovered, store, Now(program, kinds, deployment.owners.slices))
        dropped = _dropped(recovered, change.kept, program, deployment)
        recovered = _without(recovered, dropped)
        past = _Past.of(recovered)
        loop = _looping(plan, settings, executor, clock, commits, past, deployment, sinks, store)
        if not isinstance(executor, Placer):
            executor.deploy(deployment)
            stack.callback(executor.close)
        commits.publish()
        commits.describe(program, dropped)
        # The lease is ours and all that was committed is published: what is staged now was left by
        # runs that are over. At the end of a run that cannot be known: another may have begun.
        _sweep(deployment)
        close = stack.pop_all().close
        return Assembled(loop, deployment, commits.identity, run_id, close, change.notes)


def _planned(graph: Graph, settings: Settings, executor: Executor | Placer) -> StagedPlan:
    if isinstance(executor, Placer):
        refuse_unfit(graph)
        refuse_too_wide(settings.lanes or 1, executor, ProgramError, graph.name)
    return plan_of(graph)


def _slots(plan: StagedPlan, executor: Executor | Placer) -> int:
    """How many lanes there are, if nobody says."""
    if isinstance(executor, Placer):
        return workers_for(PlainPython.of(plan), executor.slots)
    return executor.slots


def _sweep(deployment: Deployment) -> None:
    for output in deployment.outputs.values():
        output.sink.sweep(())


@contextmanager
def _telling(root: Place) -> Iterator[None]:
    """Say of which checkpoint it is that a file cannot be read, or does not belong."""
    try:
        yield
    except CheckpointError as error:
        raise error.of(str(root)) from error


def _store(
    open_store: Callable[[Any, Durability], Store], root: Place, durability: Durability
) -> Store:
    """The checkpoint's, if a run can be kept there."""
    store = open_store(root, durability)
    if isinstance(store, ObjectStore):
        store.require_fit()
    return store


def _checkpoint(settings: Settings, stack: ExitStack) -> Place:
    if isinstance(settings.checkpoint, Path):
        # Tasks run elsewhere, where a relative path would mean another place.
        return settings.checkpoint.absolute()
    if settings.checkpoint is not None:
        return settings.checkpoint
    root = Path(tempfile.mkdtemp(prefix="anabranch-checkpoint-"))
    stack.callback(shutil.rmtree, root, ignore_errors=True)
    return root


def _exchange(stack: ExitStack) -> Path:
    """Where rows are exchanged meanwhile."""
    found = exchange_directory()
    stack.callback(found.remove)
    return found.path


def _slices(recovered: Recovered, executor: Executor | Placer) -> int:
    """How many there are in the checkpoint, or else should be."""
    known = () if recovered.commit is None else recovered.commit.owners
    most = executor.slots
    if not isinstance(executor, Placer) and executor.most_slots <= MOST_SLICES:
        most = executor.most_slots
    return len(known) or slices_for([most])


def _deployment(
    plan: StagedPlan, settings: Settings, slots: int, run: int, root: Place, exchange: Path
) -> Deployment:
    graph, tasks = plan.graph, lower(plan)
    # Workers of a resident task do what has no state as well.
    resident = settings.trigger.checkpoint_every is not None
    lanes = settings.lanes or slots if plan.stages or resident else 1
    assert settings.slices is not None
    owners = Owners.spread(slices=settings.slices, lanes=lanes)
    stages = tuple(
        LaneStage(task, stage.level, stage.key)
        for stage, task in zip(plan.stages, tasks.stages, strict=True)
    )
    return Deployment(
        id=uuid4().hex,
        program=graph.name,
        run=run,
        inputs=tuple(
            Input(read.name, read.source, head.route(owners))
            for read, head in zip(graph.sources, tasks.heads, strict=True)
        ),
        stages=stages,
        links=tasks.links,
        outputs={write.name: _output(plan, write, settings) for write in graph.sinks},
        letters=any(graph.is_read(Port(op.id, DEAD_LETTERS)) for op in graph.operators),
        lanes=lanes,
        owners=owners,
        exchange=exchange,
        checkpoint=root,
        durability=settings.durability,
        state=settings.state,
    )


def _output(plan: StagedPlan, write: Write, settings: Settings) -> Output:
    home = plan.homes[write.id]
    stage = home.number if isinstance(home, Stage) else None
    return Output(write.sink.with_durability(settings.durability), write.ordered, stage)


@dataclass(frozen=True, slots=True)
class _Past:
    """What a checkpoint says of the runs before."""

    recovered: Recovered
    newest: Mapping[str, EpochPlan]
    """Of each source the newest plan, committed or not: what it must recall."""
    finished: Mapping[str, frozenset[Partition]]
    """The partitions of each source that were at their end behind the last commit."""

    @classmethod
    def of(cls, recovered: Recovered) -> _Past:
        positions = {} if recovered.commit is None else recovered.commit.positions
        # A source that was not read for a while begins anew: what it remembered is out of date.
        newest = {name: plan for name, plan in recovered.latest.items() if name in positions}
        finished = {name: frozenset(plan.finished) for name, plan in newest.items()}
        newest |= {plan.source: plan for plan in recovered.plans}
        return cls(recovered, newest, finished)

    def known(self, reads: Sequence[Read]) -> Known:
        """What is known of all sources behind the last commit."""
        commit = self.recovered.commit
        times = {read.name: self._time(read) for read in reads}
        if commit is None:
            return Known(times, {}, {})
        return Known(times, _of(commit.positions, reads), _of(commit.row_numbers, reads))

    def _time(self, read: Read) -> SourceTime:
        begun = SourceTime(tuple(read.source.partitions()), read.lateness)
        commit = self.recovered.commit
        if commit is None:
            return begun
        watermark = commit.watermarks.get(read.name)
        at_end = watermark == END_OF_TIME
        return replace(
            begun,
            watermark=watermark,
            greatest=dict(commit.greatest_times.get(read.name, {})),
            finished=frozenset(begun.partitions)
            if at_end
            else self.finished.get(read.name, frozenset()),
        )

    def positions(self, read: Read) -> Mapping[Partition, Offset] | None:
        """Where the next epoch of a source begins; None: at its beginning."""
        commit = self.recovered.commit
        found = dict(commit.positions.get(read.name, {})) if commit is not None else {}
        for plan in self.recovered.plans:
            if plan.source == read.name:
                found |= {partition: end for partition, (_, end) in plan.offsets.items()}
        return found or None


def _of(by_source: Mapping[str, _T], reads: Sequence[Read]) -> dict[str, _T]:
    """What is said of these sources; one that is no longer read is forgotten."""
    names = {read.name for read in reads}
    return {name: said for name, said in by_source.items() if name in names}


def _looping(  # noqa: PLR0913, PLR0917 - all that a loop is made of
    plan: StagedPlan,
    settings: Settings,
    executor: Executor | Placer,
    clock: Clock,
    commits: Commits,
    past: _Past,
    deployment: Deployment,
    sinks: Mapping[str, Sink],
    store: Store,
) -> Loop | ContinuousLoop:
    graph = plan.graph
    blame, reads = Blame.of(graph.operators), graph.sources
    if isinstance(executor, Placer):
        plain = PlainPython.of(plan)
        return _continuous(
            settings, executor, clock, commits, sinks, past, deployment, reads, blame, plain
        )
    tables, waits = Tables(store, clock, commits.run, tuple(graph.of(Lookup))), Shape.of(graph)
    return _loop(settings, executor, clock, commits, past, deployment, reads, tables, blame, waits)


def _loop(  # noqa: PLR0913, PLR0917 - all that a loop is made of
    settings: Settings,
    executor: Executor,
    clock: Clock,
    commits: Commits,
    past: _Past,
    deployment: Deployment,
    reads: Sequence[Read],
    tables: Tables,
    blame: Blame,
    waits: Shape,
) -> Loop:
    recovered, trigger = past.recovered, settings.trigger
    for read in reads:
        newest = past.newest.get(read.name)
        if newest is not None and newest.memory is not None:
            read.source.recall(newest.memory)
    rules = Rules(
        trigger.every / 1_000_000,
        trigger.bounded,
        settings.in_flight,
        settings.bytes_in_flight,
        levels=deployment.levels,
    )
    first = 0 if recovered.commit is None else recovered.commit.last + 1
    machine = Machine(rules, past.known(reads), first=first)
    plans = {plan.epoch: (plan.source, offer_of(plan)) for plan in recovered.plans}
    machine.adopt(plans)
    intakes = {read.name: Intake(read, trigger.max_rows, past.positions(read)) for read in reads}
    if trigger.bounded:
        for intake in intakes.values():
            intake.freeze_end()
    auto = settings.lanes is None and executor.elastic and settings.seat.alone
    ways = Ways(
        settings.bundles,
        settings.first,
        settings.merge_above,
        settings.job_timeout,
        rules.every,
        auto and bool(deployment.stages),
        settings.seat,
        settings.goal,
        settings.cycle,
    )
    loop = Loop(deployment, executor, commits, machine, intakes, clock, tables, ways, blame, waits)
    versions = {plan.epoch: plan.tables for plan in recovered.plans}
    running = [name for stage in deployment.stages for name in stage.task.operators]
    links = {name: recovered.chains.get(name, ()) for name in running}
    chain = {name: tuple(link.part for link in found) for name, found in links.items() if found}
    version = 0 if recovered.commit is None else recovered.commit.version
    loop.resume(plans, chain, versions, version)
    return loop


def _continuous(  # noqa: PLR0913, PLR0917 - all that a loop is made of
    settings: Settings,
    placer: Placer,
    clock: Clock,
    commits: Commits,
    sinks: Mapping[str, Sink],
    past: _Past,
    deployment: Deployment,
    reads: Sequence[Read],
    blame: Blame,
    plain: PlainPython,
) -> ContinuousLoop:
    recovered, trigger = past.recovered, settings.trigger
    assert trigger.checkpoint_every is not None
    running = [name for stage in deployment.stages for name in stage.task.operators]
    links = {name: recovered.chains.get(name, ()) for name in running}
    behind = Past(
        0 if recovered.commit is None else recovered.commit.last + 1,
        past.known(reads),
        recovered.plans,
        {name: plan.memory for name, plan in past.newest.items()},
        {name: tuple(link.part for link in found) for name, found in links.items() if found},
    )
    every, checkpoint_every = trigger.every / 1_000_000, trigger.checkpoint_every / 1_000_000
    pace = Pace(every, checkpoint_every, settings.pipeline)
    width = Width(placer.slots, deployment.owners.slices) if settings.lanes is None else None
    return ContinuousLoop(
        deployment, placer, commits, sinks, reads, behind, pace, clock, blame, plain, width
    )


def _change(recovered: Recovered, store: Store, now: Now) -> Change:
    """What becomes of the checkpoint under this program, or an error that says why it cannot be."""
    commit, run = recovered.commit, recovered.described_by
    if commit is None or run is None:
        return Change()
    described = read_description(store, run)
    planned: dict[str, int] = {}
    for plan in recovered.plans:
        planned.setdefault(plan.source, plan.epoch)
    before = Before(
        _told_by_files(recovered, store) if described is None else described,
        frozenset(name for name, time in commit.watermarks.items() if time == END_OF_TIME),
        planned,
        len(commit.owners) if recovered.chains else None,
    )
    return compare(before, now)


def _told_by_files(recovered: Recovered, store: Store) -> Description:
    """What is known of the program before where a version wrote that did not describe it."""
    operators = {}
    for name, links in recovered.chains.items():
        delta = read_delta(store, links[-1].path)
        if delta.frame.columns != [SLICE]:
            operators[name] = divided(delta.slice_key)
    sources = {} if recovered.commit is None else recovered.commit.positions
    return Description(operators, dict.fromkeys(sources, ""))


def _dropped(
    recovered: Recovered, kept: frozenset[str], program: Description, deployment: Deployment
) -> tuple[str, ...]:
    """The operators whose files are no state any more: they are gone, or begin anew."""
    running = {name for stage in deployment.stages for name in stage.task.operators}
    # Some run in lanes and keep nothing; their files are empty and in nobody's way.
    harmless = running - program.operators.keys()
    return tuple(sorted(recovered.chains.keys() - kept - harmless))


def _without(recovered: Recovered, dropped: tuple[str, ...]) -> Recovered:
    chains = {name: each for name, each in recovered.chains.items() if name not in dropped}
    return replace(recovered, chains=chains)
