"""The dataclasses that kept values may be of: those that this program has itself.

Bytes name a class, and bytes can come from anywhere, so a name is never looked up, imported or
called. It stands for a class only if that class was made known before: because a value of it was
encoded in this process, or because a function of the program refers to it (`know_all`). Values are
put together field by field; no code of the class runs.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any, List, get_type_hints  # noqa: UP035

from anabranch.errors import CheckpointError

_KNOWN: dict[str, type] = {}
_BUILTIN = (dict, list, tuple, set, frozenset, str, bytes, int, float)
"""What else such a value would be, beside its fields."""


def name_of(kind: type) -> str:
    """The name by which a class is kept.

    >>> name_of(dict)
    'builtins.dict'
    """
    return f"{kind.__module__}.{kind.__qualname__}"


def can_be_known(kind: type) -> bool:
    """Whether it is a dataclass whose values are their fields and nothing else."""
    return dataclasses.is_dataclass(kind) and not issubclass(kind, _BUILTIN)


def know(kind: type) -> None:
    """Let values of this dataclass be decoded; of one name the newest class counts."""
    _KNOWN[name_of(kind)] = kind


def know_all(function: Any) -> None:
    """Let values of the dataclasses be decoded that a user's function or object refers to."""
    for kind in _referred(function):
        know(kind)


def named(name: str) -> type:
    """The class of this name; a CheckpointError if the program has none."""
    if (kind := _KNOWN.get(name)) is None:
        message = (
            f"a kept value is a {name}, and no operator of this program refers to such a class"
        )
        so = "use the dataclass in the function that keeps it, under the name it had"
        raise CheckpointError(message, so=so)
    return kind


def fields_of(kind: type) -> tuple[str, ...]:
    """The names of a dataclass' fields."""
    return tuple(field.name for field in dataclasses.fields(kind))


def require_fields_only(value: Any, names: tuple[str, ...]) -> None:
    """Refuse a value that has more to it than its fields."""
    more = [name for name in getattr(value, "__dict__", ()) if name not in names]
    if more:
        message = f"a {type(value).__name__} with an attribute {more[0]!r} cannot be kept"
        raise TypeError(message)


def made(kind: type, values: Mapping[str, Any]) -> Any:
    """A value with these fields; a CheckpointError if the class has others."""
    names = fields_of(kind)
    if tuple(values) != names:
        message = f"a kept {name_of(kind)} has other fields than the class has now"
        raise CheckpointError(message, have=", ".join(values), so=f"it has {', '.join(names)}")
    found: Any = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(found, name, value)
    return found


def _referred(function: Any) -> Iterator[type]:
    """The dataclasses that a function reaches, by way of others that it names."""
    waiting, seen = [function], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, type) and can_be_known(one):
            yield one
        waiting.extend(_next(one))


def _next(one: Any) -> Iterator[Any]:
    if isinstance(one, functools.partial):
        yield from (one.func, *one.args, *one.keywords.values())
    elif isinstance(one, types.MethodType):
        yield from (one.__func__, one.__self__)
    elif isinstance(one, types.GenericAlias | types.UnionType | _Alias):
        yield from getattr(one, "__args__", ())
    elif isinstance(one, types.FunctionType | type):
        if not _is_foreign(one):
            yield from _of_class(one) if isinstance(one, type) else _of_function(one)
    elif not isinstance(one, types.ModuleType) and not _is_foreign(type(one)):
        yield type(one)
        yield from getattr(one, "__dict__", {}).values()


def _is_foreign(one: Any) -> bool:
    """Whether it belongs to a library that knows nothing of the user's classes."""
    root = str(one.__module__).partition(".")[0]
    return root in _LIBRARIES or (root in sys.stdlib_module_names and root != "__main__")


_Alias = type(List[int])  # noqa: UP006 - what typing's own aliases are
_LIBRARIES = frozenset({"anabranch", "numpy", "polars", "pyarrow", "pyspark"})


def _of_function(function: types.FunctionType) -> Iterator[Any]:
    names = set(_names(function.__code__))
    for name in names:
        if (found := function.__globals__.get(name)) is None:
            continue
        if isinstance(found, types.ModuleType):
            yield from (vars(found)[each] for each in names if each in vars(found))
        else:
            yield found
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue
    yield from (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    yield from _hints(function)


def _of_class(kind: type) -> Iterator[Any]:
    yield from kind.__bases__
    yield from vars(kind).values()
    yield from _hints(kind)


def _hints(one: Any) -> Iterator[Any]:
    try:
        yield from get_type_hints(one).values()
    except (NameError, TypeError, AttributeError, SyntaxError):  # written for a checker alone
        return


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _names(const)
