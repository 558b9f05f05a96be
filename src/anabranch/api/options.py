"""What users may say when a program starts, checked before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch import config
from anabranch.config import Outlets, PipelinePolicy, StateMemory
from anabranch.epoch.triggers import Trigger, epochs
from anabranch.errors import ProgramError
from anabranch.program.durations import parse_duration

if TYPE_CHECKING:
    from anabranch.runtime.assembly import Settings
    from anabranch.runtime.deployment import Durability


@dataclass(frozen=True, slots=True)
class Chosen:
    """How a query is to run, as its user and the environment say."""

    trigger: Trigger
    checkpoint: str | Path | None
    lanes: int | None
    """None: as many as the load calls for."""
    slices: int | None
    goal: float | None
    """Seconds."""
    durability: Durability
    timeout: float | None
    pipeline: PipelinePolicy
    outlets: Outlets
    memory: StateMemory

    @classmethod
    def of(
        cls,
        trigger: Trigger | None,
        checkpoint: str | Path | None,
        parallelism: object,
        slices: object,
        goal: str | timedelta | None,
        durability: Durability,
    ) -> Chosen:
        """What was said, or what holds where nothing was.

        Raises:
            ProgramError: It makes no sense.
        """
        _check_trigger(trigger)
        lanes = _lanes(parallelism)
        return cls(
            trigger or epochs(),
            checkpoint,
            lanes,
            _slices(slices, lanes),
            None if goal is None else parse_duration(goal, "start: goal") / 1_000_000,
            durability,
            config.job_timeout(),
            config.pipeline_policy(),
            config.outlets(),
            config.state_memory(),
        )

    def settings(self, **more: Any) -> Settings:
        """As whoever puts a query together takes them."""
        from anabranch.runtime.assembly import Settings
        from anabranch.state.stores import place_of

        given: dict[str, Any] = {
            "trigger": self.trigger,
            "checkpoint": None if self.checkpoint is None else place_of(self.checkpoint),
            "lanes": self.lanes,
            "slices": self.slices,
            "durability": self.durability,
            "goal": self.goal,
            "job_timeout": self.timeout,
            "pipeline": self.pipeline,
            "outlets": self.outlets,
            "state": self.memory,
        }
        return Settings(**(given | more))


def _check_trigger(given: object) -> None:
    if given is None or isinstance(given, Trigger):
        return
    known = "ab.epochs, ab.available_now or ab.continuous"
    message = f"start: trigger must be made by {known}, got {given!r}"
    raise ProgramError(message, so='write it like ab.epochs("1 s") or ab.available_now()')


def _slices(given: object, lanes: int | None) -> int | None:
    """How many slices; None: to be found."""
    from anabranch.state.slices import MOST_SLICES

    if given == "auto":
        return None
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= MOST_SLICES:
        message = f"start: slices must be a number from 1 to {MOST_SLICES}, got {given!r}"
        raise ProgramError(message, so='or "auto": by the number of cores')
    if lanes is not None and lanes > given:
        message = f"start: {lanes} lanes cannot share {given} slices"
        raise ProgramError(message, so="take more slices or fewer lanes")
    return given


def _lanes(parallelism: object) -> int | None:
    """How many; None: as many as cores."""
    if parallelism == "auto":
        return None
    if isinstance(parallelism, int) and not isinstance(parallelism, bool) and parallelism >= 1:
        return parallelism
    message = f"start: parallelism must be a whole number of at least 1, got {parallelism!r}"
    raise ProgramError(message, so='leave it out, or pass "auto", for as many lanes as cores')
