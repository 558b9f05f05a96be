"""What a driver knows of its epochs under way and of its lanes: it makes work, it takes results.

Small values: rows lie in the exchange, state in the lanes' processes and their files. Nothing here
decides what runs, and nothing waits.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from anabranch.epoch.bundles import Bundles
from anabranch.epoch.protocol import HeadsDone, HeadWork, LaneWork, Offer
from anabranch.ids import Partition
from anabranch.kernels.letters import Origins, Split
from anabranch.runtime.deployment import Deployment
from anabranch.runtime.intake import Intake
from anabranch.runtime.payload import (
    EpochDone,
    HeadDone,
    HeadItem,
    LaneDone,
    LaneItem,
    LaneJob,
    StageDone,
    StageJob,
    Strand,
    Strands,
)
from anabranch.runtime.tasks import BEGIN, SPLIT_ROWS
from anabranch.state.layout import delta_of

SNAPSHOT_AFTER = 32
"""Deltas of a lane before its whole state is written: as many files are read at a recovery."""


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
    """The state of a stage in a lane: its version, and the files it can be made of again."""

    version: str = BEGIN
    strands: dict[str, Strands] = field(default_factory=dict)
    """By operator."""
    send_chain: bool = False
    moved: bool = False
    """Whether its slices are in files that other lanes wrote: then it writes all it has, once."""

    @property
    def long(self) -> bool:
        """Whether a recovery would read too many files."""
        lengths = (sum(map(len, strands)) for strands in self.strands.values())
        return max(lengths, default=0) >= SNAPSHOT_AFTER


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive epochs whose work is done, waiting for their commit."""

    works: tuple[LaneWork, ...]
    deltas: Mapping[str, Mapping[int, str]]
    changed: Mapping[str, int] = field(default_factory=dict)
    """Rows of state, by operator."""
    written: Mapping[str, int] = field(default_factory=dict)
    """Bytes of deltas, by operator."""

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
        self._lanes = {place: _Lane() for place in _places(deployment)}
        """By stage and lane."""
        self._deltas: dict[int, dict[str, dict[int, str]]] = {}
        """What the stages behind them have written, by the first epoch of a group."""
        self._changed: dict[int, Counter[str]] = defaultdict(Counter)
        self._written: dict[int, Counter[str]] = defaultdict(Counter)
        """How many rows of state they have changed, likewise."""

    def __getitem__(self, ticket: int) -> EpochUnderWay:
        """What is known of an epoch."""
        return self._epochs[ticket]

    def resume(self, strands: Mapping[int, Mapping[str, Strand]], *, same: bool) -> None:
        """Take state over as files by lane; at the same width every lane has its own."""
        if not strands:
            return
        for (stage, lane), known in self._lanes.items():
            mine = [strands.get(lane, {})] if same else strands.values()
            operators = self.deployment.stages[stage].task.operators
            known.strands = _of_all(
                {name: strand for name, strand in each.items() if name in operators}
                for each in mine
            )
            # What is written next names what it follows, unless it follows several.
            versions = {_version(strands) for strands in known.strands.values()} if same else set()
            known.moved = len(versions) > 1 or not same
            known.version = uuid4().hex if known.moved or not versions else versions.pop()
            known.send_chain = True

    def widen(self, deployment: Deployment) -> None:
        """Go on at another width: every new lane takes its slices from all old ones."""
        before, self._lanes, self.deployment = self._lanes, {}, deployment
        for stage, lane in _places(deployment):
            old = [known for (number, _), known in before.items() if number == stage]
            begun = any(known.version != BEGIN for known in old)
            strands = _joined(known.strands for known in old)
            fresh = _Lane(uuid4().hex, strands, send_chain=True, moved=True)
            self._lanes[stage, lane] = fresh if begun else _Lane()

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
            if mine:
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
            )
            for work in works
        )
        chain = known.strands if known.send_chain or anywhere else None
        return StageJob(stage, known.version, items, chain, snapshot=known.long or known.moved)

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
        known.heads = mine
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
                deltas = self._deltas.pop(mine[0].epoch, {})
                changed = self._changed.pop(mine[0].epoch, Counter())
                written = self._written.pop(mine[0].epoch, Counter())
                yield Group(tuple(mine), deltas, changed, written)

    def _take_stage(
        self,
        lane: int,
        done: StageDone,
        by_level: Mapping[int, Sequence[LaneWork]],
        tickets: Mapping[int, int],
    ) -> None:
        known = self._lanes[done.stage, lane]
        known.send_chain = known.moved = False
        known.version = done.version
        for epoch in done.epochs:
            self._epochs[tickets[epoch.epoch]].lanes[done.stage, lane] = epoch
        # Epochs that are together stay together: the first one names them at every level.
        first = by_level[self.deployment.stages[done.stage].level][0].epoch
        deltas = self._deltas.setdefault(first, {})
        self._changed[first].update(done.changed)
        self._written[first].update(done.sizes)
        for operator, path in done.deltas.items():
            deltas.setdefault(operator, {})[lane] = path
            before = () if done.snapshot else (known.strands.get(operator) or ((),))[0]
            known.strands[operator] = ((*before, path),)

    def files(self) -> dict[str, frozenset[str]]:
        """The files that the state would be made of again, by operator."""
        found: dict[str, set[str]] = defaultdict(set)
        for known in self._lanes.values():
            for operator, strands in known.strands.items():
                found[operator].update(path for strand in strands for path in strand)
        return {operator: frozenset(paths) for operator, paths in found.items()}

    def lost(self, lanes: Mapping[int, LaneDone]) -> bool:
        """Note whose processes do not have their state: they are told what it is made of."""
        missing = [(stage, lane) for lane, done in lanes.items() for stage in done.missing]
        for place in missing:
            self._lanes[place].send_chain = True
        return bool(missing)


def _places(deployment: Deployment) -> Iterator[tuple[int, int]]:
    """Every stage in every lane that it runs in."""
    for number, stage in enumerate(deployment.stages):
        yield from ((number, lane) for lane in stage.lanes(deployment.lanes))


def _version(strands: Strands) -> str:
    """The version of the state that one lane's files make."""
    ((*_, last),) = strands
    name = delta_of(last)
    assert name is not None
    return name.id


def _of_all(found: Iterable[Mapping[str, Strand]]) -> dict[str, Strands]:
    """Strands of some lanes, by operator."""
    return _joined({name: (strand,) for name, strand in each.items()} for each in found)


def _joined(found: Iterable[Mapping[str, Strands]]) -> dict[str, Strands]:
    """All strands of some lanes, by operator."""
    joined: dict[str, Strands] = {}
    for each in found:
        for name, strands in each.items():
            joined[name] = (*joined.get(name, ()), *strands)
    return joined
