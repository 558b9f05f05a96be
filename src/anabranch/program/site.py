"""Where in the user's own program a call was written."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import CodeType

from anabranch.errors import Site

_PACKAGE = str(Path(__file__).resolve().parent.parent)


def calling_site() -> Site:
    """The innermost line on the stack that is not Anabranch's own.

    Callbacks count as the user's: a lambda called from inside Anabranch is where it was written.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - inspect.stack() reads every file on the way
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return _site(frame.f_code.co_filename, frame.f_lineno)


def defining_site(code: CodeType) -> Site:
    """The line where a function was written."""
    return _site(code.co_filename, code.co_firstlineno)


def _site(file: str, line: int) -> Site:
    return Site(file, line, linecache.getline(file, line).strip())
