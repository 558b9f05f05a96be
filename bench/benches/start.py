"""How long a start takes: of `import anabranch`, and of a small program to its first result."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl

from anabranch import config
from anabranch.spark.java import find_java
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, bare, compared, paired_differences

NOTES = (
    (
        "'import' is the statement alone, names being resolved on first use; 'first-program' also "
        "touches ab.Program, which loads what a program is written with."
    ),
    (
        "first-result: from the start of a Python process to the line that it prints, which is "
        "what a query over two Parquet files of 1,000 rows gave (filter, counts and sums by key "
        "in windows of 10 s, Parquet files written and read again, local[2]). bare-pyspark is "
        "the same with SparkSession.builder.getOrCreate() and Structured Streaming, availableNow "
        "(bench/peers/first_*.py); in its favour it has 2 shuffle partitions instead of 200 "
        "and no UI, and Java is found for it beforehand. Both print the same."
    ),
    (
        "first-result-ever: the cache directory is empty, so Java is prepared and no archive of "
        "Spark's classes is there; it is written when the process has ended. 'archive': from the "
        "first result until it is there."
    ),
    "All modules are compiled to bytecode by a run before, as at every second start.",
)

POLARS = "import polars"
CASES = {
    "import": f"{POLARS}; import anabranch",
    "first-program": f"{POLARS}; import anabranch; anabranch.Program",
}

# The clock is read inside: starting Python is not what is measured.
_TIMED = "import time; begin = time.perf_counter(); {}; print(time.perf_counter() - begin)"

OURS, BARE = "anabranch", "bare-pyspark"
FIRST, EVER = "first-result", "first-result-ever"
SCRIPTS = {
    OURS: Path(__file__).parents[1] / "peers" / "first_ours.py",
    BARE: Path(__file__).parents[1] / "peers" / "first_bare.py",
}
FILES, ROWS = 2, 1000
LEAST_RUNS = 7
"""Starts differ more from run to run than what is measured within one process."""
RUNS_WITHOUT_CACHE = 3


def measure(stand: Stand) -> list[Row]:
    """Race the imports, then whole programs; one process a run."""
    rows = [row for case, imports in CASES.items() for row in _case(stand, case, imports)]
    with _ground() as ground:
        return [*rows, *_first(stand, ground), *_ever(stand, ground)]


# Imports


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
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=_environment()
        )
        if done.returncode:
            message = f"{imports!r} failed:\n{done.stderr}"
            raise RuntimeError(message)
        return float(done.stdout)

    return run


# First results


def _first(stand: Stand, ground: Ground) -> list[Row]:
    runs = stand.settings.runs if stand.settings.quick else max(stand.settings.runs, LEAST_RUNS)
    stand = replace(stand, settings=replace(stand.settings, runs=runs))
    samples = stand.race(FIRST, {name: ground.timed(stand, name) for name in SCRIPTS})
    return compared(Metric(FIRST, "latency", "s"), samples, [(OURS, BARE)])


def _ever(stand: Stand, ground: Ground) -> list[Row]:
    runs = min(stand.settings.runs, RUNS_WITHOUT_CACHE)
    stand = replace(stand, settings=replace(stand.settings, runs=runs, warmups=0))
    archived = []

    def ours() -> float:
        with tempfile.TemporaryDirectory(prefix="anabranch-cache-") as cache:
            started = ground.start(stand, OURS, {"ANABRANCH_CACHE": cache})
            if not list(Path(cache).glob("spark-*.jsa")):
                message = "no archive was written"
                raise RuntimeError(message)
        archived.append(started.all - started.first)
        return started.first

    samples = stand.race(EVER, {OURS: ours, BARE: ground.timed(stand, BARE)})
    return [
        *compared(Metric(EVER, "latency", "s"), samples, [(OURS, BARE)]),
        bare(Metric(EVER, "archive", "s"), OURS, archived),
    ]


@dataclass(frozen=True, slots=True)
class Started:
    """Seconds from the start of a process to its first line, and until all of it has ended."""

    first: float
    all: float


@dataclass(slots=True)
class Ground:
    """A directory with the input, and where processes write."""

    root: Path
    java: Path
    runs: int = 0

    @property
    def inputs(self) -> Path:
        """Where the input is."""
        return self.root / "in"

    def timed(self, stand: Stand, system: str) -> Callable[[], float]:
        """A contender whose value is the time to its first line."""
        return lambda: self.start(stand, system).first

    def start(
        self, stand: Stand, system: str, environment: Mapping[str, str] | None = None
    ) -> Started:
        """One run of a system, which must print what is right."""
        self.runs += 1
        home = self.root / str(self.runs)
        home.mkdir()
        begin = stand.clock()
        with subprocess.Popen(
            [sys.executable, str(SCRIPTS[system]), str(self.inputs), str(home)],
            env=_environment() | self._found(system) | dict(environment or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            first = stand.clock() - begin
            # The JVM has the other end too: when this is at an end, so are all processes.
            _, said = process.communicate()
        if process.returncode or line.split() != self.expected():
            message = f"{system} gave {line!r}, not {self.expected()}:\n{said}"
            raise RuntimeError(message)
        if system == OURS and said:
            message = f"{system} is to be silent, and said:\n{said}"
            raise RuntimeError(message)
        shutil.rmtree(home)
        return Started(first, stand.clock() - begin)

    def write(self) -> None:
        """Write the input."""
        self.inputs.mkdir()
        for number in range(FILES):
            _rows(number).write_parquet(self.inputs / f"{number}.parquet")

    def expected(self) -> list[str]:
        """What must be printed: of the windows that the watermark has closed."""
        rows = pl.concat(_rows(number) for number in range(FILES))
        start, watermark = (
            pl.col("at").dt.truncate("10s"),
            pl.col("at").max() - pl.duration(seconds=1),
        )
        closed = rows.with_columns(start=start).filter(
            pl.col("start") + pl.duration(seconds=10) <= watermark
        )
        kept = closed.filter(pl.col("value") > 2)
        windows = kept.select("start", "key").unique().height
        return [str(each) for each in (windows, kept.height, kept["value"].sum())]

    def _found(self, system: str) -> dict[str, str]:
        """What we find out ourselves, for the one that does not."""
        found = {"JAVA_HOME": str(self.java), "SPARK_LOCAL_IP": "127.0.0.1"}
        return found if system == BARE else {}


def _environment() -> dict[str, str]:
    """This process's, where modules are compiled once and not in every run."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


@contextmanager
def _ground() -> Iterator[Ground]:
    java = find_java(config.environment(), config.cache_directory())
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-start-") as root:
        ground = Ground(Path(root), java.home)
        ground.write()
        yield ground


def _rows(number: int) -> pl.DataFrame:
    """The rows of a file: ten a second, on from those of the file before."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    at = range(number * ROWS, (number + 1) * ROWS)
    return pl.DataFrame(
        {
            "at": [begin + timedelta(milliseconds=100 * each) for each in at],
            "key": [f"k{each % 7}" for each in at],
            "value": [each % 13 for each in at],
        },
        schema={"at": pl.Datetime("us", "UTC"), "key": pl.String, "value": pl.Int64},
    )
