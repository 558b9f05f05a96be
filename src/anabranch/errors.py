"""What can go wrong, told to the person who can mend it.

    AnabranchError
     +-- ProgramError       the program cannot mean anything: raised at the line that is wrong
     +-- RunError           a run failed; the cause is chained
     +-- CheckpointError    a checkpoint cannot be read or belongs to something else

Every message has the same shape: what is wrong, then one line each for where, why, what exists and
what to do, as far as they are known. What may be a secret is not in it.
"""

from __future__ import annotations

import difflib
import linecache
import os
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Self

from anabranch.redaction import scrubbed

_PACKAGE = str(Path(__file__).resolve().parent) + os.sep


@dataclass(frozen=True, slots=True)
class Site:
    """A line of the user's own program."""

    file: str
    line: int
    text: str = ""

    def __post_init__(self) -> None:
        """Leave out what may be a secret: lines are shown in plans and logs."""
        object.__setattr__(self, "text", scrubbed(self.text))

    def __str__(self) -> str:
        """Render as `file:line   text`, the file relative to the working directory if it is in it.

        >>> str(Site("clicks.py", 14, ".filter(x)"))
        'clicks.py:14   .filter(x)'
        """
        return f"{_short(self.file)}:{self.line}   {self.text}".rstrip()


class AnabranchError(Exception):
    """Anything Anabranch refuses or fails at."""

    def __init__(
        self,
        what: str,
        *,
        site: Site | None = None,
        why: str | None = None,
        have: str | None = None,
        so: str | None = None,
    ) -> None:
        """Compose the message; `what` is its first line."""
        self.what, self.site = scrubbed(what), site
        self.why, self.have, self.so = (each and scrubbed(each) for each in (why, have, so))
        super().__init__(_compose(self.what, site, self.why, self.have, self.so))

    @property
    def file(self) -> str | None:
        """The user's file, where one is known."""
        return self.site.file if self.site else None

    @property
    def line(self) -> int | None:
        """The user's line, where one is known."""
        return self.site.line if self.site else None


class ProgramError(AnabranchError):
    """A program that cannot mean anything, refused at the line that is wrong.

    That is the user's line that led here, unless another one is given.
    """

    def __init__(
        self,
        what: str,
        *,
        site: Site | None = None,
        why: str | None = None,
        have: str | None = None,
        so: str | None = None,
    ) -> None:
        """Compose the message, with the line that is wrong."""
        super().__init__(what, site=site or calling_site(), why=why, have=have, so=so)


class RunError(AnabranchError):
    """A run that failed; the cause is chained."""


class CheckpointError(AnabranchError):
    """A checkpoint that cannot be read, or belongs to another program."""

    def of(self, directory: str | os.PathLike[str]) -> Self:
        """The same, said of the checkpoint in this directory."""
        what = f"{os.fspath(directory)}: {self.what}"
        return type(self)(what, site=self.site, why=self.why, have=self.have, so=self.so)


def calling_site() -> Site:
    """The innermost line on the stack that is not Anabranch's own."""
    frame = sys._getframe(1)  # noqa: SLF001 - inspect.stack() reads every file on the way
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return line_of(frame.f_code.co_filename, frame.f_lineno)


def defining_site(code: CodeType) -> Site:
    """The line where a function was written."""
    return line_of(code.co_filename, code.co_firstlineno)


def raising_site(error: BaseException) -> Site | None:
    """The innermost line that an exception came by and that is not Anabranch's own."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if not each.filename.startswith(_PACKAGE)]
    return line_of(own[-1].filename, own[-1].lineno or 0) if own else None


def line_of(file: str, line: int) -> Site:
    """A line of a file, with what is there as far as that can be had."""
    return Site(file, line, linecache.getline(file, line).strip())


def nearest(name: str, existing: Iterable[str]) -> str | None:
    """Say which existing name was probably meant.

    >>> nearest("usr", ["user", "time"])
    "did you mean 'user'?"
    """
    close = difflib.get_close_matches(name, list(existing), n=1)
    return f"did you mean {close[0]!r}?" if close else None


def _compose(
    what: str, site: Site | None, why: str | None, have: str | None, so: str | None
) -> str:
    parts = (("at", str(site) if site else None), ("since", why), ("have", have), ("so", so))
    return "\n".join([what, *(f"  {label:<6}{text}" for label, text in parts if text)])


def _short(file: str) -> str:
    try:
        path = Path(file)
        return str(path.relative_to(Path.cwd())) if path.is_absolute() else file
    except ValueError:
        return file
