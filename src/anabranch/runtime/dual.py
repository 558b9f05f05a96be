"""Slices that are about to move, worked on in both lanes: the paper's dual mode, without a clash.

In the last cycle before the width changes a new lane takes the epochs of slices that it is to have
as well, from its replica on, with the same rows and marks (ChronoStream, III.C, phase 2). It stages
nothing and writes nothing: all that can come of it is state, at the version that the lane makes
which has the slices now. Both say what has changed, by a digest. Where these are equal the new lane
has the state, and nothing has to be read when the width changes; where they are not, as with a
function that gives another answer each time, it is as if nobody had tried.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import polars as pl

from anabranch.runtime.payload import Chain, Dual, LaneDone, LaneJob
from anabranch.state.delta import SLICE
from anabranch.state.slices import Owners

if TYPE_CHECKING:
    from anabranch.runtime.rescaling import Move

Taken: TypeAlias = tuple[str, str]
"""The version of state that a lane has made of another's epochs, and the digest of what changed."""

NOT_TAKEN: Taken = ("", "")

_SEED = 0x5EED


def digest(changed: Mapping[str, pl.DataFrame], slices: frozenset[int]) -> str:
    """What changed of some slices, by operator: equal where rows and their order are.

    >>> rows = pl.DataFrame({"slice": [1, 2, 2], "n": [5, 6, 7]})
    >>> digest({"sum": rows}, frozenset({2})) == digest({"sum": rows[1:]}, frozenset({1, 2}))
    False
    >>> digest({"sum": rows}, frozenset({2})) == digest({"sum": rows[1:]}, frozenset({2}))
    True
    """
    found = hashlib.blake2b(repr(sorted(slices)).encode(), digest_size=16)
    for operator, rows in sorted(changed.items()):
        mine = rows.filter(pl.col(SLICE).is_in(sorted(slices))).sort(SLICE, maintain_order=True)
        # A column that no row has anything in says nothing.
        mine = mine.select(name for name in sorted(mine.columns) if mine[name].count())
        found.update(repr((operator, mine.height, *mine.schema.items())).encode())
        if mine.width and mine.height:
            found.update(mine.hash_rows(seed=_SEED).to_numpy().tobytes())
    return found.hexdigest()


@dataclass(frozen=True, slots=True)
class Agreed:
    """A move whose slices are at hand where they go, as of the version that the cycle made."""

    move: Move
    version: str
    """As the new lane calls it."""
    same_as: str
    """As the lane calls it that has the slices."""


class DualCycle:
    """What one cycle's jobs were asked to do as well."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._asked: dict[Move, tuple[int, int]] = {}
        """The place of each among what the new lane takes as well, and what the old one tells."""

    def __bool__(self) -> bool:
        """Whether there is anything."""
        return bool(self._asked)

    def __contains__(self, move: Move) -> bool:
        """Whether a move's slices were to be taken as well."""
        return move in self._asked

    def ask(
        self, jobs: dict[int, LaneJob], move: Move, since: str, tail: Chain, owners: Owners
    ) -> bool:
        """Have a move's slices taken at both ends, if its stage has work and the new lane has none.

        `since` is a replica that the new lane has, `tail` what was changed behind it.
        """
        there = jobs.get(move.to, LaneJob(move.to, ()))
        source = jobs.get(move.from_)
        stages = () if source is None else source.stages
        mine = next((each for each in stages if each.stage == move.stage), None)
        if source is None or mine is None or there.stages:
            return False
        items = tuple(replace(each, routed=each.routed or owners) for each in mine.items)
        asked = Dual(move.stage, move.slices, since, tail, items)
        self._asked[move] = (len(there.dual), len(mine.told))
        jobs[move.to] = replace(there, dual=(*there.dual, asked))
        telling = replace(mine, told=(*mine.told, move.slices))
        jobs[move.from_] = replace(
            source, stages=tuple(telling if each is mine else each for each in stages)
        )
        return True

    def agreed(self, lanes: Mapping[int, LaneDone]) -> Iterable[Agreed]:
        """The moves of which both ends tell the same."""
        for move, (place, told) in self._asked.items():
            version, changed = _at(lanes, move.to, place)
            stages = lanes[move.from_].stages if move.from_ in lanes else ()
            for done in (each for each in stages if each.stage == move.stage):
                if version and done.digests[told] == changed:
                    yield Agreed(move, version, done.version)


def _at(lanes: Mapping[int, LaneDone], lane: int, place: int) -> Taken:
    found = lanes[lane].dual if lane in lanes else ()
    return found[place] if place < len(found) else NOT_TAKEN
