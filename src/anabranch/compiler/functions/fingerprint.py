"""What a proof rests on, to be looked at again where the function runs.

Made on the driver when a function is analysed and checked when a task starts, in a process where
the function arrived by value or was imported: so it compares contents, never identities. It follows
from the function what the proof looked at: code, defaults, variables of functions around, globals,
attributes of modules, classes and objects.
"""

from __future__ import annotations

import enum
import functools
import importlib
import re
import sys
import types
import zoneinfo
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TypeAlias

from anabranch.compiler.functions import outside
from anabranch.compiler.functions.attributes import absent, instance_value
from anabranch.compiler.functions.catalogue import find
from anabranch.compiler.functions.digest import code_digest, digest_of
from anabranch.compiler.functions.frame import class_name
from anabranch.compiler.functions.verdict import Relied, Verdict

Fact: TypeAlias = tuple[str, str]
"""What it is about, in words, and a digest of it."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Digests of all that a proof rests on.

    >>> from anabranch.compiler.functions.analyse import analyse
    >>> def doubled(record, factor=2): return {**record, "n": record["n"] * factor}
    >>> print_ = fingerprint(doubled, analyse(doubled))
    >>> print_.check(doubled) is None
    True
    >>> doubled.__defaults__ = (3,)
    >>> print_.check(doubled)
    'the default of `factor` in doubled has changed since the function was analysed'
    """

    facts: tuple[Fact, ...]
    relied: Relied

    def check(self, call: Any) -> str | None:
        """What has changed since the analysis, in a sentence; None if nothing has."""
        if self.facts == (found := tuple(_facts(call, self.relied))):
            return None
        for before, now in zip_longest(self.facts, found):
            if before != now:
                what = (before or now)[0]
                return f"{what} has changed since the function was analysed"
        return None


def fingerprint(call: Any, verdict: Verdict) -> Fingerprint:
    """The fingerprint of a function that was analysed."""
    return Fingerprint(tuple(_facts(call, verdict.relied)), verdict.relied)


def _facts(call: Any, relied: Relied) -> Iterator[Fact]:
    walk = _Walk(relied)
    yield "the function", walk.digest(call)
    while walk.waiting:
        yield from walk.function(walk.waiting.pop())
    for module, names in sorted(relied.modules.items()):
        for name in sorted(names):
            yield f"`{module}.{name}`", walk.digest(_in_module(module, name))
            while walk.waiting:
                yield from walk.function(walk.waiting.pop())


def _in_module(module: str, name: str) -> Any:
    home = sys.modules.get(module) or importlib.import_module(module)
    return vars(home).get(name, _Missing)


class _Missing:
    """Stands for what is not there."""


class _Walk:
    """One walk through everything; functions found on the way wait for their turn."""

    def __init__(self, relied: Relied) -> None:
        self.relied = relied
        self.waiting: list[types.FunctionType] = []
        self._seen: set[int] = set()
        self._inside: set[int] = set()

    def digest(self, real: Any) -> str:
        return digest_of(self.token(real))

    def function(self, function: types.FunctionType) -> Iterator[Fact]:
        """Everything a function finds around it."""
        code, name = function.__code__, function.__qualname__.rpartition("<locals>.")[2]
        yield f"the code of {name}", code_digest(code)
        for parameter, value in _defaults(function):
            yield f"the default of `{parameter}` in {name}", self.digest(value)
        for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            yield f"`{variable}`, a variable around {name}", self.digest(_content(cell))
        builtins = function.__globals__.get("__builtins__", {})
        table = vars(builtins) if isinstance(builtins, types.ModuleType) else builtins
        for wanted in sorted(self.relied.globals.get(code_digest(code), ())):
            found = function.__globals__.get(wanted, table.get(wanted, _Missing))
            yield f"the global `{wanted}` that {name} reads", self.digest(found)

    def token(self, real: Any) -> Any:
        """A value as nested tuples that are the same in every process."""
        kind = type(real)
        if kind in outside.CONSTANTS:
            return (kind.__name__, repr(real))
        if id(real) in self._inside:
            return ("again", kind.__name__)
        self._inside.add(id(real))
        try:
            return self._token(real, kind)
        finally:
            self._inside.discard(id(real))

    def _token(self, real: Any, kind: type) -> Any:
        if kind in outside.SETS:
            return (kind.__name__, *sorted(repr(self.token(each)) for each in real))
        if kind in outside.MAPPINGS:
            pairs = ((self.token(key), self.token(value)) for key, value in real.items())
            return (kind.__name__, *pairs)
        if kind in outside.CONTAINERS or isinstance(real, tuple):
            return (class_name(kind), *(self.token(each) for each in real))
        if isinstance(real, types.FunctionType):
            return self._function(real)
        if isinstance(real, type):
            return self._class(real)
        return self._other(real, kind)

    def _function(self, real: types.FunctionType) -> Any:
        if (listed := find(real)) is not None:
            return ("library", listed[1])
        if id(real) not in self._seen:
            self._seen.add(id(real))
            self.waiting.append(real)
        return ("function", real.__qualname__, code_digest(real.__code__))

    def _class(self, real: type) -> Any:
        name = class_name(real)
        if find(real) is not None:
            return ("class", name)
        named: Mapping[str, Any] = getattr(real, "__members__", {})
        members = [(each, self.token(member._value_)) for each, member in named.items()]
        found = [
            (class_name(each), wanted, self._attribute(outside.class_attribute(each, wanted)))
            for each in real.__mro__
            for wanted in sorted(self.relied.attributes.get(class_name(each), ()))
        ]
        return ("class", name, _special_names(real), *members, *found)

    def _attribute(self, found: tuple[type, Any] | None) -> Any:
        raw = found[1] if found is not None else None
        match raw:
            case None:
                return "none"
            case staticmethod() | classmethod():
                return (type(raw).__name__, self.token(raw.__func__))
            case property():
                return ("property", self.token(raw.fget), self.token(raw.fset))
            case types.FunctionType() | type():
                return self.token(raw)
            case _ if outside.classified(raw, "") is not None:
                return self.token(raw)
            case _:
                return type(raw).__name__

    def _other(self, real: Any, kind: type) -> Any:  # noqa: PLR0911
        match real:
            case types.ModuleType():
                return ("module", real.__name__)
            case types.MethodType():
                return ("method", self.token(real.__func__), self.token(real.__self__))
            case functools.partial():
                named = sorted(real.keywords.items())
                parts = (self.token(each) for each in (real.func, real.args, *named))
                return ("partial", *parts)
            case enum.Enum():
                return ("enum", self._class(kind), real.name, self.token(real._value_))
            case re.Pattern():
                return ("pattern", repr(real.pattern), real.flags)
            case zoneinfo.ZoneInfo():
                return ("zone", real.key)
        if outside.is_user_class(kind):
            return self._instance(real, kind)
        if (listed := find(real)) is not None:
            return ("library", listed[1])
        known = kind in outside.IMMUTABLES
        return (class_name(kind), repr(real) if known else getattr(real, "__qualname__", ""))

    def _instance(self, real: Any, kind: type) -> Any:
        held = []
        for name in sorted(self.relied.attributes.get(class_name(kind), ())):
            value = instance_value(real, name)
            held.append((name, "none" if value is absent else self.token(value)))
        return ("instance", self._class(kind), *held)


def _special_names(kind: type) -> tuple[str, ...]:
    """The special methods that a class defines: a new one would change what was proved."""
    found = {
        name
        for each in kind.__mro__
        if each is not object
        for name, raw in vars(each).items()
        if name.startswith("__") and isinstance(raw, types.FunctionType | property)
    }
    return tuple(sorted(found))


def _defaults(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    code, given = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount]
    yield from zip(names[len(names) - len(given) :], given, strict=True)
    yield from sorted((function.__kwdefaults__ or {}).items())


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _Missing
