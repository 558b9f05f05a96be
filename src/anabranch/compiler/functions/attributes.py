"""Reading an attribute: of plain objects, of modules, classes and objects outside, of new ones."""

from __future__ import annotations

import ast
import dataclasses
import enum
import types
from collections.abc import Mapping
from typing import Any

from anabranch.compiler.functions import methods, outside
from anabranch.compiler.functions.catalogue import find, from_library
from anabranch.compiler.functions.frame import Frame, root_of
from anabranch.compiler.functions.heap import Kind
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
)

_METHODS = (
    methods.SCALAR_METHODS | methods.PLAIN_METHODS | methods.READERS | methods.MUTATORS
    | frozenset({"format", "format_map", "finditer", "sub", "subn", "insert", "replace"})
)  # fmt: skip
_STATE = frozenset({"value", "list", "map", "key", "watermark", "timer_at", "clear"})
_CODE = (*outside.NAMED, property, staticmethod, classmethod)
_GUARDS = ("__getattr__", "__getattribute__")


def read(frame: Frame, node: ast.AST, atom: Atom, name: str) -> Value:  # noqa: PLR0911, PLR0912
    """What `atom.name` may be."""
    match atom:
        case Unknown():
            return UNKNOWN
        case State():
            return _of_state(frame, node, name)
        case Known():
            return _of_known(frame, node, atom.real, name)
        case Out():
            return _of_outside(frame, node, atom, name)
        case Obj():
            return _of_new(frame, node, atom, name)
        case TypeOf():
            return SCALAR if name == "__name__" else _not_understood(frame, node, name)
        case Const(kind=kind) if not hasattr(kind, name):
            return NOTHING  # raises
        case Const() | Scalar() | Plain() | Field() | Part() | Record():
            return _of_plain(frame, node, atom, name)
        case Bound():
            return _not_understood(frame, node, name)


def _not_understood(frame: Frame, node: ast.AST, name: str) -> Value:
    return frame.report(node, f"reads the attribute `{name}`, of which nothing is known")


def _of_plain(frame: Frame, node: ast.AST, atom: Atom, name: str) -> Value:
    if name in methods.LOCAL:
        text = f"`{name}` asks the machine for its clock or time zone"
        so = "compute with UTC, as in (t - datetime(1970, 1, 1)).total_seconds()"
        return frame.report(node, f"{text}: {so}")
    if name in _METHODS:
        return frozenset({Bound(atom, name)})
    if name in methods.ATTRIBUTES:
        return SCALAR
    return _not_understood(frame, node, name)


def _of_state(frame: Frame, node: ast.AST, name: str) -> Value:
    if name not in _STATE:
        text = f"reads `state.{name}`; state has {', '.join(sorted(_STATE))}"
        return frame.report(node, text)
    if name in ("timer_at", "clear"):
        return frozenset({Bound(State(), name)})
    if name in ("key", "watermark"):
        return PLAIN
    if name == "value":
        return frame.heap.state.get(name, NOTHING) | frozenset({Const(type(None), None)})
    kind: Kind = "list" if name == "list" else "dict"
    kept = frame.heap.make(("state", name), kind)
    return frozenset({kept, Obj(kept.site, aged=True)}) | frame.heap.state.get(name, NOTHING)


def outer(frame: Frame, node: ast.AST, real: Any, label: str) -> Value:
    """An outside object as a value, with a word to the user where it cannot be relied on."""
    found = outside.classified(real, label)
    if found is None:
        kind = type(real).__name__
        text = f"reads `{label}`, a {kind} that exists outside the function and may change"
        return frame.report(node, f"{text}: pass plain values in, or declare @ab.operator(...)")
    if type(real) in outside.CONTAINERS and outside.too_large(real):
        text = f"reads `{label}`, a {type(real).__name__} of more than {outside.LARGEST} values"
        return frame.report(node, f"{text}: use .lookup(...) with a table")
    if any(isinstance(atom, Out) for atom in found) or isinstance(real, tuple):
        frame.analysis.reads(f"`{label}`", real, *outside.objects_in(real))
    if type(real) in outside.CONTAINERS:
        root = root_of(frame.callee)
        write = frame.analysis.neighbours.of_object(root.home, root.file, real)
        return found if frame.must_stay(node, label, write) else UNKNOWN
    return found


def _of_known(frame: Frame, node: ast.AST, real: Any, name: str) -> Value:  # noqa: PLR0911
    label = f"{getattr(real, '__name__', type(real).__name__)}.{name}"
    if isinstance(real, types.ModuleType):
        return _of_module(frame, node, real, name)
    if isinstance(real, enum.Enum):
        return _of_member(frame, node, real, name)
    if isinstance(real, type):
        return _of_class(frame, node, real, name, label)
    if isinstance(real, tuple) and name in getattr(real, "_fields", ()):
        return outer(frame, node, tuple.__getitem__(real, real._fields.index(name)), label)  # type: ignore[attr-defined]
    if type(real) in outside.IMMUTABLES or type(real) is tuple:
        return _of_plain(frame, node, Known(real), name)
    if name in ("__name__", "__qualname__") and isinstance(real, types.FunctionType):
        return SCALAR
    return frame.report(node, f"reads `{label}`, an attribute that may change")


def _of_module(frame: Frame, node: ast.AST, real: types.ModuleType, name: str) -> Value:
    label = f"{real.__name__}.{name}"
    if name not in vars(real):
        return frame.report(node, f"reads `{label}`, which does not exist yet")
    frame.analysis.rely_on_module(real.__name__, name)
    look, file = frame.analysis.neighbours, root_of(frame.callee).file
    if not frame.must_stay(node, label, look.of_module(real, file, name)):
        return UNKNOWN
    if not isinstance(vars(real)[name], outside.NAMED):
        frame.analysis.reads(f"`{label}`", vars(real))
    found = outer(frame, node, vars(real)[name], label)
    if look.is_hidden(real) and any(isinstance(atom, Out) for atom in found):
        return frame.report(node, f"reads `{label}` of a module without source: it may change")
    return found


def _of_member(frame: Frame, node: ast.AST, real: enum.Enum, name: str) -> Value:
    frame.analysis.rely_on(type(real), name)
    if name == "name" and not outside.defines(type(real), "_generate_next_value_x"):
        return SCALAR
    if name == "value":
        return outer(frame, node, real._value_, f"{real}.value")
    found = outside.class_attribute(type(real), name)
    if found is not None and isinstance(found[1], types.FunctionType):
        return frozenset({Known(types.MethodType(found[1], real))})
    if found is not None and isinstance(found[1], property):
        return _get(frame, node, found[1], frozenset({Known(real)}), name)
    return _not_understood(frame, node, name)


def _of_class(frame: Frame, node: ast.AST, real: type, name: str, label: str) -> Value:
    if find(real) is not None or real in (object, BaseException):
        return _of_library_class(frame, node, real, name)
    if isinstance(real, enum.EnumType):
        return _of_enum(frame, node, real, name, label)
    if name in ("__name__", "__qualname__"):
        return SCALAR
    if type(real) is not type and type(real).__name__ != "ABCMeta":
        return frame.report(node, f"reads `{label}`; the class has a metaclass of its own")
    return _member(frame, node, real, name, None)


def _of_library_class(frame: Frame, node: ast.AST, real: type, name: str) -> Value:
    if name in methods.LOCAL:
        return _of_plain(frame, node, Scalar(), name)
    if name in methods.CLASS_METHODS or name in _METHODS:
        return frozenset({Bound(Known(real), name)})
    if name in methods.ATTRIBUTES:
        return SCALAR
    if name == "__name__":
        return SCALAR
    if name in ("from_iterable", "fromkeys"):
        return frozenset({Bound(Known(real), name)})
    return _not_understood(frame, node, name)


def _of_enum(frame: Frame, node: ast.AST, real: enum.EnumType, name: str, label: str) -> Value:
    members: Mapping[str, Any] = real.__members__
    if type(real) is not enum.EnumMeta or name not in members:
        return frame.report(node, f"reads `{label}`, which is no member of a plain Enum")
    frame.analysis.rely_on(real, name)
    return outer(frame, node, members[name], label)


def _of_outside(frame: Frame, node: ast.AST, atom: Out, name: str) -> Value:
    real, kind = atom.real, type(atom.real)
    if kind in outside.CONTAINERS:
        if name in methods.MUTATORS or name in methods.READERS:
            return frozenset({Bound(atom, name)})
        return _not_understood(frame, node, name)
    return _member(frame, node, kind, name, atom, held=instance_value(real, name))


absent: Any = object()
"""Stands for an attribute that is not there."""


def instance_value(real: Any, name: str) -> Any:
    """What an object itself holds under a name, without running anything."""
    own = getattr(type(real), "__dict__", {})
    if "__dict__" in dir(type(real)) or own:
        try:
            found = object.__getattribute__(real, "__dict__")
        except AttributeError:
            found = {}
        if name in found:
            return found[name]
    slot = outside.class_attribute(type(real), name)
    if slot is not None and isinstance(slot[1], types.MemberDescriptorType):
        return slot[1].__get__(real) if _is_set(slot[1], real) else absent
    return absent


def _is_set(slot: types.MemberDescriptorType, real: Any) -> bool:
    try:
        slot.__get__(real)
    except AttributeError:
        return False
    return True


def _of_new(frame: Frame, node: ast.AST, atom: Obj, name: str) -> Value:  # noqa: PLR0911
    item = frame.heap.item(atom)
    if item.kind == "instance":
        found = frame.heap.attribute(atom, name)
        member = outside.class_attribute(item.made_of, name)
        if found is not None and not isinstance(member and member[1], property):
            also = NOTHING
            if member is not None and not isinstance(member[1], types.MemberDescriptorType):
                also = _member(frame, node, item.made_of, name, atom)
            return found | also
        return _member(frame, node, item.made_of, name, atom)
    if item.kind in ("closure", "generator", "iterator", "cell"):
        return frame.report(node, f"reads `{name}` of a function or generator")
    if item.kind == "tuple" and item.made_of is not None:
        found = frame.heap.attribute(atom, name)
        if found is not None:
            return found
        if name not in ("_asdict", "index", "count"):
            return _member(frame, node, item.made_of, name, atom)
    if name in _METHODS:
        return frozenset({Bound(atom, name)})
    return _not_understood(frame, node, name)


def _member(  # noqa: PLR0911
    frame: Frame, node: ast.AST, kind: type, name: str, atom: Atom | None, held: Any = absent
) -> Value:
    """What a class gives under a name, to itself (no atom) or to one of its instances."""
    label = f"{kind.__name__}.{name}"
    frame.analysis.rely_on(kind, name)
    if atom is not None and (guard := outside.defines(kind, *_GUARDS)):
        return frame.report(node, f"reads `{label}`; {kind.__name__} defines {guard}")
    found = outside.class_attribute(kind, name)
    raw = found[1] if found is not None else None
    if isinstance(raw, property) and atom is not None:
        return _get(frame, node, raw, frozenset({atom}), label)
    if (held is not absent or found is not None) and not _stays(frame, node, kind, name, atom):
        return UNKNOWN
    if held is not absent or (found is not None and not isinstance(raw, _CODE)):
        frame.analysis.reads(f"`{label}`", kind)
    if held is not absent:
        if found is not None and hasattr(type(raw), "__set__") and not _is_slot(raw):
            return frame.report(node, f"reads `{label}`, which runs a descriptor")
        return outer(frame, node, held, label)
    if found is None:
        if isinstance(atom, Obj):
            return NOTHING  # set on no way that leads here
        return frame.report(node, f"reads `{label}`, which does not exist yet")
    return _unwrapped(frame, node, raw, kind, atom, label)


def _stays(frame: Frame, node: ast.AST, kind: type, name: str, atom: Atom | None) -> bool:
    """Whether nobody else sets an attribute of a class or its instances."""
    look, file = frame.analysis.neighbours, root_of(frame.callee).file
    write = look.of_attribute(kind, file, name, of_class=isinstance(atom, Obj))
    return frame.must_stay(node, f"{kind.__name__}.{name}", write)


def _is_slot(raw: Any) -> bool:
    return isinstance(raw, types.MemberDescriptorType)


def _unwrapped(
    frame: Frame, node: ast.AST, raw: Any, kind: type, atom: Atom | None, label: str
) -> Value:
    match raw:
        case staticmethod():
            return frozenset({Known(raw.__func__)})
        case classmethod():
            return frozenset({Known(types.MethodType(raw.__func__, kind))})
        case types.FunctionType():
            return method(frame, node, raw, atom, kind)
        case types.MemberDescriptorType():
            return NOTHING if isinstance(atom, Obj) else _not_understood(frame, node, label)
    if hasattr(type(raw), "__get__") and not isinstance(raw, type):
        return frame.report(node, f"reads `{label}`, which runs a descriptor")
    return outer(frame, node, raw, label)


def method(
    frame: Frame, node: ast.AST, function: types.FunctionType, atom: Atom | None, kind: type
) -> Value:
    """A function of a class, bound to an instance if there is one."""
    if atom is None:
        return frozenset({Known(function)})
    if isinstance(atom, Out | Known):
        return frozenset({Known(types.MethodType(function, atom.real))})
    bound = frame.make(node, "closure", f"method {function.__qualname__}", function)
    frame.heap.set_attribute(frame.heap.item(bound), "self", frozenset({atom}))
    del kind
    return frozenset({bound})


def _get(frame: Frame, node: ast.AST, raw: property, owner: Value, label: str) -> Value:
    from anabranch.compiler.functions.calls import Arguments, call

    if type(raw) is not property or not isinstance(raw.fget, types.FunctionType):
        return frame.report(node, f"reads `{label}`, a property that is not understood")
    return call(frame, node, frozenset({Known(raw.fget)}), Arguments([owner]))


def is_generated(function: Any) -> bool:
    """Whether a method was written by `dataclasses` and not by the user."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename == "<string>"


def is_dataclass(kind: type) -> bool:
    """Whether a class is a dataclass with the generated constructor."""
    found = outside.class_attribute(kind, "__init__")
    return dataclasses.is_dataclass(kind) and found is not None and is_generated(found[1])


def library_file(function: Any) -> bool:
    """Whether a function is written in a file of the standard library."""
    code = getattr(function, "__code__", None)
    return code is not None and from_library(code.co_filename)
