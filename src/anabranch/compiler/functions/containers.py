"""Looking into containers, storing into them, and which values library code may be given."""

from __future__ import annotations

import ast
import enum
from typing import Any

from anabranch.compiler.functions import outside
from anabranch.compiler.functions.attributes import outer
from anabranch.compiler.functions.frame import Frame
from anabranch.compiler.functions.heap import EVERY, MANY, Kind
from anabranch.compiler.functions.values import (
    NOTHING,
    PLAIN,
    SCALAR,
    UNKNOWN,
    Atom,
    Bound,
    Const,
    Field,
    Known,
    Obj,
    Out,
    Part,
    Plain,
    Record,
    Scalar,
    State,
    TypeOf,
    Unknown,
    Value,
    const,
    constant,
    only,
)

SET_ORDER = "the order of a set differs from process to process: use sorted(...)"


def new(
    frame: Frame, node: ast.AST, kind: Kind, elements: Value, keys: Value = NOTHING, tag: str = ""
) -> Value:
    """A container made here that holds these."""
    made = frame.make(node, kind, tag)
    item = frame.heap.item(made)
    frame.heap.add(item, elements, keys)
    frame.heap.count(item, 0, MANY)
    return frozenset({made})


def iterated(frame: Frame, node: ast.AST, value: Value) -> Value:
    """What iterating over a value gives."""
    found: Value = NOTHING
    for atom in value:
        found |= _iterated(frame, node, atom)
    return found


def _iterated(frame: Frame, node: ast.AST, atom: Atom) -> Value:  # noqa: PLR0911
    match atom:
        case Const(kind=kind):
            return SCALAR if kind in (str, bytes) else NOTHING
        case Scalar():
            return SCALAR
        case Record():
            return SCALAR | frame.heap.record.keys
        case Plain() | Field() | Part():
            return frame.heap.elements(atom)
        case Obj():
            return _iterated_new(frame, node, atom)
        case Known() | Out():
            return _iterated_real(frame, node, atom)
        case Unknown():
            return UNKNOWN
        case _:
            return frame.report(node, "iterates over something that is no plain container")


def _iterated_new(frame: Frame, node: ast.AST, atom: Obj) -> Value:
    item = frame.heap.item(atom)
    if item.kind == "set":
        return frame.report(node, f"iterates over a set; {SET_ORDER}")
    if item.kind == "dict":
        return item.keys
    if item.kind == "instance":
        return _special(frame, node, atom, "__iter__", again=True)
    if item.kind in ("closure", "cell"):
        return frame.report(node, "iterates over a function")
    return frame.heap.elements(atom)


def _special(frame: Frame, node: ast.AST, atom: Obj, name: str, *, again: bool) -> Value:
    from anabranch.compiler.functions.calls import Arguments, call_special

    found = call_special(frame, node, atom, name, Arguments())
    if found is None:
        kind = frame.heap.item(atom).made_of.__name__
        return frame.report(node, f"uses {name} of {kind}, which is not understood")
    return iterated(frame, node, found) if again else found


def _iterated_real(frame: Frame, node: ast.AST, atom: Known | Out) -> Value:
    real = atom.real
    label = atom.label if isinstance(atom, Out) else type(real).__name__
    if type(real) in outside.SETS:
        return frame.report(node, f"iterates over the set `{label}`; {SET_ORDER}")
    if type(real) is enum.EnumMeta:
        return _members(frame, node, real)
    held = holding(real, label)
    if held is None:
        return frame.report(node, f"iterates over `{label}`, which is no plain container")
    return held[1] if type(real) in outside.MAPPINGS else held[0]


def holding(real: Any, label: str) -> tuple[Value, Value] | None:
    """What an outside container holds, as elements and keys; None if it is none."""
    is_tuple = isinstance(real, tuple) and (
        type(real) is tuple or outside.is_named_tuple(type(real))
    )
    if type(real) in outside.CONTAINERS or type(real) is range or is_tuple:
        return outside.held(real, label)
    return None


def looked_up(frame: Frame, node: ast.AST, value: Value, key: Value, *, part: bool) -> Value:
    """What `value[key]` gives; `part`: the key is a slice."""
    found: Value = NOTHING
    for atom in value:
        found |= _looked_up(frame, node, atom, key, part=part)
    return found


def _looked_up(frame: Frame, node: ast.AST, atom: Atom, key: Value, *, part: bool) -> Value:  # noqa: PLR0911, PLR0912
    match atom:
        case Const(kind=kind):
            return SCALAR if kind in (str, bytes) else NOTHING
        case Scalar():
            return SCALAR
        case Record():
            return column(frame, key)
        case Plain():
            return PLAIN | frame.heap.soup
        case Field(column=name) | Part(column=name):
            return frozenset({Part(name)}) | frame.heap.soup
        case Obj():
            return _looked_up_new(frame, node, atom, key, part=part)
        case Known() | Out():
            return _looked_up_real(frame, node, atom, key, part=part)
        case Unknown():
            return UNKNOWN
        case _:
            return frame.report(node, "looks into something that is no plain container")


def column(frame: Frame, key: Value) -> Value:
    """What the record may hold under a key."""
    record, name = frame.heap.record, constant(key)
    if name is None or not isinstance(name.value, str):
        found = frozenset({Field(None)}) | record.elements
        for each in record.attributes.values():
            found |= each
        return found
    changed = record.attributes.get(name.value, NOTHING) | record.elements
    return frozenset({Field(name.value)}) | changed


def _looked_up_new(frame: Frame, node: ast.AST, atom: Obj, key: Value, *, part: bool) -> Value:
    item = frame.heap.item(atom)
    if item.kind == "instance":
        from anabranch.compiler.functions.calls import Arguments, call_special

        found = call_special(frame, node, atom, "__getitem__", Arguments([key]))
        if found is None:
            return frame.report(
                node, f"looks into a {item.made_of.__name__}, which is no container"
            )
        return found
    if item.kind not in ("list", "tuple", "dict", "deque"):
        return frame.report(node, "looks into something that is no plain container")
    name = constant(key)
    if item.kind == "dict" and item.shapes and name is not None and isinstance(name.value, str):
        return _entry(frame, node, atom, name.value)
    elements = frame.heap.elements(atom)
    return new(frame, node, item.kind, elements, tag="slice") if part else elements


def _entry(frame: Frame, node: ast.AST, atom: Obj, name: str) -> Value:
    """What a dict made here may hold under one name."""
    frame.step()
    item = frame.heap.item(atom)
    if atom.aged or any(key == EVERY for shape in item.shapes for key, _ in shape):
        return frame.heap.elements(atom)
    found = item.attributes.get(name, NOTHING) | item.attributes.get(EVERY, NOTHING)
    for key, value in {layer for shape in item.shapes for layer in shape}:
        if key is None:
            found |= looked_up(frame, node, value - {atom}, const(name), part=False)
        elif key == name:
            found |= value
    return found


def _looked_up_real(  # noqa: PLR0911
    frame: Frame, node: ast.AST, atom: Known | Out, key: Value, *, part: bool
) -> Value:
    real = atom.real
    label = atom.label if isinstance(atom, Out) else type(real).__name__
    if isinstance(real, type):
        return _looked_up_class(frame, node, real)
    if type(real).__name__ == "defaultdict":
        text = f"looks into `{label}`, a defaultdict, which grows when it is read"
        return frame.report(node, f"{text}: use .get(...), or a plain dict")
    if type(real) in outside.IMMUTABLES:
        return SCALAR
    held = holding(real, label)
    if held is None or type(real) in outside.SETS:
        return frame.report(node, f"looks into `{label}`, which is no plain container")
    if part:
        kind: Kind = "tuple" if isinstance(real, tuple) else "list"
        return new(frame, node, kind, held[0], tag="slice")
    name = constant(key)
    if name is not None and type(real) in outside.MAPPINGS and name.value in real:
        return outer(frame, node, real[name.value], f"{label}[{name.value!r}]")
    return held[0]


def _members(frame: Frame, node: ast.AST, kind: enum.EnumMeta) -> Value:
    members: list[Any] = list(kind.__members__.values())
    return NOTHING.union(*(outer(frame, node, each, str(kind.__name__)) for each in members))


def _looked_up_class(frame: Frame, node: ast.AST, real: type) -> Value:
    """`list[int]`, or a member of an Enum by its name."""
    if type(real) is enum.EnumMeta:
        return _members(frame, node, real)
    if type(real) is type and "__class_getitem__" not in vars(real):
        return frozenset({TypeOf()})
    if outside.from_library_class(real):
        return frozenset({TypeOf()})
    return frame.report(node, f"looks into the class {real.__name__}, which is not understood")


def changed(frame: Frame, node: ast.AST, atom: Known | Out, how: str) -> Value:
    """Refuse to change an outside object, and say what to do instead."""
    label = atom.label if isinstance(atom, Out) else getattr(atom.real, "__name__", "it")
    kind = type(atom.real).__name__
    text = f"{how} `{label}`, a {kind} that exists outside the function"
    so = "keep it in `state.value` of .key_by(...).process(...), or declare @ab.operator(state=...)"
    return frame.report(node, f"{text}: {so}")


def stored(frame: Frame, node: ast.AST, value: Value, key: Value, new_value: Value) -> None:
    """Take note of `value[key] = new_value`."""
    if (into := only(value)) is not None and isinstance(into, Obj):
        _fill(frame, into, constant(key), new_value)
    for atom in value:
        _stored(frame, node, atom, key, new_value)


def _fill(frame: Frame, into: Obj, key: Const | None, value: Value) -> None:
    """Take note that from here on a new dict surely holds a column as the record held it."""
    if frame.flow is None or key is None or value != frozenset({Field(key.value)}):
        return
    if into in frame.flow.filled:
        frame.flow.filled[into] |= {key.value}


def _stored(frame: Frame, node: ast.AST, atom: Atom, key: Value, new_value: Value) -> None:
    match atom:
        case Record():
            write_column(frame, key, new_value)
        case Plain():
            frame.heap.pour(key | new_value)
        case Field(column=name) | Part(column=name):
            frame.heap.pour(key | new_value)
            frame.heap.touch(name)
        case Obj():
            _stored_new(frame, node, atom, key, new_value)
        case Known() | Out():
            changed(frame, node, atom, "changes")
        case State() | Bound() | TypeOf():
            frame.report(node, "changes something that is no plain container")
        case Const() | Scalar():
            pass  # cannot be changed: an exception
        case Unknown():
            escape(frame, new_value)


def write_column(frame: Frame, key: Value, value: Value) -> None:
    """Take note that a column of the record is written or removed."""
    record, name = frame.heap.record, constant(key)
    if name is not None and isinstance(name.value, str):
        frame.heap.set_attribute(record, name.value, value)
        frame.heap.write(record, {name.value})
        return
    frame.heap.add(record, value, key)
    frame.heap.write(record, {EVERY})


def _stored_new(frame: Frame, node: ast.AST, atom: Obj, key: Value, value: Value) -> None:
    item = frame.heap.item(atom)
    if item.kind == "instance":
        from anabranch.compiler.functions.calls import Arguments, call_special

        if call_special(frame, node, atom, "__setitem__", Arguments([key, value])) is None:
            frame.report(node, f"stores into a {item.made_of.__name__}, which is no container")
        return
    name = constant(key)
    known = name is not None and isinstance(name.value, str)
    written = name.value if known and name is not None else EVERY
    frame.heap.add(item, value, key)
    if item.kind == "dict":
        frame.heap.set_attribute(item, written, value)
    forwards = value == frozenset({Field(written)})
    frame.heap.write(item, {written}, spoils=not forwards)


def escape(frame: Frame, value: Value, seen: set[Atom] | None = None) -> None:
    """Something unknown gets hold of a value: anything may become of what can be changed in it."""
    seen = set() if seen is None else seen
    for atom in value - seen:
        seen.add(atom)
        match atom:
            case Record():
                frame.heap.write(frame.heap.record, {EVERY})
                frame.heap.add(frame.heap.record, UNKNOWN)
            case Field(column=name) | Part(column=name):
                frame.heap.touch(name)
            case Obj():
                item = frame.heap.item(atom)
                frame.heap.write(item, {EVERY})
                frame.heap.count(item, 0, MANY)
                escape(frame, item.elements, seen)
            case _:
                pass


def tame(
    frame: Frame, value: Value, *, ordered: bool = True, seen: set[Atom] | None = None
) -> str | None:
    """Why library code may not be given a value; None if it is plain through and through.

    With `ordered` the order of its elements matters to that code.
    """
    seen = set() if seen is None else seen
    for atom in value - seen:
        seen.add(atom)
        if (why := _tame(frame, atom, ordered=ordered, seen=seen)) is not None:
            return why
    return None


def _tame(frame: Frame, atom: Atom, *, ordered: bool, seen: set[Atom]) -> str | None:  # noqa: PLR0911
    match atom:
        case Const() | Scalar() | Unknown() | TypeOf():
            return None
        case Plain() | Field() | Part():
            return tame(frame, frame.heap.soup, ordered=ordered, seen=seen)
        case Record():
            record = frame.heap.record
            inside = record.elements
            for each in record.attributes.values():
                inside |= each
            return tame(frame, inside, ordered=ordered, seen=seen)
        case Obj():
            return _tame_new(frame, atom, ordered=ordered, seen=seen)
        case Known() | Out():
            return _tame_real(frame, atom, ordered=ordered, seen=seen)
        case State():
            return "the state itself"
        case Bound():
            return "a method"


def _tame_new(frame: Frame, atom: Obj, *, ordered: bool, seen: set[Atom]) -> str | None:
    item = frame.heap.item(atom)
    if item.kind == "set" and ordered:
        return f"a set; {SET_ORDER}"
    if item.kind == "instance":
        return f"a {item.made_of.__name__}, whose special methods are not followed here"
    if item.kind in ("closure", "cell"):
        return "a function"
    return tame(frame, item.elements | item.keys, ordered=ordered, seen=seen)


def _tame_real(frame: Frame, atom: Known | Out, *, ordered: bool, seen: set[Atom]) -> str | None:
    real = atom.real
    if type(real) in outside.IMMUTABLES:
        return None
    if type(real) in outside.SETS and ordered:
        return f"a set; {SET_ORDER}"
    held = holding(real, atom.label if isinstance(atom, Out) else "it")
    if held is None:
        return f"`{getattr(real, '__name__', type(real).__name__)}`, which is no plain value"
    return tame(frame, held[0] | held[1], ordered=ordered, seen=seen)


def unordered(frame: Frame, value: Value) -> str | None:
    """Why a value is not plain, where the order of sets does not matter."""
    return tame(frame, value, ordered=False)


def textual(frame: Frame, value: Value) -> str | None:
    """Why the text of a value is not the same everywhere; that of an iterator has its address."""
    return tame(frame, value) or _with_address(frame, value, set())


def _with_address(frame: Frame, value: Value, seen: set[Atom]) -> str | None:
    for atom in value - seen:
        seen.add(atom)
        if isinstance(atom, Plain | Field | Part | Record):
            inner = frame.heap.soup | frame.heap.record.elements
            inner = inner.union(*frame.heap.record.attributes.values())
        elif isinstance(atom, Obj):
            item = frame.heap.item(atom)
            if item.kind in ("iterator", "generator"):
                return "an iterator, whose text is an address: make a list of it"
            inner = item.elements | item.keys
        else:
            continue
        if (why := _with_address(frame, inner, seen)) is not None:
            return why
    return None


def owned(frame: Frame, value: Value, seen: set[Atom]) -> bool:
    """Whether everything that can be reached from a value and changed was made in this call."""
    for atom in value - seen:
        seen.add(atom)
        inner: Value = NOTHING
        if isinstance(atom, Out | Bound | State):
            return False
        if isinstance(atom, Known):
            if type(atom.real) not in outside.IMMUTABLES:
                return False
        elif isinstance(atom, Obj):
            item = frame.heap.item(atom)
            inner = (item.elements | item.keys).union(*item.attributes.values())
        else:
            inner = frame.heap.soup | frame.heap.record.elements
            inner = inner.union(*frame.heap.record.attributes.values())
        if not owned(frame, inner, seen):
            return False
    return True


def refuse(frame: Frame, node: ast.AST, what: str, why: str) -> Value:
    """Say that library code is given something it may not be given."""
    return frame.report(node, f"{what} is given {why}")
