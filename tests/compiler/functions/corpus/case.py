"""How the corpus says what is expected of a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anabranch.compiler.functions.verdict import Forwards

CASES: list[Case] = []


@dataclass(frozen=True)
class Case:
    """A function and what the analyser is to say of it."""

    name: str
    call: Any
    proved: bool
    selectivity: str | None
    forwards: Forwards | None
    state: bool

    def __str__(self) -> str:
        return self.name


def all_but(*names: str) -> Forwards:
    return Forwards.all_but(names)


def exactly(*names: str) -> Forwards:
    return Forwards.exactly(names)


def case(name, call, proved, selectivity=None, forwards=None, *, state=False):
    """Add a function to the corpus under a name of its own."""
    CASES.append(Case(name, call, proved, selectivity, forwards, state))
    return call


def pure(selectivity=None, forwards=None, *, state=False) -> Callable[[Any], Any]:
    """Mark a function that is to be proved."""
    return lambda fn: case(fn.__name__, fn, True, selectivity, forwards, state=state)


def hostile(selectivity=None, forwards=None, *, state=False) -> Callable[[Any], Any]:
    """Mark a function that is not to be proved."""
    return lambda fn: case(fn.__name__, fn, False, selectivity, forwards, state=state)
