"""A change of width under way: states are made where slices will go, while all goes on as before.

First every lane that is to get slices makes replicas of them, and follows what is written of them;
then, when all are close, new lanes take the epochs of their slices as well (`dual`), and the width
changes between two epochs, with nothing left to read. Lanes that have slices already do not: the
cycle would be longer by as much as those behind the change are anyway, and so they read the last
few deltas then. A replica that is not there when it is needed costs time alone: the state is made
of its files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from anabranch.runtime.deployment import Deployment
from anabranch.runtime.dual import DualCycle
from anabranch.runtime.payload import LaneDone, LaneJob, Replica, Shared
from anabranch.runtime.under_way import UnderWay

CLOSE = 6
"""A replica is close that lacks so many deltas or fewer: two cycles go by before it is known of."""
TRIES = 3
"""In so many cycles slices are taken in both lanes before the width changes all the same."""
SHARED = 16 << 20
"""A state of more bytes than this is shared by who has it: less is read in no time."""
ASKED = 32
"""So often it is asked to before replicas are made of files: a gigabyte takes some cycles."""
PATIENCE = 64
"""So many replicas may come and not be close, or not come at all, before it is done without."""


@dataclass(frozen=True, slots=True)
class Move:
    """Slices of a stage that go from one lane to another."""

    stage: int
    from_: int
    to: int
    slices: frozenset[int]


def moves(before: Deployment, after: Deployment, was: Sequence[int]) -> tuple[Move, ...]:
    """What changes lanes between two widths; `was` has the numbers that lanes have until then."""
    found = []
    for number, stage in enumerate(before.stages):
        if stage.key is None:
            if was[0] != 0:
                found.append(Move(number, 0, was[0], frozenset(range(before.owners.slices))))
            continue
        for to in stage.lanes(after.lanes):
            new = frozenset(after.owners.slices_of(to))
            for from_ in stage.lanes(before.lanes):
                slices = new & frozenset(before.owners.slices_of(from_))
                if slices and from_ != was[to]:
                    found.append(Move(number, from_, was[to], slices))
    return tuple(found)


class Rescaling:
    """One change of width, from when it is asked for until it holds."""

    def __init__(
        self,
        before: Deployment,
        after: Deployment,
        starting: Future[None] | None,
        was: Sequence[int] | None = None,
        *,
        asked: bool = True,
    ) -> None:
        """Begin when new lanes have started; None: without replicas, as soon as it can be.

        `was` has for each lane of the new width the number that its process has until then, where
        one is to be released that is not the last. What nobody has `asked` for is given up where
        replicas cannot be had.
        """
        self.target, self.was, self._asked_for = after, was, asked
        self._starting = starting
        numbers = range(after.lanes) if was is None else was
        self._moves = () if starting is None else moves(before, after, numbers)
        self._asked: dict[Move, Replica] = {}
        self._there: dict[Move, str] = {}
        """The newest replica of each, by its version."""
        self._making = set[Move]()
        """Those of which one is being made."""
        self._shared: dict[tuple[int, int], Shared] = {}
        """What lanes share, by stage and lane."""
        self._times, self._tries, self._cycles = 0, 0, 0
        self._before, self._dual = before.owners, DualCycle()
        self.turning = False
        """Whether nothing more is to be planned until the width has changed."""
        self.hopeless = False
        """Whether it is better given up."""
        self.drained = False
        """Whether nothing is planned meanwhile, and nothing may be under way when it changes."""

    @property
    def replicates(self) -> bool:
        """Whether lanes may have what is others' now."""
        return self._starting is not None

    @property
    def replicating(self) -> bool:
        """Whether there are replicas to ask for."""
        return self._starting is not None and self._starting.done() and not self.turning

    def jobs(self, lanes: Mapping[int, LaneJob], now: UnderWay) -> dict[int, LaneJob]:
        """A cycle's jobs, with what their processes are to have at hand besides."""
        found = dict(lanes)
        if self._starting is None or not self._starting.done():
            return found
        self._cycles += 1
        self._dual = self._in_both(found, now)
        self._tries += bool(self._dual)
        for move in self._moves:
            if self._is_to_share(move, now):
                job = found.get(move.from_, LaneJob(move.from_, ()))
                share = tuple(sorted({*job.share, move.stage}))
                found[move.from_] = replace(job, share=share)
            if move in self._dual:
                self._asked.pop(move, None)
            elif (replica := self._wanted(move, now)) is not None:
                self._asked[move] = replica
                job = found.get(move.to, LaneJob(move.to, ()))
                found[move.to] = replace(job, replicas=(*job.replicas, replica))
        return found

    def _in_both(self, jobs: dict[int, LaneJob], now: UnderWay) -> DualCycle:
        """Have new lanes take slices as well, once all replicas are close; changes the jobs."""
        dual = DualCycle()
        for move in self._moves if all(self._is_close(each, now) for each in self._moves) else ():
            since = self._there.get(move)
            tail = None if since is None else now.tail(move.stage, move.from_, since)
            if since is not None and tail is not None and self._is_new(move):
                dual.ask(jobs, move, since, tail, self._before)
        return dual

    def _is_new(self, move: Move) -> bool:
        """Whether slices go to a lane that has none."""
        return move.to >= self._before.lanes

    def _wanted(self, move: Move, now: UnderWay) -> Replica | None:
        """The next replica: from the one that is there on, or of all files."""
        version = now.version(move.stage, move.from_)
        if version is None:
            return None
        since, asked = self._there.get(move), self._asked.get(move)
        if asked is not None and move in self._making:
            return asked  # it takes as long as it takes
        tail = None if since is None else now.tail(move.stage, move.from_, since)
        if tail is not None:
            return Replica(move.stage, version, move.slices, tail, since)
        base = self._shared.get((move.stage, move.from_))
        if base is None and self._cycles <= ASKED and self._is_to_share(move, now):
            return None  # it is asked for
        chain = now.chain_of(move.stage, move.slices)
        tail = None
        if base is not None and base.place:
            tail = now.tail(move.stage, move.from_, base.version)
        if tail is None:
            return Replica(move.stage, version, move.slices, chain)
        return Replica(move.stage, version, move.slices, chain, base=base, tail=tail)

    def _is_to_share(self, move: Move, now: UnderWay) -> bool:
        """Whether a lane is to let others map its state: as long as one has nothing of it."""
        return move not in self._there and now.size(move.stage, move.from_) > SHARED

    def take(self, lanes: Mapping[int, LaneDone]) -> None:
        """Learn what is at hand; of a lane that did not answer nothing is."""
        for lane, done in lanes.items():
            self._shared |= {(each.stage, lane): each for each in done.shared}
        self._making.clear()
        for move, asked in list(self._asked.items()):
            done, known = lanes.get(move.to, LaneDone(move.to)), self._there.get(move)
            if asked.version in done.ready:
                self._times += known != asked.version
                self._there[move] = asked.version
                continue
            if done.making and not done.unready:
                self._making.add(move)
            else:  # it failed, or its process is another one by now
                self._times += 1
                del self._asked[move]
            if known is not None and known not in done.ready:
                del self._there[move]
        for move in [each for each in self._there if each in self._dual]:
            if move.to not in lanes or self._there[move] not in lanes[move.to].ready:
                del self._there[move]

    def agree(self, lanes: Mapping[int, LaneDone], now: UnderWay) -> None:
        """Learn which slices are at hand in both lanes, once what the lanes made counts."""
        for each in self._dual.agreed(lanes):
            move = each.move
            now.note_same(move.stage, move.from_, each.version, each.same_as)
            self._there[move] = each.version

    def lost(self, lanes: Iterable[int]) -> None:
        """The processes of these lanes may have died."""
        gone = set(lanes)
        self._shared = {place: x for place, x in self._shared.items() if place[1] not in gone}
        self._there = {move: each for move, each in self._there.items() if move.to not in gone}
        self._asked = {move: each for move, each in self._asked.items() if move.to not in gone}

    def look(self, now: UnderWay) -> None:
        """See whether the width can change, with little left to read, or nothing."""
        if self._starting is not None and not self._starting.done():
            return  # a lane that starts has a task under way, and no more than one
        ready = all(self._is_ready(move, now) for move in self._moves)
        late = self._times > PATIENCE and not ready
        self.hopeless = late and not self._asked_for
        self.turning = self.turning or ready or (late and self._asked_for)

    def _is_ready(self, move: Move, now: UnderWay) -> bool:
        if not self._is_new(move) or self._tries >= TRIES:
            return self._is_close(move, now)
        return self._lacking(move, now) == 0

    def _is_close(self, move: Move, now: UnderWay) -> bool:
        lacking = self._lacking(move, now)
        return lacking is not None and lacking <= CLOSE

    def _lacking(self, move: Move, now: UnderWay) -> int | None:
        """How many deltas are to be read where slices go; None: no replica is there."""
        if now.version(move.stage, move.from_) is None:
            return 0
        since = self._there.get(move)
        return None if since is None else now.behind(move.stage, move.from_, since)

    def since(self, stage: int, from_: int, to: int) -> str | None:
        """The replica that is at hand in a lane of what another one had, by its version."""
        for move, version in self._there.items():
            if (move.stage, move.from_, move.to) == (stage, from_, to):
                return version
        return None
