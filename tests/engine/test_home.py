"""The state of a partition at home here: what changed is told once, and makes the state anew."""

import random

import polars as pl
import pytest

import anabranch as ab
from anabranch.engine.home import LocalHome
from anabranch.kernels.results import TaskError
from tests.engine.evaluating import epochs_of, lowered, outputs_of, same_frames

ROWS = [
    {"k": chance.choice("abcde"), "n": chance.randrange(9), "t": n * 300}
    for chance in [random.Random(5)]
    for n in range(80)
]
OUT = {"k": pl.String, "n": pl.Int64}


def counted(record, state):
    state.value = (state.value or 0) + record["n"]
    state.list.append(record["n"])
    if record["n"] == 0:
        state.map["zero"] = record["t"]
    yield {"k": record["k"], "n": state.value + len(state.list)}


KEYED = {
    "process": lambda stream: stream.key_by("k").process(counted, out=OUT),
    "reduce": lambda s: s.key_by("k").reduce(lambda v, r: {**r, "n": v["n"] + r["n"]}),
    "deduplicate": lambda s: s.key_by("k", "n").deduplicate(),
    "windows": lambda s: s.window(ab.sliding("3 s", "1 s"), by="k").agg(n=ab.sum("n")),
    "sessions": lambda s: s.window(ab.session("1 s"), by="k").agg(n=ab.sum("n")),
}


@pytest.mark.parametrize("kind", KEYED)
@pytest.mark.parametrize("ask", [1, 3, 100])
def test_what_changed_makes_the_same_state_elsewhere(kind, ask):
    tasks = lowered(KEYED[kind], ROWS)
    home, elsewhere = (LocalHome(tasks.stages[0], tasks.owners) for _ in range(2))
    deltas = {}
    for number, epoch in enumerate(epochs_of(tasks, ROWS, 7)[:-1], 1):
        home.take(epoch[0])
        if number % ask == 0:
            for operator, delta in home.changed().items():
                deltas.setdefault(operator, []).append(delta)
    for operator, delta in home.changed().items():
        deltas.setdefault(operator, []).append(delta)
    elsewhere.restore(deltas)
    last = epochs_of(tasks, ROWS, 7)[-1]

    assert {} == home.changed() == elsewhere.changed()
    assert outputs_of(home.take(last[0])) == outputs_of(elsewhere.take(last[0]))
    same_frames(home.changed(), elsewhere.changed())


def test_an_error_leaves_the_state_as_it_was():
    def careful(record, state):
        state.value = (state.value or 0) + 10 // record["n"]
        yield {"k": record["k"], "n": state.value}

    rows = [{"k": "a", "n": n, "t": 0} for n in (5, 0, 2)]
    tasks = lowered(lambda stream: stream.key_by("k").process(careful, out=OUT), rows)
    home = LocalHome(tasks.stages[0], tasks.owners)
    (first,), (failing,), (last,) = epochs_of(tasks, rows, 1, partitions=(0,))

    home.take(first)
    before = home.whole()
    error = home.take(failing)

    assert isinstance(error, TaskError)
    assert error.text.startswith("ZeroDivisionError")
    same_frames(before, home.whole())
    assert [{"k": "a", "n": 7}] == outputs_of(home.take(last))


def test_what_was_kept_before_an_epoch_that_is_run_again_is_there():
    """A record that fails makes its epoch be run again, on what all epochs before it have kept."""

    def careful(record, state):
        state.value = (state.value or 0) + 10 // record["n"]
        state.map[record["n"]] = state.value
        yield {"k": record["k"], "n": state.value + len(state.map)}

    rows = [
        {"k": k, "n": n, "t": 0} for k, n in zip("abaabbab", (5, 2, 1, 0, 1, 0, 2, 5), strict=True)
    ]
    tasks = lowered(
        lambda stream: stream.key_by("k").process(careful, out=OUT, on_error="skip"), rows
    )
    home, task = LocalHome(tasks.stages[0], tasks.owners), tasks.stages[0]
    state = task.restore({})
    for (epoch,) in epochs_of(tasks, rows, 2):
        expected = task.run([epoch], state, tasks.owners)
        state = expected.state
        assert outputs_of(expected.outputs[0]) == outputs_of(home.take(epoch))
    elsewhere = LocalHome(task, tasks.owners)
    elsewhere.restore({name: [delta] for name, delta in home.changed().items()})
    assert _sorted(state.whole()) == _sorted(home.whole()) == _sorted(elsewhere.whole())


def _sorted(frames):
    return {name: sorted(frame.rows(), key=repr) for name, frame in frames.items()}
