"""How a program runs: which operators run together, what is parallel by what, and why.

A plan adds facts to a graph and changes nothing in it. The passes fill it from left to right: each
adds its own field and leaves the others as they are. How many run in parallel is no part of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from anabranch.compiler.reason import Reason
from anabranch.ids import OperatorId
from anabranch.program.graph import Graph
from anabranch.program.operators.operator import Operator

if TYPE_CHECKING:
    from anabranch.compiler.proof import Proof

HIDDEN = "__ab_"
"""How the names of columns begin that travel beside the user's."""

State: TypeAlias = Literal["stateless", "keyed", "whole", "unknown"]
"""What an operator keeps from row to row: nothing, something a key, one thing, or who knows."""

Selectivity: TypeAlias = Literal["one", "at-most-one", "any", "unknown"]
"""How many rows an operator makes of one."""

SPREAD: tuple[Selectivity, ...] = ("one", "at-most-one", "any", "unknown")
"""From the narrowest to the widest: a chain is as wide as its widest operator."""

Routing: TypeAlias = Literal["round-robin", "hash", "none"]
"""Rows go to whoever is next, to the owner of their key, or all to one."""

Ordering: TypeAlias = Literal["round-robin", "sequence", "sequence+pulses", "none"]
"""How rows that leave a region are put in order: see `strategies`."""

JointKind: TypeAlias = Literal["parallel-source", "split", "shuffle", "merge", "parallel-sink"]


@dataclass(frozen=True, slots=True)
class Traits:
    """How an operator behaves, as far as it is known."""

    state: State
    selectivity: Selectivity
    key: tuple[str, ...] | None = None
    forwards: tuple[str, ...] = ()
    """Columns that leave under the name and with the value they came with."""
    pure: bool = True
    """Whether the same rows give the same rows, with no other effect."""
    declared: tuple[str, ...] = ()
    """What its author said and nobody proved."""
    reasons: tuple[Reason, ...] = ()
    proof: Proof | None = field(default=None, compare=False, repr=False)
    """What must be as it was where its function runs; None: nothing rests on its code."""

    @property
    def parallelisable(self) -> bool:
        """Whether its rows may be divided: it keeps nothing, or nothing beyond one key."""
        return self.state == "stateless" or (self.state == "keyed" and bool(self.key))


@dataclass(frozen=True, slots=True)
class Border:
    """Why an operator is not in the region of the one before it, and what would change that."""

    operator: OperatorId
    text: str
    so: str | None = None


@dataclass(frozen=True, slots=True)
class Region:
    """Operators that run together, in topological order."""

    id: int
    operators: tuple[OperatorId, ...]
    parallel: bool
    key: tuple[str, ...] | None
    """The columns whose values decide who owns a row; None: rows have no owner."""
    state: State
    selectivity: Selectivity
    """The product of its operators'."""
    why: str
    """Why it is parallel, or why it is not."""
    ends: tuple[Border, ...]
    """Why what comes next is not in it."""
    routing: Routing = "none"
    ordering: Ordering = "none"

    @property
    def because(self) -> str:
        """Why it is what it is, why it ends where it ends, and how to move that, in a sentence."""
        parts = [self.why]
        parts += dict.fromkeys(f"it ends since {each.text}" for each in self.ends)
        parts += dict.fromkeys(f"to move that, {each.so}" for each in self.ends if each.so)
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Joint:
    """Where rows enter or leave a region."""

    kind: JointKind
    before: int | None
    """The region that gives the rows; None at a source."""
    behind: int | None
    """The region that takes them; None at a sink."""
    strategy: str = "none"


@dataclass(frozen=True, slots=True)
class Plan:
    """A graph, what is known of its operators, its regions, and the joints between them."""

    graph: Graph
    traits: tuple[Traits, ...] = ()
    """By operator number."""
    regions: tuple[Region, ...] = ()
    """In the order of their first operators; every operator is in exactly one."""
    joints: tuple[Joint, ...] = ()

    def _repr_html_(self) -> str:
        """Notebooks show its regions."""
        from anabranch.compiler.explain.notebook import as_html

        return as_html(self)

    def operators(self, region: Region) -> tuple[Operator, ...]:
        """A region's operators, in order."""
        return tuple(self.graph[number] for number in region.operators)

    def homes(self) -> dict[OperatorId, Region]:
        """The region of each operator."""
        return {number: region for region in self.regions for number in region.operators}
