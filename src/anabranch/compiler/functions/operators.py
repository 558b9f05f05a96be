"""Operators: arithmetic, comparisons, truth; on users' objects their methods are followed."""

from __future__ import annotations

import ast
import enum

from anabranch.compiler.functions import attributes, outside
from anabranch.compiler.functions.calls import Arguments, call_special
from anabranch.compiler.functions.containers import (
    holding,
    new,
    refuse,
    tame,
    textual,
    unordered,
)
from anabranch.compiler.functions.dicts import is_mapping, made_dict
from anabranch.compiler.functions.evaluation import evaluate
from anabranch.compiler.functions.frame import Frame, join
from anabranch.compiler.functions.values import (
    NOTHING,
    SCALAR,
    UNKNOWN,
    Atom,
    Const,
    Field,
    Known,
    Obj,
    Out,
    Part,
    Plain,
    Scalar,
    TypeOf,
    Unknown,
    Value,
)

_SINGLETONS = (type(None), bool, type(...), type(NotImplemented))


def keyable(frame: Frame, node: ast.AST, key: Value) -> bool:
    """Whether looking up a key runs nothing but the language's own code."""
    plain = frozenset(atom for atom in key if not _is_enum(atom) and not isinstance(atom, TypeOf))
    kinds = frozenset(a for a in plain if isinstance(a, Known) and isinstance(a.real, type))
    why = tame(frame, plain - kinds)
    if why is not None:
        refuse(frame, node, "a key", why)
    return why is None


def _is_enum(atom: object) -> bool:
    return isinstance(atom, Known) and isinstance(atom.real, enum.Enum)


_SPECIAL_NAMES = {
    ast.Add: "__add__", ast.Sub: "__sub__", ast.Mult: "__mul__", ast.Div: "__truediv__",
    ast.FloorDiv: "__floordiv__", ast.Mod: "__mod__", ast.Pow: "__pow__", ast.BitOr: "__or__",
    ast.BitAnd: "__and__", ast.BitXor: "__xor__", ast.LShift: "__lshift__",
    ast.RShift: "__rshift__", ast.MatMult: "__matmul__",
}  # fmt: skip


def binary(frame: Frame, node: ast.BinOp) -> Value:
    """The value of `left op right`."""
    left, right = evaluate(frame, node.left), evaluate(frame, node.right)
    return combined(frame, node, left, right, node.op)


def combined(frame: Frame, node: ast.AST, left: Value, right: Value, op: ast.operator) -> Value:
    """The value of `left op right`."""
    if Unknown() in left | right:
        return UNKNOWN
    if isinstance(op, ast.BitOr) and all(_is_plain_class(atom) for atom in left | right):
        return frozenset({TypeOf()})
    if isinstance(op, ast.BitOr) and any(is_mapping(frame, atom) for atom in left | right):
        return made_dict(frame, node, ((None, left), (None, right)))
    instances = frozenset(atom for atom in left if _is_instance(frame, atom))
    if instances:
        return _overloaded(frame, node, instances, left - instances, right, op)
    look = textual if isinstance(op, ast.Mod) else unordered
    if (why := look(frame, left | right)) is not None:
        return refuse(frame, node, f"`{ast.unparse(node)}`", why)
    return _joined(frame, node, left, right, op)


def _is_plain_class(atom: object) -> bool:
    """Whether something is a class, or None, in `int | None`."""
    if isinstance(atom, Known) and isinstance(atom.real, type):
        return type(atom.real) is type
    return isinstance(atom, TypeOf) or (isinstance(atom, Const) and atom.value is None)


def _is_instance(frame: Frame, atom: object) -> bool:
    return isinstance(atom, Obj) and frame.heap.item(atom).kind == "instance"


def _overloaded(
    frame: Frame, node: ast.AST, instances: Value, others: Value, right: Value, op: ast.operator
) -> Value:
    found = combined(frame, node, others, right, op) if others else NOTHING
    name = _SPECIAL_NAMES[type(op)]
    for atom in instances:
        assert isinstance(atom, Obj)
        value = call_special(frame, node, atom, name, Arguments([right]))
        if value is None:
            return frame.report(node, f"uses {name} of a class that does not define it plainly")
        found |= value
    return found


def _joined(frame: Frame, node: ast.AST, left: Value, right: Value, op: ast.operator) -> Value:
    """`+`, `*` and their like on plain values: scalars, or new containers of the same elements."""
    found: Value = NOTHING
    scalars = all(any(not isinstance(a, Obj) for a in side) for side in (left, right))
    for atom in left | right:
        if scalars or not isinstance(atom, Const | Scalar):
            found |= _joined_atom(frame, node, atom, op)
    made = [atom for atom in found if isinstance(atom, Obj)]
    elements = NOTHING.union(*(frame.heap.elements(atom) for atom in found))
    for atom in made:
        frame.heap.add(frame.heap.item(atom), elements)
    return found


def _joined_atom(frame: Frame, node: ast.AST, atom: Atom, op: ast.operator) -> Value:
    match atom:
        case Plain() | Field() | Part() if isinstance(op, ast.Add | ast.Mult):
            return SCALAR | new(frame, node, "list", frame.heap.elements(atom), tag="op")
        case Plain() | Field() | Part() if isinstance(op, ast.BitOr):
            return frozenset({atom}) | frame.heap.soup
        case Obj():
            item = frame.heap.item(atom)
            # Views of dicts give sets.
            kind = item.kind if item.kind not in ("iterator", "generator", "dict") else "set"
            return new(frame, node, kind, frame.heap.elements(atom), item.keys, tag="op")
        case Known() | Out():
            return _joined_real(frame, node, atom)
        case _:
            return SCALAR


def _joined_real(frame: Frame, node: ast.AST, atom: Known | Out) -> Value:
    real = atom.real
    held = holding(real, atom.label if isinstance(atom, Out) else "it")
    if held is None:
        return SCALAR
    if type(real) in outside.SETS:
        return new(frame, node, "set", held[0], tag="op")
    return new(frame, node, "tuple" if isinstance(real, tuple) else "list", held[0], tag="op")


def unary(frame: Frame, node: ast.UnaryOp) -> Value:
    """The value of `-x`, `not x` and their like."""
    value = evaluate(frame, node.operand)
    if isinstance(node.op, ast.Not):
        check_truth(frame, node, value)
        return SCALAR
    why = tame(frame, value)
    return refuse(frame, node, f"`{ast.unparse(node)}`", why) if why is not None else SCALAR


def check_truth(frame: Frame, node: ast.AST, value: Value) -> None:
    """Refuse values whose truth runs code of the user's that is not followed."""
    for atom in value:
        kind = None
        if isinstance(atom, Obj) and frame.heap.item(atom).kind == "instance":
            kind = frame.heap.item(atom).made_of
        elif isinstance(atom, Out) and type(atom.real) not in outside.CONTAINERS:
            kind = type(atom.real)
        elif isinstance(atom, Known) and isinstance(atom.real, type):
            meta = type(atom.real)
            kind = None if meta is type or outside.from_library_class(meta) else meta
        if kind is not None and (name := outside.defines(kind, "__bool__", "__len__")):
            frame.report(node, f"asks whether a {kind.__name__} is true, which runs {name}")


def boolean(frame: Frame, node: ast.BoolOp) -> Value:
    """The value of `and` and `or`: any of the parts may be the value."""
    found: Value = NOTHING
    for at, each in enumerate(node.values):
        before = frame.flow.copy() if frame.flow and at else None
        value = evaluate(frame, each)
        check_truth(frame, each, value)
        found |= value
        if at:
            frame.flow = join(frame.flow, before)
    return found


def comparison(frame: Frame, node: ast.Compare) -> Value:
    """The value of `a < b < c`, `in`, `is`."""
    left = evaluate(frame, node.left)
    for op, each in zip(node.ops, node.comparators, strict=True):
        right = evaluate(frame, each)
        _compare(frame, node, left, right, op)
        left = right
    return SCALAR


def _compare(frame: Frame, node: ast.Compare, left: Value, right: Value, op: ast.cmpop) -> None:
    if isinstance(op, ast.Is | ast.IsNot):
        if not (_is_singleton(left) or _is_singleton(right)):
            text = f"`{ast.unparse(node)}` compares identities, which copies change"
            frame.report(
                node, f"{text}: use ==, or a None or an Enum member to mark what is missing"
            )
        return
    both = frozenset(a for a in left | right if not _is_enum(a) and not isinstance(a, TypeOf))
    both -= {a for a in both if isinstance(a, Known) and isinstance(a.real, type)}
    instances = [a for a in both if isinstance(a, Obj) and _is_instance(frame, a)]
    for atom in instances:
        if not _compares(frame, atom, set()):
            refuse(frame, node, f"`{ast.unparse(node)}`", "an object with comparisons of its own")
    why = tame(frame, both - set(instances), ordered=False)
    if why is not None:
        refuse(frame, node, f"`{ast.unparse(node)}`", why)


def _compares(frame: Frame, atom: Obj, seen: set[Obj]) -> bool:
    """Whether comparing an object runs nothing but what `dataclasses` wrote."""
    kind, held = frame.heap.item(atom).made_of, frame.heap.item(atom).attributes
    seen.add(atom)
    inner = NOTHING.union(*held.values())
    objects = [a for a in inner if isinstance(a, Obj) and _is_instance(frame, a)]
    if not all(_compares(frame, each, seen) for each in objects if each not in seen):
        return False
    if tame(frame, inner - set(objects), ordered=False) is not None:
        return False
    for name in ("__eq__", "__lt__", "__le__", "__gt__", "__ge__", "__ne__", "__contains__"):
        frame.analysis.rely_on(kind, name)
        found = outside.class_attribute(kind, name)
        if found and found[0] is not object and not attributes.is_generated(found[1]):
            return False
    return True


def _is_singleton(value: Value) -> bool:
    def single(atom: object) -> bool:
        if isinstance(atom, Const):
            return atom.kind in _SINGLETONS
        if isinstance(atom, Known):
            return isinstance(atom.real, type) or _is_enum(atom)
        return isinstance(atom, TypeOf | Unknown)

    return bool(value) and all(single(atom) for atom in value)


def condition(frame: Frame, node: ast.IfExp) -> Value:
    """The value of `a if test else b`."""
    check_truth(frame, node, evaluate(frame, node.test))
    before = frame.flow.copy() if frame.flow else None
    first = evaluate(frame, node.body)
    after, frame.flow = frame.flow, before
    second = evaluate(frame, node.orelse)
    frame.flow = join(after, frame.flow)
    return first | second
