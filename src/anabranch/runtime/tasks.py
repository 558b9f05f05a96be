"""What a task does, in whatever process it runs: read splits, or take a lane's epochs.

A process keeps the states of its lanes by version. A version is never changed: an attempt that
fails leaves its parent as it was, and one that was repeated elsewhere is never asked for again.
"""

from __future__ import annotations

import copy
import os
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial, reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import polars as pl

from anabranch import config
from anabranch.clock import Clock, SystemClock
from anabranch.compiler.proof import Proof
from anabranch.ids import Marks
from anabranch.kernels.bundle import OFFSET, from_blob, in_order, to_blob, visible
from anabranch.kernels.bundle import SLICE as BUNDLED
from anabranch.kernels.lane_task import LaneState, LaneTask
from anabranch.kernels.letters import SPLIT_ROWS
from anabranch.kernels.results import EpochInput, EpochOutput, LaneResult, TaskError
from anabranch.runtime.aside import Aside, AtOnce
from anabranch.runtime.compaction import Compaction
from anabranch.runtime.copies import Copies
from anabranch.runtime.deployment import Deployment
from anabranch.runtime.dual import NOT_TAKEN, Taken, digest
from anabranch.runtime.exchange import BLOB, Exchange, FileExchange, PartName
from anabranch.runtime.locality import NODE, Fetched, Node, own_first
from anabranch.runtime.memory import keep_freed, machine_memory
from anabranch.runtime.payload import (
    COUNTED_SLICES,
    Backed,
    Chain,
    Dual,
    EpochDone,
    HeadDone,
    HeadItem,
    Heritage,
    LaneDone,
    LaneItem,
    LaneJob,
    MergeDone,
    MergeItem,
    Origin,
    Replica,
    Snapshot,
    StageDone,
    StageJob,
)
from anabranch.runtime.replicas import Replicas
from anabranch.runtime.resident import share_of
from anabranch.runtime.resident_files import StateFiles
from anabranch.runtime.resident_shared import Sharing
from anabranch.runtime.resident_state import Residence
from anabranch.runtime.stopwatch import Stopwatch
from anabranch.runtime.tables import TableVersions
from anabranch.state.delta import SLICE, Delta, pack
from anabranch.state.recovery import read_state
from anabranch.state.stores import store_at

if TYPE_CHECKING:
    import pyarrow as pa

BEGIN = "begin"
"""The version before the first epoch."""

_KEPT = 3
"""Versions a process keeps of a lane: the parent, the one being made, and one that may be void."""

_NO_LANE = -1
"""Whose rows these are follows from their slices alone."""


class Worker:
    """What one process knows of one deployment."""

    def __init__(
        self,
        deployment: Deployment,
        clock: Clock | None = None,
        exchange: Exchange | None = None,
        aside: Callable[[], Aside] = AtOnce,
        node: Node = "",
    ) -> None:
        """Begin with the deployment alone; rows go through its files unless told otherwise.

        `aside` is where state is written, and replicas are made; `node` is where all of it is.
        """
        keep_freed()
        self._deployment = deployment
        self._exchange = exchange or FileExchange(deployment.exchange)
        self.node, self._fetched = node, Fetched()
        self._watch = Stopwatch(clock or SystemClock())
        self._store = store_at(deployment.checkpoint, deployment.durability)
        self._compaction = Compaction(aside())
        self._replicas = Replicas(aside(), self._replica)
        self._copies = Copies(aside(), self._store, config.local_directory())
        files = StateFiles(deployment.state.directory)
        self._residence = Residence(aside(), files, _memory(deployment))
        self._sharing = Sharing(aside(), files, self._residence)
        self._states: OrderedDict[str, LaneState] = OrderedDict()
        self._newest: dict[int, str] = {}
        """The last version of each stage."""
        self._versions = TableVersions(self._store)

    def moved(self, deployment: Deployment) -> Worker:
        """The same process when its query goes on at another width: it has what it had."""
        other = copy.copy(self)
        other._deployment = deployment  # noqa: SLF001 - one of us
        self._residence.allow(_memory(deployment))
        return other

    def close(self) -> None:
        """Leave nothing behind: the process goes on with another query."""
        self._copies.close()

    def is_of(self, deployment: Deployment) -> bool:
        """Whether a deployment is of the same run of the same query, at whatever width."""
        mine = self._deployment
        return (mine.checkpoint, mine.run) == (deployment.checkpoint, deployment.run)

    def heads(self, items: Sequence[HeadItem]) -> list[HeadDone]:
        """Read splits and do their stateless work; errors of the user's are told, not raised."""
        proofs = [proof for each in self._deployment.inputs for proof in each.head.proofs]
        done = [self._head(item) for item in items] if (broken := _broken(proofs)) is None else []
        broken = broken or _broken(proofs)
        if broken is None:
            return done
        return [HeadDone(i.ticket, i.number, i.partition, error=broken) for i in items]

    def merges(self, items: Sequence[MergeItem]) -> list[MergeDone]:
        """Put the lanes' rows of epochs into one order, each for a sink."""
        return [merged(self._deployment, item, self.node) for item in items]

    def lane(self, job: LaneJob) -> LaneDone:
        """Take a lane's epochs in order, stage by stage, from one version of state to the next."""
        self._watch.take()
        ready, dual = tuple[str, ...](), tuple[Taken, ...]()
        self._fetched.take()
        if job.replicas or job.dual:
            kept = [(each.stage, each.slices) for each in job.dual]
            ready = self._replicas.follow(job.replicas, kept)
            dual = tuple(self._tried(each) for each in job.dual)
        done = self._shared(job, self._lane(job))
        failed, making = self._replicas.failed(), self._replicas.making
        done = replace(done, ready=ready, unready=failed, making=making, dual=dual)
        if done.missing:  # it is asked again
            return done
        if not (job.replicas or job.dual):  # stages of later levels are yet to come
            self._replicas.forget(each.stage for each in job.stages)
        if job.backup is None:
            return done
        self._copies.drop(job.backup.drop)
        copied = self._copies.follow(job.backup.keep)
        return replace(done, backed=Backed(copied, job.backup.drop))

    def _shared(self, job: LaneJob, done: LaneDone) -> LaneDone:
        """Let others have what they are to have of this lane's states, beside its work."""
        self._newest.update({each.stage: each.version for each in done.stages})
        versions = {stage: self._newest[stage] for stage in job.share if stage in self._newest}
        states = {
            stage: (version, self._states[version])
            for stage, version in versions.items()
            if version in self._states
        }
        return replace(done, shared=self._sharing.follow(job.share, states))

    def _lane(self, job: LaneJob) -> LaneDone:
        with self._watch("state"):
            states = {each.stage: self._state(job.lane, each) for each in job.stages}
        if missing := tuple(stage for stage, state in states.items() if state is None):
            return LaneDone(job.lane, missing=missing)
        proofs = [p for each in job.stages for p in self._deployment.stages[each.stage].task.proofs]
        if (broken := _broken(proofs)) is not None:
            return LaneDone(job.lane, error=broken)
        done = []
        for each in job.stages:
            known = states[each.stage]
            assert known is not None
            found = self._stage(job.lane, each, known[0])
            if not isinstance(found, StageDone):
                return LaneDone(job.lane, error=asdict(found))
            done.append(replace(found, origins=known[1]))
        if (broken := _broken(proofs)) is not None:
            return LaneDone(job.lane, error=broken)
        with self._watch("state"):
            done = self._settled(done)
        crowded = self._residence.crowded
        spent, fetched = self._watch.take(), self._fetched.take()
        return LaneDone(
            job.lane, tuple(done), spent=spent, node=self.node, fetched=fetched, crowded=crowded
        )

    def _settled(self, done: Sequence[StageDone]) -> list[StageDone]:
        """See that there is little enough in memory, and say how much of each stage's state is."""
        found = self._residence.settle(self._states, [each.version for each in done])
        return [
            replace(
                each,
                memory={operator: size.memory for operator, size in sizes.items()},
                disk={operator: size.disk for operator, size in sizes.items()},
            )
            for each, sizes in zip(done, found, strict=True)
        ]

    def _stage(self, lane: int, job: StageJob, state: LaneState) -> StageDone | TaskError:
        task = self._deployment.stages[job.stage].task
        with self._watch("exchange"):
            slices = self._deployment.slices_of(self._deployment.stages[job.stage], lane)
            inputs = [self._input(lane, item, slices) for item in job.items]
            loads = self._loads(inputs) if slices is not None else ()
        with self._watch("kernel"):
            result = self._taken(task, job.items, inputs, state)
        if result.error is not None:
            return result.error
        with self._watch("stage"):
            outputs = zip(job.items, result.outputs, strict=True)
            epochs = tuple(self._output(lane, job.stage, item, each) for item, each in outputs)
        with self._watch("state"):
            made, changed = _after(state, result)
            version = uuid4().hex
            self._keep(version, made)
            written = self._write_deltas(lane, job, version, changed)
            if job.compact:
                write = partial(self._write_snapshots, lane, job, version, made)
                self._compaction.begin((job.stage, lane), write)
        heights = {operator: each.height for operator, each in changed.items()}
        snapshots = self._compaction.done((job.stage, lane))
        return StageDone(
            job.stage,
            version,
            epochs,
            {operator: path for operator, (path, _) in written.items()},
            snapshots,
            heights,
            sizes={operator: size for operator, (_, size) in written.items()},
            loads=loads,
            digests=tuple(digest(changed, slices) for slices in job.told),
        )

    def _tried(self, asked: Dual) -> Taken:
        """Take slices of another lane as well, if it can be done."""
        try:
            return self._as_well(asked)
        except Exception:  # noqa: BLE001 - whose slices they are tells what is wrong with them
            return NOT_TAKEN

    def _as_well(self, asked: Dual) -> Taken:
        """The state that another lane makes of these epochs; nothing is staged and no file made."""
        known = self._replicas.get(asked.since, asked.slices)
        if known is None:
            return NOT_TAKEN
        task = self._deployment.stages[asked.stage].task
        with self._watch("state"):
            state = task.after(known[0], self._frames(asked.tail, asked.slices))
        with self._watch("exchange"):
            inputs = [self._input(_NO_LANE, item, asked.slices) for item in asked.items]
        with self._watch("kernel"):
            result = self._taken(task, asked.items, inputs, state)
        if result.error is not None:
            return NOT_TAKEN
        with self._watch("state"):
            made, changed = _after(state, result)
            version = uuid4().hex
            self._replicas.add(asked.stage, asked.slices, asked.since, (version, made))
            return version, digest(changed, asked.slices)

    def _loads(self, inputs: Sequence[EpochInput]) -> tuple[int, ...]:
        """How many rows of each slice came in."""
        count = self._deployment.owners.slices
        if count > COUNTED_SLICES:
            return ()
        found = np.zeros(count, dtype=np.int64)
        for rows in (rows for each in inputs for some in each.parts.values() for rows in some):
            numbers = rows[_slice_column(rows)].to_numpy()
            found += np.bincount(numbers, minlength=count)
        return tuple(found.tolist())

    def _taken(
        self,
        task: LaneTask,
        items: Sequence[LaneItem],
        inputs: Sequence[EpochInput],
        state: LaneState,
    ) -> LaneResult:
        """Epochs in order, those together for which the same versions of tables hold."""
        outputs: list[EpochOutput] = []
        deltas: list[Mapping[str, pl.DataFrame]] = []
        both = zip(items, inputs, strict=True)
        for tables, group in groupby(both, key=lambda each: each[0].tables):
            mine = self._versions.of(task, tables)
            done = mine.run([given for _, given in group], state, self._deployment.owners)
            outputs += done.outputs
            deltas += done.deltas
            state = done.state
            if done.error is not None:
                return LaneResult(outputs, state, deltas, done.error)
        return LaneResult(outputs, state, deltas)

    def _head(self, item: HeadItem) -> HeadDone:
        given, watch = self._deployment.inputs[item.source], self._watch
        watch.take()
        with watch("read"):
            frame = given.source.frame(item.split, given.head.columns)
            rows = frame.height
            frame = frame if item.until is None else frame.head(item.until)
        with watch("kernel"):
            head = self._versions.of(given.head, item.tables)
            without = [row for row in item.without if row < frame.height]
            result = head.run(frame, item.partition, item.number * SPLIT_ROWS, without)
        greatest = result.greatest_time
        done = HeadDone(
            item.ticket, item.number, item.partition, rows, greatest, letters=result.letters
        )
        if result.error is not None:
            return replace(done, error=asdict(result.error))
        parts, staged, size = {}, {}, 0
        for number, by_lane in result.parts.items():
            sink = given.head.exits[number].sink
            if sink is not None:
                with watch("stage"):
                    message = stage(self._deployment, sink, by_lane[0], item.ticket, item.attempt)
                    staged[sink] = message
                continue
            with watch("exchange"):
                name = f"{item.attempt}-{item.source}x{number}"
                blobs = {lane: to_blob(rows) for lane, rows in by_lane.items()}
                size += sum(map(len, blobs.values()))
                parts[number] = self._send(item.ticket, item.number, name, blobs)
        return replace(done, parts=parts, staged=staged, size=size, spent=watch.take())

    def _send(
        self, ticket: int, number: int, attempt: str, blobs: Mapping[int, bytes]
    ) -> dict[str, Any]:
        name = PartName(self._deployment.id, ticket, number, attempt)
        return {**self._exchange.write(name, blobs), NODE: self.node}

    def _input(self, lane: int, item: LaneItem, slices: frozenset[int] | None) -> EpochInput:
        parts = {}
        for entry, references in item.parts.items():
            found = {
                at: list(self._rows(references[at], lane, item, slices))
                for at in own_first(references, self.node)
            }
            # Whatever came first, rows are taken in the order of their splits and lanes (M5).
            parts[entry] = [rows for at in range(len(references)) for rows in found[at]]
            if item.until is not None:
                parts[entry] = [_up_to(item.until, rows) for rows in parts[entry]]
        return EpochInput(item.epoch, parts, item.marks, item.origins)

    def _rows(
        self, part: Any, lane: int, item: LaneItem, slices: frozenset[int] | None
    ) -> Iterator[pl.DataFrame]:
        """A lane's rows in a part; where they are among others' since lanes had other slices."""
        for from_ in item.made_for(lane, slices):
            if (blob := self._fetch(part, from_)) is None:
                continue
            rows = from_blob(blob)
            if item.routed is None or slices is None:
                yield rows
            else:
                yield rows.filter(pl.col(_slice_column(rows)).is_in(sorted(slices)))

    def _fetch(self, part: Any, lane: int) -> bytes | None:
        blob = self._exchange.read(part, lane)
        if blob is not None:
            self._fetched.add(part, len(blob), self.node)
        return blob

    def _output(self, lane: int, number: int, item: LaneItem, output: EpochOutput) -> EpochDone:
        deployment = self._deployment
        exits, rows, parts, staged = deployment.stages[number].task.exits, 0, {}, {}
        for at, by_lane in output.parts.items():
            sink, name = exits[at].sink, f"{item.attempt}-s{number}x{at}"
            if sink is not None:
                rows += by_lane[0].height
            if sink is None or deployment.merged(sink):
                blobs = {to: to_blob(rows) for to, rows in by_lane.items()}
                parts[at] = self._send(item.ticket, lane, name, blobs)
            else:
                attempt = f"{item.attempt}-{lane}"
                staged[sink] = stage(deployment, sink, by_lane[0], item.epoch, attempt)
        return EpochDone(item.epoch, rows, output.late, parts, staged, output.letters)

    def _state(self, lane: int, job: StageJob) -> tuple[LaneState, dict[str, int]] | None:
        """The parent state: kept here, or made again of what is kept or was sent."""
        stage = self._deployment.stages[job.stage]
        slices = self._deployment.slices_of(stage, lane)
        count = self._deployment.owners.slices if slices is None else len(slices)
        if job.parent in self._states:
            return self._states[job.parent], {"memory": count}
        if job.parent == BEGIN:
            return stage.task.restore({}), {"memory": count}
        found = self._inherited(stage.task, job.heritage)
        if found is None and job.chain is not None:
            state, origin = self._restored(stage.task, job.chain, slices)
            found = state, {origin: count}
        if found is not None:
            self._keep(job.parent, found[0])
        return found

    def _restored(
        self, task: LaneTask, chain: Chain, slices: frozenset[int] | None
    ) -> tuple[LaneState, Origin]:
        """A state made of files: of copies that are here, and of the checkpoint's.

        It came from where most of them were: what was written last is hardly ever copied yet.
        """
        read = Counter[Origin]()
        state = task.restore(self._frames(chain, slices, read))
        return state, "backup" if read["backup"] > read["checkpoint"] else "checkpoint"

    def _inherited(
        self, task: LaneTask, heritage: Sequence[Heritage]
    ) -> tuple[LaneState, dict[str, int]] | None:
        """What is taken over of versions that are here or in files; None: one of them is not."""
        parts, origins = list[LaneState](), Counter[str]()
        for each in heritage:
            found = self._one_of(task, each)
            if found is None:
                return None
            parts.append(found[0])
            origins[found[1]] += len(each.slices)
        return (reduce(LaneState.joined, parts), dict(origins)) if parts else None

    def _one_of(self, task: LaneTask, given: Heritage) -> tuple[LaneState, Origin] | None:
        if given.version in self._states:
            return self._states[given.version].only(given.slices), "memory"
        known = None if given.since is None else self._replicas.get(given.since, given.slices)
        if known is not None:
            state, origin = known
            return task.after(state, self._frames(given.tail, given.slices)), origin
        if given.chain is not None:
            return self._restored(task, given.chain, given.slices)
        return None

    def _replica(self, wanted: Replica, older: LaneState | None) -> tuple[LaneState, Origin]:
        task = self._deployment.stages[wanted.stage].task
        if older is None and wanted.base is not None:
            # Whatever is wrong with it, all is in the checkpoint too.
            with suppress(Exception):
                state = self._sharing.mapped(task, wanted.base).only(wanted.slices)
                made = task.after(state, self._frames(wanted.tail, wanted.slices))
                return self._residence.bounded(made), "shared"
        frames = self._frames(wanted.chain, wanted.slices)
        made = task.restore(frames) if older is None else task.after(older, frames)
        return self._residence.bounded(made), "replica"

    def _frames(
        self, chain: Chain, slices: frozenset[int] | None, read: Counter[Origin] | None = None
    ) -> dict[str, Iterator[pl.DataFrame]]:
        """What is in some files; `read` learns where they were."""
        copy = partial(self._copy, Counter() if read is None else read)
        return {name: read_state(self._store, parts, slices, copy) for name, parts in chain.items()}

    def _copy(self, read: Counter[Origin], path: str, slices: frozenset[int]) -> Delta | None:
        found = self._copies.delta(path, slices)
        read["checkpoint" if found is None else "backup"] += 1
        return found

    def _keep(self, version: str, state: LaneState) -> None:
        self._states[version] = state
        self._states.move_to_end(version)
        while len(self._states) > _KEPT * self._deployment.lanes * len(self._deployment.stages):
            self._states.popitem(last=False)

    def _write_deltas(
        self, lane: int, job: StageJob, version: str, changed: Mapping[str, pl.DataFrame]
    ) -> dict[str, tuple[str, int]]:
        """Write what changed in all epochs of the job: one file an operator, and its bytes."""
        return {
            operator: self._write(lane, job, version, operator, rows)
            for operator, rows in changed.items()
        }

    def _write_snapshots(
        self, lane: int, job: StageJob, version: str, made: LaneState
    ) -> list[Snapshot]:
        """Write all that there is of the slices whose turn it is: one file an operator."""
        divided = self._deployment.stages[job.stage].key is not None
        whole, found = made.whole(frozenset(job.compact) if divided else None), []
        for operator, rows in whole.items():
            path, size = self._write(lane, job, version, operator, rows, slices=job.compact)
            found.append(Snapshot(operator, path, job.compact, version, size))
        return found

    def _write(
        self,
        lane: int,
        job: StageJob,
        version: str,
        operator: str,
        rows: pl.DataFrame,
        slices: tuple[int, ...] | None = None,
    ) -> tuple[str, int]:
        whole = slices is not None
        delta = Delta(
            operator,
            lane,
            self._deployment.run,
            job.items[0].epoch,
            job.items[-1].epoch,
            version,
            rows,
            parent=job.parent if job.follows and not whole else None,
            watermark=least_watermark(job.items[-1].marks),
            kind="snapshot" if whole else "delta",
            slice_key=self._deployment.stages[job.stage].key,
            slices=slices,
        )
        packed = pack(delta)
        self._store.create(delta.path, packed)
        return delta.path, len(packed)


def _after(state: LaneState, result: LaneResult) -> tuple[LaneState, Mapping[str, pl.DataFrame]]:
    """The state behind some epochs, in as few pieces as can be, and what they changed in it."""
    together, changed = result.state.together(state, result.deltas)
    # The parent is a value of its own, so the new version need not keep its layers apart.
    return together.fold(), changed


def _memory(deployment: Deployment) -> int:
    """The bytes of state that a lane's process may have in memory."""
    if (told := deployment.state.lane) is not None:
        return told
    return share_of(machine_memory(), deployment.lanes, os.cpu_count() or 1)


def _slice_column(rows: pl.DataFrame) -> str:
    """What the slice of rows is called in them; partials of windows are rows of state already."""
    return BUNDLED if BUNDLED in rows.columns else SLICE


def _up_to(place: int, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows up to a place in their epoch, where they have places."""
    return rows.filter(pl.col(OFFSET) <= place) if OFFSET in rows.columns else rows


def _broken(proofs: Sequence[Proof]) -> dict[str, Any] | None:
    """The error of a function that is not what it was when it was proved, if there is one."""
    for proof in proofs:
        if (what := proof.changed()) is not None:
            text = f"RunError: {what}: it was proved to run in parallel as it was"
            return asdict(TaskError(proof.operator, text))
    return None


def least_watermark(marks: Marks) -> int | None:
    """The least of all sources' watermarks behind an epoch."""
    found = [after for _, after in marks.values()]
    return None if None in found else min(each for each in found if each is not None)


def stage(
    deployment: Deployment, sink: str, rows: pl.DataFrame, epoch: int, attempt: int | str
) -> Any:
    """Give rows to a sink, the user's columns alone."""
    batches = _batches(visible(rows))
    return deployment.outputs[sink].sink.write(batches, epoch, f"{deployment.run}-{attempt}")


def merged(deployment: Deployment, item: MergeItem, node: Node = "") -> MergeDone:
    """Put the lanes' rows of an epoch into one order (M5) and give them to a sink."""
    files, frames, fetched = FileExchange(deployment.exchange), {}, Fetched()
    for at in own_first(item.parts, node):
        part = item.parts[at]
        # A part that came with the lane's result has its blob in it.
        blob = part[BLOB][0] if BLOB in part else files.read(part, 0)
        if blob is not None:
            frames[at] = from_blob(blob)
            fetched.add(part, len(blob), node)
    rows = in_order([frames[at] for at in sorted(frames)])
    message = stage(deployment, item.sink, rows, item.epoch, item.attempt)
    return MergeDone(item.sink, item.epoch, message, fetched.take())


def _batches(rows: pl.DataFrame) -> Iterator[pa.RecordBatch]:
    yield from rows.to_arrow().to_batches()
