"""Assignments: to variables, into containers, to attributes."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator

from anabranch.compiler.functions import attributes, outside
from anabranch.compiler.functions.calls import Arguments, call_function
from anabranch.compiler.functions.containers import (
    changed,
    escape,
    iterated,
    looked_up,
    new,
    refuse,
    stored,
    tame,
)
from anabranch.compiler.functions.dicts import update_new, update_record
from anabranch.compiler.functions.evaluation import evaluate
from anabranch.compiler.functions.frame import Frame, mangled
from anabranch.compiler.functions.heap import MANY
from anabranch.compiler.functions.operators import combined, keyable
from anabranch.compiler.functions.values import (
    NONE,
    NOTHING,
    Const,
    Field,
    Known,
    Obj,
    Out,
    Part,
    Plain,
    Record,
    State,
    Unknown,
    Value,
)

_KEPT = ("value", "list", "map")


def assign(frame: Frame, target: ast.expr, value: Value) -> None:  # noqa: PLR0912
    """Take note of `target = value`."""
    match target:
        case ast.Name(id=name):
            frame.bind(target, name, value)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            elements = iterated(frame, target, value)
            for part in parts:
                assign(frame, part, elements)
        case ast.Starred(value=inner):
            assign(frame, inner, new(frame, target, "list", value, tag="rest"))
        case ast.Subscript(value=holder, slice=key):
            into, at = evaluate(frame, holder), evaluate(frame, key)
            if isinstance(key, ast.Slice):
                value = iterated(frame, target, value)
            if keyable(frame, target, at):
                stored(frame, target, into, at, value)
        case ast.Attribute(value=holder, attr=name):
            for atom in evaluate(frame, holder):
                _set(frame, target, atom, mangled(name, frame.callee.within), value)
        case _:
            frame.report(target, "assigns in a way that is not understood")


def targets_of(frame: Frame, target: ast.expr, value: Value) -> Iterator[tuple[str, Value]]:
    """The variables that a comprehension binds."""
    match target:
        case ast.Name(id=name):
            yield name, value
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            elements = iterated(frame, target, value)
            for part in parts:
                yield from targets_of(frame, part, elements)
        case ast.Starred(value=inner):
            yield from targets_of(frame, inner, new(frame, target, "list", value, tag="rest"))
        case _:
            frame.report(target, "a comprehension assigns to something that is no variable")


def _set(frame: Frame, node: ast.AST, atom: object, name: str, value: Value) -> None:
    match atom:
        case State():
            keep(frame, node, name, value)
        case Obj() if frame.heap.item(atom).kind == "instance":
            _set_new(frame, node, atom, name, value)
        case Known() | Out():
            changed(frame, node, atom, f"sets the attribute `{name}` of")
            escape(frame, value)
        case Unknown():
            escape(frame, value)
        case Const():
            pass
        case _:
            frame.report(node, f"sets the attribute `{name}` of something that has none")


def _set_new(frame: Frame, node: ast.AST, atom: Obj, name: str, value: Value) -> None:
    kind = frame.heap.item(atom).made_of
    frame.analysis.rely_on(kind, name)
    found = outside.class_attribute(kind, name)
    raw = found[1] if found is not None else None
    if isinstance(raw, property) and isinstance(raw.fset, types.FunctionType):
        call_function(frame, node, raw.fset, Arguments([frozenset({atom}), value]))
        return
    slot = isinstance(raw, types.MemberDescriptorType)
    if raw is not None and hasattr(type(raw), "__set__") and not slot:
        frame.report(node, f"sets `{kind.__name__}.{name}`, which runs a descriptor")
        return
    frame.heap.set_attribute(frame.heap.item(atom), name, value)


def keep(frame: Frame, node: ast.AST, name: str, value: Value) -> None:
    """Take note of a store into the keyed state."""
    if name not in _KEPT:
        frame.report(node, f"sets `state.{name}`; values belong in state.value, .list or .map")
        return
    if (why := _unkeepable(frame, value)) is not None:
        refuse(frame, node, f"`state.{name}`", why)
        return
    frame.heap.keep(name, value)


def _unkeepable(frame: Frame, value: Value) -> str | None:
    """Why a value cannot be kept in state; objects of dataclasses can."""
    made = {atom: frame.heap.item(atom) for atom in value if isinstance(atom, Obj)}
    if any(item.kind in ("iterator", "generator") for item in made.values()):
        return "an iterator"
    instances = {atom: item for atom, item in made.items() if item.kind == "instance"}
    inside = NOTHING.union(*(v for item in instances.values() for v in item.attributes.values()))
    return tame(frame, (value | inside) - instances.keys(), ordered=False)


def assign_in_place(frame: Frame, node: ast.AugAssign) -> None:
    """Take note of `target += value` and its like, which may change the object itself."""
    target = node.target
    match target:
        case ast.Name(id=name):
            before = evaluate(frame, ast.copy_location(ast.Name(name, ast.Load()), target))
        case ast.Attribute(value=holder, attr=name):
            before = NOTHING
            for atom in evaluate(frame, holder):
                before |= attributes.read(frame, node, atom, mangled(name, frame.callee.within))
        case ast.Subscript(value=holder, slice=key):
            before = looked_up(
                frame, node, evaluate(frame, holder), evaluate(frame, key), part=False
            )
    value = evaluate(frame, node.value)
    kept = _change_in_place(frame, node, before, value)
    after = combined(frame, node, before, value, node.op) if before else NOTHING
    assign(frame, target, kept | after)


def _change_in_place(frame: Frame, node: ast.AugAssign, before: Value, value: Value) -> Value:
    """Change the mutable objects among `before`; what stays the same object."""
    numbers = all(isinstance(a, Const) and not isinstance(a.value, str | bytes) for a in value)
    if numbers and not isinstance(node.op, ast.Mult):
        return NOTHING  # containers take no numbers; `*=` makes more of the same
    kept: Value = NOTHING
    for atom in before:
        match atom:
            case Out() if not isinstance(atom.real, frozenset | types.MappingProxyType):
                changed(frame, node, atom, "changes")
            case Record():
                update_record(frame, node, Arguments([value]))
                kept |= frozenset({atom})
            case Field() | Part() | Plain():
                frame.heap.pour(_elements(frame, node, value))
                if not isinstance(atom, Plain):
                    frame.heap.touch(atom.column)
            case Obj():
                kept |= _change_new(frame, node, atom, value)
            case _:
                pass
    return kept


def _elements(frame: Frame, node: ast.AST, value: Value) -> Value:
    """What adding in place brings in; a set may be added to a set."""
    sets = frozenset(a for a in value if isinstance(a, Obj) and frame.heap.item(a).kind == "set")
    found = NOTHING.union(*(frame.heap.elements(a) for a in sets))
    rest = frozenset(a for a in value - sets if not isinstance(a, Out | Known))
    return found | iterated(frame, node, rest) | (value - sets - rest)


def _change_new(frame: Frame, node: ast.AST, atom: Obj, value: Value) -> Value:
    item = frame.heap.item(atom)
    if item.kind == "dict":
        update_new(frame, node, item, Arguments([value]))
    elif item.kind in ("list", "set", "deque"):
        frame.heap.add(item, _elements(frame, node, value))
        frame.heap.count(item, 0, MANY)
    else:
        return NOTHING
    return frozenset({atom})


def delete(frame: Frame, target: ast.expr) -> None:
    """Take note of `del target`."""
    match target:
        case ast.Name(id=name):
            frame.bind(target, name, NOTHING)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for part in parts:
                delete(frame, part)
        case ast.Subscript(value=holder, slice=key):
            # None, as `.get` finds it from then on.
            stored(frame, target, evaluate(frame, holder), evaluate(frame, key), NONE)
        case ast.Attribute(value=holder, attr=name):
            for atom in evaluate(frame, holder):
                _set(frame, target, atom, mangled(name, frame.callee.within), NOTHING)
        case _:
            frame.report(target, "deletes in a way that is not understood")
