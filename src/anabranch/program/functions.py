"""Users' Python functions and classes, and what their authors declare about them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

import polars as pl

from anabranch.errors import ProgramError, Site, defining_site
from anabranch.program.schema import SchemaLike, as_schema

OnError: TypeAlias = Literal["fail", "skip", "dead_letter"]
State: TypeAlias = Literal["stateless", "keyed", "whole"]
Selectivity: TypeAlias = Literal["one", "at-most-one", "any"]

_DECLARED = "__anabranch__"
_Fn = TypeVar("_Fn", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Declared:
    """What the author of an operator says about it; None: nothing said."""

    out: pl.Schema | None = None
    state: State | None = None
    selectivity: Selectivity | None = None
    forwards: tuple[str, ...] | None = None
    pure: bool | None = None


class KeyedOperator:
    """An operator with timers: derive from it, set `out`, write `on_record` and `on_timer`.

    Attributes of the instance are no state: they are neither kept nor moved. State is in `state`.
    """

    out: SchemaLike

    def on_record(self, record: dict[str, Any], state: Any) -> Any:
        """Take one record of the key; yield or return rows."""
        raise NotImplementedError

    def on_timer(self, at: Any, state: Any) -> Any:
        """Take a timer that `state.timer_at` set; yield or return rows."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Function:
    """A user's function, method, callable object or `KeyedOperator`."""

    call: Any = field(repr=False)
    name: str
    site: Site | None
    takes_state: bool
    declared: Declared

    @property
    def is_class(self) -> bool:
        """Whether it is a KeyedOperator, with timers."""
        return isinstance(self.call, KeyedOperator)

    @property
    def has_timers(self) -> bool:
        """Whether it says what to do when a timer fires."""
        return self.is_class and type(self.call).on_timer is not KeyedOperator.on_timer


def operator(
    out: SchemaLike | None = None,
    *,
    state: State | None = None,
    selectivity: Selectivity | None = None,
    forwards: Sequence[str] | None = None,
    pure: bool | None = None,
) -> Callable[[_Fn], _Fn]:
    """Declare what an operator gives and how it behaves; returns the function itself.

    `out` are its columns. The others are for what the compiler cannot see for itself, and are
    believed: `state` is "stateless", "keyed" or "whole", `selectivity` how many rows it gives for
    one ("one", "at-most-one", "any"), `forwards` the columns it passes on as they are, and `pure`
    that it gives the same for the same records and changes nothing outside.

    >>> @operator(out={"n": pl.Int64})
    ... def count(record, state): ...
    >>> dict(declared(count).out)
    {'n': Int64}
    """
    _one_of("state", state, ("stateless", "keyed", "whole"))
    _one_of("selectivity", selectivity, ("one", "at-most-one", "any"))
    if callable(out):
        message = "operator takes its arguments in parentheses"
        raise ProgramError(message, so="write @ab.operator(out={...})")
    schema = None if out is None else as_schema(out, "operator: out")
    columns = None if forwards is None else tuple(forwards)
    facts = Declared(schema, state, selectivity, columns, pure)

    def mark(fn: _Fn) -> _Fn:
        setattr(fn, _DECLARED, facts)
        return fn

    return mark


def declared(fn: Any) -> Declared:
    """What `@operator` said about a function; a class may say its columns as `out` as well."""
    found = getattr(fn, _DECLARED, None)
    if isinstance(found, Declared):
        return found
    if isinstance(fn, functools.partial):
        return declared(fn.func)
    kind = fn if isinstance(fn, type) else type(fn)
    if issubclass(kind, KeyedOperator) and hasattr(fn, "out"):
        return Declared(out=as_schema(fn.out, f"{kind.__name__}.out"))
    return Declared()


def as_function(given: Any, what: str, *, state: bool = False) -> Function:
    """Take a user's function as one of `fn(record)` or, with state, `fn(record, state)`."""
    if isinstance(given, type) and issubclass(given, KeyedOperator):
        return as_function(_made(given, what), what, state=state)
    if isinstance(given, KeyedOperator):
        if not state:
            message = f"{what}: a KeyedOperator needs state"
            raise ProgramError(message, so="pass it to .process(...)")
        kind = type(given)
        site = defining_site(kind.on_record.__code__)
        return Function(given, kind.__name__, site, takes_state=True, declared=declared(given))
    if not callable(given) or isinstance(given, type):
        message = f"{what} takes a function, got {given!r}"
        raise ProgramError(message, so="pass e.g. lambda record: ..., without calling it")
    takes_state = _takes_state(given, what, state=state)
    return Function(given, _name(given), _site(given), takes_state, declared(given))


def out_schema(function: Function, out: SchemaLike | None, what: str) -> pl.Schema:
    """The columns a Python operator gives: those of `out=`, else those declared."""
    if out is not None:
        return as_schema(out, f"{what}: out")
    if function.declared.out is None:
        message = f"{what} needs to know the columns that {function.name} gives"
        so = 'pass out={"column": pl.Int64, ...}, or put @ab.operator(out={...}) above it'
        raise ProgramError(message, so=so)
    return function.declared.out


def require_on_error(on_error: str, what: str) -> OnError:
    """Refuse an unknown way of treating errors."""
    _one_of(f"{what}: on_error", on_error, ("fail", "skip", "dead_letter"))
    return on_error  # type: ignore[return-value]


def _made(kind: type[KeyedOperator], what: str) -> KeyedOperator:
    try:
        return kind()
    except TypeError as error:
        message = f"{what}: {kind.__name__} cannot be made without arguments: {error}"
        raise ProgramError(message, so="pass an instance of it") from None


def _takes_state(fn: Any, what: str, *, state: bool) -> bool:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # builtins need not have a signature
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = sum(1 for p in positional if p.default is p.empty)
    if needed > (2 if state else 1) or not (positional or _is_variadic(fn)):
        form = "fn(record) or fn(record, state)" if state else "fn(record)"
        message = f"{what}: {_name(fn)} takes {needed} arguments"
        raise ProgramError(message, so=f"it is called as {form}")
    return state and needed == 2


def _is_variadic(fn: Any) -> bool:
    return any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(fn).parameters.values())


def _name(fn: Any) -> str:
    inner = fn.func if isinstance(fn, functools.partial) else fn
    name: str = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    return name.rpartition("<locals>.")[2]


def _site(fn: Any) -> Site | None:
    inner = fn.func if isinstance(fn, functools.partial) else fn
    call = inner if hasattr(inner, "__code__") else type(inner).__call__
    code = getattr(call, "__code__", None)
    return None if code is None else defining_site(code)


def _one_of(what: str, value: str | None, allowed: tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        message = f"{what} must be one of {', '.join(map(repr, allowed))}, got {value!r}"
        raise ProgramError(message)
