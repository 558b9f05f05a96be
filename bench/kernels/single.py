"""A benchmark in a process of its own, in which Polars has one thread.

How many threads Polars has is settled when it is first used, so a process that has imported it is
too late. A benchmark that is measured like this has a function `cases(stand)` that gives its rows.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from dataclasses import asdict

import polars as pl
from rich.console import Console

from anabranch.runtime.memory import keep_freed
from bench.harness.machine import ROOT
from bench.harness.report import Row
from bench.harness.stand import Settings, Stand
from bench.harness.watch import Bar


def measured(module: str, stand: Stand) -> list[Row]:
    """The rows of a module's cases, measured in one thread; what the child says is shown."""
    settings = json.dumps(asdict(stand.settings))
    command = [sys.executable, "-m", "bench.kernels.single", module, settings]
    environment = {**os.environ, "POLARS_MAX_THREADS": "1"}
    child = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
    found = json.loads(child.stdout)
    stand.notes.extend(found["notes"])
    return [Row(**row) for row in found["rows"]]


def main(module: str, settings: str) -> None:
    """Measure, and print rows and notes as JSON."""
    if (threads := pl.thread_pool_size()) != 1:
        message = f"Polars has {threads} threads; set POLARS_MAX_THREADS=1"
        raise RuntimeError(message)
    keep_freed()  # as workers do; whoever is compared is in this process, too
    with Bar(Console(stderr=True)) as bar:
        stand = Stand(Settings(**json.loads(settings)), progress=bar)
        rows = importlib.import_module(module).cases(stand)
    found = {"rows": [asdict(row) for row in rows], "notes": stand.notes}
    print(json.dumps(found, allow_nan=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
