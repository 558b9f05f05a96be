"""The same queries with real threads: as far as this machine's cores go, a check on virtual time.

Kernels let go of the interpreter's lock, Python functions do not: a second worker helps with the
first alone. Bundles are of as many rows as operators were measured with.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import anabranch as ab
from anabranch.clock import SystemClock
from anabranch.engine.core import Core
from anabranch.engine.resident import fragments_of
from anabranch.engine.threads import Threads
from bench.continuous import operators
from bench.continuous.virtual import POLICIES
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, compared

NAME = "threads"
WORKERS = {"one worker": 1, "two workers": 2}


def cases(stand: Stand) -> list[Row]:
    """Rows a second of each query and policy, with two workers beside one."""
    rows = operators.QUICK_ROWS if stand.settings.quick else operators.ROWS
    found: list[Row] = []
    for (query, make), policy in product(operators.programs().items(), POLICIES):
        program = make(rows)
        what = f"{query}, {policy}"
        contenders = {
            system: stand.throughput(rows, _run(program, rows, policy, workers))
            for system, workers in WORKERS.items()
        }
        samples = stand.race(f"{NAME} {what}", contenders)
        metric = Metric(NAME, f"throughput, {what}", "rows/s")
        found += compared(metric, samples, [("two workers", "one worker")])
    return found


def _run(program: ab.Program, rows: int, policy: str, workers: int) -> Callable[[], None]:
    cuts = list(operators.cuts(program, rows))

    def run() -> None:
        left: list[int] = []
        works = operators.works_in(program, partitions=max(WORKERS.values()))
        core = Core(works, lambda serial, _: left.append(serial))
        threads = Threads(core, POLICIES[policy], workers, SystemClock(), size=lambda _: 1)
        try:
            for cut in cuts:
                threads.add(fragments_of(cut))
            threads.drain()
        finally:
            threads.close()
        assert list(range(len(cuts))) == left, "a number for a wrong order is no number"

    return run
