"""Objects that exist before a call: what they are, and whether they can be relied on.

A container or object that is only read is taken as it is when the function is analysed; that it is
still so is checked by its content when a task starts. So what it holds must be of a kind that can
be compared by content, and not much.
"""

from __future__ import annotations

import abc
import collections
import datetime as dt
import decimal
import enum
import fractions
import functools
import re
import sys
import types
import uuid
import zoneinfo
from collections.abc import Iterable
from typing import Any, Generic, Protocol

from anabranch.compiler.functions.catalogue import from_library
from anabranch.compiler.functions.methods import words
from anabranch.compiler.functions.values import NOTHING, SCALAR, Const, Known, Out, Value

CONSTANTS = (type(None), bool, int, float, str, bytes, complex, type(...), type(NotImplemented))
IMMUTABLES = (
    dt.datetime, dt.date, dt.time, dt.timedelta, dt.timezone,
    decimal.Decimal, fractions.Fraction, uuid.UUID, re.Pattern, range, zoneinfo.ZoneInfo,
)  # fmt: skip
CONTAINERS = (
    list, dict, set, frozenset, bytearray, collections.deque, collections.Counter,
    collections.OrderedDict, collections.defaultdict, types.MappingProxyType,
)  # fmt: skip
SETS = (set, frozenset)
MAPPINGS = (
    dict, collections.Counter, collections.OrderedDict, collections.defaultdict,
    types.MappingProxyType,
)  # fmt: skip
CALLABLES = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)
NAMED = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type)
"""What is no data: its attributes are looked at one by one."""
LARGEST = 2_000
"""Values in a container that are compared when a task starts: some tenths of a millisecond."""
_WIDEST = 12
"""Constants told apart among the elements of a container."""


def classified(real: Any, label: str) -> Value | None:
    """An outside object as a value; None where nothing is known of its kind."""
    kind = type(real)
    if kind in CONSTANTS:
        return frozenset({Const(kind, real)})
    if kind in IMMUTABLES or _is_known(real):
        return frozenset({Known(real)})
    if kind in CONTAINERS or is_user_class(kind):
        return frozenset({Out(real, label)})
    return None


def _is_known(real: Any) -> bool:
    kind = type(real)
    functions = (*CALLABLES, types.ModuleType, types.BuiltinMethodType, types.MethodDescriptorType)
    if isinstance(real, enum.Enum):
        return type(kind) is enum.EnumMeta and own_special(kind) is None
    if isinstance(real, tuple) or kind is functools.partial:
        return kind in (tuple, functools.partial) or is_named_tuple(kind)
    return isinstance(real, functions) or type(real).__name__ == "_lru_cache_wrapper"


def is_named_tuple(kind: type) -> bool:
    """Whether a class comes from `namedtuple` or `NamedTuple` and adds no way to be made."""
    fields = getattr(kind, "_fields", None)
    if kind.__bases__ != (tuple,) or not isinstance(fields, tuple):
        return False
    return type(kind) is type and not {n for n in vars(kind) if n.startswith("__")} - _NAMED_TUPLE


_NAMED_TUPLE = words(
    "__doc__ __slots__ __new__ __repr__ __getnewargs__ __match_args__ __module__"
    " __annotations__ __orig_bases__ __replace__ __firstlineno__ __static_attributes__"
    " __annotate_func__"
)


def own_special(kind: type) -> str | None:
    """A special method that users wrote for a class on top of a library's."""
    for each in kind.__mro__:
        if in_c(each) or _from_library(each):
            continue
        for name, raw in vars(each).items():
            if name.startswith("__") and isinstance(raw, types.FunctionType | property):
                code = getattr(raw, "__code__", None)
                if code is None or not from_library(code.co_filename):
                    return name
    return None


def is_user_class(kind: type) -> bool:
    """Whether a class is written in Python by users, on nothing but `object` and its like."""
    if type(kind) not in (type, abc.ABCMeta):
        return False
    return all(_is_base(each) for each in kind.__mro__) and kind is not object


def _is_base(kind: type) -> bool:
    if kind in (object, Generic, Protocol, abc.ABC):
        return True
    return not in_c(kind) and not _from_library(kind)


def in_c(kind: type) -> bool:
    """Whether a class is part of the interpreter; its name would prove nothing."""
    return not kind.__flags__ & (1 << 9)


def _from_library(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    codes = [each.__code__ for each in vars(kind).values() if isinstance(each, types.FunctionType)]
    # A class may say that it is of any module; its functions cannot.
    own = any(not (from_library(c.co_filename) or c.co_filename.startswith("<")) for c in codes)
    return file is not None and from_library(file) and not own


def from_library_class(kind: type) -> bool:
    """Whether a class is the standard library's."""
    return in_c(kind) or _from_library(kind)


def class_attribute(kind: type, name: str) -> tuple[type, Any] | None:
    """Where a class has an attribute and what is there, looked up without running anything."""
    for each in kind.__mro__:
        if name in vars(each):
            return each, vars(each)[name]
    return None


def defines(kind: type, *names: str) -> str | None:
    """Which of these special methods a class defines other than `object` does."""
    for name in names:
        found = class_attribute(kind, name)
        if found is not None and found[0] is not object:
            return name
    return None


def held(real: Any, label: str) -> tuple[Value, Value] | None:
    """What a container holds: elements (of a mapping its values), and keys; None if not known."""
    if type(real) in MAPPINGS:
        keys, elements = _all(real.keys(), label), _all(real.values(), label)
        return None if keys is None or elements is None else (elements, keys)
    if type(real) in (bytearray, range):
        return SCALAR, NOTHING
    elements = _all(real, label)
    return None if elements is None else (elements, NOTHING)


def _all(reals: Iterable[Any], label: str) -> Value | None:
    found: Value = NOTHING
    for each in reals:
        value = classified(each, label)
        if value is None:
            return None
        found |= value
    constants = frozenset(atom for atom in found if isinstance(atom, Const))
    return (found - constants) | SCALAR if len(constants) > _WIDEST else found


def objects_in(real: Any) -> list[Any]:
    """The containers and objects in a container, at any depth, that can be changed."""
    waiting, seen, found = [real], {id(real)}, list[Any]()
    while waiting and len(found) <= LARGEST:
        each = waiting.pop()
        if type(each) not in CONTAINERS and type(each) is not tuple:
            continue
        inner = [*each.values()] if type(each) in MAPPINGS else [*each]
        new = [one for one in inner if id(one) not in seen and type(one) not in CONSTANTS]
        seen.update(id(one) for one in new)
        waiting += new
        found += [one for one in new if type(one) in CONTAINERS or is_user_class(type(one))]
    return found


def too_large(real: Any, most: int = LARGEST) -> bool:
    """Whether a container holds more values than are compared."""
    waiting, seen, count = [real], {id(real)}, 0
    while waiting:
        each = waiting.pop()
        if type(each) not in CONTAINERS and type(each) is not tuple:
            continue
        inner = [*each.keys(), *each.values()] if type(each) in MAPPINGS else [*each]
        count += len(inner)
        if count > most:
            return True
        waiting += [one for one in inner if id(one) not in seen and type(one) not in CONSTANTS]
        seen.update(id(one) for one in inner)
    return False
