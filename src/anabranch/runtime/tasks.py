"""What a task does, in whatever process it runs: read splits, or take a lane's epochs.

A process keeps the states of its lanes by version. A version is never changed: an attempt that
fails leaves its parent as it was, and one that was repeated elsewhere is never asked for again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import polars as pl

from anabranch.clock import Clock, SystemClock
from anabranch.compiler.proof import Proof
from anabranch.kernels.bundle import from_blob, in_order, to_blob, visible
from anabranch.kernels.lane_task import LaneState
from anabranch.kernels.results import EpochInput, EpochOutput, LaneResult, TaskError
from anabranch.runtime.deployment import Deployment
from anabranch.runtime.exchange import BLOB, Exchange, FileExchange, PartName
from anabranch.runtime.payload import EpochDone, HeadDone, HeadItem, LaneDone, LaneItem, LaneJob
from anabranch.runtime.stopwatch import Stopwatch
from anabranch.state.delta import SLICE, Delta, pack, unpack
from anabranch.state.store import LocalStore

if TYPE_CHECKING:
    import pyarrow as pa

BEGIN = "begin"
"""The version before the first epoch."""

_KEPT = 3
"""Versions a process keeps of a lane: the parent, the one being made, and one that may be void."""

# Rows are ordered by their split's place in its epoch, then by their place in the split.
_SPLIT_ROWS = 1 << 40
# Parts of lanes' outputs are told apart from parts of splits by their number.
_OUTPUTS = 1 << 20


class Worker:
    """What one process knows of one deployment."""

    def __init__(
        self,
        deployment: Deployment,
        clock: Clock | None = None,
        exchange: Exchange | None = None,
    ) -> None:
        """Begin with the deployment alone; rows go through its files unless told otherwise."""
        self._deployment = deployment
        self._exchange = exchange or FileExchange(deployment.exchange)
        self._watch = Stopwatch(clock or SystemClock())
        self._store = LocalStore(deployment.checkpoint, deployment.durability)
        self._states: OrderedDict[str, LaneState] = OrderedDict()

    def heads(self, items: Sequence[HeadItem]) -> list[HeadDone]:
        """Read splits and do their stateless work; errors of the user's are told, not raised."""
        proofs = self._deployment.head.proofs
        done = [self._head(item) for item in items] if (broken := _broken(proofs)) is None else []
        broken = broken or _broken(proofs)
        if broken is None:
            return done
        return [HeadDone(i.epoch, i.number, i.partition, 0, None, error=broken) for i in items]

    def lane(self, job: LaneJob) -> LaneDone:
        """Take a lane's epochs in order, from one version of its state to the next."""
        task, state = self._deployment.lane, self._state(job)
        assert task is not None
        if state is None:
            return LaneDone(job.lane, missing=True)
        if (broken := _broken(task.proofs)) is not None:
            return LaneDone(job.lane, error=broken)
        self._watch.take()
        with self._watch("exchange"):
            inputs = [self._input(job.lane, item) for item in job.items]
        with self._watch("kernel"):
            result = task.run(inputs, state)
        error = None if result.error is None else asdict(result.error)
        if (error := error or _broken(task.proofs)) is not None:
            return LaneDone(job.lane, error=error)
        with self._watch("stage"):
            outputs = zip(job.items, result.outputs, strict=True)
            epochs = tuple(self._output(job, item, output) for item, output in outputs)
        with self._watch("state"):
            # The parent is a value of its own, so the new version need not keep its layers apart.
            made, version = result.state.fold(), uuid4().hex
            self._keep(version, made)
            paths = self._write_deltas(job, version, result, made)
        spent = self._watch.take()
        return LaneDone(job.lane, version, epochs, paths, job.snapshot, spent=spent)

    def _head(self, item: HeadItem) -> HeadDone:
        deployment, watch = self._deployment, self._watch
        watch.take()
        with watch("read"):
            frame = deployment.source.frame(item.split, deployment.head.columns)
        with watch("kernel"):
            result = deployment.head.run(frame, item.partition, item.number * _SPLIT_ROWS)
        rows, greatest = result.rows_in, result.greatest_time
        done = HeadDone(item.epoch, item.number, item.partition, rows, greatest)
        if result.error is not None:
            return replace(done, error=asdict(result.error))
        if deployment.lane is None:
            with watch("stage"):
                staged = stage(deployment, result.parts.get(0), item.epoch, str(item.attempt))
            return replace(done, staged=staged, spent=watch.take())
        if not result.parts:
            return replace(done, spent=watch.take())
        with watch("exchange"):
            blobs = {lane: to_blob(part) for lane, part in result.parts.items()}
            part = self._send(item.epoch, item.number, item.attempt, blobs)
        return replace(done, part=part, spent=watch.take())

    def _send(
        self, epoch: int, number: int, attempt: int, blobs: dict[int, bytes]
    ) -> dict[str, Any]:
        name = PartName(self._deployment.id, epoch, number, str(attempt))
        return self._exchange.write(name, blobs)

    def _input(self, lane: int, item: LaneItem) -> EpochInput:
        blobs = [self._exchange.read(part, lane) for part in item.parts]
        frames = [from_blob(blob) for blob in blobs if blob is not None]
        return EpochInput(item.epoch, frames, item.before, item.after)

    def _output(self, job: LaneJob, item: LaneItem, output: EpochOutput) -> EpochDone:
        rows = output.rows
        if self._deployment.merged and rows.height:
            blobs = {0: to_blob(rows)}
            part = self._send(item.epoch, _OUTPUTS + job.lane, item.attempt, blobs)
            return EpochDone(item.epoch, rows.height, output.late, part=part)
        staged = stage(self._deployment, rows, item.epoch, f"{item.attempt}-{job.lane}")
        return EpochDone(item.epoch, rows.height, output.late, staged=staged)

    def _state(self, job: LaneJob) -> LaneState | None:
        """The parent state: kept here, or made again from its deltas where they were sent."""
        task = self._deployment.lane
        assert task is not None
        if job.parent in self._states:
            return self._states[job.parent]
        if job.parent == BEGIN:
            return task.restore({})
        if job.chain is None:
            return None
        frames = {
            operator: [self._mine(path, job.lane) for strand in strands for path in strand]
            for operator, strands in job.chain.items()
        }
        state = task.restore(frames)
        self._keep(job.parent, state)
        return state

    def _mine(self, path: str, lane: int) -> pl.DataFrame:
        """A delta's rows of the slices that a lane owns now."""
        owners = self._deployment.owners
        mine = [slice_ for slice_, owner in enumerate(owners) if owner == lane]
        return unpack(self._store.read(path), path).frame.filter(pl.col(SLICE).is_in(mine))

    def _keep(self, version: str, state: LaneState) -> None:
        self._states[version] = state
        self._states.move_to_end(version)
        while len(self._states) > _KEPT * self._deployment.lanes:
            self._states.popitem(last=False)

    def _write_deltas(
        self, job: LaneJob, version: str, result: LaneResult, made: LaneState
    ) -> dict[str, str]:
        """Write what changed in all epochs of the job, or all there is: one file an operator."""
        whole = made.whole() if job.snapshot else {}
        paths = {}
        for operator in made.views:
            changed = [each[operator] for each in result.deltas]
            delta = Delta(
                operator,
                job.lane,
                self._deployment.run,
                job.items[0].epoch,
                job.items[-1].epoch,
                version,
                whole[operator] if job.snapshot else pl.concat(changed, how="diagonal"),
                parent=None if job.snapshot or job.parent == BEGIN else job.parent,
                watermark=job.items[-1].after,
                kind="snapshot" if job.snapshot else "delta",
                slice_key=self._deployment.head.key or None,
            )
            self._store.create(delta.path, pack(delta))
            paths[operator] = delta.path
        return paths


def _broken(proofs: Sequence[Proof]) -> dict[str, Any] | None:
    """The error of a function that is not what it was when it was proved, if there is one."""
    for proof in proofs:
        if (what := proof.changed()) is not None:
            text = f"RunError: {what}: it was proved to run in parallel as it was"
            return asdict(TaskError(proof.operator, text))
    return None


def stage(deployment: Deployment, rows: pl.DataFrame | None, epoch: int, attempt: str) -> Any:
    """Give rows to the sink, the user's columns alone; None: there are none."""
    if rows is None or not rows.height:
        return None
    return deployment.sink.write(_batches(visible(rows)), epoch, f"{deployment.run}-{attempt}")


def merge(deployment: Deployment, parts: Sequence[Any], epoch: int, attempt: str) -> Any:
    """Put the lanes' rows of an epoch into one order (M5) and give them to the sink."""
    files = FileExchange(deployment.exchange)
    # A part that came with the lane's result has its blob in it.
    blobs = [part[BLOB] if BLOB in part else files.read(part, 0) for part in parts]
    frames = [from_blob(blob) for blob in blobs if blob is not None]
    return stage(deployment, in_order(frames) if frames else None, epoch, attempt)


def _batches(rows: pl.DataFrame) -> Iterator[pa.RecordBatch]:
    yield from rows.to_arrow().to_batches()
