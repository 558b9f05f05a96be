"""What a checkpoint says of the query that wrote it, by its files alone; nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from anabranch.clock import Clock, SystemClock
from anabranch.epoch.machine import Stage
from anabranch.epoch.watermarks import SourceTime
from anabranch.errors import CheckpointError
from anabranch.ids import Partition
from anabranch.observe.facts import EpochFacts, Facts, SourceFacts
from anabranch.observe.why import why
from anabranch.state.layout import METADATA, Commit, EpochPlan, Metadata
from anabranch.state.recovery import Recovered, committed_plans, recover
from anabranch.state.store import Missing, Store
from anabranch.state.stores import Place, checkpoint_at, place_of

COMMITTED_AT = "committedAt"
"""When a commit was made, among its statistics: microseconds since 1970."""
SESSION = "session"
"""How its query stood among others then, if it was in a session."""

_LOOKS = 3


def why_of(directory: str | Path | Place, clock: Clock | None = None) -> str:
    """What the query of a checkpoint waits for, as far as its files tell.

    It may be running: what it writes meanwhile is seen or not. Its program is not known here, so
    neither are the operators that wait nor what is allowed to be late.
    """
    return why(facts_of(place_of(directory), clock or SystemClock()))


def facts_of(directory: Place, clock: Clock) -> Facts:
    """What the files of a checkpoint tell. Moments are the wall's."""
    store = checkpoint_at(directory)
    if store is None:
        raise no_checkpoint(directory)
    for _ in range(_LOOKS - 1):
        # A query that runs clears away what it no longer needs: what was seen may be gone.
        with suppress(CheckpointError, Missing):
            return _read(store, clock)
    return _read(store, clock)


def no_checkpoint(place: Place) -> CheckpointError:
    """The refusal of a place without a checkpoint; those in it are named.

    `anabranch run` of several programs makes a directory for each in the one that it is given.
    """
    so = "pass the directory that was given as checkpoint="
    if isinstance(place, Path) and not place.is_dir():
        return CheckpointError(f"{place} is no checkpoint: there is no such directory", so=so)
    inside = sorted(place.glob(f"*/{METADATA}")) if isinstance(place, Path) else []
    have = ", ".join(str(each.parent) for each in inside) or None
    message = f"{place} is no checkpoint: it has no {METADATA}"
    return CheckpointError(message, have=have, so="pass one of these" if have else so)


def _read(store: Store, clock: Clock) -> Facts:
    metadata = Metadata.from_bytes(METADATA, store.read(METADATA))
    recovered = recover(store)
    commit = recovered.commit
    at = None if commit is None else commit.statistics.get(COMMITTED_AT)
    return Facts(
        metadata.program,
        _sources(recovered, store),
        tuple(
            EpochFacts(plan.epoch, placed=True, source=plan.source, stage=Stage.OPEN)
            for plan in recovered.plans
        ),
        committed=-1 if commit is None else commit.last,
        committed_at=at / 1e6 if isinstance(at, int) else None,
        live=False,
        now=clock.now(),
    )


def _sources(recovered: Recovered, store: Store) -> tuple[SourceFacts, ...]:
    """The sources that something was read from, in the order of their names' first epochs."""
    commit = recovered.commit
    if commit is None:
        return ()
    newest: dict[str, EpochPlan] = {}
    finished: dict[str, frozenset[Partition]] = {}
    for each in recovered.history:
        for plan in committed_plans(store, each):
            newest[plan.source] = plan
            known = finished.get(plan.source, frozenset())
            finished[plan.source] = known | frozenset(plan.finished)
    return tuple(_source(name, commit, newest, finished) for name in commit.positions)


def _source(
    name: str,
    commit: Commit,
    newest: Mapping[str, EpochPlan],
    finished: Mapping[str, frozenset[Partition]],
) -> SourceFacts:
    time = SourceTime(
        tuple(commit.positions[name]),
        lateness=0,
        watermark=commit.watermarks.get(name),
        greatest=dict(commit.greatest_times.get(name, {})),
        finished=finished.get(name, frozenset()),
    )
    plan = newest.get(name)
    return SourceFacts(name, time, frozenset() if plan is None else frozenset(plan.idle))
