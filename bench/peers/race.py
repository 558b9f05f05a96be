"""The Yahoo Streaming Benchmark in several systems, taking turns, each run in a fresh process.

Before the runs that count, each system tries its settings, then sizes of a batch, and keeps the
best of both for itself. Every run's output is compared with what must come out. Systems that are
not installed beside us have an interpreter of their own; those that cannot be had are left out.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from statistics import fmean, median

import polars as pl
from polars.testing import assert_frame_equal

from anabranch import config
from anabranch.spark.java import find_java
from bench.harness.group import run_whole
from bench.harness.machine import ROOT
from bench.harness.report import Row
from bench.harness.stand import Stand
from bench.harness.statistics import Metric, compared
from bench.harness.table import amount
from bench.peers import environment, task, text
from bench.peers.environment import Environment, UnavailableError
from bench.peers.work import CORES, MEMORY, Case, Found, Order, found_from_json
from bench.workloads import ysb
from bench.workloads.ysb_files import FileSet

PATIENCE_S = 600
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
    choices: Mapping[str, tuple[str, ...]]
    """Settings that are tried, and with which values."""
    sized: bool = True
    """Whether sizes of a batch are tried too: it is told how much a batch is."""
    environment: Environment | None = None
    """What it needs installed; None: it is installed beside us."""
    as_text: bool = False
    """Whether it is given text, since it cannot read Parquet."""
    part: float = 1.0
    """The part of the batches that it is given: less where it would take too long."""
    best_part: float = 1.0
    """The same in the case `best`, which is long, so that the fastest is not over at once."""

    def fewer(self, batches: int) -> int:
        """That part of some batches.

        >>> replace(OURS, part=0.2).fewer(16), replace(OURS, part=0.2).fewer(4)
        (3, 1)
        """
        return max(1, round(self.part * batches))


_WIDTHS = ("2", "1")
OURS = System("anabranch", "ours", {"durability": "process", "width": "2"}, 5, {"width": _WIDTHS})
SPARK = System(
    "spark",
    "spark",
    {"store": "hdfs", "width": "2"},
    5,
    {"store": ("hdfs", "rocksdb"), "width": _WIDTHS},
)
FLINK = System(
    "flink",
    "flink",
    {"lookup": "join", "interval": "200 ms"},
    5,
    {"lookup": ("join", "each")},
    sized=False,
    environment=environment.FLINK,
    as_text=True,
    best_part=0.25,
)
BYTEWAX = System(
    "bytewax",
    "bytewax",
    {"width": "2", "epoch_ms": "0", "items": "files"},
    5,
    {"width": _WIDTHS},
    sized=False,
    environment=environment.BYTEWAX,
)
BY_EVENT = replace(
    BYTEWAX,
    name="bytewax-events",
    options={**BYTEWAX.options, "items": "events"},
    part=0.2,
    best_part=0.05,
)
POWER = "anabranch-power"
PEERS = {system.name: system for system in (SPARK, FLINK, BYTEWAX, BY_EVENT)}

NOTES = (
    (
        "Input: YSB events (random, ids of 36 characters, 7 columns) in Parquet files, the "
        "same for all; every file spans 10 s of event time (40 s at 800,000 rows), lateness "
        "10 s, no row is late. Output: files, append. Every run's output was compared "
        "with what plain Polars gives: exactly the windows closed by the system's last "
        "watermark, with their counts. The one still open at the end is in neither."
    ),
    (
        f"All: {CORES} cores, {MEMORY} heap where there is a JVM, a fresh process a run, taking "
        "turns; the first batches of all and of each case are not counted. Throughput: rows of "
        "the counted batches / time from the cut of the first to the commit of the last, all of "
        "them being there at once. `width` is the number of lanes, of shuffle partitions, or of "
        "worker threads. Anabranch's lanes (1, 2) and batch of `best`, and what is said below to "
        "be tried, are those with which a system was fastest in a trial before; with --quick "
        "nothing is tried."
    ),
    (
        "latency_p50: from the cut of a batch to its commit. Anabranch: anabranch.latencyMs of "
        "further batches, each given when the one before it is committed; windows leave with the "
        "batch that closes them."
    ),
)
ABOUT = {
    "spark": (
        (
            "spark: Structured Streaming, to Parquet files. Its latency is "
            "durationMs.triggerExecution of the counted batches, of which only one is under way "
            "at a time; windows that a batch closes leave it with the next one, which is not "
            'counted. It does not fsync, so anabranch (durability="process") is the equal one; '
            "anabranch-power outlives a loss of power."
        ),
        (
            "spark's settings: SQL functions only, broadcast join with a local relation, "
            "maxFilesPerTrigger, availableNow, adaptive execution and UI off, "
            "minBatchesToRetain 10, RocksDB with changelog checkpoints. Tried: shuffle "
            "partitions (1, 2), state store (HDFS-backed, RocksDB), batches of 4, 8, 12 million "
            "rows. Asynchronous progress tracking is not for queries with state, nor for file "
            "sinks."
        ),
    ),
    "flink": (
        (
            f"flink: {environment.FLINK.title}, SQL by PyFlink on a local cluster in one JVM. Its "
            "package has no Parquet format, so the same rows are given as CSV and written as CSV: "
            "only the three columns that the query reads, times as milliseconds, dealt out to two "
            "directories that it watches, each phase one file in each, since its file source "
            "takes files that appear together in no order. Parsing text is in its figures."
        ),
        (
            "flink's settings: exactly-once checkpoints to local files each 200 ms, heap state "
            "(hashmap), two-phase aggregation, object reuse, a watermark each 50 ms, directories "
            "listed each ms. Tried: lookup by `join`, views counted by ad and window, and those "
            "counts joined with the ads (event-time temporal join), or of `each`, every view's ad "
            "looked up by a vectorised Python function, in bundles of 10,000; to join every view "
            "with the ads is far slower. It has no batches: its throughput is from giving the "
            "counted rows until the windows that they close are committed by a checkpoint, its "
            "latency the same for one batch more, alone; so the size of a batch only says how much "
            "is given at once; in `best` it is given a quarter of what others are. It does fsync "
            "its output and its checkpoints' files, so anabranch-power is the equal one."
        ),
    ),
    "bytewax": (
        (
            f"bytewax: {environment.BYTEWAX.title}, reading the Parquet files and filtering, "
            "looking up and counting in each by Arrow (two threads), so that a hundred partial "
            "counts a window and not all events are Python objects; its fold_window adds them up, "
            "by EventClock with event time alone. One partition: its watermarks go by key, so "
            "readers cannot be kept in step. Output: lines of text. The end of the input closes "
            "the last windows, so they are compared too."
        ),
        (
            "bytewax's settings: a recovery store (SQLite), an epoch a file. Tried: worker threads "
            "(1, 2). Its throughput and latency are like flink's: from "
            "giving rows until the windows that they close are in the output and the position "
            "behind them is in the recovery store. It does fsync both, so anabranch-power is the "
            "equal one."
        ),
    ),
    "bytewax-events": (
        (
            f"bytewax-events: {environment.BYTEWAX.title} as its documentation has programs: an "
            "item is an event, filtered, looked up and counted by Python functions, in the same "
            "windows. Arrow reads the files. It is given a fifth of the batches, and a twentieth "
            "in `best`."
        ),
    ),
}


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
    total: int = 240
    """Large files that are given in the case `best`, warm-up and all."""
    single: int = 10
    sizes: tuple[int, ...] = (5, 10, 15)
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
    begin=4,
    batches=(3, 3),
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
        few, many = (
            (warm, system.fewer(counted))  # a warm-up that is too short closes no window
            for warm, counted in (self.scale.batches, self.scale.large_batches)
        )
        single = system.fewer(self.scale.single)
        return (
            Case("batch-200k", self.middle, 1, *few, single),
            Case("batch-800k", self.large, 1, *many, single),
            self.best(system.best, part=system.best_part),
            Case("small-epoch", self.small, 1, *few, single),
        )

    def best(self, a_batch: int, name: str = BEST, part: float = 1.0) -> Case:
        """The case of large batches of so many files."""
        batches = max(2, round(part * (self.scale.total // a_batch)))
        warm = max(1, batches // 4)
        return Case(name, self.large, a_batch, warm, batches - warm, self._best_single)

    def run(self, system: System, cases: Sequence[Case], begins: int = 1) -> dict[str, Found]:
        """Run a system once; its output is checked and removed."""
        self.runs += 1
        work = self.root / f"run-{self.runs}"
        work.mkdir()
        begin = Case("begin", self.small, 1, 3, begins * self.scale.begin - 3)
        order = Order(system.name, system.options, (begin, *cases), work)
        (work / "order").write_text(order.to_json())
        if system.environment is not None:
            ysb.ads().write_csv(work / task.ADS, include_header=False)
        if system.as_text:
            for each in task.read(work / "order"):
                text.write(each)
        _start(system, work)
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
    peers, missing = available([PEERS[name] for name in (stand.settings.peer or "").split(",")])
    with ground(QUICK if stand.settings.quick else FULL) as made:
        ours, *others = (tuned(made, each) if made.scale.tuned else each for each in (OURS, *peers))
        power = replace(ours, name=POWER, options={**ours.options, "durability": "power"})
        systems = (ours, power, *others)
        rounds = _rounds(stand, made, systems)
    about = [note for peer in peers for note in ABOUT[peer.name]]
    stand.notes.extend([*NOTES, *about, *missing, *_notes(made, systems, rounds)])
    names = [case.name for case in made.cases(ours)]
    return [row for name in names for row in _rows(name, rounds, [peer.name for peer in peers])]


def available(systems: Sequence[System]) -> tuple[list[System], list[str]]:
    """The systems that can be had, and a line for each that cannot, which is said as well.

    Raises:
        UnavailableError: None of them can be had.
    """
    had, missing = [], []
    for system in systems:
        try:
            if system.environment is not None and environment.found(system.environment) is None:
                say(f"{system.name}: installing {', '.join(system.environment.packages)}")
            _interpreter(system)
        except UnavailableError as error:
            missing.append(f"{system.name} is left out: {error}")
        else:
            had.append(system)
    if not had:
        raise UnavailableError("; ".join(missing))
    for line in missing:
        say(line)
    return had, missing


def tuned(made: Ground, system: System) -> System:
    """A system with those settings, and then that size of a batch, with which it was fastest."""
    names = list(system.choices)
    choices = [dict(zip(names, each, strict=True)) for each in product(*system.choices.values())]
    trials = [
        Case(f"{at}", made.middle, 1, *made.scale.trial, options=choice)
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
    if not system.sized:
        return system
    sizes = {str(size): replace(made.best(size, str(size)), single=0) for size in made.scale.sizes}
    return replace(system, best=int(_fastest(made.run(system, list(sizes.values())))))


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


def _interpreter(system: System) -> Path:
    if system.environment is None:
        return Path(sys.executable)
    return environment.interpreter(system.environment)


def _surroundings(work: Path) -> Mapping[str, str]:
    """What a process finds in its environment: the JVM, if it starts one, is as ours is."""
    java = find_java(config.environment(), config.cache_directory())
    return {
        **config.environment(),
        "JAVA_HOME": str(java.home),
        "JVM_ARGS": f"-Xmx{MEMORY}",
        "FLINK_LOG_DIR": str(work),
    }


def _start(system: System, work: Path) -> None:
    log = work / "log"
    arguments = [f"bench.peers.{system.module}", str(work / "order"), str(work / "result")]
    code = run_whole(
        [_interpreter(system), "-m", *arguments],
        log=log,
        cwd=ROOT,
        env=None if system.environment is None else _surroundings(work),
        patience_s=PATIENCE_S,
    )
    if code:
        message = f"{system.name} ended with {code}:\n{log.read_text()[-4000:]}"
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


def _rows(case: str, rounds: _Rounds, peers: Sequence[str]) -> list[Row]:
    throughput = {name: [each[case].throughput for each in runs] for name, runs in rounds.items()}
    latency = {
        name: [median(each[case].latencies_ms) for each in runs] for name, runs in rounds.items()
    }
    pairs = [(name, peer) for name in rounds if name not in peers for peer in peers]
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
