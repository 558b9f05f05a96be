"""A sink that prints rows."""

from __future__ import annotations

import copy
import io
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, final

import polars as pl

from anabranch.connectors.base import Sink, require_visible
from anabranch.connectors.messages import from_message, to_message
from anabranch.errors import CheckpointError, ProgramError

if TYPE_CHECKING:
    import pyarrow as pa


@final
class Console(Sink):
    """The first rows of each epoch that has some, on standard output, once it is committed.

    An epoch is a table, headed by the program, the sink and the epoch; each row has its number in
    the epoch. With `--json` the command line prints them on standard error.

    At least once: what was printed is not remembered. A run that goes on from a checkpoint prints
    the epochs of the last commit again if the run before died before it had noted that they were;
    they are the same rows under the same numbers.

    >>> console = Console(rows=2)
    >>> frame = pl.DataFrame({"user": ["ann", "bob", None], "n": [1, 20, 3]})
    >>> console.publish([console.write(frame.to_arrow().to_batches(), 7, "a")], 7)
    epoch 7: 3 rows
    +-----+------+----+
    | row | user |  n |
    +-----+------+----+
    |   0 | ann  |  1 |
    |   1 | bob  | 20 |
    +-----+------+----+
    1 more row
    <BLANKLINE>
    """

    def __init__(
        self,
        *,
        rows: int = 20,
        truncate: int | None = 40,
        visible: Literal["commit", "early"] = "commit",
    ) -> None:
        """Print up to `rows` rows of an epoch, and up to `truncate` characters of a value.

        With `visible="early"` and the trigger `ab.continuous` they are printed before their commit.
        """
        self.visible = require_visible("Console", visible)
        _require_count(rows, "rows", "a whole number from 1")
        if truncate is not None:
            _require_count(truncate, "truncate", "None or a whole number from 1")
        self._rows, self._truncate = rows, truncate
        self._label = ""

    def called(self, program: str, name: str) -> Console:
        """The same sink, which says whose rows it prints."""
        other = copy.copy(self)
        other._label = f"{program} / {name} / "  # noqa: SLF001 - one of us
        return other

    def write(
        self,
        batches: Iterable[pa.RecordBatch],
        epoch: int,  # noqa: ARG002
        attempt: str,  # noqa: ARG002
    ) -> dict[str, Any]:
        """Carry what may be printed in the message itself, and how many rows there are."""
        total, shown = 0, []
        for batch in batches:
            if total < self._rows and batch.num_rows:
                shown.append(batch.slice(0, self._rows - total))
            total += batch.num_rows
        return {"rows": total, "shown": to_message(shown)}

    def publish(self, messages: Sequence[Any], epoch: int) -> None:
        """Print an epoch's first rows."""
        found = [_checked(message) for message in messages]
        total = sum(rows for rows, _ in found)
        frames = [frame for _, frame in found if frame is not None]
        if not total or not frames:
            return
        frame = pl.concat(frames).head(self._rows)
        left = total - frame.height
        lines = [f"{self._label}epoch {epoch}: {_some(total, 'row')}", self._table(frame)]
        more = [_some(left, "more row")] if left else []
        _print("\n".join([*lines, *more, "", ""]))

    def _table(self, frame: pl.DataFrame) -> str:
        from rich import box
        from rich.console import Console as Page
        from rich.table import Table
        from rich.text import Text

        # Text is taken as it is: of other strings Rich would take [red] for a colour.
        table = Table(box=box.ASCII2, show_header=True, header_style="")
        table.add_column("row", justify="right", no_wrap=True)
        for name, dtype in frame.schema.items():
            side: Literal["left", "right"] = "right" if dtype.is_numeric() else "left"
            table.add_column(Text(_plain(name)), justify=side, no_wrap=True)
        for number, row in enumerate(frame.iter_rows()):
            table.add_row(Text(str(number)), *(Text(self._cut(_text(value))) for value in row))
        page = Page(file=io.StringIO(), width=1 << 20, color_system=None, force_jupyter=False)
        with page.capture() as captured:
            page.print(table)
        return captured.get().rstrip("\n")

    def _cut(self, text: str) -> str:
        most = self._truncate
        if most is None or len(text) <= most:
            return text
        return text[:most] if most < 4 else f"{text[: most - 3]}..."


def _print(text: str) -> None:
    """Write a text as a whole; what the output cannot hold is escaped, not an error."""
    out = sys.stdout  # as it is now: the command line and notebooks put others in its place
    if out is None:
        return
    encoding = getattr(out, "encoding", None) or "utf-8"
    out.write(text.encode(encoding, "backslashreplace").decode(encoding))
    out.flush()


def _text(value: object) -> str:
    """A value as people read it, on one line."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return _plain(value)
        case list():
            return f"[{', '.join(map(_text, value))}]"
        case dict():
            return (
                f"{{{', '.join(f'{_plain(name)}: {_text(each)}' for name, each in value.items())}}}"
            )
    return _plain(str(value))


def _plain(text: str) -> str:
    r"""A text without what would move the cursor or colour the screen.

    >>> print(_plain("a\tb\x1b[2Jé"))
    a\tb\x1b[2Jé
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def _checked(message: object) -> tuple[int, pl.DataFrame | None]:
    """What a message says: it may come from a checkpoint that anybody wrote."""
    match message:
        case {"rows": int(rows), "shown": str(shown)} if rows >= 0:
            return rows, from_message(shown, "Console") if shown else None
    text = "a message of a Console sink cannot be read"
    raise CheckpointError(text, why=f"it holds no rows: {message!r}")


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _require_count(given: object, what: str, wanted: str) -> None:
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        message = f"Console: {what} must be {wanted}, got {given!r}"
        raise ProgramError(message)
