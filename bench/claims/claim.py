"""A paper's claim, and the verdict on it: ours beside the paper's figure. Pure.

Claims are data (`claims.json`): what a paper says, where, and which row of a results file is to be
compared with it. None of our figures is here; a claim without a row is one that nobody measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from bench.harness.report import Row

Verdict: TypeAlias = Literal["reached", "missed", "told", "not measured"]
"""`told`: the paper gives no figure that could be reached, or not."""


@dataclass(frozen=True, slots=True)
class Place:
    """A row of a benchmark's results."""

    bench: str
    case: str
    metric: str
    system: str
    against: str | None = None
    take: Literal["value", "ratio"] = "value"

    def of(self, row: Row) -> bool:
        """Whether this is the row."""
        found = (row.case, row.metric, row.system, row.against)
        return found == (self.case, self.metric, self.system, self.against)

    def number(self, row: Row) -> float:
        """What it says: its median, or how it compares."""
        found = row.value if self.take == "value" else row.ratio
        assert found is not None, f"{self} is compared with nothing"
        return found


@dataclass(frozen=True, slots=True)
class Claim:
    """What a paper says."""

    id: str
    paper: str
    claim: str
    figure: str
    """Its number, as text."""
    where: str
    """The section and figure of the paper."""
    quote: str
    """A few of its words, to find it by."""
    comparable: str
    """How like is measured with like, and what differs."""
    value: float | None = None
    """What ours has to reach; None: the paper has no number."""
    better: Literal["more", "less"] = "more"
    ours: Place | None = None
    peer: Place | None = None
    wanted: str = ""
    """What would measure it, where nothing does."""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Claim:
        """From JSON; a key that is not known is an error."""
        places = {key: Place(**told[key]) for key in ("ours", "peer") if told.get(key)}
        return cls(**{**told, "ours": None, "peer": None, **places})

    def reached(self, ours: float) -> bool | None:
        """Whether a figure of ours is at least as good; None: there is nothing to reach.

        >>> claim = Claim("a", "p", "", "", "", "", "", value=2.0, better="less")
        >>> claim.reached(2.0), claim.reached(2.1)
        (True, False)
        """
        if self.value is None:
            return None
        return ours >= self.value if self.better == "more" else ours <= self.value


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim with what was found."""

    claim: Claim
    ours: float | None = None
    peer: float | None = None
    row: Row | None = None

    @property
    def verdict(self) -> Verdict:
        """How it came out."""
        if self.ours is None:
            return "not measured"
        reached = self.claim.reached(self.ours)
        return "told" if reached is None else "reached" if reached else "missed"


def judged(claim: Claim, results: Mapping[str, Sequence[Row]]) -> Judged:
    """The verdict, by the rows of each benchmark."""
    row, beside = _found(claim.ours, results), _found(claim.peer, results)
    ours = None if row is None or claim.ours is None else claim.ours.number(row)
    peer = None if beside is None or claim.peer is None else claim.peer.number(beside)
    return Judged(claim, ours, peer, row)


def _found(place: Place | None, results: Mapping[str, Sequence[Row]]) -> Row | None:
    if place is None:
        return None
    return next((row for row in results.get(place.bench, ()) if place.of(row)), None)
