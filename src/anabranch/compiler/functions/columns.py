"""Which columns of the record the rows have that a function gives out."""

from __future__ import annotations

import ast

from anabranch.compiler.functions import outside
from anabranch.compiler.functions.dicts import is_mapping, possible_keys
from anabranch.compiler.functions.evaluation import evaluate
from anabranch.compiler.functions.frame import Frame
from anabranch.compiler.functions.heap import EVERY, Item, Shape
from anabranch.compiler.functions.values import (
    Atom,
    Field,
    Obj,
    Out,
    Record,
    Value,
)
from anabranch.compiler.functions.verdict import Forwards

NO_COLUMN = Forwards.exactly()


def forwarded(frame: Frame, row: Value, nested: Value) -> Forwards:
    """The columns that a row has as the record had them, whichever of its atoms it is.

    `nested`: atoms that are rows in a list, too, made when nobody looked how they were filled.
    """
    found = Forwards.all_but()
    for atom in row:
        own = _forwarded(frame, atom, frozenset())
        if isinstance(atom, Obj) and atom not in nested and not atom.aged:
            own = own.plus(_filled(frame, atom))
        found = found.both(own)
    return _untouched(found, frame.heap.touched)


def _filled(frame: Frame, atom: Obj) -> Forwards:
    """Columns put into a dict on every way to where it is given out, and never anything else."""
    item, names = frame.heap.item(atom), frame.analysis.filled.get(atom, frozenset())
    if EVERY in item.spoiled or item.kind != "dict":
        return NO_COLUMN
    return Forwards.exactly(names - item.spoiled)


def _untouched(found: Forwards, touched: set[str]) -> Forwards:
    return NO_COLUMN if EVERY in touched else found.without(touched)


def _forwarded(frame: Frame, atom: Atom, seen: frozenset[Atom]) -> Forwards:
    frame.step()
    if isinstance(atom, Record):
        return _without(Forwards.all_but(), frame.heap.record)
    if not isinstance(atom, Obj) or atom.aged or atom in seen:
        return NO_COLUMN
    item = frame.heap.item(atom)
    if item.kind != "dict" or not item.shapes:
        return NO_COLUMN
    found = Forwards.all_but()
    for shape in item.shapes:
        found = found.both(_of_shape(frame, shape, seen | {atom}))
    return _without(found, item)


def _without(found: Forwards, item: Item) -> Forwards:
    return NO_COLUMN if EVERY in item.written else found.without(item.written)


def _of_shape(frame: Frame, shape: Shape, seen: frozenset[Atom]) -> Forwards:
    found = NO_COLUMN
    for key, value in shape:
        if key is None:
            found = _spread(frame, found, value, seen)
        elif key == EVERY:
            found = NO_COLUMN
        elif value == frozenset({Field(key)}):
            found = found.plus(Forwards.exactly({key}))
        else:
            found = found.without({key})
    return found


def _spread(frame: Frame, before: Forwards, value: Value, seen: frozenset[Atom]) -> Forwards:
    own = Forwards.all_but()
    for atom in value:
        own = own.both(_forwarded(frame, atom, seen))
    keys = possible_keys(frame, value)
    if EVERY in keys or not value:
        return own
    return before.without(keys).plus(own)


def is_row(frame: Frame, atom: Atom) -> bool:
    """Whether something given out is one row."""
    if isinstance(atom, Out):
        return type(atom.real) in outside.MAPPINGS
    return is_mapping(frame, atom)


def filtered_record(frame: Frame, node: ast.DictComp) -> Shape | None:
    """`{k: v for k, v in record.items() if k != "x"}` as a copy of the record without columns."""
    if len(node.generators) != 1:
        return None
    match node.generators[0]:
        case ast.comprehension(
            target=ast.Tuple(elts=[ast.Name(id=k), ast.Name(id=v)]),
            iter=ast.Call(func=ast.Attribute(value=holder, attr="items"), args=[], keywords=[]),
            ifs=tests,
        ) if isinstance(node.key, ast.Name) and isinstance(node.value, ast.Name):
            pass
        case _:
            return None
    if (node.key.id, node.value.id) != (k, v) or k == v:
        return None
    gone: set[str] = set()
    for test in tests:
        dropped = _dropped(test, k)
        if dropped is None:
            return None
        gone |= dropped
    copied = evaluate(frame, holder)
    return ((None, copied), *((name, frozenset()) for name in sorted(gone)))


def _dropped(test: ast.expr, key: str) -> set[str] | None:
    """The columns that a condition on the name of a column leaves out."""
    match test:
        case ast.Compare(
            left=ast.Name(id=name), ops=[ast.NotEq()], comparators=[ast.Constant(value=str(one))]
        ):
            return {one} if name == key else None
        case ast.Compare(
            left=ast.Name(id=name),
            ops=[ast.NotIn()],
            comparators=[ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts)],
        ) if name == key:
            texts = [each.value for each in parts if isinstance(each, ast.Constant)]
            names = {each for each in texts if isinstance(each, str)}
            return names if len(texts) == len(parts) else None
        case _:
            return None
