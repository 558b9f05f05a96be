"""What a user's function does, proved from its code.

The function is run on sets of possible values instead of values (`values.py`), through every way
that its code can take (`statements.py`) and into every function it calls (`calls.py`), until
nothing new turns up. The tree is used rather than the bytecode, which differs from one Python to
the next. What is proved holds by these rules; whatever none of them covers is not proved.

 1. The code that is looked at is the code that runs (`source.py`), or its instructions alone are
    judged (`bytecode.py`).
 2. The record and all within it belong to the call, and so does everything made in the call. It may
    be changed at will.
 3. What exists before the call - globals, variables of functions around, defaults, `self`, classes,
    modules, functions - is never changed: no store, no changing method, no attribute set, no
    `global` or `nonlocal` beyond the call.
 4. What exists before the call is read only if it is immutable, or of few plain values, if no
    function of the file it lives in writes it (`neighbours.py`), and taken as it is now; the
    fingerprint (`fingerprint.py`) refuses a task that finds it otherwise. Operators of the same
    program that are not understood and reach it (`reach.py`) are the business of `traits.py`.
 5. Operators and methods run no code of the user's on plain values; on objects of users' classes
    their methods are followed, unless the class changes what attributes, creation or calls mean.
 6. Library functions are pure if they are in the table (`catalogue.py`) and the library's own.
 7. The order of a set is not the same in every process: nothing may depend on it. Nor on identities
    other than those of None, bools, classes and Enum members, nor on addresses, hashes, the locale
    or the machine's time zone. (What is sorted is taken to have an order: NaN in a set has none.)
 8. `state` is used by its own names alone and kept nowhere. What is put there is found again by
    this call as it is, and by later ones as values that are not of their record.
 9. Rows are counted along every way to every end. A way that raises gives none and is not counted.
10. A column is forwarded if in every row given out it holds what the record held there when it
    came, and nothing anywhere in the call changes anything within it. Of a function that is not
    proved nothing is said about rows and columns either.
"""

from __future__ import annotations

import ast
import functools
import inspect
import types
from typing import Any

from anabranch.compiler.functions import outside
from anabranch.compiler.functions.attributes import outer, read
from anabranch.compiler.functions.bytecode import why_not
from anabranch.compiler.functions.callees import callee_of
from anabranch.compiler.functions.calls import Arguments, call
from anabranch.compiler.functions.evaluation import EVALUATE
from anabranch.compiler.functions.expressions import KINDS
from anabranch.compiler.functions.frame import Analysis, Callee, Frame, TooMuch
from anabranch.compiler.functions.rows import Given, given_out
from anabranch.compiler.functions.scope import names_of
from anabranch.compiler.functions.values import PLAIN, Atom, Out, Record, State, Value
from anabranch.compiler.functions.verdict import Data, Forwards, Relied, Verdict
from anabranch.compiler.reason import Reason
from anabranch.errors import Site, defining_site
from anabranch.program.functions import KeyedOperator

EVALUATE |= KINDS
_PASSES = 30
_CALLED: ast.Lambda = ast.parse("lambda: 0", mode="eval").body  # type: ignore[assignment]


def analyse(call: Any, *, takes_state: bool = False) -> Verdict:
    """Prove what can be proved of a function `fn(record)` or `fn(record, state)`.

    >>> verdict = analyse(lambda r: {**r, "total": r["price"] * r["count"]})
    >>> verdict.proved, verdict.selectivity, verdict.forwards.among(["price", "total"])
    (True, 'one', ('price',))
    """
    analysis, site = Analysis(), site_of(call)
    if isinstance(call, types.FunctionType) and callee_of(analysis, call) is None:
        return _from_instructions(analysis, call, site)
    frame = _outermost(analysis, call, site)
    try:
        given = _settled(frame, call, takes_state=takes_state)
    except (TooMuch, RecursionError):
        _report(frame, "there is more code behind it than is looked through: divide it")
        given = Given()
    except Exception as error:  # noqa: BLE001 - a function that is not understood still runs
        _report(frame, f"it could not be looked through ({type(error).__name__}: {error})")
        given = Given()
    return _verdict(frame, given, site)


def _settled(frame: Frame, call: Any, *, takes_state: bool) -> Given:
    """Look through everything until nothing is added to what objects may hold."""
    for _ in range(_PASSES):
        before = frame.heap.version
        frame.analysis.begin()
        given = _once(frame, call, takes_state=takes_state)
        if frame.heap.version == before:
            return given
    raise TooMuch


def _once(frame: Frame, real: Any, *, takes_state: bool) -> Given:
    record: Value = frozenset({Record()})
    state: Value = frozenset({State()})
    if isinstance(real, KeyedOperator):
        return _operator(frame, real, record, state)
    callee = outer(frame, _CALLED, real, getattr(real, "__name__", type(real).__name__))
    passed = [record, state] if takes_state else [record]
    return _given(frame, callee, passed)


def _given(frame: Frame, callee: Value, passed: list[Value]) -> Given:
    rows = call(frame, _CALLED, callee, Arguments(passed))
    return given_out(frame, _CALLED, rows, generator=all(map(_is_generator, callee)))


def _is_generator(atom: Atom) -> bool:
    real = getattr(atom, "real", None)
    while isinstance(real, functools.partial):
        real = real.func
    if not isinstance(real, types.FunctionType | types.MethodType):
        found = outside.class_attribute(type(real), "__call__")
        real = found[1] if found else None
    return inspect.isgeneratorfunction(real)


def _operator(frame: Frame, real: KeyedOperator, record: Value, state: Value) -> Given:
    if not outside.is_user_class(type(real)):
        _report(frame, f"{type(real).__name__} derives from a class that is not understood")
        return Given()
    owner = Out(real, "self")
    on_record = read(frame, _CALLED, owner, "on_record")
    given = _given(frame, on_record, [record, state])
    if type(real).on_timer is KeyedOperator.on_timer:
        return given
    on_timer = read(frame, _CALLED, owner, "on_timer")
    timed = _given(frame, on_timer, [PLAIN, state])
    return given if timed.most == 0 else given.also(timed)


def _verdict(frame: Frame, given: Given, site: Site | None) -> Verdict:
    analysis = frame.analysis
    reasons, proved = tuple(analysis.reasons.values()), not analysis.reasons
    if proved:
        reasons = _because(analysis, given, site)
    else:
        given = Given(forwards=Forwards.exactly())  # what is not understood may do anything to rows
    relied = Relied(
        {key: frozenset(names) for key, names in analysis.globals.items()},
        {key: frozenset(names) for key, names in analysis.modules.items()},
        {key: frozenset(names) for key, names in analysis.attributes.items()},
    )
    data = Data(tuple(analysis.data.values()))
    return Verdict(proved, given.selectivity, given.forwards, reasons, relied, data)


def _because(analysis: Analysis, given: Given, site: Site | None) -> tuple[Reason, ...]:
    text = "keeps nothing from one call to the next and changes nothing outside"
    names = sorted({name for names in analysis.globals.values() for name in names})
    if names:
        text += f"; reads {', '.join(f'`{name}`' for name in names)} as now"
    counted = {"one": "gives one row", "at-most-one": "gives at most one row"}.get(
        given.selectivity
    )
    first = Reason(text, site)
    return (first, Reason(f"{counted} on every way through it", site)) if counted else (first,)


def _from_instructions(
    analysis: Analysis, function: types.FunctionType, site: Site | None
) -> Verdict:
    obstacle = why_not(analysis, function)
    frame = _outermost(analysis, function, site)
    if obstacle is not None:
        text = f"there is no source that certainly is its own, and without one: it {obstacle}"
        _report(frame, f"{text}. Define it in a file, or declare @ab.operator(...)")
    return _verdict(frame, Given(forwards=Forwards.exactly()), site)


def _report(frame: Frame, text: str) -> None:
    frame.report(_CALLED, text)


def _outermost(analysis: Analysis, call: Any, site: Site | None) -> Frame:
    """The frame of whoever calls the function; what it reports is about the function's own line."""
    file, line = (site.file, site.line) if site else ("<unknown>", 1)
    callee = Callee(
        identity="outermost",
        name="",
        node=_CALLED,
        names=names_of(_CALLED),
        file=file,
        within=None,
        home=getattr(_innermost(call), "__globals__", {}),
        key="",
    )
    frame = Frame(analysis, callee, analysis.context("outermost"))
    frame.line = line
    return frame


def site_of(call: Any) -> Site | None:
    """Where a function is written, as far as that can be told."""
    code = getattr(_innermost(call), "__code__", None)
    return defining_site(code) if code is not None else None


def _innermost(call: Any) -> Any:
    """The function behind partials, methods and objects that are called."""
    while isinstance(call, functools.partial):
        call = call.func
    if isinstance(call, KeyedOperator):
        call = type(call).on_record
    inner = getattr(call, "__func__", call)
    if isinstance(inner, types.FunctionType):
        return inner
    found = outside.class_attribute(type(inner), "__call__")
    return found[1] if found else None
