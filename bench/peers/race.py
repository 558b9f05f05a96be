"""The Yahoo Streaming Benchmark in both systems, taking turns, each run in a fresh process.

Before the runs that count, each system tries its settings, then sizes of a batch, and keeps the
best of both for itself. Every run's output is compared with what must come out.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, median

import polars as pl
from polars.testing import assert_frame_equal

from bench.harness.machine import ROOT
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, compared
from bench.harness.table import amount
from bench.peers.work import CORES, MEMORY, Case, Found, Order, found_from_json
from bench.workloads.ysb_files import FileSet

PATIENCE_S = 300
BEST = "best"
TRIAL_BEGINS = 2
"""A trial compares cases of one process, so it has to be at speed: so many times the warm-up."""


@dataclass(frozen=True, slots=True)
class System:
    """A contender: the module that runs it, and the settings it runs with."""

    name: str
    module: str
    options: Mapping[str, str]
    best: int
    """Files of a batch in the case `best`."""


OURS = System("anabranch", "ours", {"durability": "process", "width": "2"}, 5)
SPARK = System("spark", "spark", {"store": "hdfs", "width": "2"}, 5)
POWER = "anabranch-power"

NOTES = (
    (
        "Input: YSB events (random, ids of 36 characters, 7 columns) in Parquet files, the "
        "same for all; every file spans 10 s of event time (40 s at 800,000 rows), lateness "
        "10 s, no row is late. Output: Parquet files, append. Every run's output was compared "
        "with what plain Polars gives: exactly the windows closed by the system's last "
        "watermark, with their counts. The one still open at the end is in neither."
    ),
    (
        f"All: local[{CORES}], {MEMORY} heap, a fresh process and JVM a run, taking turns; the "
        "first batches of all and of each case are not counted. Throughput: rows of the "
        "counted batches / time from the cut of the first to the commit of the last, all of "
        "them being there at once. `width` is the number of lanes, or of shuffle partitions."
    ),
    (
        "latency_p50: from the cut of a batch to its commit. Structured Streaming: "
        "durationMs.triggerExecution of the counted batches, of which only one is under way "
        "at a time; windows that a batch closes leave it with the next one, which is not "
        "counted. Anabranch: anabranch.latencyMs of further batches, each given when the one "
        "before it is committed; windows leave with the batch that closes them."
    ),
    (
        'Structured Streaming does not fsync, so anabranch (durability="process") is the '
        "equal one; anabranch-power outlives a loss of power."
    ),
    (
        "Structured Streaming's settings: SQL functions only, broadcast join with a local "
        "relation, maxFilesPerTrigger, availableNow, adaptive execution and UI off, "
        "minBatchesToRetain 10, RocksDB with changelog checkpoints. Shuffle partitions (1, "
        "2), state store (HDFS-backed, RocksDB) and the batch of `best` (2.4, 4, 8 million "
        "rows) are those with which it was fastest in a trial before; with --quick they are "
        "not tried. Asynchronous progress tracking is not for queries with state, nor for "
        "file sinks. Anabranch's lanes and batch were chosen in the same way."
    ),
)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much there is to do."""

    small: int = 10_000
    middle: int = 200_000
    large: int = 800_000
    begin: int = 20
    """Small batches before the first case of a process: a JVM takes long to come to speed."""
    batches: tuple[int, int] = (4, 16)
    """Of the small and middle cases: warm-up, counted."""
    large_batches: tuple[int, int] = (4, 10)
    total: int = 60
    """Large files that are given in the case `best`, warm-up and all."""
    single: int = 10
    sizes: tuple[int, ...] = (3, 5, 10)
    """Large files of a batch that are tried; one alone is a case of its own."""
    trial: tuple[int, int] = (3, 6)
    """Batches with which settings are tried."""
    tuned: bool = True


FULL = Scale()
QUICK = Scale(
    begin=8,
    batches=(3, 10),
    large_batches=(2, 6),
    total=15,
    single=5,
    sizes=(5,),
    tuned=False,
)
TINY = Scale(
    small=2_000,
    middle=4_000,
    large=8_000,
    begin=2,
    batches=(1, 3),
    large_batches=(1, 3),
    total=10,
    single=2,
    sizes=(5,),
    trial=(1, 3),
    tuned=False,
)


@dataclass(slots=True)
class Ground:
    """A directory with the input, and where processes are sent to work."""

    root: Path
    scale: Scale
    runs: int = 0
    small: FileSet = field(init=False)
    middle: FileSet = field(init=False)
    large: FileSet = field(init=False)

    def __post_init__(self) -> None:
        """Say which files there will be; every one closes at least one window."""
        few = sum(self.scale.batches) + self.scale.single
        many = max(
            sum(self.scale.large_batches) + self.scale.single,
            self.scale.total + max(self.scale.sizes) * self._best_single,
        )
        self.small = self._files(
            "small", self.scale.small, 10, max(few, TRIAL_BEGINS * self.scale.begin)
        )
        self.middle = self._files("middle", self.scale.middle, 10, few)
        self.large = self._files("large", self.scale.large, 40, many)

    def write(self) -> None:
        """Write all input."""
        for files in (self.small, self.middle, self.large):
            say(f"writing {files.count} files of {files.rows:,} events")
            files.write()

    def cases(self, system: System) -> tuple[Case, ...]:
        """The cases of one run, the shortest batches last, when a process is warmest."""
        single, few, many = self.scale.single, self.scale.batches, self.scale.large_batches
        return (
            Case("batch-200k", self.middle, 1, *few, single),
            Case("batch-800k", self.large, 1, *many, single),
            self.best(system.best),
            Case("small-epoch", self.small, 1, *few, single),
        )

    def best(self, a_batch: int, name: str = BEST) -> Case:
        """The case of large batches of so many files."""
        batches = self.scale.total // a_batch
        warm = max(1, batches // 4)
        return Case(name, self.large, a_batch, warm, batches - warm, self._best_single)

    def run(self, system: System, cases: Sequence[Case], begins: int = 1) -> dict[str, Found]:
        """Run a system once; its output is checked and removed."""
        self.runs += 1
        work = self.root / f"run-{self.runs}"
        work.mkdir()
        begin = Case("begin", self.small, 1, 1, begins * self.scale.begin - 1)
        order = Order(system.name, system.options, (begin, *cases), work)
        (work / "order").write_text(order.to_json())
        _start(system.module, work)
        found = {each.case: each for each in found_from_json((work / "result").read_text())}
        del found[begin.name]
        for case in cases:
            require_equal(case, found[case.name], order.output(case))
        shutil.rmtree(work)
        told = [f"{case} {amount(each.throughput)}/s" for case, each in found.items()]
        say(f"{system.name} {dict(system.options)}: {', '.join(told)}")
        return found

    @property
    def _best_single(self) -> int:
        return max(1, self.scale.single // 5)

    def _files(self, name: str, rows: int, seconds: int, count: int) -> FileSet:
        return FileSet(self.root / "input" / name, rows, rows // seconds, count)


@contextmanager
def ground(scale: Scale) -> Iterator[Ground]:
    """Input for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as root:
        made = Ground(Path(root), scale)
        made.write()
        yield made


def measure(stand: Stand) -> list[Row]:
    """All cases of all systems; what was found besides is among the stand's notes."""
    with ground(QUICK if stand.settings.quick else FULL) as made:
        ours, spark = (tuned(made, each) if made.scale.tuned else each for each in (OURS, SPARK))
        power = replace(ours, name=POWER, options={**ours.options, "durability": "power"})
        systems = (ours, power, spark)
        rounds = _rounds(stand, made, systems)
    stand.notes.extend([*NOTES, *_notes(made, systems, rounds)])
    names = [case.name for case in made.cases(ours)]
    return [row for name in names for row in _rows(name, rounds)]


def tuned(made: Ground, system: System) -> System:
    """A system with those settings, and then that size of a batch, with which it was fastest."""
    stores = ("hdfs", "rocksdb") if "store" in system.options else ("",)
    choices = [(store, width) for store in stores for width in ("2", "1")]
    trials = [
        Case(f"{at}", made.middle, 1, *made.scale.trial, options=_options(*choice))
        for at, choice in enumerate([*choices, *reversed(choices)])
    ]
    found = made.run(system, trials, TRIAL_BEGINS)
    # There and back, so that a JVM that is still coming to speed favours none.
    both = {
        one.name: found[one.name].throughput + found[other.name].throughput
        for one, other in zip(trials[: len(choices)], reversed(trials), strict=False)
    }
    chosen = max(trials[: len(choices)], key=lambda trial: both[trial.name]).options
    system = replace(system, options={**system.options, **chosen})
    sizes = {str(size): replace(made.best(size, str(size)), single=0) for size in made.scale.sizes}
    return replace(system, best=int(_fastest(made.run(system, list(sizes.values())))))


def _options(store: str, width: str) -> dict[str, str]:
    return {"width": width} | ({"store": store} if store else {})


def _fastest(found: Mapping[str, Found]) -> str:
    return max(found, key=lambda name: found[name].throughput)


def require_equal(case: Case, found: Found, output: Path) -> None:
    """Every window that is closed by a system's watermark, with its count, and no other."""
    end = pl.lit(found.watermark_us).cast(pl.Datetime("us"))
    expected = case.files.expected(found.files).filter(pl.col("window_end") <= end)
    assert expected.height, f"{case.name}: no window was closed"
    paths = sorted(output.glob("*.parquet"))
    parts = [pl.read_parquet(path).cast(expected.schema) for path in paths]
    given = pl.concat(parts).sort("window_end", "campaign_id")
    assert_frame_equal(expected, given)


def say(text: str) -> None:
    """Tell whoever watches."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def _start(module: str, work: Path) -> None:
    log = work / "log"
    arguments = [f"bench.peers.{module}", str(work / "order"), str(work / "result")]
    with log.open("wb") as file:
        ended = subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            timeout=PATIENCE_S,
            check=False,
        )
    if ended.returncode:
        message = f"{module} ended with {ended.returncode}:\n{log.read_text()[-4000:]}"
        raise RuntimeError(message)


_Rounds = dict[str, list[dict[str, Found]]]


def _rounds(stand: Stand, made: Ground, systems: Sequence[System]) -> _Rounds:
    rounds: _Rounds = {system.name: [] for system in systems}
    stand.progress.begin("ysb", stand.settings.runs * len(systems))
    for number in range(stand.settings.runs):
        for system in systems:
            if system.name == POWER and number % 2:
                continue  # beside the point of the comparison: fewer runs will do
            rounds[system.name].append(made.run(system, made.cases(system)))
            stand.progress.step(system.name)
    return rounds


def _rows(case: str, rounds: _Rounds) -> list[Row]:
    throughput = {name: [each[case].throughput for each in runs] for name, runs in rounds.items()}
    latency = {
        name: [median(each[case].latencies_ms) for each in runs] for name, runs in rounds.items()
    }
    pairs = [(name, "spark") for name in rounds if name != "spark"]
    return [
        *compared(Metric(case, "throughput", "events/s"), throughput, pairs),
        *compared(Metric(case, "latency_p50", "ms"), latency, pairs),
    ]


def _notes(made: Ground, systems: Sequence[System], rounds: _Rounds) -> Iterator[str]:
    for system in systems:
        rows = made.best(system.best).rows
        options = ", ".join(f"{name} {value}" for name, value in system.options.items())
        yield f"{system.name} ran with {options}; best: {rows:,} rows a batch."
    for case in [case.name for case in made.cases(systems[0])]:
        yield f"where the time of a batch goes in {case}, ms:\n{_breakdown(case, rounds)}"
    yield "In parentheses: inside Anabranch's tasks, added up over all tasks of the batch."


def _breakdown(case: str, rounds: _Rounds) -> str:
    lines = []
    for system, runs in rounds.items():
        names = list(dict.fromkeys(name for each in runs for name in each[case].parts_ms))
        parts = (
            f"{name} {amount(fmean(each[case].parts_ms.get(name, 0.0) for each in runs))}"
            for name in names
        )
        lines.append(f"  {system:<16} {', '.join(parts)}")
    return "\n".join(lines)
