"""The classes that Spark loads, kept parsed and checked for the next JVM."""

from __future__ import annotations

import hashlib
import os
import secrets
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anabranch.clock import SystemClock
from anabranch.spark.java import Java

# An archive is 60 MB, and there is one for each environment.
ARCHIVES_KEPT = 3
# Who has not finished one after so long was ended while at it.
DRAFT_S = 3600.0
# A dump takes a second or two; a machine that is starved of CPU may take much longer.
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Archive:
    """How a JVM gets its classes from an archive, or makes one: a start takes half as long.

    `options` are for the JVM, `before` stands before its command. A JVM that finds no archive
    writes one when it ends, beside its place; a shell that waits for it moves it there. So an
    archive appears whole or not at all, also if two are written at once. The JVM itself checks
    that an archive fits its class path and version, and does without if it does not.
    """

    options: tuple[str, ...] = ()
    before: tuple[str, ...] = ()

    # $1 is the draft, $2 its place, the rest the command.
    PUBLISH = (
        'draft=$1 place=$2; shift 2; "$@"; end=$?; '
        '[ -f "$draft" ] && mv "$draft" "$place"; exit $end'
    )

    @classmethod
    def prepare(cls, java: Java, jars: Path, options: Sequence[str], cache: Path) -> Archive:
        """The archive for a Java with these jars and options, or how to make it.

        None of either, and no error, if the cache cannot be written.
        """
        try:
            cache.mkdir(parents=True, exist_ok=True)
            base = cls._base(java, cache)
            place = cache / f"spark-{cls._key(java, jars, options)}.jsa"
            if place.exists():
                files = os.pathsep.join(str(each) for each in (base, place) if each)
                return cls(("-Xlog:disable", f"-XX:SharedArchiveFile={files}"))
            cls._prune(cache)
            if not os.access(cache, os.W_OK | os.X_OK):
                return cls()
        except (OSError, subprocess.SubprocessError):
            return cls()
        draft = cache / f"{place.stem}-{secrets.token_hex(6)}.draft"
        below = (f"-XX:SharedArchiveFile={base}",) if base else ()
        before = ("/bin/sh", "-c", cls.PUBLISH, "sh", str(draft), str(place))
        return cls(("-Xlog:disable", *below, f"-XX:ArchiveClassesAtExit={draft}"), before)

    @staticmethod
    def _base(java: Java, cache: Path) -> Path | None:
        """The archive of Java's own classes: most Javas bring it, the one from pip does not."""
        if (java.home / "lib" / "server" / "classes.jsa").exists():
            return None
        place = cache / f"{java.home.name}-{java.version}.jsa"
        if not place.exists():
            draft = cache / f"{place.stem}-{secrets.token_hex(6)}.draft"
            subprocess.run(
                [java.home / "bin" / "java", "-Xshare:dump", f"-XX:SharedArchiveFile={draft}"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=PATIENCE_S,
                check=True,
            )
            draft.rename(place)
        return place

    @staticmethod
    def _key(java: Java, jars: Path, options: Sequence[str]) -> str:
        parts = (str(java.home), java.version, str(jars), str(jars.stat().st_mtime_ns))
        return hashlib.sha256("\n".join((*parts, *options)).encode()).hexdigest()[:16]

    @staticmethod
    def _prune(cache: Path) -> None:
        """Leave the newest: environments come and go, and each has its own."""
        archives = sorted(cache.glob("spark-*.jsa"), key=_written)
        drafts = [file for file in cache.glob("*.draft") if _written(file) < _given_up()]
        for file in (*archives[: -(ARCHIVES_KEPT - 1)], *drafts):
            file.unlink(missing_ok=True)


def _written(file: Path) -> float:
    return file.stat().st_mtime


def _given_up() -> float:
    return SystemClock().now() - DRAFT_S
