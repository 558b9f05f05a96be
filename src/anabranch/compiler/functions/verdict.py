"""What was found out about a user's function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from anabranch.compiler.reason import Reason

Selectivity: TypeAlias = Literal["one", "at-most-one", "any", "unknown"]


@dataclass(frozen=True, slots=True)
class Forwards:
    """The columns that leave as they came: exactly these, or all but these.

    >>> Forwards.all_but({"x"}).among(["x", "y"])
    ('y',)
    >>> Forwards.exactly({"x"}).among(["x", "y"])
    ('x',)
    """

    all_others: bool
    names: frozenset[str]

    @classmethod
    def exactly(cls, names: Iterable[str] = ()) -> Forwards:
        """These columns and no other."""
        return cls(all_others=False, names=frozenset(names))

    @classmethod
    def all_but(cls, names: Iterable[str] = ()) -> Forwards:
        """Every column except these."""
        return cls(all_others=True, names=frozenset(names))

    def among(self, columns: Iterable[str]) -> tuple[str, ...]:
        """Those of the given columns that are forwarded, in the order given."""
        return tuple(name for name in columns if (name in self.names) != self.all_others)

    def without(self, names: Iterable[str]) -> Forwards:
        """The same, these columns gone."""
        gone = frozenset(names)
        kept = self.names | gone if self.all_others else self.names - gone
        return Forwards(self.all_others, kept)

    def plus(self, other: Forwards) -> Forwards:
        """Columns that either forwards."""
        if self.all_others and other.all_others:
            return Forwards.all_but(self.names & other.names)
        if self.all_others or other.all_others:
            most, few = (self, other) if self.all_others else (other, self)
            return Forwards.all_but(most.names - few.names)
        return Forwards.exactly(self.names | other.names)

    def both(self, other: Forwards) -> Forwards:
        """Columns that both forward."""
        if not self.all_others:
            return Forwards.exactly(other.among(self.names))
        return other.without(self.names)


@dataclass(frozen=True, slots=True)
class Relied:
    """What a proof looked at, by name, so that it can be looked at again in another process.

    Keys are digests of code objects, names of modules and qualified names of classes.
    """

    globals: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Of each function: the globals it reads."""
    modules: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Of each module: the attributes that were read."""
    attributes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Of each class: the attributes of its instances and its own that were read."""


@dataclass(frozen=True, slots=True)
class Data:
    """The data itself that a proof read and that exists before the call: what others may change.

    Each with what it is, in words: the globals that a name was read from, a variable of a function
    around, an object, a class. Functions, classes and modules as such are no data.
    """

    found: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a function does, apart from the `state` it is given and its own fresh record."""

    proved: bool
    """It keeps nothing between calls, reads nothing that changes, has no effect elsewhere."""
    selectivity: Selectivity
    """How many rows it gives for a record."""
    forwards: Forwards
    """Columns that every row it gives has as the record had them."""
    reasons: tuple[Reason, ...] = ()
    """Why it is proved, or everything that prevents it."""
    relied: Relied = field(default_factory=Relied)
    data: Data = field(default_factory=Data, compare=False, repr=False)
