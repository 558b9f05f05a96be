"""Where boxes, groups and arrows of a drawn plan are: coordinates, and nothing of how they look.

Operators go from left to right: each is one column behind the last of those it reads. A region is a
rectangle around its operators. No two rectangles overlap; every arrow but a feedback's goes to the
right, and below the boxes that are between. All figures are whole pixels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias
from unicodedata import east_asian_width

from anabranch.compiler.plan import Plan, Region
from anabranch.ids import OperatorId
from anabranch.program.operators.operator import OUT, Operator, Port

CHARACTER = 7
"""The width of one, in a font of 12 pixels whose characters are all as wide."""
HEIGHT, TITLE = 38, 18
"""Of a box, and of the line above a region's boxes."""
PAD = 10
"""Between a region's border and its boxes."""

_BETWEEN, _BELOW = 52, 14
"""From box to box in a row, and from rectangle to rectangle in a column."""
_NARROWEST, _LONGEST = 108, 24
"""Pixels of a box, and characters of a name."""
_EDGE = 6
_LINE = 8
"""Between arrows that go around."""


@dataclass(frozen=True, slots=True)
class Rectangle:
    """From its upper left corner on."""

    x: int
    y: int
    width: int
    height: int

    @property
    def middle(self) -> int:
        """Half way down."""
        return self.y + self.height // 2

    def meets(self, other: Rectangle, gap: int = 0) -> bool:
        """Whether they overlap, or are nearer to each other than `gap`.

        >>> Rectangle(0, 0, 10, 10).meets(Rectangle(10, 0, 5, 5))
        False
        >>> Rectangle(0, 0, 10, 10).meets(Rectangle(10, 0, 5, 5), gap=1)
        True
        """
        return (
            self.x < other.x + other.width + gap
            and other.x < self.x + self.width + gap
            and self.y < other.y + other.height + gap
            and other.y < self.y + self.height + gap
        )


@dataclass(frozen=True, slots=True)
class Box:
    """An operator."""

    operator: OperatorId
    name: str
    below: str
    """What it keeps."""
    at: Rectangle


@dataclass(frozen=True, slots=True)
class Group:
    """A region."""

    id: int
    title: str
    parallel: bool
    at: Rectangle


@dataclass(frozen=True, slots=True)
class Arrow:
    """A stream."""

    begin: tuple[int, int]
    end: tuple[int, int]
    told: str
    """Which output, and which joint; empty where there is nothing to tell."""
    back: bool = False
    """Whether it brings rows to the next epoch."""
    below: int | None = None
    """How far down it goes around what is between; None: nothing is."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """All of it, and how large it is."""

    width: int
    height: int
    groups: tuple[Group, ...]
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def drawing(plan: Plan) -> Drawing:
    """Where everything of a plan is."""
    columns = _columns(plan.graph.operators)
    spans = _spans(plan, columns)
    places: dict[OperatorId, Rectangle] = {}
    groups: list[Group] = []
    for region in plan.regions:
        shape = _Shape.of(region, columns, spans)
        y = _free(shape, [group.at for group in groups], _wanted(plan, region, places))
        groups.append(Group(region.id, _title(region), region.parallel, shape.outline(y)))
        places.update(shape.boxes(y))
    boxes = tuple(
        Box(op.id, op.name, plan.traits[op.id].state, places[op.id]) for op in plan.graph.operators
    )
    outlines = [group.at for group in groups]
    arrows = tuple(_arrows(plan, places, outlines))
    bottom = [each.y + each.height for each in outlines]
    bottom += [arrow.below for arrow in arrows if arrow.below is not None]
    return Drawing(
        max(each.x + each.width for each in outlines) + _EDGE,
        max(bottom) + _EDGE,
        tuple(groups),
        boxes,
        arrows,
    )


def clipped(text: str, width: int) -> str:
    """As much of a text as fits into so many pixels; of wide scripts a character is two.

    >>> clipped("campaign_views", 70), clipped("campaign", 70), clipped("三四五六七八", 70)
    ('campaign_…', 'campaign', '三四五六…')
    """
    room = width // CHARACTER
    if _cells(text) <= room:
        return text
    taken = (number for number, used in enumerate(_used(text)) if used > room - 1)
    return text[: next(taken)] + "…"


def _used(text: str) -> Iterable[int]:
    return accumulate(2 if east_asian_width(each) in "WF" else 1 for each in text)


def _cells(text: str) -> int:
    return max(_used(text), default=0)


# Columns

Span: TypeAlias = tuple[int, int]
"""Where a column begins, and how wide it is."""


def _columns(operators: Sequence[Operator]) -> dict[OperatorId, int]:
    """Behind all that an operator reads; they are in topological order."""
    found: dict[OperatorId, int] = {}
    for op in operators:
        found[op.id] = max((found[port.operator] + 1 for port in op.inputs), default=0)
    return found


def _spans(plan: Plan, columns: Mapping[OperatorId, int]) -> list[Span]:
    """As wide as the names in a column, and as the title of a region that has no other column."""
    widths = [_NARROWEST] * (max(columns.values()) + 1)

    def widen(column: int, text: str, more: int) -> None:
        wanted = min(_cells(text), _LONGEST) * CHARACTER + more
        widths[column] = max(widths[column], wanted)

    for op in plan.graph.operators:
        widen(columns[op.id], op.name, 2 * PAD)
    for region in plan.regions:
        mine = {columns[number] for number in region.operators}
        if len(mine) == 1:
            # It begins further left than the boxes do, by the border.
            widen(mine.pop(), _title(region), -PAD)
    begins = accumulate((width + _BETWEEN for width in widths[:-1]), initial=_EDGE + PAD)
    return list(zip(begins, widths, strict=True))


# Regions


@dataclass(frozen=True, slots=True)
class _Shape:
    """A region's columns from left to right, each with its operators from top to bottom."""

    stacks: tuple[tuple[Span, tuple[OperatorId, ...]], ...]

    @classmethod
    def of(cls, region: Region, columns: Mapping[OperatorId, int], spans: Sequence[Span]) -> _Shape:
        stacks: dict[int, list[OperatorId]] = {}
        for number in region.operators:
            stacks.setdefault(columns[number], []).append(number)
        return cls(tuple((spans[column], tuple(stacks[column])) for column in sorted(stacks)))

    def outline(self, y: int) -> Rectangle:
        (begin, _), _ = self.stacks[0]
        (last, width), _ = self.stacks[-1]
        high = max(len(stack) for _, stack in self.stacks)
        inside = high * (HEIGHT + PAD) + PAD
        return Rectangle(begin - PAD, y, last + width - begin + 2 * PAD, TITLE + inside)

    def boxes(self, y: int) -> Iterator[tuple[OperatorId, Rectangle]]:
        for (x, width), stack in self.stacks:
            for row, number in enumerate(stack):
                top = y + TITLE + PAD + row * (HEIGHT + PAD)
                yield number, Rectangle(x, top, width, HEIGHT)


def _wanted(plan: Plan, region: Region, places: Mapping[OperatorId, Rectangle]) -> int:
    """Where a region's first box is level with the first that it reads from outside."""
    for op in plan.operators(region):
        for port in op.inputs:
            if port.operator in places:
                return max(places[port.operator].y - TITLE - PAD, _EDGE)
    return _EDGE


def _free(shape: _Shape, taken: Sequence[Rectangle], wanted: int) -> int:
    """The place nearest to where it is wanted at which it meets no other."""
    behind = [each.y + each.height + _BELOW for each in taken]
    free = (
        y
        for y in (wanted, _EDGE, *behind)
        if not any(shape.outline(y).meets(each, _BELOW) for each in taken)
    )
    return min(free, key=lambda y: (abs(y - wanted), y))


def _title(region: Region) -> str:
    by = f" by {', '.join(region.key)}" if region.key else ""
    return f"{region.id} parallel{by}" if region.parallel else f"{region.id} sequential"


# Arrows


def _arrows(
    plan: Plan, places: Mapping[OperatorId, Rectangle], outlines: Sequence[Rectangle]
) -> Iterator[Arrow]:
    homes = {number: region.id for number, region in plan.homes().items()}
    joints = {(each.before, each.behind): each for each in plan.joints}
    around = 0

    def told(port: Port, number: OperatorId) -> str:
        words = [port.output] if port.output != OUT else []
        if joint := joints.get((homes[port.operator], homes[number])):
            words.append(f"{joint.kind}: {joint.strategy}")
        return ", ".join(words)

    def below(begin: int, end: int) -> int:
        """Below all that is between; each arrow that goes around has a line of its own."""
        nonlocal around
        around += 1
        span = Rectangle(begin, 0, end - begin, 1 << 30)
        lowest = max(each.y + each.height for each in outlines if each.meets(span))
        return lowest + _LINE * around

    for op in plan.graph.operators:
        to = places[op.id]
        for port in op.inputs:
            out = places[port.operator]
            begin, end = (out.x + out.width, out.middle), (to.x, to.middle)
            hidden = _hidden(begin, end, places.values())
            line = below(begin[0], end[0]) if hidden else None
            yield Arrow(begin, end, told(port, op.id), below=line)
        if closing := plan.graph.feedback.get(op.id):
            out = places[closing.operator]
            begin, end = (out.x + out.width, out.middle), (to.x, to.middle)
            yield Arrow(begin, end, "next epoch", back=True, below=below(end[0], begin[0]))


def _hidden(begin: tuple[int, int], end: tuple[int, int], boxes: Iterable[Rectangle]) -> bool:
    """Whether a box is in the way from one to the other."""
    top, low = sorted((begin[1], end[1]))
    way = Rectangle(begin[0], top, end[0] - begin[0], low - top + 1)
    return any(way.meets(box) for box in boxes)
