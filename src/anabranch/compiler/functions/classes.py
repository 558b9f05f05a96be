"""Objects of users' classes that are made in a call."""

from __future__ import annotations

import ast
import dataclasses
import types
from typing import Any

from anabranch.compiler.functions import outside
from anabranch.compiler.functions.attributes import is_dataclass, is_generated, outer
from anabranch.compiler.functions.calls import Arguments, call, call_function, signature_of
from anabranch.compiler.functions.containers import escape, tame
from anabranch.compiler.functions.frame import Frame
from anabranch.compiler.functions.values import NOTHING, SCALAR, Known, Obj, Value

_COMPARISONS = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__")
_HOOKS = ("__setattr__", "__delattr__", "__getattribute__", "__getattr__", "__del__")


def make(frame: Frame, node: ast.AST, kind: type, given: Arguments) -> Value:
    """What calling a class gives."""
    if issubclass(kind, BaseException):
        return _exception(frame, node, kind, given)
    if outside.is_named_tuple(kind):
        return _named_tuple(frame, node, kind, given)
    if not outside.is_user_class(kind):
        return _refused(frame, node, given, f"makes a {kind.__name__}, a class that is not known")
    if hook := outside.defines(kind, "__new__", *_hooks_of(kind)) or _own_comparison(kind):
        return _refused(frame, node, given, f"makes a {kind.__name__}, which defines {hook}")
    frame.analysis.rely_on(kind, "__init__")
    made = frame.make(node, "instance", kind.__qualname__, kind)
    if is_dataclass(kind):
        _fill(frame, node, kind, made, given)
    elif (init := outside.class_attribute(kind, "__init__")) and init[0] is not object:
        if not isinstance(init[1], types.FunctionType):
            return _refused(frame, node, given, f"makes a {kind.__name__}; __init__ is no function")
        call_function(frame, node, init[1], given.behind(frozenset({made})))
    return frozenset({made})


def _hooks_of(kind: type) -> tuple[str, ...]:
    """Special methods that would run unseen; those that `dataclasses` writes do no harm."""
    found = outside.class_attribute(kind, "__setattr__")
    frozen = dataclasses.is_dataclass(kind) and found is not None and is_generated(found[1])
    return tuple(name for name in _HOOKS if not (frozen and name in ("__setattr__", "__delattr__")))


def _own_comparison(kind: type) -> str | None:
    """A comparison or hash written by the user: containers would call it unseen."""
    for name in _COMPARISONS:
        found = outside.class_attribute(kind, name)
        own = found is not None and isinstance(found[1], types.FunctionType)
        if found is not None and own and not is_generated(found[1]):
            return name
    return None


def _refused(frame: Frame, node: ast.AST, given: Arguments, text: str) -> Value:
    escape(frame, given.every())
    return frame.report(node, text)


def _exception(frame: Frame, node: ast.AST, kind: type, given: Arguments) -> Value:
    if own := outside.own_special(kind):
        return _refused(frame, node, given, f"makes a {kind.__name__}, which defines {own}")
    frame.analysis.rely_on(kind, "__init__")
    if (why := tame(frame, given.every())) is not None:
        return _refused(frame, node, given, f"`{kind.__name__}` is given {why}")
    return SCALAR


def _named_tuple(frame: Frame, node: ast.AST, kind: type, given: Arguments) -> Value:
    created = vars(kind).get("__new__")
    code = getattr(getattr(created, "__func__", created), "__code__", None)
    if code is None or not code.co_filename.startswith("<"):
        return _refused(frame, node, given, f"makes a {kind.__name__}, which defines __new__")
    defaults: dict[str, Any] = getattr(kind, "_field_defaults", {})
    fields: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
    made = frame.make(node, "tuple", kind.__qualname__, kind)
    values = _fields(frame, node, fields, defaults, given)
    item = frame.heap.item(made)
    for name, value in values.items():
        frame.heap.set_attribute(item, name, value)
    frame.heap.add(item, NOTHING.union(*values.values()))
    frame.analysis.rely_on(kind, "__new__")
    return frozenset({made})


def _fields(
    frame: Frame, node: ast.AST, names: tuple[str, ...], defaults: dict[str, Any], given: Arguments
) -> dict[str, Value]:
    found = dict(zip(names, given.positional, strict=False))
    loose = (given.more or NOTHING) | (given.more_named or NOTHING)
    for name in names:
        if name not in found:
            value = given.named.get(name, loose)
            if name in defaults and name not in given.named:
                value |= outer(frame, node, defaults[name], name)
            found[name] = value
    return found


def _fill(frame: Frame, node: ast.AST, kind: type, made: Obj, given: Arguments) -> None:
    """What the generated constructor of a dataclass does."""
    signature = signature_of(kind)
    fields = {each.name: each for each in dataclasses.fields(kind)}
    names = tuple(signature.parameters) if signature else tuple(fields)
    plain = {
        name: each.default
        for name, each in fields.items()
        if each.default is not dataclasses.MISSING
    }
    values = _fields(frame, node, names, plain, given)
    for name, each in fields.items():
        value = values.get(name, NOTHING)
        if each.default_factory is not dataclasses.MISSING and name not in given.named:
            value |= call(frame, node, frozenset({Known(each.default_factory)}), Arguments())
        elif name not in names and name in plain:
            value |= outer(frame, node, plain[name], name)
        frame.heap.set_attribute(frame.heap.item(made), name, value)
    after = outside.class_attribute(kind, "__post_init__")
    if after is not None and isinstance(after[1], types.FunctionType):
        frame.analysis.rely_on(kind, "__post_init__")
        if set(names) - set(fields):
            frame.report(node, f"{kind.__name__} has InitVar fields, which are not understood")
        call_function(frame, node, after[1], Arguments([frozenset({made})]))
