"""A plan as text, for people: a box a region, below it why it ends and what to change.

Nothing is wider than a hundred columns.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from anabranch.compiler.plan import Joint, Plan, Region, Traits
from anabranch.compiler.reason import Reason
from anabranch.errors import Site
from anabranch.program.operators.operator import OUT, Operator
from anabranch.program.schema import describe

WIDTH = 100
_INNER = WIDTH - 4
"""What fits between the two sides of a box and their spaces."""
_LABEL = 10


def as_text(plan: Plan) -> str:
    """The whole plan, region by region."""
    return "\n".join(line.rstrip() for line in _lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    parallel = sum(region.parallel for region in plan.regions)
    counts = f"{_some(len(plan.graph.operators), 'operator')} in "
    counts += f"{_some(len(plan.regions), 'region')}, {parallel} parallel"
    yield from textwrap.wrap(f"{plan.graph.name}: {counts}", WIDTH)
    leaving: dict[int | None, list[Joint]] = {}
    for joint in plan.joints:
        leaving.setdefault(joint.before, []).append(joint)
    for region in plan.regions:
        yield ""
        yield from _box(_title(region), _inside(plan, region))
        yield from _below(region, leaving.get(region.id, ()))


def _title(region: Region) -> str:
    if not region.parallel:
        return f"region {region.id}: sequential"
    by = f" by {', '.join(region.key)}" if region.key else ""
    return f"region {region.id}: parallel{by}"


def _box(title: str, lines: Iterable[str]) -> Iterator[str]:
    short = textwrap.shorten(title, _INNER - 4, placeholder=" ...")
    yield f"┌─ {short} ".ljust(WIDTH - 1, "─") + "┐"
    for line in lines:
        yield f"│ {line.ljust(_INNER)} │"
    yield f"└{'─' * (WIDTH - 2)}┘"


def _inside(plan: Plan, region: Region) -> Iterator[str]:
    for at, op in enumerate(plan.operators(region)):
        if at:
            yield ""
        yield from _operator(plan, op, plan.traits[op.id])


def _operator(plan: Plan, op: Operator, traits: Traits) -> Iterator[str]:
    inputs = ", ".join(_port(plan, op, at) for at in range(len(op.inputs)))
    yield from textwrap.wrap(op.name + (f"  <- {inputs}" if inputs else ""), _INNER)
    yield from _labelled("at", str(op.site))
    yield from _labelled("is", _is(traits))
    for reason in traits.reasons:
        yield from _labelled("since", _told(reason, op.site))
    if traits.declared:
        yield from _labelled("declared", f"{', '.join(traits.declared)}: by its author, not proved")
    if forwarded := _forwards(plan, op, traits):
        yield from _labelled("forwards", forwarded)
    if OUT in op.outputs:
        yield from _labelled("gives", describe(op.outputs[OUT].schema))


def _is(traits: Traits) -> str:
    keyed = f" by {', '.join(traits.key)}" if traits.key and traits.state == "keyed" else ""
    few = {"one": "one row for each", "at-most-one": "at most one row for each"}
    made = few.get(traits.selectivity, f"{traits.selectivity} number of rows for each")
    return f"{traits.state}{keyed}, {made}" + ("" if traits.pure else ", not known to be pure")


def _forwards(plan: Plan, op: Operator, traits: Traits) -> str | None:
    if not op.inputs or OUT not in op.outputs:
        return None
    if len(traits.forwards) == len(plan.graph.output(op.inputs[0]).schema):
        return "every column"
    return ", ".join(traits.forwards) or "no column"


def _told(reason: Reason, seen: Site) -> str:
    """A reason, with its line unless that has been said."""
    if reason.site is None or (reason.site.file, reason.site.line) == (seen.file, seen.line):
        return reason.text
    where, _, _ = str(reason.site).partition("   ")
    return f"{reason.text} ({where})"


def _below(region: Region, joints: Iterable[Joint]) -> Iterator[str]:
    yield from _labelled("why", region.why)
    for text in dict.fromkeys(each.text for each in region.ends):
        yield from _labelled("ends", f"since {text}")
    for so in dict.fromkeys(each.so for each in region.ends if each.so):
        yield from _labelled("to move", so)
    if region.parallel:
        ordered = f"put in order by {region.ordering}"
        left = "leave in any order" if region.ordering == "none" else f"are {ordered}"
        yield from _labelled("rows", f"come by {region.routing} and {left}")
    for joint in joints:
        target = "out" if joint.behind is None else f"region {joint.behind}"
        yield from _labelled("▼", f"{target}, by {joint.kind}: {joint.strategy}")


def _labelled(label: str, text: str) -> Iterator[str]:
    indent = " " * (2 + _LABEL)
    yield from textwrap.wrap(
        text, _INNER, initial_indent=f"  {label:<{_LABEL}}", subsequent_indent=indent
    )


def _port(plan: Plan, op: Operator, at: int) -> str:
    port = op.inputs[at]
    name = plan.graph[port.operator].name
    return name if port.output == OUT else f"{name}.{port.output}"


def _some(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"
