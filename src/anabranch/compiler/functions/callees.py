"""Functions that exist outside, with their trees and what they find around them."""

from __future__ import annotations

import types
from typing import Any

from anabranch.compiler.functions import outside
from anabranch.compiler.functions.digest import code_digest
from anabranch.compiler.functions.frame import Analysis, Callee
from anabranch.compiler.functions.scope import names_of
from anabranch.compiler.functions.source import written
from anabranch.compiler.functions.values import UNKNOWN, Value


def callee_of(analysis: Analysis, function: types.FunctionType) -> Callee | None:
    """A function with its tree; None where there is no tree that certainly is its own."""
    place = _Same(function)
    if place not in analysis.callees:
        analysis.callees[place] = _callee(function, place)
    return analysis.callees[place]


def _callee(function: types.FunctionType, place: _Same) -> Callee | None:
    code = function.__code__
    found = written(code)
    if found is None:
        return None
    key = code_digest(code)
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    defaults = [_default(each) for each in function.__defaults__ or ()]
    named = {name: _default(each) for name, each in (function.__kwdefaults__ or {}).items()}
    return Callee(
        identity=place,
        name=function.__qualname__.rpartition("<locals>.")[2],
        node=found.node,
        names=names_of(found.node),
        file=code.co_filename,
        within=found.within,
        home=function.__globals__,
        key=key,
        cells=cells,
        defaults=tuple(defaults),
        named_defaults=named,
        scopes=found.around,
    )


class _Same:
    """A function by identity, whatever it is called or compares equal to."""

    __slots__ = ("function",)

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.function is other.function

    def __hash__(self) -> int:
        return id(self.function)


def _default(real: Any) -> Value:
    found = outside.classified(real, "a default argument")
    return UNKNOWN if found is None else found
