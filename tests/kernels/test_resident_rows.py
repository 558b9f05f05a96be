"""Rows windows where they stay: the same windows, and the same state, as those that are values."""

from datetime import date

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.engine.home import LocalHome
from anabranch.kernels.bundle import visible
from anabranch.kernels.windows import resident_rows
from anabranch.kernels.windows.key_places import KeyPlaces
from tests.engine.evaluating import epochs_of, lowered

KEYS = {
    "whole": st.integers(0, 4),
    "text": st.sampled_from(["", "a", "b", "längerer Text"]),
    "missing": st.one_of(st.none(), st.integers(-2, 2)),
}
VALUES = {
    "whole": st.integers(-(2**40), 2**40),
    "large": st.integers(-(2**62), 2**62),
    "small": st.integers(-5, 5),
    "missing": st.one_of(st.none(), st.integers(-9, 9)),
    "float": st.floats(allow_nan=True, allow_infinity=True, width=32),
    "day": st.dates(date(1969, 1, 1), date(2040, 1, 1)),
    "truth": st.booleans(),
}
NUMBERS = ("whole", "large", "small", "missing")
AGGREGATES = {
    "counted": (ab.count, None),
    "known": (lambda: ab.count("v"), None),
    "first": (lambda: ab.first("v"), None),
    "last": (lambda: ab.last("v"), None),
    "least": (lambda: ab.min("v"), None),
    "greatest": (lambda: ab.max("v"), None),
    "sum": (lambda: ab.sum("v"), NUMBERS),
    "mean": (lambda: ab.mean("v"), NUMBERS),
    "computed": (lambda: ab.sum(pl.col("v") % 7 + 1), NUMBERS),
    "collected": (lambda: ab.collect("v"), None),
    "key": (lambda: ab.last("k"), None),
}


def _known(value):
    return value is not None


@st.composite
def cases(draw):
    """Rows, what is asked of windows of them, and how they come."""
    key, value = draw(st.sampled_from([*KEYS])), draw(st.sampled_from([*VALUES]))
    row = st.fixed_dictionaries({"k": KEYS[key], "v": VALUES[value]})
    # The first row tells the types.
    rows = [{"k": draw(KEYS[key].filter(_known)), "v": draw(VALUES[value].filter(_known))}]
    rows = [
        {**each, "t": at * 10} for at, each in enumerate(rows + draw(st.lists(row, max_size=40)))
    ]
    asked = [name for name, (_, fits) in AGGREGATES.items() if fits is None or value in fits]
    names = draw(st.lists(st.sampled_from(asked), min_size=1, max_size=4, unique=True))
    count, step = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    by = draw(st.sampled_from(["k", "k", None])) if "key" not in names else "k"
    return rows, names, count, step, by, draw(st.integers(1, 9)), draw(st.integers(1, 4))


def tasks_of(rows, names, count, step, by):
    wanted = {name: AGGREGATES[name][0]() for name in names}
    by = {} if by is None else {"by": by}
    return lowered(lambda s: s.window(ab.rows(count, step=step), **by).agg(**wanted), rows)


class Values:
    """A home whose states are all values."""

    def __init__(self, tasks):
        self.task, self.owners = tasks.stages[0], tasks.owners
        self.state = self.task.restore({})

    def take(self, given):
        result = self.task.run([given], self.state, self.owners)
        assert result.error is None
        self.state = result.state
        return result.outputs[0]


def frames(output):
    return [visible(frame) for parts in output.parts.values() for frame in parts.values()]


def same(expected, found):
    expected, found = frames(expected), frames(found)
    assert len(expected) == len(found)
    for one, other in zip(expected, found, strict=True):
        assert one.schema == other.schema
        assert one.equals(other, null_equal=True) or str(one) == str(other)


@settings(deadline=None, max_examples=300)
@given(cases())
def test_windows_and_state_are_those_of_the_kernel(case):
    rows, names, count, step, by, size, ask = case
    tasks = tasks_of(rows, names, count, step, by)
    values, home = Values(tasks), LocalHome(tasks.stages[0], tasks.owners)
    deltas, told = {}, 0
    for number, (epoch,) in enumerate(epochs_of(tasks, rows, size), 1):
        same(values.take(epoch), home.take(epoch))
        if number % ask == 0:
            told += 1
            for name, delta in home.changed().items():
                deltas.setdefault(name, []).append(delta)
            elsewhere = LocalHome(tasks.stages[0], tasks.owners)
            elsewhere.restore(deltas)
            assert_same_state(values, elsewhere)
            home = elsewhere if told % 2 else home
        assert_same_state(values, home)
    assert home._residents, "nothing of this is resident"


def assert_same_state(values, home):
    for slices in (None, frozenset({0, 3, 5})):
        expected, found = values.state.whole(slices), home.whole(slices)
        assert [*expected] == [*found]
        for name, frame in expected.items():
            order = ["slice", "hash"]
            assert frame.schema == found[name].schema
            one, other = frame.sort(order).rows(), found[name].sort(order).rows()
            assert repr(one) == repr(other)


def test_keys_of_one_hash_go_on_as_values(monkeypatch):
    """Two keys may have one hash, which arrays of places by hash cannot tell apart."""
    rows = [{"k": key, "v": n, "t": n} for n, key in enumerate("ababcabcab")]
    tasks = tasks_of(rows, ["sum", "last"], 3, 1, "k")
    expected = Values(tasks)
    alone = [expected.take(epoch) for (epoch,) in epochs_of(tasks, rows, 2)]
    hashed = resident_rows.hashed

    def few(frame, columns):
        # From the second epoch on `c` has the hash of `a`, for those who are resident alone.
        found = hashed(frame, columns).copy()
        names = frame["k"].to_numpy()
        found[names == "c"] = hashed(pl.DataFrame({"k": ["a"]}), ["k"])[0]
        return found

    monkeypatch.setattr(resident_rows, "hashed", few)
    home = LocalHome(tasks.stages[0], tasks.owners)
    deltas = {}
    for (epoch,), output in zip(epochs_of(tasks, rows, 2), alone, strict=True):
        same(output, home.take(epoch))
        for name, delta in home.changed().items():
            deltas.setdefault(name, []).append(delta)

    assert not home._residents
    monkeypatch.undo()
    elsewhere = LocalHome(tasks.stages[0], tasks.owners)
    elsewhere.restore(deltas)
    assert_same_state(expected, elsewhere)


def test_an_error_behind_it_leaves_the_state_as_it_was():
    def careful(record):
        return {"n": 10 // record["n"]}

    rows = [{"k": 1, "n": n, "t": 0} for n in (5, 0, 2)]
    tasks = lowered(
        lambda s: s.window(ab.rows(1), by="k").agg(n=ab.sum("n")).map(careful, out={"n": pl.Int64}),
        rows,
    )
    home = LocalHome(tasks.stages[0], tasks.owners)
    (first,), (failing,), (last,) = epochs_of(tasks, rows, 1)

    home.take(first)
    before = home.whole()
    assert home.take(failing).text.startswith("ZeroDivisionError")

    assert {name: frame.rows() for name, frame in before.items()} == {
        name: frame.rows() for name, frame in home.whole().items()
    }
    assert [{"n": 5}] == frames(home.take(last))[0].rows(named=True)


@pytest.mark.parametrize("window", [ab.rows(1000), ab.rows(2)])
def test_what_arrays_cannot_hold_is_left_to_the_kernel(window):
    rows = [{"k": 1, "v": "text", "t": 0}]
    tasks = lowered(lambda s: s.window(window, by="k").agg(v=ab.last("v")), rows)

    assert not LocalHome(tasks.stages[0], tasks.owners)._residents


@given(st.lists(st.lists(st.integers(0, 3000), min_size=1, max_size=500), max_size=8))
@settings(deadline=None, max_examples=50)
def test_a_key_keeps_its_place(batches):
    known, expected = KeyPlaces(), {}
    for batch in batches:
        places, fresh = known.of(np.array(batch, dtype=np.uint64))
        for key, place in zip(batch, places.tolist(), strict=True):
            assert expected.setdefault(key, place) == place
        new = [batch[at] for at in fresh.tolist()]
        assert [expected[key] for key in new] == [*range(len(expected) - len(new), len(expected))]
    assert len(known) == len(expected)
    assert sorted(expected.values()) == [*range(len(expected))]
