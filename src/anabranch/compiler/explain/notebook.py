"""A plan as notebooks show it: a drawing, and a row a region."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.compiler.explain.layout import drawing
from anabranch.compiler.explain.svg import as_svg
from anabranch.compiler.plan import Plan, Region
from anabranch.markup import Markup, element, page, table

_REGIONS, _OPERATORS = 50, 20
"""As many are shown, and of a region as many; `explain` has all."""
_DRAWN = 60
"""Operators of a plan that is drawn: of more one sees nothing but lines."""
_WIDE = "overflow-x: auto; max-width: 100%"


def as_html(plan: Plan) -> str:
    """What runs together, what is parallel by what, and why."""
    parallel = sum(region.parallel for region in plan.regions)
    counts = f": {_some(len(plan.graph.operators), 'operator')} in "
    counts += f"{_some(len(plan.regions), 'region')}, {parallel} parallel"
    head = ("region", "runs", "operators", "because")
    return page(
        element("p", element("b", plan.graph.name), counts),
        *_drawn(plan),
        table([_row(plan, region) for region in plan.regions[:_REGIONS]], head),
        element("p", element("small", _rest(plan))),
    )


def _drawn(plan: Plan) -> Iterator[Markup]:
    if 0 < len(plan.graph.operators) <= _DRAWN:
        svg = as_svg(drawing(plan), f"the plan of {plan.graph.name}")
        yield element("div", svg, style=_WIDE)


def _row(plan: Plan, region: Region) -> tuple[str | Markup, ...]:
    by = f" by {', '.join(region.key)}" if region.key else ""
    runs = f"parallel{by}" if region.parallel else "sequential"
    operators = element("span", *_operators(plan, region))
    return str(region.id), runs, operators, region.because


def _operators(plan: Plan, region: Region) -> Iterator[str | Markup]:
    shown = plan.operators(region)[:_OPERATORS]
    for at, op in enumerate(shown):
        yield ", " if at else ""
        yield element("b", op.name)
        yield f" ({plan.traits[op.id].state})"
    if more := len(region.operators) - len(shown):
        yield f" and {more} more"


def _rest(plan: Plan) -> str:
    more = len(plan.regions) - _REGIONS
    left = f"{_some(more, 'region')} more: " if more > 0 else ""
    return f"{left}print(program.explain()) tells what was proved of each operator, and where"


def _some(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"
