"""The only place that reads the environment."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def environment() -> Mapping[str, str]:
    """A copy of the environment as it is now."""
    return dict(os.environ)


def cache_directory(env: Mapping[str, str] | None = None) -> Path:
    """Where things may be kept that can be made again: `ANABRANCH_CACHE`, else the user's cache.

    Without a usable home a directory of this user's under the system's temporary one.
    """
    env = environment() if env is None else env
    if chosen := env.get("ANABRANCH_CACHE"):
        return Path(chosen)
    home = Path(env.get("XDG_CACHE_HOME") or Path(env.get("HOME", "/nonexistent")) / ".cache")
    parent = home if home.exists() else home.parent
    if parent.exists() and os.access(parent, os.W_OK):
        return home / "anabranch"
    return Path(tempfile.gettempdir()) / f"anabranch-{os.getuid()}"
