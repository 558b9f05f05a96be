"""A plan as a drawing that notebooks show in place: SVG without scripts, links or names of its own.

Lines and titles have the reader's own colour, and boxes bring both of theirs, so it reads in dark
themes and in light ones. That a region is parallel is written in its title and drawn as a second
sheet behind it; colours only help.
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.compiler.explain.layout import (
    HEIGHT,
    PAD,
    TITLE,
    Arrow,
    Box,
    Drawing,
    Group,
    clipped,
)
from anabranch.markup import Markup, element, shape

_COLOURS = ("#3b82c4", "#c2703d", "#4c9a52", "#a05bb5", "#b8932f", "#3a9ca0")
"""Of parallel regions in turn; as dark as they are light, for both kinds of themes."""
_GREY = "#888888"
_INK, _PAPER = "#1b1f24", "#f6f7f9"
_HEAD, _HALF = 7, 4
"""Of an arrow: how long its head is, and half as wide."""
_BEND = 14
"""How far a line that goes around bends out: half of what is between two regions."""
_BEHIND = 3
"""How far the second sheet looks out."""


def as_svg(drawn: Drawing, what: str) -> Markup:
    """The drawing, as large as it is; `what` it shows is read out to who cannot see it."""
    return shape(
        "svg",
        element("title", what),
        *(part for group in drawn.groups for part in _group(group)),
        *(_arrow(arrow) for arrow in drawn.arrows),
        *(_box(box) for box in drawn.boxes),
        role="img",
        width=drawn.width + _BEHIND,
        height=drawn.height + _BEHIND,
        viewBox=f"0 0 {drawn.width + _BEHIND} {drawn.height + _BEHIND}",
        font_family="monospace",
        font_size=12,
    )


def _group(group: Group) -> Iterator[str | Markup]:
    colour = _COLOURS[group.id % len(_COLOURS)] if group.parallel else _GREY
    at = group.at
    if group.parallel:
        yield "\n"
        yield _sheet(group, colour, _BEHIND)
    yield "\n"
    yield _sheet(group, colour, 0)
    title = clipped(group.title, at.width - PAD)
    yield _words(title, group.title, at.x + PAD // 2, at.y + TITLE - 5, fill="currentColor")


def _sheet(group: Group, colour: str, off: int) -> Markup:
    at = group.at
    dashes = {} if group.parallel else {"stroke_dasharray": "5 4"}
    return shape(
        "rect",
        x=at.x + off,
        y=at.y + off,
        width=at.width,
        height=at.height,
        rx=6,
        fill=colour,
        fill_opacity="0.14",
        stroke=colour,
        **dashes,
    )


def _box(box: Box) -> Markup:
    at = box.at
    outline = {"x": at.x, "y": at.y, "width": at.width, "height": at.height}
    room = at.width - 2 * PAD
    left, low = at.x + PAD, at.y + HEIGHT
    return shape(
        "g",
        "\n",
        element("title", box.name),
        shape("rect", rx=4, fill=_PAPER, stroke=_GREY, **outline),
        shape("text", clipped(box.name, room), x=left, y=low - 22, fill=_INK, font_weight="bold"),
        shape("text", box.below, x=left, y=low - 8, fill=_INK, fill_opacity="0.7"),
    )


def _words(text: str, whole: str, x: int, y: int, *, fill: str) -> Markup:
    """Some text; all of it is shown to who points at it."""
    return shape("text", element("title", whole), text, x=x, y=y, fill=fill)


def _arrow(arrow: Arrow) -> Markup:
    to_x, to_y = arrow.end
    dashes = {"stroke_dasharray": "4 3"} if arrow.back else {}
    told = [element("title", arrow.told)] if arrow.told else []
    return shape(
        "g",
        "\n",
        *told,
        shape("path", d=_line(arrow), fill="none", stroke="currentColor", **dashes),
        shape("path", d=f"M{to_x} {to_y} l{-_HEAD} {-_HALF} v{2 * _HALF} Z", fill="currentColor"),
    )


def _line(arrow: Arrow) -> str:
    """One bend, or one down, a way below the boxes, and one up; bends are in the gaps between."""
    (x, y), (to_x, to_y) = arrow.begin, arrow.end
    tip = f"{to_x - _HEAD} {to_y}"
    if arrow.below is None:
        bend = (to_x - x) // 2
        return f"M{x} {y} C{x + bend} {y} {to_x - bend} {to_y} {tip}"
    right, left, low = x + _BEND, to_x - _BEND, arrow.below
    # A way back begins with a turn under its own box, and ends with one.
    turn, turned = (x, to_x) if arrow.back else (right, left)
    down = f"M{x} {y} C{right} {y} {right} {low} {turn} {low}"
    return f"{down} L{turned} {low} C{left} {low} {left} {to_y} {tip}"
