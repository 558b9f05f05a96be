"""Library functions that go through what they are given, or pick from it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TypeAlias

from anabranch.compiler.functions.calls import Arguments, call
from anabranch.compiler.functions.containers import iterated, new, refuse, tame
from anabranch.compiler.functions.frame import Frame
from anabranch.compiler.functions.heap import Kind
from anabranch.compiler.functions.values import (
    NONE,
    NOTHING,
    PLAIN,
    SCALAR,
    UNKNOWN,
    Const,
    Obj,
    Out,
    Value,
)

Special: TypeAlias = Callable[[Frame, ast.AST, str, Arguments], Value]


def refused(frame: Frame, node: ast.AST, name: str, value: Value, *, ordered: bool) -> bool:
    """Whether library code may not be given a value; why is noted."""
    why = tame(frame, value, ordered=ordered)
    if why is not None:
        refuse(frame, node, f"`{name}`", why)
    return why is not None


def unordered_elements(frame: Frame, node: ast.AST, value: Value) -> Value:
    """What iterating gives where the order does not matter."""
    found: Value = NOTHING
    for atom in value:
        real = atom.real if isinstance(atom, Out) else None
        if isinstance(atom, Obj) and frame.heap.item(atom).kind == "set":
            found |= frame.heap.elements(atom)
        elif isinstance(real, set | frozenset):
            found |= SCALAR
        else:
            found |= iterated(frame, node, frozenset({atom}))
    return found


def _keyed(frame: Frame, node: ast.AST, name: str, elements: Value, given: Arguments) -> bool:
    """Call the `key` function on elements; whether they may be compared."""
    key = given.named.get("key", NONE)
    if key != NONE:
        elements = call(frame, node, key - NONE, Arguments([elements]))
    return not refused(frame, node, name, elements, ordered=True)


def in_order(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    """`sorted`."""
    source = NOTHING.union(*given.positional[:1])
    # Equal keys stay in the order of the set.
    look = iterated if given.named.get("key", NONE) != NONE else unordered_elements
    elements = look(frame, node, source)
    if not _keyed(frame, node, name, elements, given):
        return UNKNOWN
    return new(frame, node, "list", elements, tag=name)


def extreme(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    """`min` and `max`: one of the elements."""
    several = len(given.positional) > 1 or given.more is not None
    look = iterated if given.named.get("key", NONE) != NONE else unordered_elements
    elements = (
        NOTHING.union(*given.positional) | (given.more or NOTHING)
        if several
        else look(frame, node, given.every() - given.named.get("key", NOTHING))
    )
    if not _keyed(frame, node, name, elements, given):
        return UNKNOWN
    return elements | given.named.get("default", NOTHING)


def ranked(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    """`nlargest` and `nsmallest`."""
    elements = iterated(frame, node, given.first(1, "iterable") or NOTHING)
    if not _keyed(frame, node, name, elements, given):
        return UNKNOWN
    return new(frame, node, "list", elements, tag=name)


def truth(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    """`all` and `any`."""
    elements = unordered_elements(frame, node, given.every())
    return UNKNOWN if refused(frame, node, name, elements, ordered=False) else SCALAR


def summed(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    """`sum`."""
    elements = iterated(frame, node, given.first(0) or NOTHING)
    start = given.first(1, "start") or NOTHING
    if refused(frame, node, name, elements | start, ordered=True):
        return UNKNOWN
    flat = all(isinstance(atom, Const) for atom in start)
    return SCALAR if flat else PLAIN | elements | start


def pass_on(kind: Kind) -> Special:
    """Iterators of the elements of all arguments, in tuples of them or alone."""

    def made(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
        looked: Value = NOTHING
        for each in (*given.positional, *given.named.values(), given.more or NOTHING):
            numbers = frozenset(atom for atom in each if isinstance(atom, Const))
            looked |= iterated(frame, node, each - numbers) | iterated(
                frame,
                node,
                frozenset(a for a in numbers if isinstance(a.value, str)),
            )
        looked |= given.named.get("fillvalue", NOTHING)
        pair = new(frame, node, "tuple", looked | SCALAR | NONE, tag="pair")
        return new(frame, node, kind, pair, tag=name)

    return made


def flattened(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    """The elements of the arguments, one after the other."""
    looked = given.every()
    elements = iterated(frame, node, frozenset(a for a in looked if not _is_number(a)))
    return new(frame, node, "iterator", elements, tag=name)


def _is_number(atom: object) -> bool:
    return isinstance(atom, Const) and not isinstance(atom.value, str | bytes)


def repeated(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    """`repeat`: the argument itself, again and again."""
    return new(frame, node, "iterator", given.first(0) or NOTHING, tag=name)


def called_on_elements(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    """`map`, `filter` and their like: the first argument is called with elements of the others."""
    function = given.first(0) or NOTHING
    others = [iterated(frame, node, each) for each in given.positional[1:]]
    if name.endswith("starmap"):
        inner = iterated(frame, node, NOTHING.union(*others))
        found = call(frame, node, function, Arguments(more=inner))
    else:
        found = call(frame, node, function - NONE, Arguments(others))
    if name != "map" and not name.endswith("starmap"):
        if refused(frame, node, name, found, ordered=False):
            return UNKNOWN
        found = NOTHING.union(*others)
    return new(frame, node, "iterator", found, tag=name)


def reduced(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    """`reduce`: the function is called with what it returned before."""
    elements = iterated(frame, node, given.first(1) or NOTHING)
    total = frame.heap.item(frame.make(node, "cell", name))
    frame.heap.add(total, elements | (given.first(2) or NOTHING))
    function = given.first(0) or NOTHING
    frame.heap.add(total, call(frame, node, function, Arguments([total.elements, elements])))
    return total.elements


def accumulated(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    """`accumulate`: every total on the way."""
    elements = iterated(frame, node, given.first(0) or NOTHING)
    function = given.first(1, "func")
    if function is None or function == NONE:
        if refused(frame, node, name, elements, ordered=True):
            return UNKNOWN
        return new(frame, node, "iterator", SCALAR | PLAIN | elements, tag=name)
    start = given.named.get("initial", NOTHING)
    total = reduced(frame, node, name, Arguments([function, given.positional[0], start]))
    return new(frame, node, "iterator", total, tag=name)


def grouped(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    """`groupby`: pairs of a key and an iterator of elements."""
    elements = iterated(frame, node, given.first(0) or NOTHING)
    key = given.first(1, "key") or NONE
    found = call(frame, node, key - NONE, Arguments([elements])) if key != NONE else elements
    if refused(frame, node, name, found, ordered=True):
        return UNKNOWN
    group = new(frame, node, "iterator", elements, tag="group")
    return new(
        frame, node, "iterator", new(frame, node, "tuple", found | group, tag="pair"), tag=name
    )


def next_of(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    """`next`: an element, or the default."""
    del name
    return iterated(frame, node, given.first(0) or NOTHING) | (given.first(1) or NOTHING)


def numbers(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    """`range` and `count`."""
    if refused(frame, node, name, given.every(), ordered=True):
        return UNKNOWN
    return new(frame, node, "iterator", SCALAR, tag=name)


def matches(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    """`finditer`."""
    if refused(frame, node, name, given.every(), ordered=True):
        return UNKNOWN
    return new(frame, node, "iterator", SCALAR, tag=name)


def passed_through(frame: Frame, node: ast.AST, name: str, given: Arguments) -> Value:
    """An iterator of the elements of what is given."""
    return new(frame, node, "iterator", iterated(frame, node, given.every()), tag=name)
