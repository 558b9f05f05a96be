"""What a system's process is asked to do and what it answers: values that travel as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.peers import task
from bench.workloads.ysb_files import FileSet

CORES = task.CORES
MEMORY = task.MEMORY
"""The heap of each system's JVM."""


@dataclass(frozen=True, slots=True)
class Case:
    """A run of one query: batches to warm up with, then batches that count, all there at once.

    `single` batches follow one at a time, each when the one before it is committed, for systems
    that otherwise have several under way.
    """

    name: str
    files: FileSet
    a_batch: int
    """Files of a batch."""
    warm: int
    """Batches before the first that counts."""
    measured: int
    single: int = 0
    options: Mapping[str, str] = field(default_factory=dict)
    """Settings that differ from the order's."""

    @property
    def rows(self) -> int:
        """Rows of a batch."""
        return self.files.rows * self.a_batch

    @property
    def batches(self) -> int:
        """Batches without those that come one at a time."""
        return self.warm + self.measured


@dataclass(frozen=True, slots=True)
class Order:
    """All that one process is to do."""

    system: str
    options: Mapping[str, str]
    cases: tuple[Case, ...]
    work: Path
    """A directory of its own: outputs are below `out/<case>`."""

    def output(self, case: Case) -> Path:
        """Where a case's results are."""
        return self.work / "out" / case.name

    def option(self, case: Case, name: str) -> str:
        """A setting for a case."""
        return case.options.get(name, self.options[name])

    def to_json(self) -> str:
        """As text."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def from_json(cls, text: str) -> Order:
        """From text."""
        facts = json.loads(text)
        cases = tuple(_case(each) for each in facts["cases"])
        return cls(facts["system"], facts["options"], cases, Path(facts["work"]))


@dataclass(frozen=True, slots=True)
class Found:
    """What one case gave in one process."""

    case: str
    rows: int
    """Rows of the batches that count."""
    seconds: float
    """From the cut of the first of them to the commit of the last."""
    latencies_ms: tuple[float, ...]
    """From cut to commit of batches with none other under way."""
    parts_ms: Mapping[str, float]
    """Where the time of such a batch goes, on the average."""
    files: int
    """How many files were read in all."""
    watermark_us: int
    """Windows that end at or before it are in the output."""

    @property
    def throughput(self) -> float:
        """Events a second."""
        return self.rows / self.seconds


def found_to_json(found: list[Found]) -> str:
    """As text."""
    return json.dumps([asdict(each) for each in found])


def found_from_json(text: str) -> list[Found]:
    """From text."""
    return [
        Found(**{**each, "latencies_ms": tuple(each["latencies_ms"])}) for each in json.loads(text)
    ]


def _case(facts: dict[str, Any]) -> Case:
    files = facts.pop("files")
    return Case(files=FileSet(**{**files, "directory": Path(files["directory"])}), **facts)


def micros_of(text: str) -> int:
    """A time as progress has it, of whole milliseconds, in microseconds.

    >>> micros_of("1970-01-01T00:00:01.500Z")
    1500000
    """
    at = datetime.fromisoformat(text).astimezone(UTC)
    return round(at.timestamp() * 1000) * 1000
