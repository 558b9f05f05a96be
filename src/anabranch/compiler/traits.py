"""What is known of an operator by its kind, or because its author declared it.

Nothing here looks into a user's function: what is neither obvious nor declared is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from anabranch.compiler.reason import Reason
from anabranch.program.expressions import Expression
from anabranch.program.functions import Function
from anabranch.program.graph import Graph
from anabranch.program.operators import keyed, rowwise, together, windowed
from anabranch.program.operators.edges import Feedback, Read, Write
from anabranch.program.operators.operator import Operator

State: TypeAlias = Literal["stateless", "keyed", "whole", "unknown"]
Selectivity: TypeAlias = Literal["one", "at-most-one", "any", "unknown"]


@dataclass(frozen=True, slots=True)
class Traits:
    """How an operator behaves, as far as it is known."""

    state: State
    selectivity: Selectivity
    key: tuple[str, ...] | None = None
    forwards: tuple[str, ...] = ()
    """Columns that leave as they came."""
    pure: bool = True
    """Whether the same rows give the same rows, with no other effect."""
    declared: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()


def traits_of(graph: Graph, op: Operator) -> Traits:
    """The traits of one operator."""
    columns = tuple(graph.output(op.inputs[0]).schema) if op.inputs else ()
    found = _by_kind(op, columns)
    function = getattr(op, "function", None) or getattr(op, "predicate", None)
    return _as_declared(found, function) if isinstance(function, Function) else found


def _by_kind(op: Operator, columns: tuple[str, ...]) -> Traits:  # noqa: C901, PLR0911, PLR0912
    match op:
        case Read() | Feedback():
            return Traits("stateless", "one")
        case Write() | together.Union():
            return Traits("stateless", "one", forwards=columns)
        case rowwise.Filter(predicate=Function()):
            return Traits("unknown", "at-most-one", forwards=columns)
        case rowwise.Filter() | rowwise.Split():
            return Traits("stateless", "at-most-one", forwards=columns)
        case rowwise.Select(expressions=found):
            return Traits("stateless", "one", forwards=_bare(found, columns))
        case rowwise.WithColumns(expressions=found):
            written = {_name(each) for each in found}
            kept = () if None in written else tuple(c for c in columns if c not in written)
            return Traits("stateless", "one", forwards=kept)
        case rowwise.Drop(columns=dropped):
            return Traits("stateless", "one", forwards=_without(columns, dropped))
        case rowwise.Rename(names=names):
            moved = {name for pair in names for name in pair}
            return Traits("stateless", "one", forwards=_without(columns, moved))
        case rowwise.Explode(column=column):
            return Traits("stateless", "any", forwards=_without(columns, (column,)))
        case rowwise.WithEventTime():
            return Traits("stateless", "at-most-one", forwards=columns)
        case together.Lookup(how=how, many=many):
            few: Selectivity = "one" if how == "left" else "at-most-one"
            return Traits("stateless", "any" if many else few, forwards=columns)
        case rowwise.MapBatches(elementwise=True):
            return Traits("stateless", "unknown", reasons=(_because("elementwise=True", op),))
        case _:
            return _with_state(op, columns)


def _with_state(op: Operator, columns: tuple[str, ...]) -> Traits:  # noqa: C901, PLR0911, PLR0912
    match op:
        case rowwise.Map():
            return Traits("unknown", "one")
        case rowwise.FlatMap():
            return Traits("unknown", "any")
        case keyed.Process(key=None) | rowwise.MapBatches():
            return Traits("whole", "unknown", reasons=(_because("the whole stream", op),))
        case keyed.Process(key=key):
            return Traits("keyed", "unknown", key)
        case keyed.Reduce(key=key):
            return Traits("keyed", "one", key)
        case keyed.Deduplicate(key=key):
            return Traits("keyed", "at-most-one", key, columns)
        case keyed.Match(key=key):
            return Traits("keyed", "at-most-one", key, key)
        case together.Join(on=on):
            return Traits("keyed", "any", on, on)
        case windowed.WindowAggregate(windowing=w) | windowed.WindowApply(windowing=w) if w.by:
            return Traits("keyed", "any", w.by, w.by)
        case windowed.WindowAggregate() | windowed.WindowApply():
            return Traits(
                "whole", "any", reasons=(_because("one group: the window has no by", op),)
            )
        case _:
            return Traits("whole", "any", forwards=columns)


def _as_declared(found: Traits, function: Function) -> Traits:
    """What the author declared holds; what is not declared of a function is not pure."""
    said = function.declared
    names = tuple(
        name
        for name in ("state", "selectivity", "forwards", "pure")
        if getattr(said, name) is not None
    )
    reason = Reason(f"{function.name} is a Python function that was not looked into", function.site)
    return replace(
        found,
        state=said.state or found.state,
        selectivity=said.selectivity or found.selectivity,
        forwards=found.forwards if said.forwards is None else said.forwards,
        pure=bool(said.pure),
        declared=names,
        reasons=found.reasons if said.pure else (*found.reasons, reason),
    )


def _because(text: str, op: Operator) -> Reason:
    return Reason(text, op.site)


def _without(columns: Iterable[str], gone: Iterable[str]) -> tuple[str, ...]:
    out = set(gone)
    return tuple(name for name in columns if name not in out)


def _bare(expressions: Iterable[Expression], columns: Iterable[str]) -> tuple[str, ...]:
    texts = {each.text for each in expressions}
    return tuple(name for name in columns if f'col("{name}")' in texts)


def _name(expression: Expression) -> str | None:
    """The column an expression writes; None where it may be several."""
    if expression.form is None or "Selector" in expression.form:
        return None
    return expression.expr.meta.output_name(raise_if_undetermined=False)
