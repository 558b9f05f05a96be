"""Which benchmarks there are: the files of `bench/benches`, by name.

Names and descriptions are read from the files without importing them, so one that needs what is not
installed is still listed, and hides no other.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeAlias

from bench.harness.report import Row
from bench.harness.stand import Stand

FOLDER = Path(__file__).parents[1] / "benches"
Measure: TypeAlias = Callable[[Stand], Sequence[Row]]


class UnknownBenchError(LookupError):
    """No benchmark has this name."""

    @classmethod
    def among(cls, name: str, known: Sequence[str]) -> UnknownBenchError:
        """Say what there is instead."""
        return cls(f"no benchmark {name!r}; there are {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class Bench:
    """A benchmark that can be run."""

    name: str
    measure: Measure
    notes: tuple[str, ...]
    peers: tuple[str, ...] = ()
    """Systems that can be measured beside ours."""
    timed: bool = False
    """Whether it takes as long as it is told."""
    choices: tuple[str, ...] = ()
    """Cases that can be asked for alone: a name, or one with a `*` for whatever is there."""

    def has(self, case: str) -> bool:
        """Whether a case can be asked for alone."""
        return any(fnmatchcase(case, choice) for choice in self.choices)


def descriptions(folder: Path = FOLDER) -> dict[str, str]:
    """The first line of each benchmark's docstring, by name, sorted."""
    files = sorted(file for file in folder.glob("*.py") if not file.name.startswith("_"))
    return {file.stem: _first_line(file) for file in files}


def find(name: str) -> Bench:
    """The benchmark of a name; raises UnknownBenchError where there is none."""
    known = descriptions()
    if name not in known:
        raise UnknownBenchError.among(name, list(known))
    module = importlib.import_module(f"bench.benches.{name}")
    notes, peers = (getattr(module, each, ()) for each in ("NOTES", "PEERS"))
    timed, choices = getattr(module, "TIMED", False), getattr(module, "CHOICES", ())
    return Bench(name, module.measure, notes, peers, timed, choices)


def _first_line(file: Path) -> str:
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]
