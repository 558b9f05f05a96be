"""A failure as programs read it: the form is part of the public contract."""

from __future__ import annotations

from typing import Any

from anabranch.errors import AnabranchError


def told(
    kind: str, message: str, file: str | None = None, line: int | None = None
) -> dict[str, Any]:
    """What stands under `error` where `ok` is false."""
    return {"type": kind, "message": message, "file": file, "line": line}


def of(error: AnabranchError) -> dict[str, Any]:
    """An error of ours as such."""
    return told(type(error).__name__, str(error), error.file, error.line)
