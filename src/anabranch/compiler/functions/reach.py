"""What a function that is not understood can get hold of, and so might change.

From a function everything is reached that it, or what it calls, can name: its globals, variables of
functions around, defaults, attributes; from globals the modules, functions and classes in them, and
from these their globals in turn; from objects of users' classes and containers what they hold. The
standard library and installed packages are named, but not looked into. More than `_MOST` objects
count as everything.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

from anabranch.compiler.functions import outside
from anabranch.compiler.functions.attributes import instance_value
from anabranch.compiler.functions.catalogue import from_library
from anabranch.compiler.functions.verdict import Data

_MOST = 50_000
_SHALLOW = outside.CONSTANTS + outside.IMMUTABLES


class Reach:
    """Everything that one function can get hold of, by identity."""

    def __init__(self, call: Any) -> None:
        """Walk from a function to all that it reaches."""
        self._seen: dict[int, Any] = {}
        waiting = [call]
        while waiting and len(self._seen) <= _MOST:
            each = waiting.pop()
            if id(each) not in self._seen and type(each) not in _SHALLOW:
                self._seen[id(each)] = each
                if isinstance(each, types.ModuleType) and not _is_users(each):
                    self._seen[id(vars(each))] = each
                waiting += _held(each)

    def has(self, data: Data) -> str | None:
        """Something of what a proof read that is reached, in words; None: nothing is."""
        for what, real in data.found:
            if id(real) in self._seen or len(self._seen) > _MOST:
                return what
        return None


def _held(real: Any) -> Iterator[Any]:
    match real:
        case types.FunctionType():
            yield from (real.__globals__, *(real.__closure__ or ()), real.__dict__)
            yield from (real.__defaults__, real.__kwdefaults__)
        case types.CellType():
            yield from _content(real)
        case types.MethodType():
            yield from (real.__func__, real.__self__)
        case functools.partial():
            yield from (real.func, real.args, real.keywords)
        case types.ModuleType():
            yield vars(real) if _is_users(real) else None
        case type():
            yield from _of_class(real)
        case _:
            yield from _of_object(real)


def _of_object(real: Any) -> Iterator[Any]:
    kind = type(real)
    if isinstance(real, property):
        yield from (real.fget, real.fset, real.fdel)
    elif isinstance(real, staticmethod | classmethod) or kind.__name__ == "_lru_cache_wrapper":
        yield real.__wrapped__
    elif isinstance(real, dict):
        yield from (*dict.keys(real), *dict.values(real))
    elif kind in outside.CONTAINERS or isinstance(real, tuple):
        yield from real
    if _is_users(sys.modules.get(kind.__module__)):
        names = {name for each in kind.__mro__ for name in vars(each)}
        yield kind
        yield from (instance_value(real, name) for name in names)
        yield from _attributes(real)


def _attributes(real: Any) -> Iterator[Any]:
    try:
        found = object.__getattribute__(real, "__dict__")
    except AttributeError:
        return
    yield from found.values() if isinstance(found, dict) else ()


def _of_class(kind: type) -> Iterator[Any]:
    home = sys.modules.get(kind.__module__)
    if _is_users(home):
        yield from (home, *vars(kind).values(), *kind.__mro__)


def _content(cell: types.CellType) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def _is_users(module: Any) -> bool:
    file = getattr(module, "__file__", None)
    if file is None:
        return getattr(module, "__name__", "") == "__main__"
    installed = "site-packages" in file or "dist-packages" in file
    ours = module.__name__.partition(".")[0] == __name__.partition(".")[0]
    return not (from_library(file) or installed or ours)
