"""Dicts that are made of others: copies of the record with some columns written."""

from __future__ import annotations

import ast

from anabranch.compiler.functions import outside
from anabranch.compiler.functions.calls import Arguments, values_of
from anabranch.compiler.functions.containers import column, iterated
from anabranch.compiler.functions.frame import Frame
from anabranch.compiler.functions.heap import EVERY, Item, Shape
from anabranch.compiler.functions.values import (
    NOTHING,
    SCALAR,
    Const,
    Known,
    Obj,
    Out,
    Record,
    Value,
    const,
)


def made_dict(
    frame: Frame, node: ast.AST, shape: Shape, extra: tuple[Value, Value] = (NOTHING, NOTHING)
) -> Value:
    """A dict made here, layer upon layer; `extra`: elements and keys not told apart."""
    made = frame.make(node, "dict", "shaped")
    item = frame.heap.item(made)
    elements, keys = extra
    for key, value in shape:
        if key is None:
            elements |= spread_values(frame, node, value)
            keys |= spread_keys(frame, node, value)
        else:
            elements, keys = elements | value, keys | const(key)
    frame.heap.add(item, elements, keys)
    frame.heap.add_shape(item, shape)
    if extra[0]:
        frame.heap.set_attribute(item, EVERY, extra[0])
    frame.made_once(made)
    return frozenset({made})


def spread_values(frame: Frame, node: ast.AST, value: Value) -> Value:
    """The values of mappings."""
    record = column(frame, NOTHING) if Record() in value else NOTHING
    return record | values_of(frame, node, value - {Record()})


def spread_keys(frame: Frame, node: ast.AST, value: Value) -> Value:
    """The keys of mappings."""
    found: Value = NOTHING
    for atom in value:
        if isinstance(atom, Obj) and frame.heap.item(atom).kind == "dict":
            found |= frame.heap.item(atom).keys
        elif isinstance(atom, Obj | Known | Out | Record):
            found |= iterated(frame, node, frozenset({atom}))
        else:
            found |= SCALAR
    return found


def possible_keys(frame: Frame, value: Value) -> frozenset[str]:
    """The keys that mappings may have; EVERY where that is not known."""
    found: set[str] = set()
    for atom in value:
        keys = _keys_of(frame, atom)
        if keys is None:
            return frozenset({EVERY})
        found |= keys
    return frozenset(found)


def _keys_of(frame: Frame, atom: object) -> set[str] | None:
    if isinstance(atom, Out) and type(atom.real) in outside.MAPPINGS:
        return {key for key in atom.real if isinstance(key, str)}
    if not isinstance(atom, Obj) or frame.heap.item(atom).kind != "dict":
        return None
    keys = frame.heap.item(atom).keys
    if not all(isinstance(key, Const) for key in keys):
        return None
    return {key.value for key in keys if isinstance(key, Const) and isinstance(key.value, str)}


def update_record(frame: Frame, node: ast.AST, given: Arguments) -> None:
    """Take note of `record.update(...)`."""
    heap, record = frame.heap, frame.heap.record
    for name, value in given.named.items():
        heap.set_attribute(record, name, value)
        heap.write(record, {name})
    if given.more is not None or given.more_named is not None:
        heap.write(record, {EVERY})
        heap.add(record, (given.more or NOTHING) | (given.more_named or NOTHING), SCALAR)
    for each in given.positional:
        keys, entries = possible_keys(frame, each), _entries(frame, node, each)
        heap.write(record, keys)
        if EVERY in keys:
            heap.add(record, entries, spread_keys(frame, node, each))
        for key in keys - {EVERY}:
            heap.set_attribute(record, key, entries)


def update_new(frame: Frame, node: ast.AST, item: Item, given: Arguments) -> None:
    """Take note of `update` on a dict made in this call."""
    heap = frame.heap
    for name, value in given.named.items():
        heap.add(item, value, const(name))
        heap.set_attribute(item, name, value)
        heap.write(item, {name})
    if given.more is not None or given.more_named is not None:
        loose = (given.more or NOTHING) | (given.more_named or NOTHING)
        heap.write(item, {EVERY})
        heap.add(item, loose, SCALAR)
        heap.set_attribute(item, EVERY, loose)
    for each in given.positional:
        keys, entries = possible_keys(frame, each), _entries(frame, node, each)
        heap.write(item, keys)
        heap.add(item, entries, spread_keys(frame, node, each))
        for key in keys:
            heap.set_attribute(item, key, entries)


def is_mapping(frame: Frame, atom: object) -> bool:
    """Whether something is certainly a mapping."""
    if isinstance(atom, Obj):
        return frame.heap.item(atom).kind == "dict"
    return isinstance(atom, Record) or (
        isinstance(atom, Out) and type(atom.real) in outside.MAPPINGS
    )


def _entries(frame: Frame, node: ast.AST, value: Value) -> Value:
    """Values of mappings, or what pairs hold."""
    mappings = frozenset(atom for atom in value if is_mapping(frame, atom))
    found = spread_values(frame, node, mappings)
    if value - mappings:
        pairs = iterated(frame, node, value - mappings)
        found |= pairs | iterated(
            frame, node, frozenset(a for a in pairs if not isinstance(a, Const))
        )
    return found
