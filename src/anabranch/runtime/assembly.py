"""A program, a checkpoint and an executor put together into a loop, where the last run left off."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

from anabranch.clock import Clock
from anabranch.compiler.compile import plan_of
from anabranch.compiler.staged import StagedPlan
from anabranch.epoch.machine import Machine, Rules
from anabranch.epoch.protocol import Offer
from anabranch.epoch.triggers import Trigger
from anabranch.epoch.watermarks import SourceTime
from anabranch.errors import CheckpointError, ProgramError
from anabranch.kernels.region import lower_head, lower_lanes
from anabranch.program.graph import Graph
from anabranch.program.operators.edges import Read
from anabranch.runtime.deployment import Deployment, Durability
from anabranch.runtime.exchange import exchange_directory
from anabranch.runtime.executor import Executor
from anabranch.runtime.intake import Intake
from anabranch.runtime.loop import Loop
from anabranch.runtime.payload import Strand
from anabranch.state.commit import CommitMachine
from anabranch.state.commits import Commits
from anabranch.state.delta import unpack
from anabranch.state.layout import EpochPlan
from anabranch.state.recovery import Recovered
from anabranch.state.slices import Owners
from anabranch.state.store import LocalStore


@dataclass(frozen=True, slots=True)
class Settings:
    """How a query is to run."""

    trigger: Trigger
    checkpoint: Path | None = None
    lanes: int | None = None
    """None: as many as tasks run at a time."""
    slices: int = 128
    durability: Durability = "process"
    keep: int | None = 100
    """Commits that can be gone back to; None: all."""


@dataclass(frozen=True, slots=True)
class Assembled:
    """A loop that is ready to go, and how to clear up behind it."""

    loop: Loop
    deployment: Deployment
    identity: str
    close: Callable[[], None]


def assemble(graph: Graph, settings: Settings, executor: Executor, clock: Clock) -> Assembled:
    """Put a query together; whatever was opened is closed again if it cannot be."""
    plan = plan_of(graph)
    with ExitStack() as stack:
        root = _checkpoint(settings, stack)
        store = LocalStore(root, settings.durability)
        durability = settings.durability
        sinks = {op.name: op.sink.with_durability(durability) for op in graph.sinks}
        commits = Commits(store, sinks, CommitMachine(keep=settings.keep))
        recovered = commits.open(
            graph.name,
            holder=f"{socket.gethostname()}:{os.getpid()}",
            created=int(clock.now() * 1_000_000),
        )
        stack.callback(commits.close)
        exchange = exchange_directory()
        stack.callback(exchange.remove)
        deployment = _deployment(plan, settings, executor, commits.run, root, exchange.path)
        past = _Past.of(recovered, store)
        _require_slice_keys(plan, recovered, store)
        loop = _loop(settings, executor, clock, commits, past, deployment, plan.read)
        executor.deploy(deployment)
        stack.callback(executor.close)
        commits.publish()
        # The lease is ours and all that was committed is published: what is staged now was left by
        # runs that are over. At the end of a run that cannot be known: another may have begun.
        deployment.sink.sweep(())
        return Assembled(loop, deployment, uuid4().hex, stack.pop_all().close)


def _checkpoint(settings: Settings, stack: ExitStack) -> Path:
    if settings.checkpoint is not None:
        return settings.checkpoint.absolute()
    root = Path(tempfile.mkdtemp(prefix="anabranch-checkpoint-"))
    stack.callback(shutil.rmtree, root, ignore_errors=True)
    return root


def _deployment(
    plan: StagedPlan, settings: Settings, executor: Executor, run: int, root: Path, exchange: Path
) -> Deployment:
    graph = plan.graph
    (read,), (write,) = graph.sources, graph.sinks
    head, lane = lower_head(plan), lower_lanes(plan)
    lanes = 1 if lane is None else settings.lanes or executor.slots
    owners = Owners.spread(slices=settings.slices, lanes=lanes)
    return Deployment(
        id=uuid4().hex,
        program=graph.name,
        run=run,
        source=read.source,
        source_name=read.name,
        head=head.route(owners),
        lane=lane,
        sink=write.sink.with_durability(settings.durability),
        sink_name=write.name,
        ordered=write.ordered,
        merged=write.ordered and lanes > 1,
        lanes=lanes,
        owners=owners.of,
        exchange=exchange,
        checkpoint=root,
        durability=settings.durability,
    )


@dataclass(frozen=True, slots=True)
class _Past:
    """What a checkpoint says of the runs before."""

    recovered: Recovered
    committed: EpochPlan | None
    """The plan of the last committed epoch."""

    @classmethod
    def of(cls, recovered: Recovered, store: LocalStore) -> _Past:
        for commit in reversed(recovered.history):
            if commit.plans:
                path = commit.plans[-1]
                return cls(recovered, EpochPlan.from_bytes(path, store.read(path)))
        return cls(recovered, None)

    @property
    def newest(self) -> EpochPlan | None:
        """The newest plan, committed or not: how far the source was, and what it must recall."""
        return self.recovered.plans[-1] if self.recovered.plans else self.committed

    def time(self, read: Read) -> SourceTime:
        """The source's time behind the last commit."""
        begun = SourceTime(tuple(read.source.partitions()), read.lateness)
        commit = self.recovered.commit
        if commit is None or self.committed is None:
            return begun
        return replace(
            begun,
            watermark=commit.watermarks.get(read.name),
            greatest=dict(commit.greatest_times.get(read.name, {})),
            finished=frozenset(self.committed.finished),
        )


def _loop(  # noqa: PLR0913, PLR0917 - all that a loop is made of
    settings: Settings,
    executor: Executor,
    clock: Clock,
    commits: Commits,
    past: _Past,
    deployment: Deployment,
    read: Read,
) -> Loop:
    newest, recovered, trigger = past.newest, past.recovered, settings.trigger
    if newest is not None and newest.memory is not None:
        read.source.recall(newest.memory)
    rules = Rules(every=trigger.every / 1_000_000, bounded=trigger.bounded)
    first = 0 if recovered.commit is None else recovered.commit.last + 1
    machine = Machine(rules, past.time(read), first=first)
    offers = {plan.epoch: _offer(plan) for plan in recovered.plans}
    machine.adopt(offers)
    positions = None if newest is None else {p: end for p, (_, end) in newest.offsets.items()}
    intake = Intake(read, trigger.max_rows, positions)
    if trigger.bounded:
        intake.freeze_end()
    loop = Loop(deployment, executor, commits, machine, intake, clock)
    same = recovered.commit is not None and recovered.commit.owners == deployment.owners
    loop.resume(offers, _strands(recovered, deployment), same=same)
    return loop


def _require_slice_keys(plan: StagedPlan, recovered: Recovered, store: LocalStore) -> None:
    """Refuse a checkpoint whose state is divided by other columns than the program now divides by.

    Its keys would be looked for in the wrong slices, and their state not be found.
    """
    if plan.lanes is None:
        return
    for op in plan.operators(plan.lanes):
        for link in recovered.chains.get(op.name, ())[-1:]:
            found = unpack(store.read(link.path), link.path).slice_key
            if found != plan.lanes.key:
                then, now = (", ".join(key or ("nothing",)) for key in (found, plan.lanes.key))
                message = f"the state of {op.name} in the checkpoint is divided by {then}"
                why = f"the program now divides it by {now}: its regions have changed"
                so = "see program.explain(); undo the change, or begin with another checkpoint"
                raise CheckpointError(message, why=why, so=so)


def _offer(plan: EpochPlan) -> Offer:
    hint = plan.hint
    if hint is not None and not isinstance(hint, int):
        message = f"epoch {plan.epoch} of the checkpoint has a hint that is no time: {hint!r}"
        raise ProgramError(message)
    return Offer(plan.offsets, frozenset(plan.finished), hint, more=False)


def _strands(recovered: Recovered, deployment: Deployment) -> dict[int, dict[str, Strand]]:
    """The files of the state, by the lane that wrote them and the operator that they are of."""
    strands: dict[int, dict[str, Strand]] = {}
    for operator in () if deployment.lane is None else deployment.lane.operators:
        for link in recovered.chains.get(operator, ()):
            mine = strands.setdefault(link.lane, {})
            mine[operator] = (*mine.get(operator, ()), link.path)
    return strands
