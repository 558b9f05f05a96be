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
from bench.peers.work import Case, Found, Order, found_from_json
from bench.workloads.ysb_files import FileSet

PATIENCE_S = 300
OURS = {"durability": "process", "width": "2"}
POWER = {**OURS, "durability": "power"}
SPARK = {"store": "hdfs", "width": "2"}
BEST = "best"


@dataclass(frozen=True, slots=True)
class System:
    """A contender: the module that runs it, and the settings it runs with."""

    name: str
    module: str
    options: Mapping[str, str]
    best: int
    """Files of a batch in the case `best`."""


SYSTEMS = (
    System("anabranch", "ours", OURS, 5),
    System("anabranch-power", "ours", POWER, 5),
    System("spark", "spark", SPARK, 5),
)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much there is to do."""

    small: int = 10_000
    middle: int = 200_000
    large: int = 800_000
    batches: tuple[int, int] = (12, 24)
    """Of the small and middle cases: warm-up, counted."""
    large_batches: tuple[int, int] = (5, 15)
    total: int = 40
    """Large files that are given in the case `best`, warm-up and all."""
    single: int = 10
    sizes: tuple[int, ...] = (3, 5, 10)
    """Large files of a batch that are tried; one alone is a case of its own."""
    tuned: bool = True


FULL = Scale()
QUICK = Scale(batches=(6, 12), large_batches=(3, 5), total=15, single=5, tuned=False)
TINY = Scale(2_000, 4_000, 8_000, (1, 3), (1, 3), 10, 2, (2,), tuned=False)


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
            self.scale.total + max(*self.scale.sizes, 5) * self.scale.single // 2,
        )
        self.small = self._files("small", self.scale.small, 10, few)
        self.middle = self._files("middle", self.scale.middle, 10, few)
        self.large = self._files("large", self.scale.large, 40, many)

    def write(self) -> None:
        """Write all input."""
        for files in (self.small, self.middle, self.large):
            say(f"writing {files.count} files of {files.rows:,} events")
            files.write()

    def cases(self, system: System) -> tuple[Case, ...]:
        """The cases of one run, in the order in which they warm up a process best."""
        single, few, many = self.scale.single, self.scale.batches, self.scale.large_batches
        return (
            Case("small-epoch", self.small, 1, *few, single),
            Case("batch-200k", self.middle, 1, *few, single),
            Case("batch-800k", self.large, 1, *many, single),
            self.best(system.best),
        )

    def best(self, a_batch: int, name: str = BEST) -> Case:
        """The case of large batches of so many files."""
        batches = self.scale.total // a_batch
        warm = max(1, batches // 4)
        return Case(name, self.large, a_batch, warm, batches - warm, max(1, self.scale.single // 2))

    def run(self, system: System, cases: Sequence[Case]) -> dict[str, Found]:
        """Run a system once; its output is checked and removed."""
        self.runs += 1
        work = self.root / f"run-{self.runs}"
        work.mkdir()
        order = Order(system.name, system.options, tuple(cases), work)
        (work / "order").write_text(order.to_json())
        _start(system.module, work)
        found = {each.case: each for each in found_from_json((work / "result").read_text())}
        for case in cases:
            require_equal(case, found[case.name], order.output(case))
        shutil.rmtree(work)
        told = [f"{case} {amount(each.throughput)}/s" for case, each in found.items()]
        say(f"{system.name} {dict(system.options)}: {', '.join(told)}")
        return found

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
        systems = [tuned(made, each) for each in SYSTEMS] if made.scale.tuned else list(SYSTEMS)
        rounds = _rounds(stand, made, systems)
    stand.notes.extend(_notes(made, systems, rounds))
    names = [case.name for case in made.cases(systems[0])]
    return [row for name in names for row in _rows(name, rounds)]


def tuned(made: Ground, system: System) -> System:
    """A system with those settings, and then that size of a batch, with which it was fastest."""
    if system.options == POWER:  # as the one before it, so that durability alone differs
        return system
    stores = ("hdfs", "rocksdb") if "store" in system.options else (None,)
    tried: list[tuple[float, System]] = []
    for store in stores:
        for width in ("2", "1"):
            options = {**system.options, "width": width, **({"store": store} if store else {})}
            one = replace(system, options=options)
            case = replace(made.cases(one)[1], single=0)
            tried.append((made.run(one, [case])[case.name].throughput, one))
    fastest = max(tried, key=lambda each: each[0])[1]
    sizes = {str(size): made.best(size, str(size)) for size in made.scale.sizes}
    found = made.run(fastest, list(sizes.values()))
    size = max(sizes, key=lambda each: found[each].throughput)
    return replace(fastest, best=int(size))


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
    for _ in range(stand.settings.runs):
        for system in systems:
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
