"""HTML for notebooks: plain, without scripts and links, and whatever is put into it is escaped.

Text has the reader's own colour, so it reads in dark themes and in light ones; what chooses another
chooses the one behind it too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

_CELL = "text-align: left; vertical-align: top"
"""Of each cell: notebooks have their own rules for cells, which those for rows do not override."""
_LINES = "white-space: pre-wrap; margin: 4px 0"


@dataclass(frozen=True, slots=True)
class Markup:
    """HTML that is made here, and so is safe to show; a `str` is text, and is escaped.

    >>> element("b", "a < b").html
    '<b>a &lt; b</b>'
    """

    html: str


def element(tag: str, *inside: str | Markup, style: str | None = None) -> Markup:
    """An element with text and other elements in it."""
    opening = tag if style is None else f'{tag} style="{escape(style)}"'
    return Markup(f"<{opening}>{''.join(map(_shown, inside))}</{tag}>")


def shape(tag: str, *inside: str | Markup, **attributes: str | int) -> Markup:
    """An element of a drawing; `stroke_width=2` is its `stroke-width`.

    >>> shape("rect", x=1, fill='"red"').html
    '<rect x="1" fill="&quot;red&quot;"></rect>'
    """
    told = [f'{name.replace("_", "-")}="{escape(str(each))}"' for name, each in attributes.items()]
    return Markup(f"<{' '.join((tag, *told))}>{''.join(map(_shown, inside))}</{tag}>")


def table(rows: Iterable[Sequence[str | Markup]], head: Sequence[str] = ()) -> Markup:
    """A table; of no head where none is given."""
    top = [_row("th", head)] if head else []
    body = (_row("td", row) for row in rows)
    return element("table", *(part for row in (*top, *body) for part in ("\n", row)), "\n")


def lines(text: str) -> Markup:
    """Text with its line breaks and indents; long lines are broken."""
    return element("pre", text, style=_LINES)


def page(*parts: str | Markup) -> str:
    """What a notebook shows, one part below the other."""
    return element("div", *(each for part in parts for each in ("\n", part)), "\n").html


def _row(tag: str, cells: Sequence[str | Markup]) -> Markup:
    return element("tr", *(element(tag, cell, style=_CELL) for cell in cells))


def _shown(part: str | Markup) -> str:
    return part.html if isinstance(part, Markup) else escape(part)
