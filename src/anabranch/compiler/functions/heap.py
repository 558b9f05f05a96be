"""The objects that a call makes, one abstract object for each place that makes them.

What is stored into an object is added to what it may hold, never replaced: so the order of stores
and who else knows the object play no role. The analysis is repeated until nothing is added.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from anabranch.compiler.functions.values import (
    NOTHING,
    Atom,
    Field,
    Obj,
    Part,
    Plain,
    Record,
    Value,
    aged,
)

Kind: TypeAlias = Literal[
    "list", "tuple", "dict", "set", "deque", "iterator", "generator", "instance", "closure", "cell"
]
Layer: TypeAlias = tuple[str | None, Value]
"""One step in making a dict: a key and its value, or None and a mapping spread into it."""
Shape: TypeAlias = tuple[Layer, ...]

EVERY = "*"
"""In a set of keys: every key."""
MANY = 2
"""Two or more rows."""


@dataclass(slots=True)
class Item:
    """What may be said about the objects made at one place."""

    kind: Kind
    made_of: Any = None
    """The class of an instance, the function of a closure."""
    elements: Value = NOTHING
    keys: Value = NOTHING
    attributes: dict[str, Value] = field(default_factory=dict)
    shapes: set[Shape] = field(default_factory=set)
    """How a dict was made, in all ways seen."""
    written: set[str] = field(default_factory=set)
    """Keys that were written or removed after it was made."""
    spoiled: set[str] = field(default_factory=set)
    """Those of them that ever got something else than the record's column of that name."""
    least: int | None = None
    most: int = 0
    """How many elements it has."""


class Heap:
    """Everything made in a call, and what was done to the record."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.record = Item("dict")
        self.soup: Value = NOTHING
        """What was stored into plain objects whose place is not known."""
        self.touched: set[str] = set()
        """Columns of which something within was changed in place."""
        self.state: dict[str, Value] = {}
        self.version = 0
        """Rises whenever anything is added."""
        self._sites: dict[tuple[Any, ...], int] = {}

    def make(self, where: tuple[Any, ...], kind: Kind, made_of: Any = None) -> Obj:
        """The object of a place."""
        place = (*where, kind)
        if place not in self._sites:
            self._sites[place] = len(self.items)
            self.items.append(Item(kind, made_of))
            self.version += 1
        return Obj(self._sites[place])

    def item(self, atom: Obj) -> Item:
        """What is known of an object."""
        return self.items[atom.site]

    def add(self, item: Item, elements: Value = NOTHING, keys: Value = NOTHING) -> None:
        """Let an object hold these as well."""
        if not (elements <= item.elements and keys <= item.keys):
            item.elements |= elements
            item.keys |= keys
            self.version += 1

    def set_attribute(self, item: Item, name: str, value: Value) -> None:
        """Let an attribute of an object hold these as well."""
        before = item.attributes.get(name)
        if before is None or not value <= before:
            item.attributes[name] = (before or NOTHING) | value
            self.version += 1

    def add_shape(self, item: Item, shape: Shape) -> None:
        """Note one way in which a dict is made."""
        if shape not in item.shapes:
            item.shapes.add(shape)
            self.version += 1

    def count(self, item: Item, least: int, most: int) -> None:
        """Note how many elements it is made with."""
        least = least if item.least is None else min(least, item.least)
        most = max(most, item.most)
        if (least, most) != (item.least, item.most):
            item.least, item.most = least, most
            self.version += 1

    def write(self, item: Item, keys: Iterable[str], *, spoils: bool = True) -> None:
        """Note that keys are written or removed behind its making."""
        new, spoilt = set(keys) - item.written, set(keys) - item.spoiled if spoils else set()
        if new or spoilt:
            item.written |= new
            item.spoiled |= spoilt
            self.version += 1

    def touch(self, column: str | None) -> None:
        """Note that something within a column's value is changed in place."""
        name = EVERY if column is None else column
        if name not in self.touched:
            self.touched.add(name)
            self.version += 1

    def pour(self, value: Value) -> None:
        """Store into some plain object."""
        if not value <= self.soup:
            self.soup |= value
            self.version += 1

    def keep(self, name: str, value: Value) -> None:
        """Store into the state: this call finds it there as it is, later ones aged."""
        both = value | aged(value)
        before = self.state.get(name, NOTHING)
        if not both <= before:
            self.state[name] = before | both
            self.version += 1

    def elements(self, atom: Atom) -> Value:
        """What iterating over or looking into a fresh object may give, keys of dicts apart."""
        match atom:
            case Plain():
                return frozenset({Plain()}) | self.soup
            case Field(column=column) | Part(column=column):
                return frozenset({Part(column)}) | self.soup
            case Record():
                return frozenset({Field(None)}) | self.record.elements
            case Obj(aged=old):
                found = self.item(atom).elements
                return aged(found) if old else found
            case _:
                return NOTHING

    def attribute(self, atom: Obj, name: str) -> Value | None:
        """What an attribute of an instance may hold; None where it was never set."""
        found = self.item(atom).attributes.get(name)
        return aged(found) if found is not None and atom.aged else found
