"""Calls: which code runs, with what, and what comes back."""

from __future__ import annotations

import ast
import functools
import inspect
import types
from dataclasses import dataclass, field, replace
from typing import Any

from anabranch.compiler.functions import outside
from anabranch.compiler.functions.attributes import outer
from anabranch.compiler.functions.callees import callee_of
from anabranch.compiler.functions.catalogue import advice, find
from anabranch.compiler.functions.containers import (
    escape,
    iterated,
    looked_up,
    new,
    owned,
    refuse,
    tame,
    textual,
    unordered,
)
from anabranch.compiler.functions.evaluation import evaluate
from anabranch.compiler.functions.frame import Analysis, Callee, Frame, Outcome
from anabranch.compiler.functions.heap import MANY
from anabranch.compiler.functions.methods import words
from anabranch.compiler.functions.values import (
    NONE,
    NOTHING,
    PLAIN,
    SCALAR,
    UNKNOWN,
    Atom,
    Bound,
    Known,
    Obj,
    Out,
    Unknown,
    Value,
)

SPECIAL_TOO = frozenset(
    {"json.dumps", "json.loads"}
    | {f"operator.{name}" for name in words("add and_ concat mod mul or_ sub xor")}
)
_LOOKS = {
    "builtins.len": unordered, "builtins.bool": unordered, "builtins.str": textual,
    "builtins.repr": textual, "builtins.ascii": textual,
}  # fmt: skip
_DEEPEST = 16
"""Calls within calls that are followed."""
_VARIANTS = 6
"""Calls of one function with different arguments that are told apart; later ones are joined."""


@dataclass(slots=True)
class Arguments:
    """What a call passes."""

    positional: list[Value] = field(default_factory=list)
    named: dict[str, Value] = field(default_factory=dict)
    more: Value | None = None
    """Elements of `*arguments` behind the positional ones."""
    more_named: Value | None = None
    """Values of `**arguments`."""

    def every(self) -> Value:
        """All that is passed."""
        found = (self.more or NOTHING) | (self.more_named or NOTHING)
        return found.union(*self.positional, *self.named.values())

    def first(self, at: int, name: str | None = None) -> Value | None:
        """One argument by place or by name."""
        if at < len(self.positional):
            return self.positional[at]
        return self.named.get(name) if name else None

    def behind(self, first: Value) -> Arguments:
        """The same with one more in front."""
        return replace(self, positional=[first, *self.positional])


def call(frame: Frame, node: ast.AST, callee: Value, given: Arguments) -> Value:
    """What calling a value gives."""
    found: Value = NOTHING
    for atom in callee:
        found |= _call(frame, node, atom, given)
    return found


def _call(frame: Frame, node: ast.AST, atom: Atom, given: Arguments) -> Value:  # noqa: PLR0911
    match atom:
        case Known():
            return _call_known(frame, node, atom.real, given)
        case Obj() if frame.heap.item(atom).kind == "closure":
            return _call_closure(frame, node, atom, given)
        case Obj() if frame.heap.item(atom).kind == "instance":
            found = call_special(frame, node, atom, "__call__", given)
            return _unknown(frame, node, given) if found is None else found
        case Out() if outside.is_user_class(type(atom.real)):
            return _call_object(frame, node, atom, given)
        case Bound():
            from anabranch.compiler.functions.builtin import call_bound

            return call_bound(frame, node, atom, given)
        case Unknown():
            escape(frame, given.every())
            return UNKNOWN
        case _:
            return _unknown(frame, node, given)


def _unknown(frame: Frame, node: ast.AST, given: Arguments, why: str = "is not known") -> Value:
    escape(frame, given.every())
    text = ast.unparse(node.func) if isinstance(node, ast.Call) else "it"
    return frame.report(node, f"calls `{text}`, which {why}")


def _call_known(frame: Frame, node: ast.AST, real: Any, given: Arguments) -> Value:
    listed = find(real)
    if listed is not None:
        return _call_library(frame, node, real, listed, given)
    match real:
        case types.FunctionType():
            return call_function(frame, node, real, given)
        case types.MethodType():
            return _call_method(frame, node, real, given)
        case functools.partial() if type(real) is functools.partial:
            return _call_partial(frame, node, real, given)
        case type():
            from anabranch.compiler.functions.classes import make

            return make(frame, node, real, given)
    name = ast.unparse(node.func) if isinstance(node, ast.Call) else getattr(real, "__name__", "it")
    escape(frame, given.every())
    return frame.report(node, f"calls `{name}`: {advice(real, name)}")


def _call_library(
    frame: Frame, node: ast.AST, real: Any, listed: tuple[str, str], given: Arguments
) -> Value:
    sort, name = listed
    short = name.removeprefix("builtins.")
    if sort == "special" or name in SPECIAL_TOO:
        from anabranch.compiler.functions.library import SPECIAL

        return SPECIAL[name](frame, node, short, given)
    look = _LOOKS.get(name, tame)
    why = look(frame, given.every())
    if why is not None:
        return refuse(frame, node, f"`{short}`", why)
    del real
    return SCALAR if sort == "scalar" else PLAIN


def _call_method(frame: Frame, node: ast.AST, real: types.MethodType, given: Arguments) -> Value:
    owner = outer(frame, node, real.__self__, type(real.__self__).__name__)
    return call(frame, node, frozenset({Known(real.__func__)}), given.behind(owner))


def _call_partial(
    frame: Frame, node: ast.AST, real: functools.partial[Any], given: Arguments
) -> Value:
    label = "an argument of functools.partial"
    fixed = [outer(frame, node, each, label) for each in real.args]
    named = {name: outer(frame, node, each, label) for name, each in real.keywords.items()}
    both = replace(given, positional=[*fixed, *given.positional], named={**named, **given.named})
    return call(frame, node, outer(frame, node, real.func, "the function of a partial"), both)


def _call_object(frame: Frame, node: ast.AST, atom: Out, given: Arguments) -> Value:
    kind = type(atom.real)
    frame.analysis.rely_on(kind, "__call__")
    found = outside.class_attribute(kind, "__call__")
    if found is None or not isinstance(found[1], types.FunctionType):
        return _unknown(frame, node, given, "is no function")
    return call_function(frame, node, found[1], given.behind(frozenset({atom})))


def call_special(
    frame: Frame, node: ast.AST, atom: Obj, name: str, given: Arguments
) -> Value | None:
    """Call a special method of an instance; None where its class has none that is understood."""
    kind = frame.heap.item(atom).made_of
    frame.analysis.rely_on(kind, name)
    found = outside.class_attribute(kind, name)
    if found is None or not isinstance(found[1], types.FunctionType):
        return None
    return call_function(frame, node, found[1], given.behind(frozenset({atom})))


def _call_closure(frame: Frame, node: ast.AST, atom: Obj, given: Arguments) -> Value:
    item = frame.heap.item(atom)
    if isinstance(item.made_of, Callee):
        return run(frame, node, item.made_of, given)
    if item.made_of == "itemgetter":
        return _items(frame, node, item.attributes["keys"], given)
    owner = item.attributes.get("self", NOTHING)
    return call_function(frame, node, item.made_of, given.behind(owner))


def _items(frame: Frame, node: ast.AST, keys: Value, given: Arguments) -> Value:
    """What an `itemgetter` gives: one element, or a tuple of several."""
    found: Value = NOTHING
    for key in keys:
        found |= looked_up(frame, node, given.every(), frozenset({key}), part=False)
    return found if len(keys) == 1 else new(frame, node, "tuple", found, tag="items")


def call_function(
    frame: Frame, node: ast.AST, function: types.FunctionType, given: Arguments
) -> Value:
    """Follow a call into a function written in Python."""
    callee = callee_of(frame.analysis, function)
    if callee is None:
        return _call_without_source(frame, node, function, given)
    return run(frame, node, callee, given)


def _call_without_source(
    frame: Frame, node: ast.AST, function: types.FunctionType, given: Arguments
) -> Value:
    from anabranch.compiler.functions.bytecode import why_not

    passed = given.every()
    obstacle = why_not(frame.analysis, function) or textual(frame, passed)
    if obstacle is None and not owned(frame, passed, set()):
        obstacle = "is given something that exists outside"
    if obstacle is None:
        escape(frame, given.every())
        return PLAIN | given.every()
    return _unknown(frame, node, given, f"has no source to look into and {obstacle}")


def bound(frame: Frame, node: ast.AST, callee: Callee, given: Arguments) -> dict[str, Value]:
    """The parameters of a call; a call that does not fit raises, so what it binds is no matter."""
    taken = callee.node.args
    names = [each.arg for each in (*taken.posonlyargs, *taken.args)]
    found = dict(zip(names, given.positional, strict=False))
    rest: Value = NOTHING.union(*given.positional[len(names) :]) | (given.more or NOTHING)
    defaults = dict(zip(names[len(names) - len(callee.defaults) :], callee.defaults, strict=True))
    defaults |= callee.named_defaults
    named = {*names, *(each.arg for each in taken.kwonlyargs)}
    for name in named - found.keys():
        loose = (given.more or NOTHING) | (given.more_named or NOTHING)
        value = given.named.get(name)
        found[name] = value if value is not None else loose | defaults.get(name, NOTHING)
    if taken.vararg is not None:
        found[taken.vararg.arg] = new(frame, node, "tuple", rest, tag="*")
    if taken.kwarg is not None:
        extra = {name: value for name, value in given.named.items() if name not in named}
        values = (given.more_named or NOTHING).union(*extra.values())
        found[taken.kwarg.arg] = new(frame, node, "dict", values, SCALAR, tag="**")
    return found


def run(frame: Frame, node: ast.AST, callee: Callee, given: Arguments) -> Value:
    """Look through a function called with these arguments; what it returns."""
    if isinstance(callee.node, ast.AsyncFunctionDef):
        return _unknown(frame, node, given, "is async: an operator cannot wait")
    if any(Unknown() in default for default in (*callee.defaults, *callee.named_defaults.values())):
        frame.report(callee.node, f"`{callee.name}` has a default that may change")
    _check_defaults(frame, node, callee)
    parameters = bound(frame, node, callee, given)
    outcome = outcome_of(frame.analysis, callee, parameters, frame)
    if outcome is None:
        return _recursive(frame.analysis, callee, parameters)
    return result(frame.analysis, callee, outcome)


def _check_defaults(frame: Frame, node: ast.AST, callee: Callee) -> None:
    """Refuse defaults that are globals as well, and changed by others."""
    home, look = callee.home, frame.analysis.neighbours
    for value in (*callee.defaults, *callee.named_defaults.values()):
        for atom in value:
            if isinstance(atom, Out):
                frame.analysis.reads(f"a default of {callee.name}", atom.real)
                write = look.of_object(home, callee.file, atom.real)
                frame.must_stay(node, f"a default of {callee.name}", write)


def _recursive(analysis: Analysis, callee: Callee, parameters: dict[str, Value]) -> Value:
    """A call of a function that is running: what it is given and returns is joined into that."""
    _join_parameters(analysis, callee, parameters)
    return analysis.results.get(callee.identity, NOTHING)


def _join_parameters(
    analysis: Analysis, callee: Callee, parameters: dict[str, Value]
) -> dict[str, Value]:
    joined = analysis.recursive.setdefault(callee.identity, {})
    for name, value in parameters.items():
        if name not in joined or not value <= joined[name]:
            joined[name] = joined.get(name, NOTHING) | value
            analysis.heap.version += 1
    return joined


def result(analysis: Analysis, callee: Callee, outcome: Outcome) -> Value:
    """What a finished call returns: a generator, or a value."""
    if callee.names.generator:
        made = analysis.heap.make(("generator", callee.identity), "generator")
        item = analysis.heap.item(made)
        analysis.heap.add(item, NOTHING.union(*outcome.yielded))
        analysis.heap.count(item, outcome.least or 0, outcome.most)
        analysis.heap.set_attribute(item, "return", NOTHING.union(*outcome.returned))
        found: Value = frozenset({made})
    else:
        found = NOTHING.union(*outcome.returned)
    before = analysis.results.get(callee.identity, NOTHING)
    if not found <= before:
        analysis.results[callee.identity] = before | found
        analysis.heap.version += 1
    return found


def outcome_of(
    analysis: Analysis, callee: Callee, parameters: dict[str, Value], caller: Frame | None
) -> Outcome | None:
    """Run a function's body; None where it is running already."""
    if callee.identity in analysis.running:
        return None
    place: Any = (callee.identity, tuple(sorted(parameters.items(), key=lambda pair: pair[0])))
    if place not in analysis.contexts and analysis.variants.get(callee.identity, 0) >= _VARIANTS:
        parameters = _join_parameters(analysis, callee, parameters)
        place = (callee.identity, "joined")
    if place in analysis.outcomes:
        return analysis.outcomes[place]
    if len(analysis.running) >= _DEEPEST:
        if caller is not None:
            caller.report(caller.callee.node, f"calls are nested more than {_DEEPEST} deep")
        return Outcome(returned={UNKNOWN}, yielded={UNKNOWN}, least=0, most=MANY)
    again = analysis.recursive.get(callee.identity, {})
    if place not in analysis.contexts:
        analysis.variants[callee.identity] = analysis.variants.get(callee.identity, 0) + 1
    frame = Frame(analysis, callee, analysis.context(place))
    analysis.running.append(callee.identity)
    try:
        _run_body(frame, {n: v | again.get(n, NOTHING) for n, v in parameters.items()})
    finally:
        analysis.running.pop()
    analysis.outcomes[place] = frame.outcome
    return frame.outcome


def _run_body(frame: Frame, parameters: dict[str, Value]) -> None:
    from anabranch.compiler.functions.statements import execute

    for name, value in parameters.items():
        frame.hold(name, value)
    node = frame.callee.node
    if isinstance(node, ast.Lambda):
        frame.outcome.returned.add(evaluate(frame, node.body))
    else:
        execute(frame, node.body)
        if frame.flow is not None and not frame.callee.names.generator:
            frame.outcome.returned.add(NONE)
    if frame.flow is not None:
        frame.outcome.end(frame.flow)


def arguments_of(frame: Frame, node: ast.Call) -> Arguments:
    """Evaluate what a call passes."""
    given = Arguments()
    for each in node.args:
        if isinstance(each, ast.Starred):
            found = iterated(frame, each, evaluate(frame, each.value))
            given.more = (given.more or NOTHING) | found
        elif given.more is not None:
            given.more |= evaluate(frame, each)
        else:
            given.positional.append(evaluate(frame, each))
    for keyword in node.keywords:
        value = evaluate(frame, keyword.value)
        if keyword.arg is None:
            given.more_named = (given.more_named or NOTHING) | values_of(frame, node, value)
        else:
            given.named[keyword.arg] = value
    return given


def values_of(frame: Frame, node: ast.AST, value: Value) -> Value:
    """The values of a mapping."""
    from anabranch.compiler.functions.builtin import call_bound

    found: Value = NOTHING
    for atom in value:
        if isinstance(atom, Unknown):
            found |= UNKNOWN
        else:
            inner = call_bound(frame, node, Bound(atom, "values"), Arguments())
            found |= iterated(frame, node, inner)
    return found


def signature_of(kind: Any) -> inspect.Signature | None:
    """The parameters that a class or function takes; None where that cannot be told."""
    try:
        return inspect.signature(kind)
    except (TypeError, ValueError):
        return None
