"""Who works where, and how that changes while a query goes on: widths, owners, executors.

A *shape* is the deployment of now and what is under way to another one. Lanes come and go, slices
change lanes, executors are lost and come; each time the next deployment is made ready while this
one works, and holds from one cycle to the next. What is to be decided is decided elsewhere
(`elasticity`, `backups`, `state.placement`, `scheduling.autoscaler`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace

from anabranch.runtime.backups import Backups
from anabranch.runtime.deployment import Deployment
from anabranch.runtime.elasticity import Elasticity, Seen
from anabranch.runtime.executor import CycleResult, Executor
from anabranch.runtime.ground import Ground
from anabranch.runtime.payload import LaneJob
from anabranch.runtime.rescaling import Rescaling
from anabranch.runtime.under_way import Since, UnderWay
from anabranch.state.configuration import Configuration
from anabranch.state.slices import Owners

_SHY, _SHYEST = 64, 1 << 16
"""So many looks go by before what could not be is tried again; twice as many the next time."""


class Shape:
    """The shape of one query. Used by one thread at a time."""

    def __init__(
        self, deployment: Deployment, executor: Executor, now: UnderWay, elastic: Elasticity
    ) -> None:
        """Begin with a deployment that the executor has, or will have before the first look."""
        self.deployment = deployment
        self.configuration = Configuration(1, deployment.owners)
        self._executor, self._now, self._elastic = executor, now, elastic
        self._rescaling: Rescaling | None = None
        self._ground, self._backups = Ground(), Backups()
        self._reached = list[Callable[[], None]]()
        self._cold, self._starting = frozenset[int](), _started()
        """Lanes whose processes have yet to start, and when they have."""
        self._looks, self._again_at, self._shy = 0, 0, _SHY

    def resume(self, version: int) -> None:
        """Go on behind the last configuration of a run before."""
        self.configuration = replace(self.configuration, version=version + 1)

    # What the loop wants to know

    @property
    def turning(self) -> bool:
        """Whether nothing more is to be planned: the next deployment is there in a cycle or two."""
        return self._rescaling is not None and (self._rescaling.turning or self._rescaling.drained)

    @property
    def beside(self) -> bool:
        """Whether a cycle is worth running for replicas or copies alone."""
        replicating = self._rescaling is not None and self._rescaling.replicating
        return replicating or self._backups.pending

    @property
    def _calm(self) -> bool:
        """Whether something may be begun that nobody asks for."""
        return self._rescaling is None and self._looks >= self._again_at

    @property
    def because(self) -> str:
        """What was decided last, and why."""
        return self._elastic.because

    @property
    def backups(self) -> Mapping[str, int]:
        """How many copies lanes have of others' state, and how many are still to be made."""
        return self._backups.facts

    # A cycle

    def look(self, at_rest: Callable[[], bool], idle: Callable[[], bool]) -> bool:
        """See who is there and what is ready; says whether another deployment holds from here on.

        `at_rest` commits what can be, and says whether all is that was done; `idle` whether there
        is nothing under way at all.
        """
        ground = self._executor.ground()
        if ground != self._ground:
            before, self._ground = self._ground, ground
            if gone := ground.gone(before, self.deployment.lanes):
                self._bereave(gone, at_rest)
            self._settle()
        self._looks += 1
        misplaced = self._ground.misplaced(self.deployment.lanes)
        if misplaced is not None and self._calm and self._executor.elastic:
            self._relocate(misplaced)
        return self._rescaling is not None and self._turn(self._rescaling, at_rest, idle)

    def jobs(self, lanes: Mapping[int, LaneJob]) -> dict[int, LaneJob]:
        """A cycle's jobs, with what their processes are to have at hand besides."""
        found = dict(lanes)
        if self._rescaling is not None:
            found = self._rescaling.jobs(found, self._now)
        cold = frozenset[int]() if self._starting.done() else self._cold
        return self._backups.jobs(found, self._now, cold)

    def take(self, result: CycleResult) -> None:
        """Learn what is at hand now."""
        if self._rescaling is not None:
            self._rescaling.take(result.lanes)
        self._backups.take(result.lanes)

    def agree(self, result: CycleResult) -> None:
        """Learn what two lanes have both, now that what the lanes made counts."""
        if self._rescaling is not None:
            self._rescaling.agree(result.lanes, self._now)

    def failed(self) -> None:
        """A job failed as a whole: any process may have died."""
        if self._rescaling is not None:
            self._rescaling.lost(range(self._rescaling.target.lanes + 1))
        self._backups.lost(range(self.deployment.lanes))

    def learn(self, seen: Seen) -> None:
        """Have slices change lanes, or lanes come or go, where the last cycles say so."""
        if not self._calm:
            # Who is asked has said it, and does not say it again.
            self._elastic.note(seen, self.deployment.owners)
            return
        wish = self._elastic.learn(seen, self.deployment.owners)
        if wish is None:
            return
        if wish.slots is not None:
            self._executor.want(wish.slots)
        if wish.owners != self.deployment.owners:
            self._change(wish.owners, asked=wish.owners.lanes != self.deployment.lanes)

    def slots(self) -> int:
        """How many there are now: executors come and go."""
        executor, elastic = self._executor, self._elastic
        elastic.slots, elastic.most_slots = executor.slots, executor.most_slots
        elastic.fewest_slots = executor.fewest_slots
        return elastic.slots

    # Other widths

    def rescale(self, lanes: int, reached: Callable[[], None], *, drained: bool) -> None:
        """Go over to so many lanes; call when the first commit is there.

        Who asks while a change is under way has the last word; those who asked before him are told
        when he is. `drained`, nothing is planned until it holds, and what is planned is done first.
        """
        self._reached.append(reached)
        if lanes > self._executor.slots:
            self._executor.want(lanes)
        self._change(self._moved(self.deployment.owners, lanes))
        if self._rescaling is not None:
            self._rescaling.drained = drained

    def committed(self) -> None:
        """Tell those who asked for another width, if it holds."""
        if self._rescaling is None:
            told, self._reached = self._reached, []
            for reached in told:
                reached()

    def _moved(self, owners: Owners, lanes: int) -> Owners:
        return owners.moved_to(lanes, self._elastic.costs(), self._elastic.nodes)

    def _change(self, owners: Owners, cold: Iterable[int] = (), *, asked: bool = True) -> None:
        """Begin to go over to other owners of slices, in as many lanes as they are for.

        `cold` lanes have no process yet. What nobody has asked for is given up where it is hard.
        """
        before, starting = self.deployment, None
        if self._executor.reserve(max(owners.lanes, before.lanes)):
            # A process takes long to start, and a job as long as its slowest task.
            new = {*range(before.lanes, owners.lanes), *cold}
            starting = self._start(lane for lane in new if lane < owners.lanes)
        after = before.with_owners(owners)
        self._rescaling = Rescaling(before, after, starting, asked=asked or starting is None)

    def _start(self, lanes: Iterable[int]) -> Future[None]:
        still = frozenset[int]() if self._starting.done() else self._cold
        if new := sorted(lanes):
            self._starting = self._executor.start(new)
        self._cold = still | frozenset(new)
        return self._starting

    def _turn(
        self, rescaling: Rescaling, at_rest: Callable[[], bool], idle: Callable[[], bool]
    ) -> bool:
        """Go over to the next deployment between two cycles, once little is left to read for it.

        Rows that heads have made for lanes of now can be taken by others where these may read them;
        what goes from stage to stage, and what waits for its commit, is of one width.
        """
        rescaling.look(self._now)
        if rescaling.hopeless:
            self._rescaling, self._shy = None, min(2 * self._shy, _SHYEST)
            self._again_at = self._looks + self._shy
            return False
        if not rescaling.turning:
            return False
        drained = self.deployment.levels > 1 or not rescaling.replicates or rescaling.drained
        if not (idle() if drained else at_rest()):
            return False
        self._go_on(rescaling.target, rescaling.since, rescaling.was)
        self._rescaling, self._shy = None, _SHY
        return True

    # Executors come and go

    def _bereave(self, gone: frozenset[int], at_rest: Callable[[], bool]) -> None:
        """Let those who keep copies take over what was in lanes that are gone, all at once.

        Where that cannot be, or nobody is left, these lanes make their state again themselves.
        """
        self._backups.lost(gone)
        self._now.gone(gone)
        width = self.deployment.lanes
        if self._rescaling is not None:
            self._rescaling.lost(gone)
            width = self._rescaling.target.lanes
        alone = len(gone) == self.deployment.lanes
        if alone or self.deployment.levels > 1 or not self._executor.elastic or not at_rest():
            return
        heirs = self._backups.heirs(gone, self.deployment.owners)
        self._rescaling = None
        self._go_on(self.deployment.with_owners(heirs), gone=gone)
        # The lanes themselves are there again, in other places: they get slices when they are up.
        self._change(self._moved(heirs, width), cold=gone, asked=bool(self._reached))

    def _relocate(self, lane: int) -> None:
        """Begin to have a lane in another process, where the next one is put that comes."""
        before, new = self.deployment, self.deployment.lanes
        if self._executor.reserve(new + 1):
            was = [new if each == lane else each for each in range(new)]
            after, starting = before.with_owners(before.owners), self._start([new])
            self._rescaling = Rescaling(before, after, starting, was, asked=False)

    def _go_on(
        self,
        deployment: Deployment,
        since: Since = lambda *_: None,
        was: Sequence[int] | None = None,
        gone: frozenset[int] = frozenset(),
    ) -> None:
        """Go on with other owners of slices from here."""
        self.deployment = deployment
        self._executor.deploy(deployment, was)
        self._now.widen(deployment, since, was, gone)
        if was is not None:
            self._backups.renumbered(tuple(was))
        # Who has gone meanwhile is seen at the next look.
        self._ground = self._ground.renumbered(range(deployment.lanes) if was is None else was)
        self._settle()

    def _settle(self) -> None:
        """Take in who owns what, and where: it holds from the next epoch that is planned."""
        lanes, owners = range(self.deployment.lanes), self.deployment.owners
        executors = [self._ground.of.get(lane, "") for lane in lanes]
        self.configuration = self.configuration.then(owners, executors)
        self._backups.place(owners, self._ground)


def _started() -> Future[None]:
    found: Future[None] = Future()
    found.set_result(None)
    return found
