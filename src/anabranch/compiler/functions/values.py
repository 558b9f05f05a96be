"""What a variable may hold, as sets of atoms.

A value is a frozenset of atoms; the join of two values is their union; no atom at all means that no
run gets here. An atom stands for one or more Python objects. *Plain* objects are those that records
are made of: None, bool, int, float, str, bytes, dates and times, Decimal, and lists, dicts and
tuples of them; all their operators and methods are those of the language itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Const:
    """An immutable scalar that is written in the code or found outside."""

    kind: type
    value: Any


@dataclass(frozen=True, slots=True)
class Scalar:
    """Some immutable plain object that is no container."""


@dataclass(frozen=True, slots=True)
class Plain:
    """Some plain object made in this call; with all that it holds."""


@dataclass(frozen=True, slots=True)
class Field:
    """What the record held in a column when it came; None: in some column."""

    column: str | None


@dataclass(frozen=True, slots=True)
class Part:
    """Something within what the record held in a column."""

    column: str | None


@dataclass(frozen=True, slots=True)
class Record:
    """The record itself."""


@dataclass(frozen=True, slots=True)
class State:
    """The keyed state that the operator was given."""


@dataclass(frozen=True, slots=True)
class Obj:
    """Objects made at one place of the code; `aged`: by a call before, and kept in state."""

    site: int
    aged: bool = False


@dataclass(frozen=True, slots=True)
class Bound:
    """A method of a builtin type, with the object it belongs to."""

    receiver: Atom
    name: str


@dataclass(frozen=True, slots=True)
class TypeOf:
    """The class of some plain object."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Anything; why was said where it arose."""


class _Real:
    """An object that exists before the call, by identity."""

    __slots__ = ("real",)

    def __init__(self, real: Any) -> None:
        self.real = real

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.real is other.real

    def __hash__(self) -> int:
        return hash((type(self), id(self.real)))


class Known(_Real):
    """A function, class, module or immutable object that exists before the call."""

    __slots__ = ()


class Out(_Real):
    """A mutable object that exists before the call: it may be read, never changed."""

    __slots__ = ("label",)

    def __init__(self, real: Any, label: str) -> None:
        """Wrap it under the name the user gave it."""
        super().__init__(real)
        self.label = label


Atom: TypeAlias = (
    Const
    | Scalar
    | Plain
    | Field
    | Part
    | Record
    | State
    | Obj
    | Bound
    | TypeOf
    | Unknown
    | Known
    | Out
)
Value: TypeAlias = frozenset[Atom]

NOTHING: Value = frozenset()
SCALAR: Value = frozenset({Scalar()})
PLAIN: Value = frozenset({Plain()})
UNKNOWN: Value = frozenset({Unknown()})
NONE: Value = frozenset({Const(type(None), None)})


def const(value: Any) -> Value:
    """The value of a literal."""
    return frozenset({Const(type(value), value)})


def only(value: Value) -> Atom | None:
    """The one atom of a value; None where there are several or none."""
    return next(iter(value)) if len(value) == 1 else None


def constant(value: Value) -> Const | None:
    """The one constant that a value is."""
    atom = only(value)
    return atom if isinstance(atom, Const) else None


def aged(value: Value) -> Value:
    """The same value as a later call finds it in the state: no longer of that call's record."""
    return frozenset(_aged(atom) for atom in value)


def _aged(atom: Atom) -> Atom:
    match atom:
        case Record() | Field() | Part():
            return Plain()
        case Obj(site=site):
            return Obj(site, aged=True)
        case _:
            return atom
