"""Random programs at widths 1 to 8, their tasks in random order: equal to the oracle on the log.

Programs are chains, as far as the runtime goes. Some of their functions keep something that nobody
may see in parallel: a counter around the function, a list that two functions share. Nothing is
declared about any of them; if one were taken for pure, its numbers would come out in another order.
"""

import random

import pytest

import anabranch as ab
from anabranch.compiler.compile import plan_of
from anabranch.simulate.inline import KIND, UNKIND
from anabranch.testing import assert_same_rows, run_sequential
from tests.kernels.linear import EVENTS, NAN, STATEFUL, STATELESS, read
from tests.runtime.test_inline import run, written

CASES, CHUNK = 2_000, 100


def numbered(shared):
    """Numbers records by a counter that is nobody's state."""
    seen = 0

    def number(record):
        nonlocal seen
        seen += 1
        return {**record, "n": seen}

    return lambda stream: stream.map(number, out=EVENTS)


def counted(shared):
    """Adds to a list that other functions of the program read and write."""

    def count(record):
        shared.append(record["n"] or 0)
        return {**record, "n": len(shared)}

    return lambda stream: stream.map(count, out=EVENTS)


def thinned(shared):
    """Drops every third record of all that it or others have seen."""

    def third(record):
        shared.append(record["n"] or 0)
        return len(shared) % 3 > 0

    return lambda stream: stream.filter(third)


def remembered(shared):
    """A process function that keeps something outside of its state."""

    def remember(record, state):
        state.value = (state.value or 0) + 1
        shared.append(state.value)
        yield {**record, "n": sum(shared) % 1_000}

    return lambda stream: stream.key_by("k").process(remember, out=EVENTS)


UNPROVED = [numbered, counted, thinned]


def records(draw):
    now, found = draw.choice([-7_000, 0, 10_000]), []
    for _ in range(draw.randrange(30)):
        now += draw.choice([0, 1, 700, 1_500])
        words = draw.choice([None, [], ["x"], ["y", None], ["x", "y", "x"]])
        found.append(
            {
                "t": now - draw.choice([0, 0, 1, 900, 4_000]),
                "k": draw.choice(["a", "b", "", "é", None]),
                "f": draw.choice([0.0, -0.0, NAN, None, 1.5, -2.25, 0.1]),
                "n": draw.choice([None, *range(-20, 20)]),
                "words": words,
            }
        )
    return found


class Case:
    """All that a seed decides; the program is made anew whenever it is asked for."""

    def __init__(self, seed):
        draw = random.Random(seed)
        self.seed, self.rows, self.partitions = seed, records(draw), draw.randint(1, 3)
        self.width, self.epoch_rows = draw.randint(1, 8), draw.choice([1, 3, 7, 20])
        self.ordered = draw.random() < 0.8
        unproved = draw.random() < 0.4
        pool = [*STATELESS, *UNPROVED * 3] if unproved else STATELESS
        self.pieces = draw.choices(pool, k=draw.randrange(4))
        stateful = draw.choice([*STATEFUL, None, *([remembered] * 4 if unproved else [])])
        if stateful is not None:
            self.pieces += [stateful, *draw.choices(pool, k=draw.randrange(3))]
        # What a function keeps by itself cannot be undone: with such a one no task runs twice.
        self.unproved = any(piece in (*UNPROVED, remembered) for piece in self.pieces)
        self.mischief = KIND if self.unproved else draw.choice([KIND, UNKIND])

    def program(self, tmp_path):
        made, shared = ab.Program("drawn"), []
        stream = read(made, self.rows, self.partitions)
        for piece in self.pieces:
            bound = piece(shared) if piece in (*UNPROVED, remembered) else piece
            stream = bound(stream)
        stream.write(ab.sinks.Files(tmp_path / "out", format="parquet"), ordered=self.ordered)
        return made

    def __str__(self):
        names = [getattr(piece, "__name__", "?") for piece in self.pieces]
        return f"seed {self.seed}: {names}, width {self.width}, {self.epoch_rows} rows an epoch"


def check(seed, tmp_path):
    case = Case(seed)
    plan = plan_of(case.program(tmp_path).freeze())
    # An unordered sink takes rows as they come, but functions that keep something still take them
    # in order: then all rows are in one lane, and even their order is the sequential one.
    assert bool(plan.unproved) == case.unproved
    run(
        case.program(tmp_path),
        tmp_path / "ckpt",
        seed=seed,
        mischief=case.mischief,
        lanes=case.width,
        rows=case.epoch_rows,
    )
    expected = run_sequential(case.program(tmp_path), log=tmp_path / "ckpt")
    (rows,) = expected.values()
    assert_same_rows(rows, written(tmp_path / "out"), ordered=case.ordered)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, CASES, CHUNK))
def test_a_random_program_gives_what_it_means(first, tmp_path):
    for seed in range(first, first + CHUNK):
        home = tmp_path / str(seed)
        home.mkdir()
        try:
            check(seed, home)
        except Exception as error:
            error.add_note(f"{Case(seed)}; repeat: check({seed}, tmp_path)")
            raise


def test_cases_are_of_all_kinds():
    cases = [Case(seed) for seed in range(CASES)]

    assert set(range(1, 9)) == {case.width for case in cases}
    assert {*STATEFUL, *STATELESS, *UNPROVED, remembered} == {p for c in cases for p in c.pieces}
    assert sum(case.unproved for case in cases) > 400
    assert sum(case.mischief == UNKIND for case in cases) > 400
