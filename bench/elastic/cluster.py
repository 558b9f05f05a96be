"""Cases on several executors, each in a process of its own, which has one Spark.

`python -m bench.elastic.cluster OPTIONS`, as JSON. It tells what it is at, and at last what it
found, as lines of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from bench.elastic.executors import named
from bench.elastic.ground import FULL, QUICK, TINY, ground
from bench.harness.machine import ROOT
from bench.harness.report import Row
from bench.harness.stand import Settings, Stand

SCALES = {"full": FULL, "quick": QUICK, "tiny": TINY}
PATIENCE_S = 3600.0
"""For one case."""


def measured(stand: Stand, case: str, scale: str | None = None) -> list[Row]:
    """Run a case in a process of its own; what it tells is told here."""
    settings = stand.settings
    options = {
        "case": case,
        "scale": scale or ("quick" if settings.quick else "full"),
        "runs": settings.runs,
        "warmups": settings.warmups,
    }
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.elastic.cluster", json.dumps(options)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
            cwd=ROOT,
        )
        with process, _ended(process):
            assert process.stdout is not None
            rows = heard(process.stdout, stand)
        if process.returncode:
            errors.seek(0)
            message = f"{case} ended with {process.returncode}:\n{errors.read()[-3000:]}"
            raise RuntimeError(message)
    return rows


@contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """See that a process ends: by itself if all goes well, but not never."""
    overdue = threading.Timer(PATIENCE_S, process.kill)
    overdue.start()
    try:
        yield
        process.wait()
    finally:
        overdue.cancel()
        process.kill()


def heard(lines: Iterable[str], stand: Stand) -> list[Row]:
    r"""Pass on what a case tells as it comes, and give the rows that it found.

    >>> row = asdict(Row("memory-2", "memory_share", "ratio", "anabranch", 1.0, 1.0, 1.0, 1))
    >>> lines = ["words of Spark's\n", json.dumps({"rows": [row], "notes": ["so it is"]})]
    >>> stand = Stand()
    >>> heard(lines, stand)[0].metric, stand.notes
    ('memory_share', ['so it is'])
    """
    rows: list[Row] = []
    for line in lines:
        match json.loads(line) if line.startswith("{") else None:
            case {"begin": str(case), "steps": int(steps)}:
                stand.progress.begin(case, steps)
            case {"step": str(system)}:
                stand.progress.step(system)
            case {"rows": found, "notes": notes}:
                rows += [Row(**each) for each in found]
                stand.notes.extend(notes)
    return rows


class Telling:
    """Tells how far a case is."""

    def begin(self, case: str, steps: int) -> None:
        """Tell how many runs there will be."""
        tell(begin=case, steps=steps)

    def step(self, system: str) -> None:
        """Tell of one that is over."""
        tell(step=system)


def main(case: str, scale: str, runs: int, warmups: int) -> None:
    """Run a case on executors of its own."""
    found = named(case)
    assert found is not None
    stand = Stand(Settings(runs=runs, warmups=warmups), progress=Telling())
    with ground(SCALES[scale], found.master, found.conf) as here:
        rows = found.measure(stand, here, found)
    tell(rows=[asdict(row) for row in rows], notes=stand.notes)


def tell(**what: Any) -> None:
    """Say a line."""
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
