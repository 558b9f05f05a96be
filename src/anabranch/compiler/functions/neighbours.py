"""Who else writes what a function reads: a look at the other functions of the same file.

What a function reads as it is now must stay so. A proof says that the function itself does not
change it; this says that no function written in the file where it lives does, by name:

- a global is *rebound* by a function that declares it `global`, a variable of a function around by
  one that declares it `nonlocal`;
- an object is *changed* by storing into it or below it, deleting from it, calling a changing method
  on it or on something below it, or passing it to a function that changes what it is given
  (`setattr`, `heappush` and their like);
- an attribute is *set* by a store to that name on anything at all, except by a constructor on its
  own first parameter, or by `setattr`, with a name or with any. Of an object made in the call only
  what its class has is outside: a store to it is one on a global, on `cls` or on `type(...)`.

Statements outside functions run when the file is imported and do not count. Aliases are not
followed: who changes an object under another name is an operator that is not proved, and
`traits.py` lets no such operator run beside one that reads what it reaches. Of a module whose
source is not to be had only immutable values are taken to stay.
"""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import PurePath
from typing import Any, TypeAlias

from anabranch.compiler.functions.catalogue import from_library
from anabranch.compiler.functions.methods import MUTATORS, words
from anabranch.compiler.functions.scope import names_of
from anabranch.compiler.functions.source import Scope, text_of

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_CONSTRUCTORS = ("__init__", "__new__", "__post_init__", "__set_name__", "__init_subclass__")
_CHANGING = MUTATORS | words(
    "setattr delattr heappush heappop heapify heapreplace heappushpop insort insort_left"
    " insort_right shuffle setitem delitem iadd ior iand imul isub ixor iconcat __setitem__"
    " __delitem__ __setattr__ __delattr__ __iadd__ __ior__ __setstate__"
)
_KINDS = words("list dict set bytearray deque Counter OrderedDict defaultdict collections")
_CLASSES = ("cls", "klass", "kind")
_ANY = "*"
_MODULE = (0, 0)

Place: TypeAlias = tuple[int, int]
"""A line and column: of a function whose variable it is; zeros for a global."""


@dataclass(frozen=True, slots=True)
class Write:
    """One place that writes."""

    file: str
    at: Place

    def __str__(self) -> str:
        """Where it is, for the user."""
        return f"line {self.at[0]} of {PurePath(self.file).name}"

    def is_within(self, file: str, node: ast.AST) -> bool:
        """Whether it is part of a function."""
        first = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
        last = (getattr(node, "end_lineno", 0), getattr(node, "end_col_offset", 0))
        return file == self.file and first <= self.at <= last


@dataclass(slots=True)
class Writes:
    """What the functions of one file write, each with one place that does."""

    rebound: dict[tuple[Place, str], Write] = field(default_factory=dict)
    changed: dict[tuple[Place, str], Write] = field(default_factory=dict)
    attributes: dict[str, Write] = field(default_factory=dict)
    shared: dict[str, Write] = field(default_factory=dict)
    """Those attributes that are set on what may be a class: a global, `cls`, `type(x)`."""

    def attribute(self, name: str, *, of_class: bool) -> Write | None:
        """A place that sets an attribute of this name, on a class or on anything."""
        found = self.shared if of_class else self.attributes
        written = (found[each] for each in (*_spellings(name), _ANY) if each in found)
        return next(written, None)

    def variable(self, place: Place, name: str, *, inside: bool) -> Write | None:
        """A place that rebinds a variable; with `inside` also one that changes what it holds."""
        write = self.rebound.get((place, name))
        return write or (self.changed.get((place, name)) if inside else None)


class Neighbours:
    """The files around the functions that one analysis looks through, each scanned once."""

    def __init__(self) -> None:
        self._files: dict[str, Writes | None] = {}

    def of(self, file: str) -> Writes | None:
        """What is written in a file; None where its source is not to be had."""
        if file not in self._files:
            text = text_of(file)
            self._files[file] = _scanned(file, text) if text else None
        return self._files[file]

    def _sharing(self, home: Mapping[str, Any], file: str) -> Iterator[Writes]:
        """The files whose functions have these globals, as far as that can be told."""
        other = home.get("__file__")
        files = (file, other) if isinstance(other, str) and other != file else (file,)
        return (found for each in files if (found := self.of(each)) is not None)

    def of_global(
        self, home: Mapping[str, Any], file: str, name: str, *, inside: bool
    ) -> Write | None:
        """Who rebinds a global; with `inside` also who changes what it holds."""
        for found in self._sharing(home, file):
            for each in _spellings(name):
                if (write := found.variable(_MODULE, each, inside=inside)) is not None:
                    return write
        return None

    def of_variable(self, file: str, around: tuple[Scope, ...], name: str) -> Write | None:
        """Who rebinds or changes a variable of one of the functions around a function."""
        found = self.of(file) or Writes()
        for each in _spellings(name):
            if (write := found.variable(_owner(around, each), each, inside=True)) is not None:
                return write
        return None

    def of_object(self, home: Mapping[str, Any], file: str, real: Any) -> Write | None:
        """Who changes an object that is a global as well, whatever it was reached by."""
        for found in self._sharing(home, file):
            for (place, name), write in found.changed.items():
                if place == _MODULE and home.get(name, self) is real:
                    return write
        return None

    def of_attribute(self, kind: type, file: str, name: str, *, of_class: bool) -> Write | None:
        """Who sets an attribute of this name, in the files of a class and of its reader.

        `of_class`: it is read of an object made in the call, so only what its class has matters.
        """
        for each in dict.fromkeys((file, *_files_of_class(kind))):
            found = self.of(each)
            if (
                found is not None
                and (write := found.attribute(name, of_class=of_class)) is not None
            ):
                return write
        return None

    def of_module(self, module: types.ModuleType, file: str, name: str) -> Write | None:
        """Who rebinds, changes or sets a name of a module, in its file and in its reader's."""
        own = getattr(module, "__file__", None)
        if not isinstance(own, str) or from_library(own):
            return None
        found = self.of(file)
        there = found.attribute(name, of_class=False) if found is not None else None
        return there or self.of_global(vars(module), own, name, inside=True)

    def is_hidden(self, module: types.ModuleType) -> bool:
        """Whether a module is a user's and its source is not to be had."""
        own = getattr(module, "__file__", None)
        return isinstance(own, str) and not from_library(own) and self.of(own) is None


def _spellings(name: str) -> tuple[str, ...]:
    """A name as it is read, and as a private one is written inside its class."""
    _, _, private = name[1:].partition("__")
    return (name, f"__{private}") if name[:1] == "_" and private else (name,)


def _files_of_class(kind: type) -> Iterator[str]:
    for each in kind.__mro__:
        file = getattr(sys.modules.get(each.__module__), "__file__", None)
        ours = each.__module__.partition(".")[0] == __name__.partition(".")[0]
        if isinstance(file, str) and not from_library(file) and not ours:
            yield file


@lru_cache(maxsize=64)
def _scanned(file: str, text: str) -> Writes | None:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    found = _Scan(file, Writes())
    found.look(tree, ())
    return found.writes


def _owner(around: tuple[Scope, ...], name: str) -> Place:
    """The function that a name belongs to, seen from inside these."""
    for each in reversed(around):
        names = names_of(each)
        if name in names.declared_global:
            return _MODULE
        if name in names.local:
            return each.lineno, each.col_offset
    return _MODULE


@dataclass(slots=True)
class _Scan:
    file: str
    writes: Writes

    def look(self, node: ast.AST, around: tuple[Scope, ...]) -> None:
        """Look at everything below a node that lies within these functions."""
        for child in ast.iter_child_nodes(node):
            if around:
                self._note(child, around)
            self.look(child, (*around, child) if isinstance(child, _FUNCTIONS) else around)

    def _note(self, node: ast.AST, around: tuple[Scope, ...]) -> None:  # noqa: PLR0912
        match node:
            case ast.Global(names=names):
                for name in names:
                    self._rebinds(node, around, _MODULE, name)
            case ast.Nonlocal(names=names):
                for name in names:
                    self._rebinds(node, around, _owner(around, name), name)
            case (
                ast.Attribute(ctx=ast.Store() | ast.Del())
                | ast.Subscript(ctx=ast.Store() | ast.Del())
            ):
                self._changes(node, node, around)
            case ast.AugAssign(target=ast.Name() as target):
                self._changes(node, target, around)
            case ast.Call(func=ast.Attribute(value=holder, attr=name)) if name in _CHANGING:
                self._changes(node, holder, around)
                if name not in MUTATORS or getattr(holder, "id", "") in _KINDS:
                    self._passes(node, around)
            case ast.Call(func=ast.Name(id=name)) if name in _CHANGING:
                self._passes(node, around)
            case _:
                pass

    def _write(self, node: ast.AST, around: tuple[Scope, ...]) -> Write:
        inner = around[-1]
        line = getattr(node, "lineno", inner.lineno)
        return Write(self.file, (line, getattr(node, "col_offset", inner.col_offset)))

    def _rebinds(self, node: ast.AST, around: tuple[Scope, ...], place: Place, name: str) -> None:
        bound = (
            each
            for each in ast.walk(around[-1])
            if isinstance(each, ast.Name) and each.id == name and not isinstance(each.ctx, ast.Load)
        )
        write = self._write(next(bound, node), around)
        self.writes.rebound.setdefault((place, name), write)

    def _passes(self, node: ast.Call, around: tuple[Scope, ...]) -> None:
        """A call that changes what it is given first; `setattr` says which attribute."""
        if not node.args:
            return
        self._changes(node, node.args[0], around)
        if getattr(node.func, "id", getattr(node.func, "attr", "")).strip("_") in (
            "setattr",
            "delattr",
        ):
            named = [each.value for each in node.args if isinstance(each, ast.Constant)]
            name = next((each for each in named if isinstance(each, str)), _ANY)
            self.writes.attributes.setdefault(name, self._write(node, around))
            self.writes.shared.setdefault(name, self._write(node, around))

    def _changes(self, node: ast.AST, target: ast.AST, around: tuple[Scope, ...]) -> None:
        """Note everything on the way down to what is changed."""
        write, (target, names, shared) = self._write(node, around), _way_down(target)
        if isinstance(target, ast.Name):
            if not shared and _constructs(around, target.id):
                return
            place = _owner(around, target.id)
            shared |= place == _MODULE or target.id in _CLASSES
            self.writes.changed.setdefault((place, target.id), write)
        for name in names:
            wanted = _ANY if name == "__dict__" else name
            self.writes.attributes.setdefault(wanted, write)
            if shared or name in ("__dict__", "__class__"):
                self.writes.shared.setdefault(wanted, write)


def _way_down(target: ast.AST) -> tuple[ast.AST, list[str], bool]:
    """From what is changed to where it starts: that, attributes on the way, and if a class is."""
    names, shared = list[str](), False
    while isinstance(target, ast.Attribute | ast.Subscript | ast.Call):
        match target:
            case ast.Attribute(value=holder, attr=name):
                names.append(name)
            case ast.Subscript(value=holder) | ast.Call(func=ast.Attribute(value=holder)):
                pass  # `x[...].append(...)`, `x.get(...).append(...)`
            case ast.Call(func=function, args=given):  # `vars(x)[...] = ...`, `type(x).a = ...`
                shared, called = True, getattr(function, "id", "")
                names += [_ANY] if called in ("vars", "globals", "locals") else []
                holder = next(iter(given), function)
        target = holder
    return target, names, shared


def _constructs(around: tuple[Scope, ...], name: str) -> bool:
    """Whether a name is the object that a constructor is making."""
    inner = around[-1]
    if not isinstance(inner, ast.FunctionDef) or inner.name not in _CONSTRUCTORS:
        return False
    own = [each.arg for each in (*inner.args.posonlyargs, *inner.args.args)][:1]
    return own == [name]
