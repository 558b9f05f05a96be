"""Lines in a frame, as SVG text. Pure: the same points give the same text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

Points: TypeAlias = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 80, 190, 44, 52
COLOURS = ("#3b6ea5", "#c05621", "#2f855a", "#805ad5", "#b7791f", "#52606d", "#d53f8c", "#2c7a7b")
"""Of lines, one after the other; marks differ as well, for who cannot tell colours apart."""
TICKS = 5


@dataclass(frozen=True, slots=True)
class Axis:
    """What is along a side of the frame."""

    label: str
    log: bool = False

    def ticks(self, low: float, high: float) -> list[float]:
        """Round numbers from `low` to `high`.

        >>> Axis("x").ticks(0.0, 10.0)
        [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        >>> Axis("x", log=True).ticks(3.0, 200.0)
        [10.0, 100.0]
        """
        if self.log:
            first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
            return [10.0**power for power in range(first, last + 1)]
        size = 10.0 ** math.floor(math.log10((high - low) / TICKS or 1.0))
        step = next(size * by for by in (1, 2, 5, 10) if (high - low) / (size * by) <= TICKS)
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        return [round(at * step, 12) for at in range(first, last + 1)]

    def place(self, value: float, low: float, high: float) -> float:
        """Where a value is between two others, from 0 to 1.

        >>> Axis("x", log=True).place(10.0, 1.0, 100.0)
        0.5
        """
        if self.log:
            value, low, high = math.log10(value), math.log10(low), math.log10(high)
        return (value - low) / (high - low) if high > low else 0.5


def chart(title: str, x: Axis, y: Axis, lines: Mapping[str, Points], *, marks: bool = True) -> str:
    """Lines by name, each with its points by x, and a legend beside them.

    `marks` are at every point: without them where there are many.
    """
    across = [at for points in lines.values() for at, _ in points]
    upward = [value for points in lines.values() for _, value in points]
    bounds = _bounds(x, across), _bounds(y, upward)
    frame = _Frame(x, y, *bounds)
    parts = [_HEAD.format(w=WIDTH, h=HEIGHT, title=escape(title)), *frame.drawn(title)]
    for number, (name, points) in enumerate(lines.items()):
        parts += frame.line(number, name, sorted(points), marks=marks)
    return "\n".join([*parts, "</svg>\n"])


def _bounds(axis: Axis, values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    if axis.log:
        return (low, high) if high > low else (low / 2, high * 2)
    return min(0.0, low), (high * 1.05 or 1.0)


@dataclass(frozen=True, slots=True)
class _Frame:
    x: Axis
    y: Axis
    across: tuple[float, float]
    upward: tuple[float, float]

    def at(self, point: tuple[float, float]) -> tuple[float, float]:
        """Where a point is in the picture."""
        right = self.x.place(point[0], *self.across) * (WIDTH - LEFT - RIGHT)
        up = self.y.place(point[1], *self.upward) * (HEIGHT - TOP - BOTTOM)
        return round(LEFT + right, 1), round(HEIGHT - BOTTOM - up, 1)

    def drawn(self, title: str) -> list[str]:
        """Title, axes, ticks and their numbers."""
        found = [f'<text class="title" x="{LEFT}" y="24">{escape(title)}</text>']
        for value in self.x.ticks(*self.across):
            at, _ = self.at((value, self.upward[0]))
            bottom = HEIGHT - BOTTOM
            found.append(f'<path class="grid" d="M{at} {TOP}V{bottom}"/>')
            found.append(_text(at, bottom + 18, _number(value), "middle"))
        for value in self.y.ticks(*self.upward):
            _, at = self.at((self.across[0], value))
            found.append(f'<path class="grid" d="M{LEFT} {at}H{WIDTH - RIGHT}"/>')
            found.append(_text(LEFT - 8, at + 4, _number(value), "end"))
        middle = (LEFT + WIDTH - RIGHT) / 2
        found.append(_text(middle, HEIGHT - 12, self.x.label, "middle"))
        found.append(_text(8, TOP - 6, self.y.label, "start"))
        return found

    def line(self, number: int, name: str, points: Points, *, marks: bool) -> list[str]:
        """One line with its marks, and its name in the legend."""
        colour = COLOURS[number % len(COLOURS)]
        places = [self.at(point) for point in points]
        path = "L".join(f"{x} {y}" for x, y in places)
        key = TOP + 10 + 20 * number
        marked = [*(places if marks else []), (WIDTH - RIGHT + 24, key)]
        legend = _text(WIDTH - RIGHT + 36, key + 4, name, "start")
        return [
            f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
            *(_mark(number, x, y, colour) for x, y in marked),
            legend,
        ]


def _mark(number: int, x: float, y: float, colour: str) -> str:
    if number % 2:
        return f'<rect x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7" fill="{colour}"/>'
    return f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _number(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


_HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img">
<title>{title}</title>
<style>
text {{ font: 12px sans-serif; fill: #1f2933; }}
.title {{ font-size: 14px; font-weight: bold; }}
.grid {{ stroke: #cbd2d9; fill: none; }}
</style>
<rect width="{w}" height="{h}" fill="#ffffff"/>"""
