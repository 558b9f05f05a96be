"""`anabranch doctor`: what this machine has, what is wrong with it, and what to do."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anabranch.config import cache_directory, environment
from anabranch.errors import AnabranchError
from anabranch.spark.java import find_java

_PACKAGES = {"polars": "2.", "pyarrow": "26.", "pyspark": "4.3."}
_OLDEST = (3, 11)

EXAMPLES = (
    ("doctor", "look at this machine; 1 if something is missing"),
    ("doctor --fix", "and clear away what dead processes of ours left"),
    ("doctor --spark", "start Spark too, and check all that is relied on"),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    what: str
    good: bool
    text: str
    so: str | None = None


def arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.add_argument(
        "--spark", action="store_true", help="start Spark too, and check all that is relied on"
    )
    command.add_argument(
        "--master", default="local[2]", metavar="URL", help="Spark's master (default: local[2])"
    )
    command.set_defaults(call=doctor)


def doctor(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Look at everything, and say what is missing."""
    findings = list(examine())
    if options.spark and all(each.good for each in findings):
        findings += _conformance(options.master)
    if not options.json:
        for each in findings:
            print(f"{'ok  ' if each.good else 'FAIL'} {each.what:<10} {each.text}")
            if each.so:
                print(f"     {'':<10} {each.so}")
    good = all(each.good for each in findings)
    return 0 if good else 1, {"findings": [asdict(each) for each in findings]}


def examine() -> Iterator[Finding]:
    """Look at Python, the packages, Java and the disk."""
    version = ".".join(map(str, sys.version_info[:3]))
    good = sys.version_info[:2] >= _OLDEST
    yield Finding("python", good, version, None if good else "use Python 3.11 or newer")
    for name, wanted in _PACKAGES.items():
        yield _package(name, wanted)
    yield _checked("java", _java)
    yield _checked("disk", _disk)


def _conformance(master: str) -> list[Finding]:
    """What a Spark upgrade could break without a word, checked on a real one."""
    from anabranch.spark.conformance import run_checks
    from anabranch.spark.session import spark_context

    attached = spark_context(master=master, app_name="anabranch doctor")
    try:
        checks = run_checks(attached.sc)
    finally:
        attached.stop()
    so = "use the PySpark that this version was made for"
    return [Finding(each.name, each.good, each.text, None if each.good else so) for each in checks]


def _package(name: str, wanted: str) -> Finding:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(
            name, good=False, text="not installed", so=f"pip install '{name}=={wanted}*'"
        )
    good = version.startswith(wanted)
    return Finding(name, good, version, None if good else f"pip install '{name}=={wanted}*'")


def _checked(what: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(what, good=True, text=look())
    except AnabranchError as error:
        return Finding(what, good=False, text=f"{error.what}: {error.why}", so=error.so)
    except OSError as error:
        so = "free space, or set ANABRANCH_CACHE and TMPDIR"
        return Finding(what, good=False, text=str(error), so=so)


def _java() -> str:
    java = find_java(environment(), cache_directory())
    refused = f" ({java.refused})" if java.refused else ""
    return f"{java.version} from {java.source}{refused}"


def _disk() -> str:
    """Write where checkpoints of programs without one, and prepared files, will be."""
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    for directory in (cache, Path(tempfile.gettempdir())):
        with tempfile.NamedTemporaryFile(dir=directory) as probe:
            probe.write(b"anabranch")
            probe.flush()
    return f"can write to {cache} and {tempfile.gettempdir()}"
