"""Every way in which some workers can take turns, step by step, on the classes that are shipped.

A worker stops before each operation on a shared cell. Who goes on is chosen. All
choices are tried, depth first; where the cells hold what they held before, and every worker has seen
what it had seen, there is nothing new behind that point, and it is left.
"""

from dataclasses import dataclass, field

from greenlet import GreenletExit, getcurrent, greenlet

from anabranch.ordering.atomics import Atomics, Cells, Counter, Fifo, Flag


class _Worker(greenlet):
    """Goes from step to step; switched to, it takes one, and comes back before the next."""

    def __init__(self, work):
        super().__init__(self._work_off)
        self.work, self.seen, self.enabled, self.error = work, (), _always, None
        self.steps = 0

    def _work_off(self):
        try:
            self.work()
        except GreenletExit:
            raise
        except BaseException as error:
            self.error = error

    def pause(self, enabled):
        """In the worker: let others choose who goes on."""
        self.enabled = enabled
        self.parent.switch()

    def step(self):
        """Outside of it: let it go to its next step."""
        self.steps += 1
        self.switch()


def _always():
    return True


def step(act, enabled=_always):
    """One operation; in a worker it is a step, elsewhere it is just done."""
    worker = getcurrent()
    if not isinstance(worker, _Worker):
        return act()
    worker.pause(enabled)
    found = act()
    worker.seen = (worker.seen, repr(found))
    return found


def forget(*known):
    """Say that a worker will do the same whatever it has seen, but for what it still knows."""
    worker = getcurrent()
    if isinstance(worker, _Worker):
        worker.seen, worker.steps = known, 0


class _StepCounter(Counter):
    def load(self):
        return step(super().load)

    def add(self, by):
        return step(lambda: Counter.add(self, by))

    def shown(self):
        return self._value


class _StepFlag(Flag):
    def take(self):
        return step(super().take)

    def clear(self):
        return step(super().clear)

    def shown(self):
        return self._lock.locked()


class _StepCells(Cells):
    def load(self, at):
        return step(lambda: Cells.load(self, at))

    def store(self, at, value):
        return step(lambda: Cells.store(self, at, value))

    def shown(self):
        return repr(self._values)


class _StepFifo(Fifo):
    def put(self, value):
        return step(lambda: Fifo.put(self, value))

    def take(self):
        return step(super().take)

    def shown(self):
        return repr(self._values)


class _StepMutex:
    def __init__(self):
        self._held = False

    def __enter__(self):
        step(self._hold, lambda: not self._held)

    def _hold(self):
        assert not self._held
        self._held = True

    def __exit__(self, *_):
        self._held = False  # others see it at their next step, which is soon enough

    def shown(self):
        return self._held


class Steps(Atomics):
    """Cells in which every operation is a step."""

    def __init__(self):
        self.made = []

    def _kept(self, cell):
        self.made.append(cell)
        return cell

    def counter(self, start=0):
        return self._kept(_StepCounter(start))

    def flag(self):
        return self._kept(_StepFlag())

    def cells(self, size):
        return self._kept(_StepCells(size))

    def fifo(self):
        return self._kept(_StepFifo())

    def mutex(self):
        return self._kept(_StepMutex())


class Notes:
    """What workers did, in order; to write something down is a step."""

    def __init__(self):
        self.written = []

    def __call__(self, *words):
        step(lambda: self.written.append(words))


@dataclass
class Case:
    """Workers, what they write down, and what has to hold when all are done."""

    workers: list
    notes: Notes
    check: object
    cells: Steps = field(default_factory=Steps)
    hidden: object = tuple
    """What is shared besides the cells: a call gives something that shows it."""


def _state(case, workers):
    seen = tuple(None if worker.dead else (worker.seen, worker.steps) for worker in workers)
    cells = tuple(cell.shown() for cell in case.cells.made)
    return seen, cells, tuple(case.notes.written), repr(case.hidden())


def _run(make, choose):
    """One run, as chosen: `choose(state, able)` says who goes on, or None to leave it."""
    case = make()
    workers = [_Worker(work) for work in case.workers]
    path = []
    try:
        while not all(worker.dead for worker in workers):
            able = [n for n, each in enumerate(workers) if not each.dead and each.enabled()]
            assert able, f"nobody can go on, after {path}: {case.notes.written}"
            chosen = choose(_state(case, workers), able)
            if chosen is None:
                return False
            path.append(chosen)
            workers[chosen].step()
            if workers[chosen].error is not None:
                raise AssertionError(f"after {path}") from workers[chosen].error
    finally:
        for worker in workers:
            worker.throw()
    try:
        case.check(case.notes.written)
    except AssertionError as error:
        raise AssertionError(f"{error}; after {path}: {case.notes.written}") from error
    return True


def explore(make):
    """Try all; how many runs went to their end, and how many states there are."""
    known, waiting, ended = set(), [()], 0
    while waiting:
        prefix = waiting.pop()
        path, left = list(prefix), iter(prefix)

        def choose(state, able, path=path, left=left):
            taken = next(left, None)
            if taken is not None:
                return taken
            if state in known:
                return None
            known.add(state)
            waiting.extend((*path, other) for other in able[1:])
            path.append(able[0])
            return able[0]

        ended += _run(make, choose)
    return ended, len(known)


def wander(make, draw):
    """One run; `draw(n)` gives a number below n at each choice."""
    assert _run(make, lambda _, able: able[draw(len(able))])
