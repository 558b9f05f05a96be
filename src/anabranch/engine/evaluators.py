"""Evaluator processes: plain Python runs in them, where no interpreter's lock is shared.

Each has a ring of requests and a ring of answers, and the states of the partitions that it is asked
about. A thread that asks waits for the answer, without the interpreter's lock; those who ask one
evaluator take turns, those who ask several are served at once.

Where an evaluator dies, whoever waits for it is told at once, and so is whoever asks it later:
what its partitions had become is lost, and a new run has to restore it. No evaluator outlives the
process that started it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count as numbers
from types import TracebackType
from typing import Any, Self

import polars as pl

from anabranch.config import environment
from anabranch.engine.evaluator_process import EvaluatorDied, EvaluatorFailed, EvaluatorProcess
from anabranch.engine.requests import Changed, Head, Restore, Take, Whole, packed
from anabranch.engine.ring import ROOM
from anabranch.kernels.results import EpochInput, EpochOutput, HeadResult, TaskError

__all__ = ["EvaluatorDied", "EvaluatorFailed", "EvaluatorHome", "Evaluators"]


class Evaluators:
    """So many processes of this interpreter, ready to be asked, until `close`."""

    def __init__(
        self,
        count: int,
        tasks: bytes,
        *,
        room: int = ROOM,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Start them and wait until all have loaded the program.

        Args:
            count: How many.
            tasks: `requests.Tasks`, pickled; with the code of users' functions that are in no
                module which a new process could import.
            room: Bytes of each ring.
            variables: The environment of the processes, if it is not this one's.

        Raises:
            EvaluatorDied: One could not load the program.
        """
        assert count > 0
        variables = environment() if variables is None else variables
        self._evaluators: list[EvaluatorProcess] = []
        self._turns = numbers()
        try:
            # All of them load at once.
            for number in range(count):
                self._evaluators.append(EvaluatorProcess(number, room, variables))
            for each in self._evaluators:
                each.load(tasks)
            for each in self._evaluators:
                each.wait_loaded()
        except BaseException:
            self.close()
            raise

    def take(self, stage: int, partition: int, given: EpochInput) -> EpochOutput | TaskError:
        """What becomes of a partition's next epoch; an error leaves its state as it was."""
        found: EpochOutput | TaskError = self._ask(Take(stage, partition, given))
        return found

    def head(self, source: int, frame: pl.DataFrame, partition: int, first: int) -> HeadResult:
        """Take consecutive rows of one partition of a source, by whoever has nothing to do."""
        request = packed(Head(source, frame, partition, first))
        with self._free() as evaluator:
            answer = evaluator.exchange(request)
        found: HeadResult = evaluator.known(answer)
        return found

    def restore(
        self, stage: int, partition: int, deltas: Mapping[str, Iterable[pl.DataFrame]]
    ) -> None:
        """Have a partition's state be what epochs with these deltas make."""
        each = {operator: tuple(frames) for operator, frames in deltas.items()}
        self._ask(Restore(stage, partition, each))

    def changed(self, stage: int, partition: int) -> Mapping[str, pl.DataFrame]:
        """By operator all that changed in a partition since this was last asked, as one delta."""
        found: Mapping[str, pl.DataFrame] = self._ask(Changed(stage, partition))
        return found

    def whole(
        self, stage: int, partition: int, slices: frozenset[int] | None = None
    ) -> Mapping[str, pl.DataFrame]:
        """By operator all of a partition's state, or of some slices, as one delta."""
        found: Mapping[str, pl.DataFrame] = self._ask(Whole(stage, partition, slices))
        return found

    def home(self, stage: int, partition: int) -> EvaluatorHome:
        """A partition, as one who does not care where it is sees it."""
        return EvaluatorHome(self, stage, partition)

    @property
    def processes(self) -> tuple[int, ...]:
        """The ids of the processes."""
        return tuple(each.id for each in self._evaluators)

    def close(self) -> None:
        """End all of them, whatever they are at; a second time does nothing."""
        for each in self._evaluators:
            each.end()
        for each in self._evaluators:
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, request: Take | Restore | Changed | Whole) -> Any:
        # Stages that are not divided have partition 0 alone: they should not all be in one process.
        at = (request.stage + request.partition) % len(self._evaluators)
        message, evaluator = packed(request), self._evaluators[at]
        with evaluator.turn:
            answer = evaluator.exchange(message)
        return evaluator.known(answer)

    @contextmanager
    def _free(self) -> Iterator[EvaluatorProcess]:
        """An evaluator whose turn it is to be asked: one that is not at work, if there is any."""
        first = next(self._turns) % len(self._evaluators)
        ranked = [*self._evaluators[first:], *self._evaluators[:first]]
        for each in ranked:
            if each.turn.acquire(blocking=False):
                break
        else:
            each = ranked[0]
            each.turn.acquire()
        try:
            yield each
        finally:
            each.turn.release()


@dataclass(frozen=True, slots=True)
class EvaluatorHome:
    """A partition whose state is at home in an evaluator process."""

    evaluators: Evaluators
    stage: int
    partition: int

    def take(self, given: EpochInput) -> EpochOutput | TaskError:
        """What becomes of the partition's next epoch."""
        return self.evaluators.take(self.stage, self.partition, given)

    def changed(self) -> Mapping[str, pl.DataFrame]:
        """By operator all that changed since this was last asked, or the state restored."""
        return self.evaluators.changed(self.stage, self.partition)

    def whole(self, slices: frozenset[int] | None = None) -> Mapping[str, pl.DataFrame]:
        """By operator all of the state, or of some slices, as one delta."""
        return self.evaluators.whole(self.stage, self.partition, slices)

    def restore(self, deltas: Mapping[str, Iterable[pl.DataFrame]]) -> None:
        """Have the state that epochs with these deltas make, in order."""
        self.evaluators.restore(self.stage, self.partition, deltas)
