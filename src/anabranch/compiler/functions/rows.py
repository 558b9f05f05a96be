"""What a function gives out: how many rows for a record, and which of its columns they have."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from anabranch.compiler.functions import outside
from anabranch.compiler.functions.columns import NO_COLUMN, forwarded, is_row
from anabranch.compiler.functions.containers import iterated, refuse, tame
from anabranch.compiler.functions.frame import Frame
from anabranch.compiler.functions.heap import MANY
from anabranch.compiler.functions.values import Atom, Const, Obj, Out, Value
from anabranch.compiler.functions.verdict import Forwards, Selectivity

_SEVERAL = ("list", "tuple", "generator", "iterator", "deque", "set")


@dataclass(frozen=True, slots=True)
class Given:
    """The rows of a record; `least` is None where something else than rows may be given."""

    least: int | None = None
    most: int = MANY
    forwards: Forwards = NO_COLUMN

    @property
    def selectivity(self) -> Selectivity:
        """How many rows, in one word."""
        if self.least is None:
            return "unknown"
        if self.most > 1:
            return "any"
        return "one" if self.least == 1 else "at-most-one"

    def also(self, other: Given) -> Given:
        """Rows that may come besides, at another time and of no record."""
        least = None if self.least is None or other.least is None else 0
        return Given(least, MANY, NO_COLUMN)


def given_out(frame: Frame, node: ast.AST, value: Value, *, generator: bool) -> Given:
    """What the caller of an operator's function makes of what it returns.

    `generator`: the function is one itself, so nobody has taken anything from it before.
    """
    why = tame(frame, value)
    if why is not None:
        refuse(frame, node, "whoever takes the rows", why)
    counts = [_counted(frame, atom, generator=generator) for atom in value]
    rows: Value = frozenset()
    nested: Value = frozenset()
    for atom in value:
        inside = _rows(frame, node, atom)
        rows |= inside
        if inside != frozenset({atom}) and not generator:
            nested |= inside
    if any(each is None for each in counts):
        return Given(
            None, MANY, forwarded(frame, rows, nested) if _are_rows(frame, rows) else NO_COLUMN
        )
    ends = [each for each in counts if each is not None] or [(0, 0)]
    least, most = min(each[0] for each in ends), max(each[1] for each in ends)
    return Given(least, most, forwarded(frame, rows, nested))


def _are_rows(frame: Frame, rows: Value) -> bool:
    return bool(rows) and all(is_row(frame, atom) for atom in rows)


def _counted(frame: Frame, atom: Atom, *, generator: bool) -> tuple[int, int] | None:
    """How many rows one atom is; None where it is no row, or not known."""
    if is_row(frame, atom):
        return (1, 1)
    if isinstance(atom, Const) and atom.value is None:
        return (0, 0)
    if isinstance(atom, Out) and type(atom.real) is list:
        count = min(MANY, len(atom.real))
        return (count, count)
    if not isinstance(atom, Obj) or frame.heap.item(atom).kind not in _SEVERAL:
        return None
    item = frame.heap.item(atom)
    used_up = item.kind == "generator" and not generator
    return (0 if used_up else item.least or 0, item.most)


def _rows(frame: Frame, node: ast.AST, atom: Atom) -> Value:
    if isinstance(atom, Const) and atom.value is None:
        return frozenset()
    several = isinstance(atom, Obj) and frame.heap.item(atom).kind in _SEVERAL
    outer = isinstance(atom, Out) and type(atom.real) not in outside.MAPPINGS
    if several or outer:
        return iterated(frame, node, frozenset({atom}))
    return frozenset({atom})
