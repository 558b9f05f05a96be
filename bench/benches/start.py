"""How much `import anabranch` adds to `import polars`, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from bench.harness.statistics import Metric, bare, compared, paired_differences

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.harness.report import Row
    from bench.harness.stand import Stand

NOTES = (
    (
        "'import' is the statement alone, names being resolved on first use; 'first-program' also "
        "touches ab.Program, which loads what a program is written with."
    ),
)

POLARS = "import polars"
CASES = {
    "import": f"{POLARS}; import anabranch",
    "first-program": f"{POLARS}; import anabranch; anabranch.Program",
}

# The clock is read inside: starting Python is not what is measured.
_TIMED = "import time; begin = time.perf_counter(); {}; print(time.perf_counter() - begin)"


def measure(stand: Stand) -> list[Row]:
    """Race the imports, one process a run."""
    return [row for case, imports in CASES.items() for row in _case(stand, case, imports)]


def _case(stand: Stand, case: str, imports: str) -> list[Row]:
    samples = stand.race(case, {"anabranch": _timed(imports), "polars": _timed(POLARS)})
    added = paired_differences(samples["anabranch"], samples["polars"])
    return [
        *compared(Metric(case, "import_time", "s"), samples, [("anabranch", "polars")]),
        bare(Metric(case, "added", "s"), "anabranch", added),
    ]


def _timed(imports: str) -> Callable[[], float]:
    command = [sys.executable, "-c", _TIMED.format(imports)]

    def run() -> float:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            message = f"{imports!r} failed:\n{done.stderr}"
            raise RuntimeError(message)
        return float(done.stdout)

    return run
