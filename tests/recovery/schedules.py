"""A seed's schedule: a program, how it is cut, and how each of its lives goes wrong and ends.

Everything is drawn from the seed. A life runs in this process on the unkind executor and ends in a
crash: after some steps, around some write of the driver or of a task, around some publication, in
some job. The last one runs to the end.
"""

import random
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass

import anabranch as ab
from anabranch.connectors.base import Sink
from anabranch.epoch.triggers import available_now
from anabranch.errors import RunError
from anabranch.runtime import assembly, tasks
from anabranch.runtime.assembly import Settings, assemble
from anabranch.runtime.merging import MERGE_ABOVE
from anabranch.simulate.inline import InlineExecutor, Mischief
from anabranch.state.store import LocalStore
from anabranch.testing import MockClock
from tests.runtime.programs import PROGRAMS

WIDTHS = (1, 2, 4)
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

    def __str__(self):
        lines = [
            f"seed {self.seed}: {self.name}, {self.count} rows in {self.partitions} partitions"
        ]
        lines.append(f"ordered={self.ordered} slices={self.slices}")
        lines += [f"  {life}" for life in self.lives]
        lines.append(
            f"repeat: tests.recovery.test_schedules.check({self.seed}, tmp_path, monkeypatch)"
        )
        return "\n".join(lines)

    def program(self, tmp_path, sink=None):
        """The program anew, as a restarted driver makes it."""
        make, rows, schema = PROGRAMS[self.name]
        source = ab.sources.Records(rows(self.count), schema=schema, partitions=self.partitions)
        files = sink or ab.sinks.Files(tmp_path / "out", format="parquet")
        return make(source, files, ordered=self.ordered)


def _life(draw, *, last):
    level = draw.choice((0.0, 0.1, 0.2))
    mischief = Mischief(draw.random() * level, draw.random() * level, draw.random() * level)
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
    """An unkind executor with a bomb in its jobs."""

    bomb: Bomb

    def run(self, heads, lanes, merges=()):
        with self.bomb.around("job"):
            return super().run(heads, lanes, merges)


def _store(bomb, whose):
    class ExplodingStore(LocalStore):
        def create(self, path, data):
            with bomb.around(f"{whose} write"):
                super().create(path, data)

    return ExplodingStore


def run_schedule(schedule, tmp_path, monkeypatch):
    """All lives, one after the other; the last may fail for good by mischief, a kind one may not."""
    lives = (*schedule.lives, Life(2, 7, Mischief()))
    for number, life in enumerate(lives):
        ended = _live(schedule, life, number, tmp_path, monkeypatch)
        if ended and number + 1 >= len(schedule.lives):
            return
    message = "a kind executor came to no end"
    raise AssertionError(message)


def _live(schedule, life, number, tmp_path, monkeypatch):
    """One life; whether it came to the end of its input."""
    bomb = Bomb(life)
    monkeypatch.setattr(assembly, "store_at", _store(bomb, "driver"))
    monkeypatch.setattr(tasks, "store_at", _store(bomb, "task"))
    sink = ExplodingSink(ab.sinks.Files(tmp_path / "out", format="parquet"), bomb)
    graph = schedule.program(tmp_path, sink).freeze()
    settings = Settings(
        available_now(life.rows),
        tmp_path / "ckpt",
        life.lanes,
        schedule.slices,
        keep=None,
        in_flight=life.in_flight,
        # Every other schedule leaves merges to tasks.
        merge_above=MERGE_ABOVE if schedule.seed % 2 else 0,
    )
    executor = ExplodingExecutor(schedule.seed * 10 + number, life.mischief)
    executor.bomb = bomb
    try:
        assembled = assemble(graph, settings, executor, MockClock())
    except Crash:
        return False
    try:
        return _steps(assembled.loop, life)
    except Crash:
        return False
    except RunError as error:
        if "times in a row" not in str(error):
            raise
        return False
    finally:
        assembled.loop._pool.shutdown(wait=True)
        assembled.close()


def _steps(loop, life):
    steps, widths = 0, dict(life.rescale)
    while not loop.over and (life.steps is None or steps < life.steps):
        if steps in widths:
            loop.rescale(widths[steps], lambda: None)
        loop.step()
        steps += 1
        assert steps < 2000, "it goes round without an end"
    return loop.over
