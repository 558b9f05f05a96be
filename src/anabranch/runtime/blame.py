"""Whose line it was: errors of a user's functions and expressions, told to their author.

Tasks tell what happened as data. Here the program is known, so the error gets the line that is to
be mended, and what else could be done about it with an operator of that kind.
"""

from __future__ import annotations

import json
import re
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.errors import RunError, Site, line_of, nearest
from anabranch.program.operators.operator import Operator

_FRAME = re.compile(r"(?P<file>.+):(?P<line>\d+) in (?P<function>.+)")
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
_BAD_ROW = "BadRow: "
"""What a function gave, and not what it raised: the name of that error is ours and says nothing."""

_KEPT = (
    "keep None, numbers, text, bytes, times, lists, tuples, sets and dicts, and dataclasses of them"
)


@dataclass(frozen=True, slots=True)
class Blame:
    """The operators of a program by their names."""

    operators: Mapping[str, Operator] = field(default_factory=dict)

    @classmethod
    def of(cls, operators: Iterable[Operator]) -> Blame:
        """Know these operators."""
        return cls({op.name: op for op in operators})

    def error(self, told: Mapping[str, Any]) -> RunError:
        """What a task told of an error, as one that says where and what to do."""
        operator, record = told["operator"], told.get("record")
        frames = [found for each in told.get("traceback") or () if (found := _FRAME.match(each))]
        known, text = self.operators.get(operator), str(told["text"]).removeprefix(_BAD_ROW)
        columns = _columns(record)
        return RunError(
            f"{operator} failed{f' on {record}' if record else ''}: {text}",
            site=_innermost(frames) or (known.site if known else None),
            why="\n        ".join(each[0] for each in frames) if len(frames) > 1 else None,
            have=", ".join(columns) if text.startswith("KeyError") and columns else None,
            so=told.get("so") or _advice(known, text, columns, raised=bool(frames)),
        )


def _innermost(frames: Sequence[re.Match[str]]) -> Site | None:
    """The last line that is not of a library: what was called with the wrong thing."""
    own = [each for each in frames if not each["file"].startswith(_LIBRARIES)]
    return line_of(own[-1]["file"], int(own[-1]["line"])) if own else None


def _columns(record: str | None) -> Sequence[str]:
    try:
        found = json.loads(record or "")
    except ValueError:
        return ()
    return tuple(found) if isinstance(found, dict) else ()


def _advice(op: Operator | None, text: str, columns: Sequence[str], *, raised: bool) -> str:
    if text.endswith("cannot be kept"):
        return _KEPT
    missing = re.fullmatch(r"KeyError: '(.*)'", text)
    close = nearest(missing[1], columns) if missing else None
    takes = op is not None and hasattr(op, "on_error")
    leave = f'pass on_error="skip" or "dead_letter" to {op.kind}' if op and takes else None
    if op is not None and op.kind == "read":
        mend = "mend the data"
    elif raised or takes:
        mend = "mend the function"
    else:
        mend = "mend the expression, or leave out the rows that it cannot take by a .filter before"
    return "; ".join(each for each in (close, ", or ".join(filter(None, (mend, leave)))) if each)
