"""A seed's schedule: a program, how it is cut, and how each of its lives goes wrong and ends.

Everything is drawn from the seed. A life runs in this process on the unkind executor and ends in a
crash: after some steps, around some write of the driver or of a task, around some publication, in
some job. The last one runs to the end.

An *elastic* schedule is one in which widths change all the time: several are asked for in a row, in the
first steps of a life, which has yet to recover, and while job after job fails; or the query chooses
its width, and slices change lanes by what they cost. Replicas are made at once or take their time.
"""

import random
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace

import anabranch as ab
from anabranch.connectors.base import Sink
from anabranch.epoch.triggers import available_now
from anabranch.errors import RunError
from anabranch.runtime import assembly, elasticity, tasks
from anabranch.runtime.aside import AtOnce
from anabranch.runtime.assembly import Settings, assemble
from anabranch.runtime.executor import JobFailed
from anabranch.runtime.merging import MERGE_ABOVE
from anabranch.scheduling.autoscaler import Autoscaler, Habits
from anabranch.simulate.inline import InlineExecutor, Mischief
from anabranch.state.store import LocalStore
from anabranch.testing import MockClock
from tests.runtime.programs import LOOPS, PROGRAMS
from tests.runtime.test_rescaling import Slow

WIDTHS = (1, 2, 4)
MORE_WIDTHS = (1, 2, 3, 4, 4)
STORM = Mischief(fail=0.4, kill=0.4, repeat=0.2)
QUICK = Habits(lagging=1, idle=1, rest=1)
MOMENTS = (
    "driver write before",
    "driver write after",
    "task write before",
    "task write after",
    "publish before",
    "publish after",
    "job before",
    "job after",
)


class Crash(BaseException):
    """The end of a life; nothing catches it."""


@dataclass(frozen=True)
class Life:
    """One run of the driver: `moment` and `at` say where it dies, `steps` at the latest."""

    lanes: int
    rows: int
    mischief: Mischief
    moment: str | None = None
    at: int = 0
    steps: int | None = None
    rescale: tuple[tuple[int, int], ...] = ()
    in_flight: int = 16
    storm: frozenset[int] = frozenset()
    """Steps in which hardly a job ends well."""
    slow: bool = False
    """Whether replicas take their time."""
    auto: bool = False
    """Whether the query chooses its width."""
    uneven: bool = False
    """Whether slices are found to cost more or less from time to time."""


@dataclass(frozen=True)
class Schedule:
    """All that a seed decides."""

    seed: int
    name: str
    count: int
    partitions: int
    ordered: bool
    slices: int
    lives: tuple[Life, ...]

    @classmethod
    def of(cls, seed):
        draw = random.Random(seed)
        lives = [_life(draw, last=False) for _ in range(draw.choice((0, 1, 1, 2, 3)))]
        return cls(
            seed,
            draw.choice(list(PROGRAMS)),
            draw.choice((1, 20, 45, 60)),
            draw.choice((1, 1, 2, 3)),
            draw.random() < 0.75,
            draw.choice((4, 8, 16)),
            (*lives, _life(draw, last=True)),
        )

    @classmethod
    def elastic(cls, seed):
        """Widths change in every life, most of them when it suits least."""
        draw = random.Random(f"elastic {seed}")
        lives = [_elastic_life(draw, last=False) for _ in range(draw.choice((0, 1, 1, 2)))]
        return cls(
            seed,
            draw.choice(list(PROGRAMS)),
            draw.choice((30, 45, 60)),
            draw.choice((1, 2, 3)),
            draw.random() < 0.75,
            draw.choice((4, 8, 16)),
            (*lives, _elastic_life(draw, last=True)),
        )

    def __str__(self):
        lines = [
            f"seed {self.seed}: {self.name}, {self.count} rows in {self.partitions} partitions"
        ]
        lines.append(f"ordered={self.ordered} slices={self.slices}")
        lines += [f"  {life}" for life in self.lives]
        kind = "of" if self == Schedule.of(self.seed) else "elastic"
        again = f"Schedule.{kind}({self.seed})"
        lines.append(f"repeat: tests.recovery.test_schedules.check({again}, tmp_path, monkeypatch)")
        return "\n".join(lines)

    def program(self, tmp_path, sink=None):
        """The program anew, as a restarted driver makes it."""
        make, rows, schema = {**PROGRAMS, **LOOPS}[self.name]
        source = ab.sources.Records(rows(self.count), schema=schema, partitions=self.partitions)
        files = sink or ab.sinks.Files(tmp_path / "out", format="parquet")
        return make(source, files, ordered=self.ordered)


def _life(draw, *, last):
    level = draw.choice((0.0, 0.1, 0.2))
    mischief = Mischief(*(draw.random() * level for _ in range(4)))
    rescale = tuple(
        (draw.randrange(1, 20), draw.choice(WIDTHS)) for _ in range(draw.choice((0, 0, 1, 2)))
    )
    moment = None if last or draw.random() < 0.3 else draw.choice(MOMENTS)
    return Life(
        lanes=draw.choice(WIDTHS),
        rows=draw.choice((1, 3, 7, 20)),
        mischief=mischief,
        moment=moment,
        at=draw.randrange(1, 25),
        steps=None if last else draw.randrange(1, 30),
        rescale=rescale,
        in_flight=draw.choice((1, 3, 16, 16, 64)),
    )


def _elastic_life(draw, *, last):
    life, asked, auto = _life(draw, last=last), [], draw.random() < 0.4
    # In the first steps of a life that goes on from a checkpoint nothing has its state yet.
    for begin in (draw.choice((0, 1, 2)), *(draw.randrange(3, 25) for _ in range(2))):
        # One, or several: the next one while the one before is made ready, or before it is begun.
        steps = [begin + draw.choice((0, 1, 1, 2)) * at for at in range(draw.choice((0, 1, 2, 3)))]
        asked += [(step, draw.choice(MORE_WIDTHS)) for step in steps]
    asked = [] if auto and draw.random() < 0.7 else asked
    stormy = [step + draw.randrange(0, 3) for step, _ in asked if draw.random() < 0.6]
    return replace(
        life,
        lanes=draw.choice(MORE_WIDTHS),
        rows=draw.choice((2, 3, 7)),
        in_flight=draw.choice((1, 2, 3, 16)),
        steps=None if last else draw.randrange(5, 40),
        rescale=tuple(sorted(asked)),
        storm=frozenset(stormy),
        slow=draw.random() < 0.5,
        auto=auto,
        uneven=draw.random() < 0.5,
    )


class Bomb:
    """Counts what happens and ends the life at the one it was set to."""

    def __init__(self, life):
        self._moment, self._at, self._seen = life.moment, life.at, Counter()
        self.over = False

    @contextmanager
    def around(self, what):
        # A process that is dead does nothing more, though its threads are still unwinding.
        self._seen[what] += 1
        here = self._seen[what] == self._at
        if self.over or (here and self._moment == f"{what} before"):
            self.over = True
            raise Crash
        yield
        if here and self._moment == f"{what} after":
            self.over = True
            raise Crash


class ExplodingSink(Sink):
    """Another sink, published to in the presence of a bomb; tasks get the other one alone."""

    def __init__(self, inner, bomb):
        self._inner, self._bomb = inner, bomb

    def write(self, batches, epoch, attempt):
        return self._inner.write(batches, epoch, attempt)

    def publish(self, messages, epoch):
        with self._bomb.around("publish"):
            self._inner.publish(messages, epoch)

    def abort(self, messages, epoch):
        self._inner.abort(messages, epoch)

    def sweep(self, keep):
        # A dead process sweeps nothing.
        if not self._bomb.over:
            self._inner.sweep(keep)

    def with_durability(self, durability):
        return ExplodingSink(self._inner.with_durability(durability), self._bomb)


class ExplodingExecutor(InlineExecutor):
    """An unkind executor with a bomb in its jobs, which take their time."""

    def __init__(self, seed, life, bomb, clock):
        super().__init__(seed, life.mischief, slots=4 if life.auto else 2)
        self._bomb, self._clock, self._aside = bomb, clock, Slow if life.slow else AtOnce
        self._calm, self.pace = life.mischief, random.Random(f"pace {seed}")
        self.seen = Counter()

    def weather(self, *, stormy):
        self._mischief = STORM if stormy else self._calm

    def run(self, heads, lanes, merges=()):
        self.seen["replicas"] += any(job.replicas for job in lanes.values())
        with self._bomb.around("job"):
            self._clock.advance(self.pace.uniform(0.1, 2.0))
            try:
                return super().run(heads, lanes, merges)
            except JobFailed:
                replicas = any(job.replicas for job in lanes.values())
                self.seen["failures amid replicas"] += replicas
                raise

    def _process(self, lane):
        if lane not in self._processes:
            self._processes[lane] = tasks.Worker(self._deployment, aside=self._aside)
        return self._processes[lane]


def _store(bomb, whose):
    class ExplodingStore(LocalStore):
        def create(self, path, data):
            with bomb.around(f"{whose} write"):
                super().create(path, data)

    return ExplodingStore


def run_schedule(schedule, tmp_path, monkeypatch):
    """All lives, one after the other; the last may fail for good by mischief, a kind one may not.

    Returns how often things were seen that a schedule is for.
    """
    seen = Counter()
    lives = (*schedule.lives, Life(2, 7, Mischief()))
    for number, life in enumerate(lives):
        ended = _live(schedule, life, number, tmp_path, monkeypatch, seen)
        if ended and number + 1 >= len(schedule.lives):
            return seen
    message = "a kind executor came to no end"
    raise AssertionError(message)


def _live(schedule, life, number, tmp_path, monkeypatch, seen=None):
    """One life; whether it came to the end of its input."""
    bomb, clock = Bomb(life), MockClock()
    executor = ExplodingExecutor(schedule.seed * 10 + number, life, bomb, clock)
    monkeypatch.setattr(assembly, "store_at", _store(bomb, "driver"))
    monkeypatch.setattr(tasks, "store_at", _store(bomb, "task"))
    sink = ExplodingSink(ab.sinks.Files(tmp_path / "out", format="parquet"), bomb)
    graph = schedule.program(tmp_path, sink).freeze()
    settings = Settings(
        available_now(life.rows),
        tmp_path / "ckpt",
        None if life.auto else life.lanes,
        schedule.slices,
        keep=None,
        in_flight=life.in_flight,
        # Every other schedule leaves merges to tasks.
        merge_above=MERGE_ABOVE if schedule.seed % 2 else 0,
    )
    cost = executor.pace.random if life.uneven else lambda: 1.0
    monkeypatch.setattr(elasticity, "LOOK_EVERY", 3)
    monkeypatch.setattr(elasticity, "WORTH_S", 0.0 if life.uneven else float("inf"))
    monkeypatch.setattr(elasticity, "_worked", lambda done: cost())
    try:
        assembled = assemble(graph, settings, executor, clock)
    except Crash:
        return False
    assembled.loop._shape._elastic._policy = Autoscaler(QUICK)
    try:
        return _steps(assembled.loop, life, executor)
    except Crash:
        return False
    except RunError as error:
        if "times in a row" not in str(error):
            raise
        return False
    finally:
        assembled.loop._pool.shutdown(wait=True)
        assembled.close()
        if seen is not None:
            seen += executor.seen


def _steps(loop, life, executor):
    steps, seen = 0, executor.seen
    while not loop.over and (life.steps is None or steps < life.steps):
        owners = loop._deployment.owners
        for width in (width for step, width in life.rescale if step == steps):
            seen["asked amid another"] += loop._shape._rescaling is not None
            seen["asked in recovery"] += steps < 2 and bool(loop._under_way.files())
            loop.rescale(width, lambda: None)
        executor.weather(stormy=steps in life.storm)
        loop.step()
        steps += 1
        now = loop._deployment.owners
        seen["other widths"] += now.lanes != owners.lanes
        seen["other owners"] += now.lanes == owners.lanes and now != owners
        seen["widths of its own"] += now.lanes != owners.lanes and not life.rescale
        assert steps < 2000, "it goes round without an end"
    return loop.over
