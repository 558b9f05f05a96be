"""What a driver knows of its epochs under way and of its lanes: it makes work, it takes results.

Small values: rows lie in the exchange, state in the lanes' processes and their files. Nothing here
decides what runs, and nothing waits.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import uuid4

from anabranch.epoch.bundles import Bundles
from anabranch.epoch.protocol import HeadsDone, HeadWork, LaneWork, Offer
from anabranch.ids import Partition
from anabranch.kernels.letters import SPLIT_ROWS, Origins, Split
from anabranch.runtime.deployment import Deployment
from anabranch.runtime.intake import Intake
from anabranch.runtime.payload import (
    Chain,
    EpochDone,
    HeadDone,
    HeadItem,
    Heritage,
    LaneDone,
    LaneItem,
    LaneJob,
    StageDone,
    StageJob,
)
from anabranch.runtime.tasks import BEGIN
from anabranch.state.chain import Kept, Part, due, needed, round_of
from anabranch.state.slices import Owners

ROUND, LONGEST_ROUND = 32, 512
"""Deltas of a lane in which each of its slices is written anew once: a recovery reads no more.

The former where state is small; the latter where it is so large that to write it anew more often
would be most of what the query does.
"""

_REMEMBERED = 4096
"""Deltas of a lane that are remembered: a replica that takes long goes on behind where it began."""

Since: TypeAlias = Callable[[int, int, int], str | None]
"""The replica of what one lane of a stage had that another has at hand."""


@dataclass(slots=True)
class EpochUnderWay:
    """What is known of an epoch that is not committed."""

    source: int
    """Its source's number."""
    offer: Offer
    tables: Mapping[str, str] = field(default_factory=dict)
    """The versions of lookup tables that hold for it."""
    splits: tuple[tuple[int, Any], ...] | None = None
    """Each with the index of its partition, once they are planned."""
    heads: dict[int, HeadDone] = field(default_factory=dict)
    """By split."""
    routed: Owners | None = None
    """Which lane each slice was in when its heads ran."""
    lanes: dict[tuple[int, int], EpochDone] = field(default_factory=dict)
    """By stage and lane."""
    without: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Rows that are passed over, by split."""

    @property
    def in_order(self) -> list[HeadDone]:
        """What became of its splits, in their order."""
        return [self.heads[number] for number in sorted(self.heads)]

    def of_stage(self, stage: int) -> list[EpochDone]:
        """What a stage's lanes made of it, in their order."""
        return [done for (at, _), done in sorted(self.lanes.items()) if at == stage]


@dataclass(slots=True)
class _Lane:
    """The state of a stage in a lane: its version, and what it is made of again."""

    slices: frozenset[int]
    """Those whose state it has."""
    version: str = BEGIN
    heritage: tuple[Heritage, ...] = ()
    """What the version is made of, if slices have changed lanes for it."""
    follows: bool = False
    """Whether the version is what the lane's last delta made."""
    send_chain: bool = False
    turn: float = 0.0
    """How much of the round is over in which each of its slices is written anew."""
    size: int = 0
    """Bytes of its state, in memory and on its disk."""
    delta: float = 0.0
    """Bytes of a delta, about."""
    recent: deque[tuple[str, Mapping[str, Part]]] = field(
        default_factory=lambda: deque(maxlen=_REMEMBERED)
    )
    """The last versions that count, each with what it changed, by operator."""

    def __post_init__(self) -> None:
        """Count the version that it begins with."""
        if self.version != BEGIN:
            self.begin(self.version)

    def begin(self, version: str) -> None:
        """Go on from a version: of what was changed before it nothing is known here."""
        self.version = version
        self.recent.clear()
        self.recent.append((version, {}))

    same: dict[str, str] = field(default_factory=dict)
    """Versions of these that another lane has made too, by what they are called there."""

    @property
    def round(self) -> int:
        """In how many deltas each slice is written anew once."""
        return round_of(self.size, self.delta, ROUND, max(ROUND, LONGEST_ROUND))

    def wrote(self, size: int) -> None:
        """Note a delta of so many bytes."""
        self.turn = (self.turn + 1 / self.round) % 1
        self.delta = size if not self.delta else self.delta + (size - self.delta) / 4

    @property
    def versions(self) -> frozenset[str]:
        """The last ones that count: what a process made of another is not state."""
        return frozenset(version for version, _ in self.recent)

    def since(self, version: str) -> list[Mapping[str, Part]] | None:
        """What was changed behind a version, oldest first; None: it was too long ago."""
        at, version = [each for each, _ in self.recent], self.same.get(version, version)
        if version not in at:
            return None
        return [parts for _, parts in list(self.recent)[at.index(version) + 1 :]]


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive epochs whose work is done, waiting for their commit."""

    works: tuple[LaneWork, ...]
    deltas: Mapping[str, Mapping[int, str]]
    snapshots: Mapping[str, Mapping[str, tuple[int, ...]]] = field(default_factory=dict)
    """Files of some slices, by operator, each with those slices."""
    changed: Mapping[str, int] = field(default_factory=dict)
    """Rows of state, by operator."""
    origins: Mapping[str, int] = field(default_factory=dict)
    """How many slices of state were gone on from, by where it came from."""
    written: Mapping[str, int] = field(default_factory=dict)
    """Bytes of files, by operator."""

    @property
    def epochs(self) -> tuple[int, ...]:
        """Their numbers."""
        return tuple(work.epoch for work in self.works)


class UnderWay:
    """The epochs of one query that are not committed, and the lanes that take them."""

    def __init__(self, deployment: Deployment) -> None:
        """Begin with nothing under way and no state."""
        self.deployment = deployment
        self._epochs: dict[int, EpochUnderWay] = {}
        """By ticket."""
        self._lanes = {(stage, lane): _Lane(slices) for stage, lane, slices in _places(deployment)}
        """By stage and lane."""
        self._chain: dict[str, Kept] = {}
        """The files that the state is made of, by operator."""
        self._written: dict[int, _Written] = defaultdict(_Written)
        """What the stages behind them have written, by the first epoch of a group."""

    def __getitem__(self, ticket: int) -> EpochUnderWay:
        """What is known of an epoch."""
        return self._epochs[ticket]

    def resume(self, chain: Chain) -> None:
        """Take state over as files: a lane goes on behind its last delta if its slices are its."""
        self._chain = {operator: Kept(parts) for operator, parts in chain.items()}
        for (stage, lane), known in self._lanes.items():
            operators = self.deployment.stages[stage].task.operators
            parts = [part for name in operators for part in needed(chain.get(name, ()))]
            if not any(part.slices & known.slices for part in parts):
                continue
            last = {_last(chain.get(name, ()), lane, known.slices) for name in operators}
            known.follows = len(last) == 1 and None not in last
            known.begin(str(last.pop()) if known.follows else uuid4().hex)
            known.send_chain = True

    def version(self, stage: int, lane: int) -> str | None:
        """The version of a lane's state; None: it has none yet."""
        version = self._lanes[stage, lane].version
        return None if version == BEGIN else version

    def size(self, stage: int, lane: int) -> int:
        """How many bytes of state a lane has, as it said last."""
        return self._lanes[stage, lane].size

    def behind(self, stage: int, lane: int, version: str) -> int | None:
        """How many deltas behind a version a lane's state is; None: too many to know."""
        found = self._lanes[stage, lane].since(version)
        return None if found is None else len(found)

    def tail(self, stage: int, lane: int, version: str) -> dict[str, tuple[Part, ...]] | None:
        """What a lane has changed behind a version; None: it was too long ago."""
        found = self._lanes[stage, lane].since(version)
        if found is None:
            return None
        operators = self.deployment.stages[stage].task.operators
        return {name: tuple(each[name] for each in found) for name in operators}

    def note_same(self, stage: int, lane: int, version: str, same_as: str) -> None:
        """Another lane has made a version of this one's too, and calls it otherwise."""
        self._lanes[stage, lane].same[version] = same_as

    def widen(
        self,
        deployment: Deployment,
        since: Since = lambda *_: None,
        was: Sequence[int] | None = None,
        gone: frozenset[int] = frozenset(),
    ) -> None:
        """Go on at another width: a lane keeps what it has of its slices, and takes over others.

        `since` tells which replica of a lane's slices another has at hand, `was` the numbers that
        lanes had before, if they were others; of those that are `gone` nobody has anything.
        """
        before, self._lanes, self.deployment = self._lanes, {}, deployment
        for stage, lane, slices in _places(deployment):
            old = {at: known for (number, at), known in before.items() if number == stage}
            me = lane if was is None else was[lane]
            if me in old and old[me].slices == slices:
                self._lanes[stage, lane] = old[me]
            elif not slices or all(known.version == BEGIN for known in old.values()):
                self._lanes[stage, lane] = _Lane(slices)
            else:
                self._lanes[stage, lane] = self._heir(stage, old, me, slices, since, gone)
            if me in gone:
                self._lanes[stage, lane].send_chain = True

    def _heir(
        self,
        stage: int,
        old: Mapping[int, _Lane],
        lane: int,
        slices: frozenset[int],
        since: Since,
        gone: frozenset[int],
    ) -> _Lane:
        """A lane that takes over slices of others, or keeps some of its own."""
        heritage = []
        for from_, known in old.items():
            mine = slices & known.slices
            if not mine:
                continue
            if from_ == lane and known.heritage:
                # It has yet to make what it is: so this is made of the same.
                heritage += [each.only(mine) for each in known.heritage if each.slices & mine]
                continue
            replica = None if from_ == lane else since(stage, from_, lane)
            left = None if replica is None else known.since(replica)
            at_hand = left is not None or (from_ == lane and lane not in gone)
            names = self.deployment.stages[stage].task.operators
            tail = {name: tuple(each[name] for each in left or ()) for name in names}
            # What is not at hand is in files, and it is known before that they will be asked for.
            chain = None if at_hand else self.chain_of(stage, mine)
            heritage.append(Heritage(known.version, mine, replica, tail, chain))
        # It goes on with its round: slices that are at the end of it would never be written else.
        turn = old[lane].turn if lane in old else 0.0
        return _Lane(slices, uuid4().hex, tuple(heritage), turn=turn)

    def cut(self, ticket: int, source: str, offer: Offer, tables: Mapping[str, str]) -> None:
        """Note an epoch, and the versions of lookup tables that hold for it."""
        self._epochs[ticket] = EpochUnderWay(self.deployment.number(source), offer, tables)

    def tables(self) -> frozenset[str]:
        """The versions of lookup tables that hold for some epoch."""
        return frozenset(path for each in self._epochs.values() for path in each.tables.values())

    def forget(self, tickets: Iterable[int]) -> None:
        """They are committed."""
        for ticket in tickets:
            del self._epochs[ticket]

    # Work

    def head_items(
        self, works: Iterable[HeadWork], intakes: Mapping[str, Intake], bundles: Bundles
    ) -> list[HeadItem]:
        """Every split of these epochs."""
        items = []
        for work in works:
            known = self._epochs[work.ticket]
            if known.splits is None:
                # Once: rows are ordered by their split, and repeated work must give the same.
                intake = intakes[self.deployment.inputs[known.source].name]
                known.splits = tuple(intake.splits(known.offer, bundles))
            items += [
                HeadItem(
                    known.source,
                    work.ticket,
                    work.attempt,
                    number,
                    partition,
                    split,
                    known.tables,
                    known.without.get(number, ()),
                )
                for number, (partition, split) in enumerate(known.splits)
            ]
        return items

    def lane_jobs(
        self,
        works: Sequence[LaneWork],
        rows: Mapping[int, Mapping[Partition, int]],
        *,
        anywhere: bool = False,
    ) -> dict[int, LaneJob]:
        """For each lane all stages that have something to do, each at its level.

        `rows` is how many each partition of an epoch's source had given before, by ticket. Work
        that is to run `anywhere` says what its state is made of, whoever has it.
        """
        jobs: dict[int, list[StageJob]] = defaultdict(list)
        for (stage, lane), known in self._lanes.items():
            level = self.deployment.stages[stage].level
            mine = [work for work in works if work.level == level]
            if mine and known.slices:
                jobs[lane].append(self._stage_job(stage, known, mine, rows, anywhere))
        return {lane: LaneJob(lane, tuple(found)) for lane, found in sorted(jobs.items())}

    def _stage_job(
        self,
        stage: int,
        known: _Lane,
        works: Sequence[LaneWork],
        rows: Mapping[int, Mapping[Partition, int]],
        anywhere: bool,  # noqa: FBT001
    ) -> StageJob:
        items = tuple(
            LaneItem(
                work.epoch,
                work.ticket,
                work.attempt,
                self._parts(work.ticket, stage),
                work.marks,
                self._origins(work, rows[work.ticket]) if self.deployment.letters else None,
                self._epochs[work.ticket].tables,
                routed=self._routed(work.ticket),
            )
            for work in works
        )
        divided = self.deployment.stages[stage].key is not None
        return StageJob(
            stage,
            known.version,
            items,
            self.chain_of(stage, known.slices) if known.send_chain or anywhere else None,
            known.heritage,
            known.follows,
            # What is not divided is one slice, whatever it is called.
            due(sorted(known.slices) if divided else (0,), known.turn, known.round),
        )

    def _routed(self, ticket: int) -> Owners | None:
        """Which lanes an epoch's rows are for, if that is otherwise now."""
        routed = self._epochs[ticket].routed
        return None if routed == self.deployment.owners else routed

    def chain_of(self, stage: int, slices: frozenset[int]) -> dict[str, tuple[Part, ...]]:
        """The files that some slices' state is made of."""
        operators = self.deployment.stages[stage].task.operators
        return {name: needed(self._chain.get(name, ()), slices) for name in operators}

    def files_of(self, slices: frozenset[int]) -> dict[str, frozenset[int]]:
        """The files that some slices are made of, in all stages that are divided by them.

        Of each the slices for which it is read.
        """
        found: dict[str, frozenset[int]] = {}
        if slices:
            divided = [stage for stage in self.deployment.stages if stage.key is not None]
            for name in (name for stage in divided for name in stage.task.operators):
                for part in needed(self._chain.get(name, ()), slices):
                    found[part.path] = part.slices & slices
        return found

    def _parts(self, ticket: int, stage: int) -> dict[int, tuple[Any, ...]]:
        """Where a stage's rows of an epoch lie, by its entries."""
        known, found = self._epochs[ticket], dict[int, tuple[Any, ...]]()
        for link in self.deployment.links:
            if link.to != stage:
                continue
            made: Sequence[HeadDone | EpochDone] = ()
            if link.head == known.source:
                made = known.in_order
            elif link.stage is not None:
                made = known.of_stage(link.stage)
            parts = tuple(done.parts[link.exit] for done in made if link.exit in done.parts)
            if parts:
                found[link.entry] = parts
        return found

    def _origins(self, work: LaneWork, before: Mapping[Partition, int]) -> Origins:
        """Which record each of an epoch's rows is."""
        known = self._epochs[work.ticket]
        splits = [
            Split(done.partition, done.number * SPLIT_ROWS, str(name), first)
            for done, name, first in self._numbered(known, before)
        ]
        return Origins(work.epoch, self.deployment.inputs[known.source].name, tuple(splits))

    def _numbered(
        self, known: EpochUnderWay, before: Mapping[Partition, int]
    ) -> Iterator[tuple[HeadDone, Partition, int]]:
        """An epoch's splits, each with its partition and the number of its first row there."""
        rows = dict(before)
        names = list(self.deployment.inputs[known.source].source.partitions())
        for done in known.in_order:
            name = names[done.partition]
            yield done, name, rows.get(name, 0)
            rows[name] = rows.get(name, 0) + done.rows

    def pass_over(self, ticket: int, split: int, row: int) -> None:
        """Leave a row out when the epoch is read again."""
        without = self._epochs[ticket].without
        without[split] = tuple(sorted({*without.get(split, ()), row}))

    def passed_over(
        self, ticket: int, before: Mapping[Partition, int]
    ) -> dict[Partition, tuple[int, ...]]:
        """The numbers of the rows that were left out, by partition."""
        known = self._epochs[ticket]
        found: dict[Partition, tuple[int, ...]] = {}
        for done, name, first in self._numbered(known, before) if known.without else ():
            rows = tuple(first + row for row in known.without.get(done.number, ()))
            if rows:
                found[name] = (*found.get(name, ()), *rows)
        return found

    # Results

    def take_heads(self, works: Iterable[HeadWork], heads: Iterable[HeadDone]) -> list[HeadsDone]:
        """Take what became of these epochs' splits; returns what it says of each epoch."""
        by_ticket: dict[int, dict[int, HeadDone]] = defaultdict(dict)
        for done in heads:
            by_ticket[done.ticket][done.number] = done
        return [self._take_head(work.ticket, by_ticket[work.ticket]) for work in works]

    def _take_head(self, ticket: int, mine: dict[int, HeadDone]) -> HeadsDone:
        known = self._epochs[ticket]
        known.heads, known.routed = mine, self.deployment.owners
        names = list(self.deployment.inputs[known.source].source.partitions())
        greatest: dict[Partition, int | None] = {}
        rows: dict[Partition, int] = {}
        for done in mine.values():
            name = names[done.partition]
            seen = [each for each in (greatest.get(name), done.greatest) if each is not None]
            greatest[name] = max(seen, default=None)
            rows[name] = rows.get(name, 0) + done.rows
        return HeadsDone(ticket, greatest, rows, sum(done.size for done in mine.values()))

    def take_lanes(
        self, works: Sequence[LaneWork], lanes: Mapping[int, LaneDone]
    ) -> Iterator[Group]:
        """Take what the lanes made of these epochs; gives those that have all levels behind."""
        by_level: dict[int, list[LaneWork]] = defaultdict(list)
        for work in works:
            by_level[work.level].append(work)
        tickets = {work.epoch: work.ticket for work in works}
        for lane, done in lanes.items():
            for each in done.stages:
                self._take_stage(lane, each, by_level, tickets)
        for level, mine in sorted(by_level.items(), reverse=True):
            if level == self.deployment.levels:
                written = self._written.pop(mine[0].epoch, _Written())
                yield Group(
                    tuple(mine),
                    written.deltas,
                    written.snapshots,
                    written.changed,
                    written.origins,
                    written.sizes,
                )

    def _take_stage(
        self,
        lane: int,
        done: StageDone,
        by_level: Mapping[int, Sequence[LaneWork]],
        tickets: Mapping[int, int],
    ) -> None:
        known = self._lanes[done.stage, lane]
        known.send_chain, known.heritage, known.follows = False, (), True
        known.version = done.version
        known.wrote(sum(done.sizes.values()))
        known.size = sum(done.memory.values()) + sum(done.disk.values())
        deltas = {name: Part(path, known.slices) for name, path in done.deltas.items()}
        known.recent.append((done.version, deltas))
        for epoch in done.epochs:
            self._epochs[tickets[epoch.epoch]].lanes[done.stage, lane] = epoch
        # Epochs that are together stay together: the first one names them at every level.
        first = by_level[self.deployment.stages[done.stage].level][0].epoch
        written = self._written[first]
        written.changed.update(done.changed)
        written.origins.update(done.origins)
        written.sizes.update(done.sizes)
        for operator, part in deltas.items():
            written.deltas.setdefault(operator, {})[lane] = part.path
            self._add(operator, part)
        for each in done.snapshots:
            # Of a version that does not count nobody can tell what it is of.
            if each.version in known.versions:
                written.snapshots.setdefault(each.operator, {})[each.path] = each.slices
                written.sizes[each.operator] += each.size
                divided = self.deployment.stages[done.stage].key is not None
                slices = frozenset(each.slices) if divided else known.slices
                self._add(each.operator, Part(each.path, slices, whole=True))

    def _add(self, operator: str, part: Part) -> None:
        self._chain.setdefault(operator, Kept()).add(part)

    def files(self) -> dict[str, frozenset[str]]:
        """The files that the state would be made of again, by operator."""
        return {name: frozenset(part.path for part in parts) for name, parts in self._chain.items()}

    def unsettled(self, lane: int) -> bool:
        """Whether a lane has yet to make its state of what it is told."""
        mine = (known for (_, at), known in self._lanes.items() if at == lane)
        return any(known.heritage or known.send_chain for known in mine)

    def gone(self, lanes: Iterable[int]) -> None:
        """The processes of these lanes are gone: others will be told what state is made of."""
        gone = set(lanes)
        for (_, lane), known in self._lanes.items():
            known.send_chain = known.send_chain or lane in gone

    def lost(self, lanes: Mapping[int, LaneDone]) -> bool:
        """Note whose processes do not have their state: they are told what it is made of."""
        missing = [(stage, lane) for lane, done in lanes.items() for stage in done.missing]
        for place in missing:
            self._lanes[place].send_chain = True
        return bool(missing)


@dataclass(slots=True)
class _Written:
    """What stages have written for a group of epochs."""

    deltas: dict[str, dict[int, str]] = field(default_factory=dict)
    snapshots: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)
    changed: Counter[str] = field(default_factory=Counter)
    origins: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)


def _places(deployment: Deployment) -> Iterator[tuple[int, int, frozenset[int]]]:
    """Every stage in every lane that it runs in, with its slices there."""
    everything = frozenset(range(deployment.owners.slices))
    for number, stage in enumerate(deployment.stages):
        for lane in stage.lanes(deployment.lanes):
            slices = deployment.slices_of(stage, lane)
            yield number, lane, everything if slices is None else slices


def _last(parts: Sequence[Part], lane: int, slices: frozenset[int]) -> str | None:
    """The id of a lane's newest delta, if it was of these slices and nobody had them since."""
    newest = max((part for part in parts if not part.whole), key=_epoch, default=None)
    if newest is None:
        return None
    mine = [part for part in parts if part.name.lane == lane and not part.whole]
    last = max(mine, key=_epoch, default=None)
    same = last is not None and last.slices == slices and _epoch(last) == _epoch(newest)
    return last.name.id if last is not None and same else None


def _epoch(part: Part) -> int:
    return part.name.epoch
